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

// Runs Train units: for each batch pull, forward, backward, push. While a batch is computed:
// - the next batch is gathered and its keys are prepared
// - ps with rows on disk are told what the next batch will ask for
// - its rows in tables in async mode are pulled (one batch of staleness)
// Rows in tables in sync mode are pulled once the step before has been applied. If nothing is in
// sync mode and the next batch's rows are there, a card gets that batch before this one is pushed;
// in async mode the rows of the batch after it are pulled by then (two batches of staleness). Not
// thread-safe.
class Trainer {
 public:
  // `context` is borrowed and outlives the trainer. `progress` (ParameterClient::GetProgress): how
  // far an earlier worker of the rank has come.
  Trainer(JobContext* context, const PushProgress& progress);

  // Begins after the last push that all ps have, which may be within the unit or beyond it. The
  // result is for the whole unit: `samples` counts all; loss and time are measured on the batches
  // trained here and scaled to all, or unknown (NaN, 0) if none was; a step that is left out has no
  // part in the loss and the AUC. With `careful` each batch is done before the next one is touched.
  // INVALID_ARGUMENT: with recovery.set_aside_after also a gradient that the ps would refuse; none
  // of them has it then. DATA_LOSS: more bad records than the job may have; nothing of their window
  // has been trained.
  absl::StatusOr<v1::UnitResult> Train(const v1::Train& unit);

  // `next`: all ps have acknowledged the rank's pushes below this number. `end`: no ps has the push
  // of this number or a later one, and nothing of them has left this worker.
  const PushProgress& progress() const { return progress_; }

  // sync: this rank has pushed all steps below, and each is applied once every rank has pushed it.
  // async: 0.
  uint64_t next_step() const { return context_->sync() ? progress_.next : 0; }

 private:
  class Loop;  // trainer_loop.cc

  // Trains batches [begin, end) of the window. Returns the sum of their samples' losses.
  absl::StatusOr<double> TrainBatches(const v1::Train& unit, const Batch& records, uint64_t begin,
                                      uint64_t end);
  // The AUC of the unit's scores so far; NaN: there are none, or all have the same label.
  double UnitAuc() const;
  // The batch's number in the whole job, counted on through its generations.
  uint64_t ScheduleStep(const v1::Train& unit, uint64_t batch) const;
  double LearningRateScale(const v1::Train& unit, uint64_t batch) const;
  // DATA_LOSS: of the window's `records`, more are bad than the whole job may have.
  absl::Status CheckBadRecords(const DataSource::Records& window, uint64_t records) const;
  // Takes part in the step of a batch that is set aside, without gradients.
  absl::Status PushNothing(const v1::Train& unit, uint64_t batch);
  // Pulls what `batch` needs of rows and dense parameters in tables whose mode is `sync`; null: it
  // needs nothing.
  std::unique_ptr<PendingCall> StartPull(PreparedBatch* batch, bool sync, uint64_t step);
  struct Computed {
    double loss = 0;     // the sum of the samples' losses; 0 unless it counts
    bool counts = true;  // false: no samples, or gradients beyond float16: the step is left out
  };
  // Takes over the dense parameters that were pulled, for the next StartCompute. Errors as
  // JobContext::TakePulled.
  absl::Status TakeDense();
  // Whether a card may be given the next batch while this one is collected and pushed: only if
  // nothing is in sync mode and the next batch's rows are here.
  bool MayStart(const PreparedBatch* next, PendingCall* rows) const;
  // Whether the rows of the batch after the next may be pulled already. `started`: the next batch
  // has taken over what was pulled for it.
  bool MayPullTwo(bool started) const;
  // The samples of all ranks in the step.
  double StepSamples(const PreparedBatch& batch, const v1::Train& unit) const;
  // The weight of the batch in what its push does to running statistics and averages: its share of
  // the step's samples. Where there are no common steps, what ps have has moved on by about a push
  // of each worker since it was pulled; were each to move it as far as a step does, together they
  // would go beyond what they measured, further each time.
  float StatisticsShare(const PreparedBatch& batch, const v1::Train& unit) const;
  // Forward and backward; nothing for a batch without samples, whose step does not count. With a
  // card, StartCompute returns once the card has been given all work, and FinishCompute waits for
  // it. Errors are the executor's.
  absl::Status StartCompute(const PreparedBatch& batch, const v1::Train& unit, uint64_t step);
  absl::StatusOr<Computed> FinishCompute(const PreparedBatch& batch, const v1::Train& unit,
                                         uint64_t step);
  // Keeps the outputs, which were computed before the update, for the unit's result.
  void KeepScores(const Batch& batch);
  // Puts gradients where a push reads them: into embedding_gradients_ and into the dense blocks,
  // unless dense gradients are all-reduced or trained on the card.
  void CollectGradients(const PreparedBatch& batch);
  // Whether the ps take what CollectGradients has collected.
  absl::Status CheckFinite(uint64_t step, double loss) const;
  // If the card trains the dense parameters: pulls them and puts them on the card. Errors also as
  // JobContext::TakePulled.
  absl::Status BeginDense();
  // Trains what the card trains, after a step that counts. INVALID_ARGUMENT, with the table: a ps
  // would refuse these gradients; nothing has been trained.
  absl::Status TrainOnCard(const PreparedBatch& batch, uint64_t step, double learning_rate_scale);
  // Fills changes_ with what this batch's push tells the ps about rows trained on the card; with
  // the last batch, all of them.
  void CollectChanges(const PreparedBatch& batch, bool is_last);
  void Clip(const PreparedBatch& batch);
  double SquaredNorm(const PreparedBatch& batch) const;
  // If there is a reduction: takes part in the step, with this rank's dense gradients or without.
  absl::Status ReduceDense(uint64_t step, bool has_gradients);
  // Pushes changes_ and the batch's gradients. A batch without samples, or one that is left out,
  // has no gradients.
  std::unique_ptr<PendingCall> StartPush(const PreparedBatch& batch, const v1::Train& unit,
                                         bool has_gradients);
  std::unique_ptr<PendingCall> BeginPush(absl::Span<const TableGradients> writes,
                                         const v1::Train& unit, uint64_t batch);
  // Records that from now on some ps may have the push of the step, or another rank its gradients.
  void SetBegun(uint64_t step) { progress_.end = std::max(progress_.end, step + 1); }
  // The window's records in the order in which they are trained.
  const std::vector<uint32_t>& Order(const v1::Train& unit, const Batch& records);

  JobContext* const context_;
  WindowReader windows_;
  std::vector<KeyPreparer> preparers_;  // one per thread of the pipeline
  SpareBatches spare_batches_;
  uint64_t order_key_ = 0;
  std::vector<uint32_t> order_;
  PushProgress progress_;
  LossScale loss_scale_;                                 // for a job in float16
  std::vector<std::vector<float>> embedding_gradients_;  // by lookup: [PushedKeys, dim]
  std::vector<TableGradients> changes_;                  // what the batch's push tells of them
  std::vector<std::vector<float>> written_;              // by lookup: a copy of ChangesOf
  std::vector<float> statistics_sum_;                    // gradients of the unit; dense_training
  std::vector<float> largest_gradients_;  // by table: the largest element that the ps take
  std::vector<float> trained_gradient_;
  std::vector<float> statistics_gradient_;
  // Scores of the unit so far, of the first task whose labels are 0 and 1; samples with a label.
  std::vector<float> logits_;
  std::vector<float> labels_;
  std::vector<float> weights_;
  uint64_t left_out_ = 0;         // samples of the unit's steps that were left out
  std::vector<uint64_t> groups_;  // of the batch
};

}  // namespace tessera::worker
