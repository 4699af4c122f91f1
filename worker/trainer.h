#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "tessera/v1/work.pb.h"
#include "worker/dense/loss_scale.h"
#include "worker/job_context.h"
#include "worker/window_reader.h"

namespace tessera::worker {

// Runs Train units: for each batch pull, forward, backward, push. While a batch computes, the next
// one is gathered and its keys are prepared, ps with rows on disk are told what it will ask for,
// and rows of tables in async mode are pulled ahead (one batch of staleness). Tables in sync mode
// are pulled when the step before has been applied. Where nothing is in sync and the next batch's
// rows are there, a card is given it before this one is pushed; in async mode the rows of the one
// after it are pulled by then (two batches of staleness). Not thread-safe.
class Trainer {
 public:
  // Borrowed, outliving the trainer. `progress` (ParameterClient::GetProgress) is of whoever had
  // the rank before.
  Trainer(JobContext* context, const PushProgress& progress);

  // Begins where pushes that all ps have end, be that within the unit or behind it. The result is
  // that of the whole unit: its samples are all there are; loss and time, measured on the batches
  // that were trained here, are scaled to all of them, and unknown (NaN, 0) where none were.
  // With `careful` each batch is done before anything of the next one is touched. INVALID_ARGUMENT:
  // with recovery.set_aside_after, also where a gradient is not finite, before any ps has it;
  // DATA_LOSS: more bad records than the job may have, before any of their window is trained.
  absl::StatusOr<v1::UnitResult> Train(const v1::Train& unit);

  // `next`: all ps have acknowledged the rank's pushes below it. `end`: no ps has any of those from
  // it on, and nothing of them has left this worker.
  const PushProgress& progress() const { return progress_; }

  // sync: steps below it have been pushed by this rank, and are applied once every rank has. async:
  // 0.
  uint64_t next_step() const { return context_->sync() ? progress_.next : 0; }

 private:
  class Loop;  // trainer_loop.cc

  // Batches [begin, end) of the window, one after another; the sum of their samples' losses.
  absl::StatusOr<double> TrainBatches(const v1::Train& unit, const Batch& records, uint64_t begin,
                                      uint64_t end);
  // Of the unit's scores so far; NaN: there are none, or they are of one class.
  double UnitAuc() const;
  // Of the whole job, which goes on through its generations.
  uint64_t ScheduleStep(const v1::Train& unit, uint64_t batch) const;
  double LearningRateScale(const v1::Train& unit, uint64_t batch) const;
  // Of the `records` of a window: DATA_LOSS where more of them are bad than the whole job may have.
  absl::Status CheckBadRecords(const DataSource::Records& window, uint64_t records) const;
  // The push of a batch that is set aside.
  absl::Status PushNothing(const v1::Train& unit, uint64_t batch);
  // Rows and dense parameters for `batch` of the tables whose mode is `sync`; null when there are
  // none.
  std::unique_ptr<PendingCall> StartPull(PreparedBatch* batch, bool sync, uint64_t step);
  struct Computed {
    double loss = 0;     // the sum of the samples'
    bool counts = true;  // false: the step is left out, its gradients being beyond float16
  };
  // The dense parameters that were pulled, for the next StartCompute.
  void TakeDense();
  // Whether the next batch may be given to a card while the one before is collected and pushed: in
  // no sync mode, and with its rows here.
  bool MayStart(const PreparedBatch* next, PendingCall* rows) const;
  // Whether the rows of the batch after the next may be asked for, too; `started`: the next has
  // what it was pulled.
  bool MayPullTwo(bool started) const;
  // Of all ranks.
  double StepSamples(const PreparedBatch& batch, const v1::Train& unit) const;
  // Forward and backward; nothing for a batch without samples, which does not count. On a card the
  // first returns once it has been given all of it, and the second waits. An error is the
  // executor's.
  absl::Status StartCompute(const PreparedBatch& batch, const v1::Train& unit, uint64_t step);
  absl::StatusOr<Computed> FinishCompute(const PreparedBatch& batch, const v1::Train& unit,
                                         uint64_t step);
  // What the outputs were before the update, for the unit's result.
  void KeepScores(const Batch& batch);
  // What was computed, into embedding_gradients_ and, unless they are all-reduced, the dense
  // blocks, where a push reads it.
  void CollectGradients(const PreparedBatch& batch);
  absl::Status CheckFinite(uint64_t step, double loss) const;
  // Where the card trains the dense parameters: they go there.
  absl::Status BeginDense();
  // What the card trains, after a step that counts. INVALID_ARGUMENT: gradients that a ps would
  // refuse, and of which table; nothing has been trained.
  absl::Status TrainOnCard(const PreparedBatch& batch, uint64_t step, double learning_rate_scale);
  // Where a card trains its rows: by how much those have changed whose changes the push of this
  // batch brings, which of the last one are all.
  void CollectChanges(const PreparedBatch& batch, bool is_last);
  void Clip(const PreparedBatch& batch);
  double SquaredNorm(const PreparedBatch& batch) const;
  // With a reduction: takes part in the step, with this rank's dense gradients or with nothing.
  absl::Status ReduceDense(uint64_t step, bool has_gradients);
  // Without gradients: of a batch without samples, or that is left out. With changes_.
  std::unique_ptr<PendingCall> StartPush(const PreparedBatch& batch, const v1::Train& unit,
                                         bool has_gradients);
  std::unique_ptr<PendingCall> BeginPush(absl::Span<const TableGradients> writes,
                                         const v1::Train& unit, uint64_t batch);
  // From now on some ps may have the push of that step, or another rank its gradients.
  void SetBegun(uint64_t step) { progress_.end = std::max(progress_.end, step + 1); }
  // The window's records in the order in which they are trained.
  const std::vector<uint32_t>& Order(const v1::Train& unit, const Batch& records);

  JobContext* const context_;
  WindowReader windows_;
  std::vector<KeyPreparer> preparers_;  // one for each thread of the pipeline
  SpareBatches spare_batches_;
  uint64_t order_key_ = 0;
  std::vector<uint32_t> order_;
  PushProgress progress_;
  LossScale loss_scale_;                                 // of a job in float16
  std::vector<std::vector<float>> embedding_gradients_;  // by lookup: [PushedKeys, dim]
  std::vector<TableGradients> changes_;                  // of the batch
  std::vector<std::vector<float>> written_;              // by lookup; those of ChangesOf
  std::vector<float> statistics_sum_;                    // of gradients, with dense_training
  std::vector<float> trained_gradient_;
  std::vector<float> statistics_gradient_;
  // Of the first task of classes 0 and 1, of the unit so far.
  std::vector<float> logits_;
  std::vector<float> labels_;
  std::vector<float> weights_;
  std::vector<uint64_t> groups_;  // of the batch
};

}  // namespace tessera::worker
