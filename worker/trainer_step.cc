// Trainer: the parts of a step, from the pull to the push.
#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/failpoint.h"
#include "common/job/defaults.h"
#include "common/job/job_tables.h"
#include "common/job/tasks.h"
#include "common/log.h"
#include "common/math/loss/missing_label.h"
#include "common/status_macros.h"
#include "common/train_unit.h"
#include "common/window.h"
#include "worker/embedding_lookups.h"
#include "worker/embeddings/pooling.h"
#include "worker/sample_groups.h"
#include "worker/trainer.h"

namespace tessera::worker {

std::unique_ptr<PendingCall> Trainer::StartPull(PreparedBatch* batch, bool sync, uint64_t step) {
  std::vector<TableRows> reads;
  if (context_->sync_sparse == sync) {
    if (batch->ahead != nullptr) batch->ahead->Wait().IgnoreError();  // the pull finds errors too
    batch->ahead.reset();
    reads = EmbeddingReads(*context_, batch);
  }
  if (context_->sync_dense == sync && context_->dense_training == nullptr) {
    reads.push_back(context_->trained_blocks->Read());
    reads.push_back(context_->statistics_blocks->Read());
  }
  // In sync mode a pull without tables still waits for its step: no rank may run ahead.
  if (reads.empty() && !(sync && context_->sync())) return nullptr;
  return context_->parameters->Pull(reads,
                                    {.step = sync ? step : 0,
                                     .begins = step + 1,
                                     .may_wait = MaxLeadOf(context_->spec().consistency()) > 0});
}

absl::Status Trainer::BeginDense() {
  if (context_->dense_training == nullptr) return absl::OkStatus();
  const TableRows reads[] = {context_->dense_training->Read(), context_->statistics_blocks->Read()};
  TESSERA_RETURN_IF_ERROR(context_->parameters->Pull(reads, {})->Wait());
  absl::Status begun = context_->statistics_blocks->CopyOut(absl::MakeSpan(context_->statistics));
  statistics_sum_.assign(context_->statistics.size(), 0);
  begun.Update(context_->dense_training->Begin());
  TESSERA_RETURN_IF_ERROR(WithContext(begun, absl::StrCat("job ", context_->assignment.job_id())));
  return context_->executor->status();
}

absl::Status Trainer::TakeDense() {
  return context_->dense_training == nullptr ? context_->TakePulled() : absl::OkStatus();
}

bool Trainer::MayStart(const PreparedBatch* next, PendingCall* rows) const {
  return context_->card != nullptr && !context_->sync() && next != nullptr && rows != nullptr &&
         rows->Done();
}

double Trainer::StepSamples(const PreparedBatch& batch, const v1::Train& unit) const {
  if (!context_->sync()) return batch.batch.size;
  return static_cast<double>(SyncStepSamples(unit.window_records(),
                                             context_->spec().train().batch_size(),
                                             context_->assignment.workers(), batch.index));
}

float Trainer::StatisticsShare(const PreparedBatch& batch, const v1::Train& unit) const {
  if (context_->sync()) return static_cast<float>(batch.batch.size / StepSamples(batch, unit));
  return 1.0f / static_cast<float>(std::max(1u, context_->assignment.workers()));
}

absl::Status Trainer::StartCompute(const PreparedBatch& batch, const v1::Train& unit,
                                   uint64_t step) {
  if (batch.batch.size == 0) {
    if (context_->card != nullptr) context_->card->Skip();
    return absl::OkStatus();
  }
  TESSERA_RETURN_IF_ERROR(FillInputs(context_, batch));
  FindGroups(batch.batch, context_->group_column, &groups_);
  if (context_->model->precision() == Precision::kFloat16) {
    context_->executor->ScaleGradients(loss_scale_.value());
  }
  // In async mode the number of a push depends on the rank that trains the batch; the batch's
  // number in the job does not.
  const uint64_t dropout_step = context_->sync() ? step : ScheduleStep(unit, batch.index);
  context_->executor->StartStep(
      {.trained = context_->trained,
       .statistics = context_->model_statistics(),
       .targets = Targets(batch.batch.labels, static_cast<uint32_t>(batch.batch.label_width()),
                          batch.batch.weights, groups_),
       .loss_scale = static_cast<float>(1 / StepSamples(batch, unit)),
       .dropout_step = dropout_step,
       .rank = context_->assignment.rank(),
       .trained_gradient = absl::MakeSpan(trained_gradient_),
       .statistics_gradient =
           absl::MakeSpan(statistics_gradient_).subspan(0, context_->model->statistics_floats())});
  if (context_->card != nullptr) context_->card->Unpool(batch);
  if (context_->dense_training != nullptr) context_->dense_training->StartCheck();
  return absl::OkStatus();
}

absl::StatusOr<Trainer::Computed> Trainer::FinishCompute(const PreparedBatch& batch,
                                                         const v1::Train& unit, uint64_t step) {
  if (batch.batch.size == 0) return Computed{.loss = 0, .counts = false};
  const Executor::StepResult step_result = context_->executor->FinishStep();
  TESSERA_RETURN_IF_ERROR(context_->executor->status());
  // Subtracted from the average, this moves it towards the parameters that the step began with.
  const float forgets = 1 - context_->spec().model().ema_decay();
  const absl::Span<const float> ema = context_->ema();
  for (size_t i = 0; i < ema.size(); ++i) {
    statistics_gradient_[context_->ema_at + i] = forgets * (ema[i] - context_->trained[i]);
  }
  const float share = StatisticsShare(batch, unit);
  for (float& g : statistics_gradient_) g *= share;
  const bool float16 = context_->model->precision() == Precision::kFloat16;
  if (const float scale = loss_scale_.value(); float16 && !loss_scale_.Update(step_result.finite)) {
    SPDLOG_INFO("step {}: gradients beyond float16 with a loss scale of {}; it is left out", step,
                scale);
    context_->metrics->skipped_steps.Increment();
    left_out_ += batch.batch.size;
    return Computed{.loss = 0, .counts = false};
  }
  KeepScores(batch.batch);
  return Computed{.loss = step_result.loss_sum};
}

void Trainer::KeepScores(const Batch& batch) {
  const std::vector<LossFunction>& losses = context_->model->losses();
  for (size_t task = 0; task < losses.size(); ++task) {
    if (OutputsOf(losses[task].kind) != math::Outputs::kLogits) continue;
    const absl::Span<const float> logits = context_->executor->output(task);
    const size_t width = batch.label_width();
    for (uint32_t i = 0; i < batch.size; ++i) {
      const float label = batch.labels[i * width + losses[task].label];
      if (math::IsMissing(label)) continue;
      logits_.push_back(logits[i]);
      labels_.push_back(label);
      if (!batch.weights.empty()) weights_.push_back(batch.weights[i]);
    }
    return;
  }
}

void Trainer::CollectGradients(const PreparedBatch& batch) {
  const auto lookups = context_->plan->lookups();
  for (size_t l = 0; l < lookups.size(); ++l) {
    embedding_gradients_[l].resize(PushedKeys(batch, lookups[l].key_set).keys.size() *
                                   lookups[l].dim);
    if (context_->card != nullptr) continue;
    UnpoolGradients(
        batch.batch, context_->plan->key_sets()[lookups[l].key_set], lookups[l],
        batch.keys[lookups[l].key_set], batch.rows[l],
        [this](size_t input) { return context_->executor->pooled_gradient(input); },
        absl::MakeSpan(embedding_gradients_[l]));
  }
  if (context_->card != nullptr) {
    context_->card->CopyGradients(batch, absl::MakeSpan(embedding_gradients_));
  }
  Clip(batch);
  if (context_->reduction != nullptr || context_->dense_training != nullptr) return;
  context_->trained_blocks->CopyIn(trained_gradient_);
  context_->statistics_blocks->CopyIn(statistics_gradient_);
}

absl::Status Trainer::TrainOnCard(const PreparedBatch& batch, uint64_t step,
                                  double learning_rate_scale) {
  if (!context_->card_trains()) return absl::OkStatus();
  const auto beyond = [step](absl::string_view what, float most) {
    return absl::InvalidArgumentError(absl::StrCat(
        "step ", step, ": the gradient of ", what, " has a number that is not finite, or above ",
        most, "; nothing was trained with it; if the training diverges, lower the learning rate, ",
        "or set the optimizer's clip_value or clip_norm"));
  };
  if (const std::optional<size_t> l = context_->card->LookupBeyond(batch); l.has_value()) {
    const uint32_t table = context_->plan->lookups()[*l].table;
    return beyond(absl::StrCat("table ", TablesOf(context_->spec())[table].spec().name()),
                  context_->card_optimizers[*l].largest_gradient());
  }
  DenseTraining* const dense = context_->dense_training.get();
  if (dense != nullptr && dense->Beyond()) {
    return beyond("the dense parameters", dense->largest_gradient());
  }
  context_->card->Train(batch, learning_rate_scale);
  if (dense == nullptr) return absl::OkStatus();
  dense->Train(learning_rate_scale);
  for (size_t i = 0; i < statistics_sum_.size(); ++i) {
    context_->statistics[i] -= statistics_gradient_[i];
    statistics_sum_[i] += statistics_gradient_[i];
  }
  return absl::OkStatus();
}

void Trainer::CollectChanges(const PreparedBatch& batch, bool is_last) {
  changes_.clear();
  if (!context_->card_trains()) return;
  const auto lookups = context_->plan->lookups();
  const auto add = [&](size_t l, const RoutedKeys& keys, const float* values) {
    changes_.push_back({.table = lookups[l].table,
                        .dim = context_->card_optimizers[l].floats(),
                        .keys = &keys,
                        .gradients = values,
                        .changes = true});
  };
  for (size_t l = 0; l < lookups.size(); ++l) {
    const CardPooling::Changes changes = context_->card->ChangesOf(l, batch);
    if (changes.keys == nullptr) continue;
    // Copied, because the batch after the next puts its changes in the same buffer.
    const size_t floats = changes.keys->keys.size() * context_->card_optimizers[l].floats();
    written_[l].assign(changes.values, changes.values + floats);
    add(l, *changes.keys, written_[l].data());
  }
  if (!is_last) return;
  const std::vector<CardPooling::Changes> rest = context_->card->TakeChanges();
  for (size_t l = 0; l < lookups.size(); ++l) {
    if (rest[l].keys != nullptr) add(l, *rest[l].keys, rest[l].values);
  }
  if (context_->dense_training == nullptr) return;
  changes_.push_back(context_->dense_training->TakeChanges());
  // The statistics' optimizer subtracts gradients, so one sum stands for all of the unit.
  context_->statistics_blocks->CopyIn(statistics_sum_);
  changes_.push_back(context_->statistics_blocks->Write());
}

void Trainer::Clip(const PreparedBatch& batch) {
  const v1::ClipSpec& clip = context_->spec().train().clip();
  const auto for_each = [this](auto&& visit) {
    for (float& g : trained_gradient_) visit(g);
    for (std::vector<float>& gradients : embedding_gradients_) {
      for (float& g : gradients) visit(g);
    }
  };
  if (clip.value() > 0) {
    for_each([v = clip.value()](float& g) { g = std::clamp(g, -v, v); });
  }
  if (clip.norm() > 0) {
    if (const double norm = std::sqrt(SquaredNorm(batch)); norm > clip.norm()) {
      for_each([s = static_cast<float>(clip.norm() / norm)](float& g) { g *= s; });
    }
  }
}

double Trainer::SquaredNorm(const PreparedBatch& batch) const {
  double sum = 0;
  for (const float g : trained_gradient_) sum += static_cast<double>(g) * g;
  // Rows lie in the order of the ps that own them, but are added in the order in which the batch
  // names them: so the sum has the same bits with any number of ps.
  const auto lookups = context_->plan->lookups();
  for (size_t l = 0; l < lookups.size(); ++l) {
    const BatchKeys& keys = batch.keys[lookups[l].key_set];
    std::vector<bool> added(keys.routed.keys.size());
    for (const uint32_t row : keys.row) {
      if (added[row]) continue;
      added[row] = true;
      const float* const gradient = embedding_gradients_[l].data() + size_t{row} * lookups[l].dim;
      for (uint32_t d = 0; d < lookups[l].dim; ++d) {
        sum += static_cast<double>(gradient[d]) * gradient[d];
      }
    }
  }
  return sum;
}

absl::Status Trainer::CheckFinite(uint64_t step, double loss) const {
  // Without set_aside_after the ps refuse such gradients, and the job fails.
  if (context_->spec().recovery().set_aside_after() == 0) return absl::OkStatus();
  const auto check = [&](absl::Span<const float> gradient, size_t table) {
    const float most = largest_gradients_[table];
    size_t beyond = 0;
    for (const float g : gradient) beyond += !(std::abs(g) <= most);  // as NaN is
    if (beyond == 0) return absl::OkStatus();
    const v1::PsTable of = TablesOf(context_->spec())[table];
    return absl::InvalidArgumentError(
        absl::StrCat("step ", step, ": the gradient of ",
                     of.dense() ? "the dense parameters" : absl::StrCat("table ", of.spec().name()),
                     " has a number that is not finite, or above ", most, "; the loss is ", loss));
  };
  const auto lookups = context_->plan->lookups();
  for (size_t l = 0; l < lookups.size(); ++l) {
    TESSERA_RETURN_IF_ERROR(check(embedding_gradients_[l], lookups[l].table));
  }
  TESSERA_RETURN_IF_ERROR(check(trained_gradient_, largest_gradients_.size() - 2));
  return check(statistics_gradient_, largest_gradients_.size() - 1);
}

absl::Status Trainer::ReduceDense(uint64_t step, bool has_gradients) {
  if (context_->reduction == nullptr) return absl::OkStatus();
  if (!has_gradients) return context_->reduction->Reduce(step, {}, {});
  PassFailpoint("worker.ring.sum");
  SetBegun(step);
  TESSERA_RETURN_IF_ERROR(
      context_->reduction->Reduce(step, trained_gradient_, statistics_gradient_));
  PassFailpoint("worker.ring.summed");
  return absl::OkStatus();
}

std::unique_ptr<PendingCall> Trainer::StartPush(const PreparedBatch& batch, const v1::Train& unit,
                                                bool has_gradients) {
  std::vector<TableGradients> writes;
  if (has_gradients) {
    const auto lookups = context_->plan->lookups();
    for (size_t l = 0; l < lookups.size(); ++l) {
      const EmbeddingPlan::Lookup& lookup = lookups[l];
      writes.push_back({.table = lookup.table,
                        .dim = lookup.dim,
                        .keys = &PushedKeys(batch, lookup.key_set),
                        .gradients = embedding_gradients_[l].data(),
                        .bfloat16 = lookup.wire_bfloat16});
    }
  }
  writes.insert(writes.end(), changes_.begin(), changes_.end());
  if (context_->reduction != nullptr) {
    context_->reduction->AddWrites(&writes);
  } else if (has_gradients && context_->dense_training == nullptr) {
    writes.push_back(context_->trained_blocks->Write());
    writes.push_back(context_->statistics_blocks->Write());
  }
  return BeginPush(writes, unit, batch.index);
}

std::unique_ptr<PendingCall> Trainer::BeginPush(absl::Span<const TableGradients> writes,
                                                const v1::Train& unit, uint64_t batch) {
  const uint64_t step = StepOf(unit, batch);
  SetBegun(step);
  // When a unit begins, the ps have acknowledged the rank's pushes of all steps before it, made by
  // this worker or an earlier one.
  return context_->parameters->Push(writes,
                                    {.sequence = step,
                                     .confirmed = std::max(progress_.next, unit.first_step()),
                                     .learning_rate_scale = LearningRateScale(unit, batch)});
}

}  // namespace tessera::worker
