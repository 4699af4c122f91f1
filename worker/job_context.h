#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tessera/v1/cluster.pb.h"
#include "worker/assignment/cancellation.h"
#include "worker/assignment/status_board.h"
#include "worker/assignment/worker_metrics.h"
#include "worker/batch_pipeline.h"
#include "worker/card/card_optimizer.h"
#include "worker/card/card_pooling.h"
#include "worker/card/card_seat.h"
#include "worker/card/dense_training.h"
#include "worker/data/data_source.h"
#include "worker/data/stoppable_file_system.h"
#include "worker/dense/executor.h"
#include "worker/dense/model.h"
#include "worker/embeddings/embedding_plan.h"
#include "worker/embeddings/key_preparer.h"
#include "worker/parameters/dense_blocks.h"
#include "worker/parameters/parameter_client.h"
#include "worker/ring/dense_reduction.h"

namespace tessera::worker {

// The data source of the last assignment. A worker keeps it for the next assignment, so that a job
// that restarts does not index, unpack and parse its files again. Used by one thread.
struct KeptSource {
  std::string key;  // what `source` was opened for: job, v1::DataSpec and forms of labels
  StoppableFileSystem* files = nullptr;
  std::unique_ptr<DataSource> source;
};

// Everything that one assignment needs, built once; what runs units (Trainer, Scorer) borrows it.
// Used by one thread, except where a member says otherwise.
struct JobContext {
  v1::Assignment assignment;
  bool sync_sparse = true;
  bool sync_dense = true;
  bool sync() const { return sync_sparse || sync_dense; }
  const v1::JobSpec& spec() const { return assignment.spec(); }

  DataSource* source = nullptr;         // thread-safe; in KeptSource
  std::unique_ptr<Model> model;         // immutable
  std::unique_ptr<EmbeddingPlan> plan;  // immutable
  std::unique_ptr<KeyRouter> router;    // immutable
  std::unique_ptr<ParameterClient> parameters;
  std::unique_ptr<CardSeat> card_seat;  // null: no card, a named card, or the only one
  std::unique_ptr<Executor> executor;
  // By lookup, if a card trains the rows that it keeps; else empty.
  std::vector<CardOptimizer> card_optimizers;
  bool card_trains() const { return !card_optimizers.empty(); }
  std::unique_ptr<CardPooling> card;              // null: rows are pooled on the CPU
  std::unique_ptr<DenseTraining> dense_training;  // null: dense parameters are trained by the ps
  // Columns of Batch::sparse whose ids say which samples are compared, by losses of ranking and by
  // metrics; -1: none.
  int32_t group_column = -1;
  int32_t evaluation_group_column = -1;
  std::unique_ptr<DenseBlocks> trained_blocks;
  std::unique_ptr<DenseBlocks> statistics_blocks;
  // Null: every rank pushes its own dense gradients, whole.
  std::unique_ptr<DenseReduction> reduction;
  // The dense parameters of the last pull, flat.
  std::vector<float> trained;
  // The model's statistics. From ema_at on: the average of `trained` that model.ema_decay keeps,
  // which is updated as running statistics are.
  std::vector<float> statistics;
  size_t ema_at = 0;  // where a block begins
  bool averages() const { return spec().model().ema_decay() > 0; }
  absl::Span<const float> model_statistics() const {
    return {statistics.data(), model->statistics_floats()};
  }
  absl::Span<const float> ema() const {
    return absl::MakeConstSpan(statistics).subspan(std::min(ema_at, statistics.size()));
  }
  // The dense parameters for evaluation and prediction.
  absl::Span<const float> served() const {
    return averages() ? ema() : absl::MakeConstSpan(trained);
  }
  // Takes over what `trained_blocks` and `statistics_blocks` have pulled. FAILED_PRECONDITION, with
  // the job: it was trained with another model.
  absl::Status TakePulled();
  TaskPool* pool = nullptr;              // for the executor; may be null
  StatusBoard* board = nullptr;          // thread-safe
  WorkerMetrics* metrics = nullptr;      // thread-safe
  Cancellation* cancellation = nullptr;  // thread-safe
};

struct JobContextOptions {
  std::string data_root;
  std::string scratch_folder;
  uint64_t data_cache_bytes = DataSource::kDefaultCacheBytes;
  std::string device;             // for jobs that leave it open
  TaskPool* pool = nullptr;       // for the executor; outlives the context
  TaskPool* read_pool = nullptr;  // for the data source; outlives it
  uint64_t incarnation = 0;
  KeptSource* kept_source = nullptr;  // outlives the context
  const PsDirectory* ps = nullptr;    // outlives the context
  bool share_memory = true;           // with those ps that run on this machine and agree
  // Only for a job whose workers call each other. Both outlive the context.
  const RankDirectory* ranks = nullptr;
  RingPartials* partials = nullptr;
  StatusBoard* board = nullptr;
  WorkerMetrics* metrics = nullptr;
  Cancellation* cancellation = nullptr;  // ends waits early
  absl::Status* card_error = nullptr;    // set to the card's error where that is why it fails
};

// Opens the data, builds the model and connects to the ps. INVALID_ARGUMENT and NOT_FOUND name the
// field of the job that is wrong.
absl::StatusOr<std::unique_ptr<JobContext>> NewJobContext(const v1::Assignment& assignment,
                                                          const JobContextOptions& options);

// The allowed values of the job's labels, by LABEL column.
std::vector<LabelForm> LabelFormsOf(const v1::JobSpec& spec, const Model& model);

}  // namespace tessera::worker
