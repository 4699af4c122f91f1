#include "worker/trainer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/job/defaults.h"
#include "common/log.h"
#include "common/math/metrics/evaluation_metrics.h"
#include "common/math/metrics/parallel_auc.h"
#include "common/random.h"
#include "common/schedule.h"
#include "common/status_macros.h"
#include "common/window.h"

namespace tessera::worker {

Trainer::Trainer(JobContext* context, const PushProgress& progress)
    : context_(context),
      windows_(context->source),
      preparers_(PrepareThreads(*context), KeyPreparer(context->plan.get(), context->router.get())),
      progress_(progress),
      embedding_gradients_(context->plan->lookups().size()),
      written_(context->plan->lookups().size()),
      trained_gradient_(context->model->trained_floats()),
      statistics_gradient_(context->statistics.size()) {}

absl::StatusOr<v1::UnitResult> Trainer::Train(const v1::Train& unit) {
  const absl::Duration start = SystemClock().Monotonic();
  const uint64_t batches = unit.batch_end() - unit.batch_begin();
  const uint64_t known =
      std::clamp(progress_.next, unit.first_step(), unit.first_step() + batches) -
      unit.first_step();
  uint64_t first_batch = unit.batch_begin() + known;
  if (known > 0) {
    SPDLOG_INFO("all ps have {} of {} steps of this unit: going on at step {}", known, batches,
                unit.first_step() + known);
  }
  // Before anything is read: it may be what nobody survives.
  for (; first_batch < unit.batch_end() && IsSetAside(unit, first_batch); ++first_batch) {
    TESSERA_RETURN_IF_ERROR(PushNothing(unit, first_batch));
  }

  Stopwatch watch;
  v1::UnitResult result;
  const std::vector<v1::RecordRange> ranges(unit.ranges().begin(), unit.ranges().end());
  const uint64_t all_records = CountRecords(ranges);
  uint64_t records = all_records;
  const DataSource::Records* window = windows_.Held(ranges);
  // Whoever trained one of the batches has read them.
  if (static_cast<uint64_t>(unit.set_aside_size()) < batches) {
    TESSERA_ASSIGN_OR_RETURN(window, windows_.Get(ranges));
    watch.AddTo(context_->metrics->read_seconds);
    TESSERA_RETURN_IF_ERROR(CheckBadRecords(*window, all_records));
  }
  if (window != nullptr) records = window->batch.size;
  // However often the unit is tried, it is done once.
  const uint64_t missing = RecordsToTrain(unit, all_records) - RecordsToTrain(unit, records);
  if (unit.epoch() == 0 && missing > 0) {
    result.set_bad_records(missing);
    result.set_bad_record_message(window->first_bad);
  }
  if (!unit.careful()) {
    windows_.ReadAhead({unit.next_ranges().begin(), unit.next_ranges().end()});
  }
  logits_.clear();
  labels_.clear();
  weights_.clear();
  double loss_sum = 0;
  const uint64_t at_once = unit.careful() ? 1 : batches;
  for (uint64_t i = first_batch; i < unit.batch_end(); i += at_once) {
    TESSERA_ASSIGN_OR_RETURN(
        const double loss,
        TrainBatches(unit, window->batch, i, std::min(i + at_once, unit.batch_end())));
    loss_sum += loss;
  }
  // Said now, so that the other ranks need not wait until this one begins its next unit.
  if (context_->sync()) {
    Stopwatch confirming;
    TESSERA_RETURN_IF_ERROR(context_->parameters->GetProgress(progress_.next).status());
    confirming.AddTo(context_->metrics->push_seconds);
  }

  const uint64_t samples = RecordsToTrain(unit, records);
  const uint64_t trained = RecordsOfBatches(unit, first_batch, unit.batch_end(), records);
  result.set_samples(samples);
  if (trained < samples) loss_sum *= static_cast<double>(samples) / static_cast<double>(trained);
  result.set_loss_sum(loss_sum);
  result.set_auc(UnitAuc());
  if (first_batch < unit.batch_end()) {
    const double part =
        static_cast<double>(unit.batch_end() - first_batch) / static_cast<double>(batches);
    result.set_train_seconds(absl::ToDoubleSeconds(SystemClock().Monotonic() - start) / part);
  }
  return result;
}

double Trainer::UnitAuc() const {
  if (weights_.empty()) return math::ParallelAuc(logits_, labels_, context_->pool);
  return math::ComputeMetrics({"auc"}, {.outputs = logits_,
                                        .labels = labels_,
                                        .weights = weights_,
                                        .kind = math::Outputs::kLogits})
      .at("auc");
}

absl::Status Trainer::CheckBadRecords(const DataSource::Records& window, uint64_t records) const {
  const uint64_t allowed = context_->spec().data().max_bad_records();
  const uint64_t bad = records - window.batch.size;
  if (bad <= allowed) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      bad, " bad records among ", records, " that are shuffled together, and data.max_bad_records ",
      "allows ", allowed, "; the first: ", window.first_bad,
      "; mend the data, or raise data.max_bad_records to leave such records out"));
}

absl::Status Trainer::PushNothing(const v1::Train& unit, uint64_t batch) {
  const uint64_t step = StepOf(unit, batch);
  SPDLOG_WARN("the batch of step {} is set aside: it is neither read nor trained", step);
  // A rank must not run ahead of the others.
  if (context_->sync()) {
    TESSERA_RETURN_IF_ERROR(context_->parameters->Pull({}, {.step = step, .begins = 0})->Wait());
  }
  TESSERA_RETURN_IF_ERROR(ReduceDense(step, /*has_gradients=*/false));
  std::vector<TableGradients> writes;
  if (context_->reduction != nullptr) context_->reduction->AddWrites(&writes);
  BeginPush(step);
  TESSERA_RETURN_IF_ERROR(
      context_->parameters->Push(writes, step, LearningRateScale(unit, batch))->Wait());
  progress_.next = step + 1;
  return absl::OkStatus();
}

uint64_t Trainer::ScheduleStep(const v1::Train& unit, uint64_t batch) const {
  return unit.schedule_step() + (batch - unit.batch_begin());
}

double Trainer::LearningRateScale(const v1::Train& unit, uint64_t batch) const {
  return ScheduleValue(context_->spec().train().schedule(), ScheduleStep(unit, batch)) *
         unit.learning_rate_scale();
}

bool Trainer::MayPullTwo(bool started) const {
  // In bounded mode it would begin a step, which the others count.
  if (context_->card == nullptr || context_->sync() ||
      MaxLeadOf(context_->spec().consistency()) > 0) {
    return false;
  }
  // Pulled dense parameters have one place.
  return started || context_->dense_training != nullptr;
}

const std::vector<uint32_t>& Trainer::Order(const v1::Train& unit, uint32_t records) {
  // In async mode a window belongs to no rank: its order must not depend on who got it.
  const uint64_t key = StreamKey(RandomFor::kRecordOrder, context_->spec().seed(), unit.epoch(),
                                 unit.window(), context_->sync() ? context_->assignment.rank() : 0);
  if (key != order_key_ || order_.size() != records) {
    order_ = RandomPermutation(key, records);
    order_key_ = key;
  }
  return order_;
}

absl::StatusOr<double> Trainer::TrainBatches(const v1::Train& unit, const Batch& records,
                                             uint64_t begin, uint64_t end) {
  WorkerMetrics& metrics = *context_->metrics;
  Stopwatch watch;
  const std::vector<uint32_t>& order = Order(unit, records.size);
  TESSERA_RETURN_IF_ERROR(BeginPooling(context_, Pooled::kToTrain));
  TESSERA_RETURN_IF_ERROR(BeginDense());
  const auto fill = [&](size_t thread, PreparedBatch* batch) {
    const uint64_t first = std::min<uint64_t>(batch->index * unit.batch_size(), order.size());
    const uint64_t last = std::min<uint64_t>(first + unit.batch_size(), order.size());
    GatherRows(records, absl::MakeConstSpan(order).subspan(first, last - first), &batch->batch);
    PrepareLookups(*context_, &preparers_[thread], batch);
  };
  const auto place = [&](PreparedBatch* batch) { PlaceLookups(*context_, batch); };
  const auto finish = [&](PreparedBatch* batch) {
    FinishLookups(*context_, batch);
    if (!unit.careful()) {
      batch->ahead = context_->parameters->LookAhead(EmbeddingReads(*context_, batch));
    }
  };
  BatchPipeline pipeline(begin, end, preparers_.size(),
                         {.fill = fill, .place = place, .finish = finish}, &spare_batches_);
  double loss_sum = 0;
  // A call reads and writes the buffers of its batch until it is gone: calls are declared after
  // their batches.
  struct Push {
    std::unique_ptr<PreparedBatch> batch;
    std::unique_ptr<PendingCall> call;
    uint64_t number = 0;
  } push;
  const auto finish_push = [this, &push, &pipeline]() -> absl::Status {
    if (push.call == nullptr) return absl::OkStatus();
    const absl::Status pushed = push.call->Wait();
    push.call.reset();
    pipeline.Recycle(std::move(push.batch));
    if (pushed.ok()) progress_.next = push.number + 1;
    return pushed;
  };
  struct Pulled {
    std::unique_ptr<PreparedBatch> batch;  // null: there is none
    std::unique_ptr<PendingCall> rows;     // of tables in async mode; null: not asked for
    bool asked = false;                    // `rows` are all
    bool taken = false;                    // from the pipeline
  };
  const auto take = [&]() -> Pulled {
    Pulled taken = {.batch = pipeline.Next(), .rows = nullptr, .taken = true};
    watch.AddTo(metrics.read_seconds);
    if (taken.batch == nullptr) return taken;
    // Rows that are still on their way from a disk would be read twice.
    if (taken.batch->ahead != nullptr && !taken.batch->ahead->Done()) return taken;
    if (taken.batch->card.awaits_pushes()) return taken;
    taken.rows = StartPull(taken.batch.get(), /*sync=*/false, StepOf(unit, taken.batch->index));
    taken.asked = true;
    watch.AddTo(metrics.pull_seconds);
    return taken;
  };
  Pulled now = {.batch = pipeline.Next(), .rows = nullptr, .taken = true};
  Pulled next;
  watch.AddTo(metrics.read_seconds);
  bool started = false;  // the batch has been given to the card
  while (now.batch != nullptr) {
    const std::unique_ptr<PreparedBatch>& batch = now.batch;
    const uint64_t step = StepOf(unit, batch->index);
    context_->board->SetDoing(absl::StrCat("training epoch ", unit.epoch() + 1, ", step ", step));
    if (!started) {
      if (batch->card.awaits_pushes()) {
        TESSERA_RETURN_IF_ERROR(finish_push());
        watch.AddTo(metrics.push_seconds);
      }
      if (!now.asked) now.rows = StartPull(batch.get(), /*sync=*/false, step);
      if (now.rows != nullptr) TESSERA_RETURN_IF_ERROR(now.rows->Wait());
      if (context_->sync()) {
        watch.AddTo(metrics.pull_seconds);
        // The pull of a step says that all ps have what was pushed of the one before.
        TESSERA_RETURN_IF_ERROR(finish_push());
        watch.AddTo(metrics.push_seconds);
        TESSERA_RETURN_IF_ERROR(StartPull(batch.get(), /*sync=*/true, step)->Wait());
      }
      TakeDense();
    }
    watch.AddTo(metrics.pull_seconds);
    if (!next.taken) next = take();

    if (!started) TESSERA_RETURN_IF_ERROR(StartCompute(*batch, unit, step));
    if (context_->card != nullptr && next.batch != nullptr && batch->batch.size > 0) {
      // In sync the rows of the next batch come after this one's push.
      context_->card->StageAhead(*next.batch, context_->sync_sparse ? nullptr : next.rows.get());
    }
    TESSERA_ASSIGN_OR_RETURN(const Computed computed, FinishCompute(*batch, unit, step));
    loss_sum += computed.loss;
    if (computed.counts) {
      TESSERA_RETURN_IF_ERROR(TrainOnCard(*batch, step, LearningRateScale(unit, batch->index)));
    }
    // While this batch is collected and pushed, a card works on the next, and the rows of the one
    // after that are on their way.
    started = MayStart(next.batch.get(), next.rows.get());
    Pulled after;
    if (started) {
      TESSERA_RETURN_IF_ERROR(next.rows->Wait());
      TakeDense();
      TESSERA_RETURN_IF_ERROR(StartCompute(*next.batch, unit, step + 1));
    }
    watch.AddTo(metrics.compute_seconds);
    if (MayPullTwo(started)) after = take();

    // The push before reads what the gradients are about to be collected in.
    TESSERA_RETURN_IF_ERROR(finish_push());
    watch.AddTo(metrics.push_seconds);
    if (computed.counts) {
      CollectGradients(*batch);
      TESSERA_RETURN_IF_ERROR(CheckFinite(step, computed.loss));
    }
    CollectChanges(*batch, /*is_last=*/next.batch == nullptr);
    TESSERA_RETURN_IF_ERROR(context_->executor->status());
    watch.AddTo(metrics.compute_seconds);
    TESSERA_RETURN_IF_ERROR(ReduceDense(step, computed.counts));
    watch.AddTo(metrics.reduce_seconds);
    push.call = StartPush(*batch, step, LearningRateScale(unit, batch->index), computed.counts);
    push.number = step;
    watch.AddTo(metrics.push_seconds);
    metrics.steps.Increment();
    metrics.samples.Increment(batch->batch.size);
    now.rows.reset();
    push.batch = std::move(now.batch);
    now = std::move(next);
    next = std::move(after);
  }
  TESSERA_RETURN_IF_ERROR(finish_push());
  watch.AddTo(metrics.push_seconds);
  return loss_sum;
}

}  // namespace tessera::worker
