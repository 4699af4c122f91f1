#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tessera/v1/cluster.pb.h"
#include "worker/batch_pipeline.h"
#include "worker/cancellation.h"
#include "worker/card_optimizer.h"
#include "worker/card_pooling.h"
#include "worker/card_seat.h"
#include "worker/data/data_source.h"
#include "worker/data/stoppable_file_system.h"
#include "worker/dense/executor.h"
#include "worker/dense/model.h"
#include "worker/dense_blocks.h"
#include "worker/dense_reduction.h"
#include "worker/dense_training.h"
#include "worker/embedding.h"
#include "worker/parameter_client.h"
#include "worker/status_board.h"
#include "worker/worker_metrics.h"

namespace tessera::worker {

// The data source of the last assignment. A worker keeps it from one to the next, so that a job
// that restarts does not index, unpack and parse its files again. Used by one thread.
struct KeptSource {
  std::string key;  // the job, its v1::DataSpec and forms of labels, that it was opened for
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
  std::unique_ptr<CardSeat> card_seat;  // null: the card was named, or is none or the only one
  std::unique_ptr<Executor> executor;
  // By lookup, where a card trains the rows that it keeps; else none.
  std::vector<CardOptimizer> card_optimizers;
  bool card_trains() const { return !card_optimizers.empty(); }
  std::unique_ptr<CardPooling> card;              // null: rows are pooled on the CPU
  std::unique_ptr<DenseTraining> dense_training;  // null: dense parameters are trained by the ps
  // Of Batch::sparse: whose ids say which samples losses of ranking and metrics compare; -1: none.
  int32_t group_column = -1;
  int32_t evaluation_group_column = -1;
  std::unique_ptr<DenseBlocks> trained_blocks;
  std::unique_ptr<DenseBlocks> statistics_blocks;
  // Null: every rank pushes its own dense gradients, whole.
  std::unique_ptr<DenseReduction> reduction;
  // The dense parameters of the last pull, flat.
  std::vector<float> trained;
  // The model's statistics and, from ema_at on, the average of `trained` that model.ema_decay
  // keeps: that is moved as a running statistic is.
  std::vector<float> statistics;
  size_t ema_at = 0;  // the first float of a block
  bool averages() const { return spec().model().ema_decay() > 0; }
  absl::Span<const float> model_statistics() const {
    return {statistics.data(), model->statistics_floats()};
  }
  absl::Span<const float> ema() const {
    return absl::MakeConstSpan(statistics).subspan(std::min(ema_at, statistics.size()));
  }
  // What evaluations and predictions are made with.
  absl::Span<const float> served() const {
    return averages() ? ema() : absl::MakeConstSpan(trained);
  }
  TaskPool* pool = nullptr;              // of the executor; may be null
  StatusBoard* board = nullptr;          // thread-safe
  WorkerMetrics* metrics = nullptr;      // thread-safe
  Cancellation* cancellation = nullptr;  // thread-safe
};

struct JobContextOptions {
  std::string data_root;
  std::string scratch_folder;
  uint64_t data_cache_bytes = DataSource::kDefaultCacheBytes;
  std::string device;             // for jobs that leave it open
  TaskPool* pool = nullptr;       // of the executor; outlives the context
  TaskPool* read_pool = nullptr;  // of the data source; outlives it
  uint64_t incarnation = 0;
  KeptSource* kept_source = nullptr;  // outlives the context
  const PsDirectory* ps = nullptr;    // outlives the context
  bool share_memory = true;           // with those ps that run on this machine and agree
  // Of a job whose workers call each other. Outlive the context.
  const RankDirectory* ranks = nullptr;
  RingPartials* partials = nullptr;
  StatusBoard* board = nullptr;
  WorkerMetrics* metrics = nullptr;
  Cancellation* cancellation = nullptr;  // ends waits early
};

// Opens the data, builds the model and connects to the ps. INVALID_ARGUMENT and NOT_FOUND name the
// field of the job that cannot be met.
absl::StatusOr<std::unique_ptr<JobContext>> NewJobContext(const v1::Assignment& assignment,
                                                          const JobContextOptions& options);

// What the labels of the job's data may be, by LABEL column.
std::vector<LabelForm> LabelFormsOf(const v1::JobSpec& spec, const Model& model);

// How many threads prepare batches: with a card what CardPooling says, else 1.
size_t PrepareThreads(const JobContext& context);
// Removes duplicates and routes keys: the second half of every BatchPipeline's `fill`.
void PrepareLookups(const JobContext& context, KeyPreparer* preparer, PreparedBatch* batch);
// Says which rows a card keeps: every `place`.
void PlaceLookups(const JobContext& context, PreparedBatch* batch);
// Says where rows will be, and sizes their buffers: the first half of every `finish`.
void FinishLookups(const JobContext& context, PreparedBatch* batch);

// What to pull for `batch`: the rows of the embedding tables.
std::vector<TableRows> EmbeddingReads(const JobContext& context, PreparedBatch* batch);

// What the batches of a pipeline are pooled for. To train: rows that a card keeps are used as long
// as the job says, or where it trains them and no other worker does, as long as they are there. To
// score: all batches have those of one time.
enum class Pooled { kToTrain, kToScore };
// What CardPooling::Begin does, where rows are pooled on a card, and before it: where the rows that
// it keeps are a share of the tables', the ps are asked how many these have. In a thread that runs
// units, before the first batch of a pipeline. An error is the executor's, or that of the ps.
absl::Status BeginPooling(JobContext* context, Pooled what);

// Sizes the executor and fills its inputs from the batch and its pulled rows. An error is the
// executor's.
absl::Status FillInputs(JobContext* context, const PreparedBatch& batch);

}  // namespace tessera::worker
