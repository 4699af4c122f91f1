// Trainer: walks the batches of a unit, and runs parts of the next batches ahead.
#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "common/train_unit.h"
#include "worker/embedding_lookups.h"
#include "worker/trainer.h"

namespace tessera::worker {

// The loop over the batches of one unit, or over one batch of a `careful` unit. While a batch is
// computed, the next one is made ready and the push of the one before is under way.
class Trainer::Loop {
 public:
  Loop(Trainer* trainer, const v1::Train& unit, const Batch& records, uint64_t begin, uint64_t end);

  // Returns the sum of the samples' losses.
  absl::StatusOr<double> Run();

 private:
  // A call reads and writes the buffers of its batch until it is destroyed. So calls are declared
  // after their batches.
  struct Pulled {
    std::unique_ptr<PreparedBatch> batch;  // null: there is none
    std::unique_ptr<PendingCall> rows;     // pull of tables in async mode; null: none under way
    bool asked = false;                    // `rows` has been started, if it needs anything
    bool taken = false;                    // `batch` has been taken from the pipeline
  };
  struct Push {
    std::unique_ptr<PreparedBatch> batch;
    std::unique_ptr<PendingCall> call;
    uint64_t number = 0;
  };

  // The pipeline's steps, called in its threads.
  void Fill(size_t thread, PreparedBatch* batch);
  void Finish(PreparedBatch* batch);

  // Takes the next batch from the pipeline, and starts the pull of its rows if that is allowed now.
  Pulled Take();
  // Returns when the dense parameters and the rows of now_ are here.
  absl::Status AwaitRows(uint64_t step);
  // Forward and backward of now_. A card is given next_ too, if MayStart.
  absl::StatusOr<Computed> Compute(uint64_t step);
  absl::Status StartPush(uint64_t step, const Computed& computed);
  absl::Status FinishPush();

  Trainer& trainer_;
  JobContext& context_;
  const v1::Train& unit_;
  const Batch& records_;
  const std::vector<uint32_t>& order_;  // the order of the records
  WorkerMetrics& metrics_;
  Stopwatch watch_;
  BatchPipeline pipeline_;
  Push push_;
  Pulled now_, next_;
  bool started_ = false;  // now_ has been given to the card
};

Trainer::Loop::Loop(Trainer* trainer, const v1::Train& unit, const Batch& records, uint64_t begin,
                    uint64_t end)
    : trainer_(*trainer),
      context_(*trainer->context_),
      unit_(unit),
      records_(records),
      order_(trainer->Order(unit, records)),
      metrics_(*context_.metrics),
      pipeline_(begin, end, trainer->preparers_.size(),
                {.fill = [this](size_t thread, PreparedBatch* batch) { Fill(thread, batch); },
                 .place = [this](PreparedBatch* batch) { PlaceLookups(context_, batch); },
                 .finish = [this](PreparedBatch* batch) { Finish(batch); }},
                &trainer->spare_batches_) {}

void Trainer::Loop::Fill(size_t thread, PreparedBatch* batch) {
  const uint64_t first = std::min<uint64_t>(batch->index * unit_.batch_size(), order_.size());
  const uint64_t last = std::min<uint64_t>(first + unit_.batch_size(), order_.size());
  GatherRows(records_, absl::MakeConstSpan(order_).subspan(first, last - first), &batch->batch);
  PrepareLookups(context_, &trainer_.preparers_[thread], batch);
}

void Trainer::Loop::Finish(PreparedBatch* batch) {
  FinishLookups(context_, batch);
  if (unit_.careful()) return;
  batch->ahead = context_.parameters->LookAhead(EmbeddingReads(context_, batch));
}

absl::StatusOr<double> Trainer::Loop::Run() {
  double loss_sum = 0;
  now_ = {.batch = pipeline_.Next(), .rows = nullptr, .taken = true};
  watch_.AddTo(metrics_.read_seconds);
  while (now_.batch != nullptr) {
    const uint64_t step = StepOf(unit_, now_.batch->index);
    context_.board->SetDoing(absl::StrCat("training epoch ", unit_.epoch() + 1, ", step ", step));
    if (!started_) TESSERA_RETURN_IF_ERROR(AwaitRows(step));
    if (!next_.taken) next_ = Take();
    TESSERA_ASSIGN_OR_RETURN(const Computed computed, Compute(step));
    loss_sum += computed.loss;
    Pulled after;
    if (trainer_.MayPullTwo(started_)) after = Take();
    // The push of the batch before still reads the buffers that StartPush fills with gradients.
    TESSERA_RETURN_IF_ERROR(FinishPush());
    TESSERA_RETURN_IF_ERROR(StartPush(step, computed));
    now_ = std::move(next_);
    next_ = std::move(after);
  }
  TESSERA_RETURN_IF_ERROR(FinishPush());
  return loss_sum;
}

Trainer::Loop::Pulled Trainer::Loop::Take() {
  Pulled taken = {.batch = pipeline_.Next(), .rows = nullptr, .taken = true};
  watch_.AddTo(metrics_.read_seconds);
  if (taken.batch == nullptr) return taken;
  // While the ps still read rows from disk for the look-ahead, a pull would read them again.
  if (taken.batch->ahead != nullptr && !taken.batch->ahead->Done()) return taken;
  if (taken.batch->card.awaits_pushes()) return taken;
  const uint64_t step = StepOf(unit_, taken.batch->index);
  taken.rows = trainer_.StartPull(taken.batch.get(), /*sync=*/false, step);
  taken.asked = true;
  watch_.AddTo(metrics_.pull_seconds);
  return taken;
}

absl::Status Trainer::Loop::AwaitRows(uint64_t step) {
  // A wait that ends with an error took time, too.
  const absl::Cleanup book = [this] { watch_.AddTo(metrics_.pull_seconds); };
  PreparedBatch* const batch = now_.batch.get();
  if (batch->card.awaits_pushes()) TESSERA_RETURN_IF_ERROR(FinishPush());
  if (!now_.asked) now_.rows = trainer_.StartPull(batch, /*sync=*/false, step);
  if (now_.rows != nullptr) TESSERA_RETURN_IF_ERROR(now_.rows->Wait());
  if (context_.sync()) {
    watch_.AddTo(metrics_.pull_seconds);
    // The pull of a step tells the ps that all of them have the push of the step before.
    TESSERA_RETURN_IF_ERROR(FinishPush());
    TESSERA_RETURN_IF_ERROR(trainer_.StartPull(batch, /*sync=*/true, step)->Wait());
  }
  return trainer_.TakeDense();
}

absl::StatusOr<Trainer::Computed> Trainer::Loop::Compute(uint64_t step) {
  const PreparedBatch& batch = *now_.batch;
  if (!started_) TESSERA_RETURN_IF_ERROR(trainer_.StartCompute(batch, unit_, step));
  const bool stages = next_.batch != nullptr && next_.batch->batch.size > 0;
  if (context_.card != nullptr && stages && batch.batch.size > 0) {
    // In sync mode the next batch's rows are pulled after this batch's push.
    context_.card->StageAhead(*next_.batch, context_.sync_sparse ? nullptr : next_.rows.get());
  }
  TESSERA_ASSIGN_OR_RETURN(const Computed computed, trainer_.FinishCompute(batch, unit_, step));
  if (computed.counts) {
    TESSERA_RETURN_IF_ERROR(
        trainer_.TrainOnCard(batch, step, trainer_.LearningRateScale(unit_, batch.index)));
  }
  // A card works on the next batch while this one is collected and pushed, and while the rows of
  // the batch after that are on their way.
  started_ = trainer_.MayStart(next_.batch.get(), next_.rows.get());
  if (started_) {
    TESSERA_RETURN_IF_ERROR(next_.rows->Wait());
    TESSERA_RETURN_IF_ERROR(trainer_.TakeDense());
    TESSERA_RETURN_IF_ERROR(trainer_.StartCompute(*next_.batch, unit_, step + 1));
  }
  watch_.AddTo(metrics_.compute_seconds);
  return computed;
}

absl::Status Trainer::Loop::StartPush(uint64_t step, const Computed& computed) {
  const PreparedBatch& batch = *now_.batch;
  if (computed.counts) {
    trainer_.CollectGradients(batch);
    TESSERA_RETURN_IF_ERROR(trainer_.CheckFinite(step, computed.loss));
  }
  trainer_.CollectChanges(batch, /*is_last=*/next_.batch == nullptr);
  TESSERA_RETURN_IF_ERROR(context_.executor->status());
  watch_.AddTo(metrics_.compute_seconds);
  const absl::Status reduced = trainer_.ReduceDense(step, computed.counts);
  watch_.AddTo(metrics_.reduce_seconds);
  TESSERA_RETURN_IF_ERROR(reduced);
  push_.call = trainer_.StartPush(batch, unit_, computed.counts);
  push_.number = step;
  watch_.AddTo(metrics_.push_seconds);
  metrics_.steps.Increment();
  metrics_.samples.Increment(batch.batch.size);
  now_.rows.reset();
  push_.batch = std::move(now_.batch);
  return absl::OkStatus();
}

absl::Status Trainer::Loop::FinishPush() {
  if (push_.call == nullptr) return absl::OkStatus();
  const absl::Status pushed = push_.call->Wait();
  push_.call.reset();
  pipeline_.Recycle(std::move(push_.batch));
  watch_.AddTo(metrics_.push_seconds);
  if (pushed.ok()) trainer_.progress_.next = push_.number + 1;
  return pushed;
}

absl::StatusOr<double> Trainer::TrainBatches(const v1::Train& unit, const Batch& records,
                                             uint64_t begin, uint64_t end) {
  TESSERA_RETURN_IF_ERROR(BeginPooling(context_, Pooled::kToTrain));
  TESSERA_RETURN_IF_ERROR(BeginDense());
  return Loop(this, unit, records, begin, end).Run();
}

}  // namespace tessera::worker
