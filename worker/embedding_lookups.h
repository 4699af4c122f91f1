#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "worker/batch_pipeline.h"
#include "worker/embeddings/key_preparer.h"
#include "worker/job_context.h"
#include "worker/parameters/parameter_client.h"

// The embedding part of a batch, for training and for scoring alike: from its records to the rows
// that are pulled, and from these to the inputs of the dense graph.
namespace tessera::worker {

// How many threads prepare batches: CardPooling::PrepareThreads with a card, else 1.
size_t PrepareThreads(const JobContext& context);
// Removes duplicates and routes keys. Every BatchPipeline's `fill` ends with it.
void PrepareLookups(const JobContext& context, KeyPreparer* preparer, PreparedBatch* batch);
// Decides which rows a card keeps. It is every BatchPipeline's `place`.
void PlaceLookups(const JobContext& context, PreparedBatch* batch);
// Says where rows will be, and sizes their buffers. Every BatchPipeline's `finish` begins with it.
void FinishLookups(const JobContext& context, PreparedBatch* batch);

// The rows of embedding tables to pull for `batch`.
std::vector<TableRows> EmbeddingReads(const JobContext& context, PreparedBatch* batch);

// What the batches of a pipeline are pooled for. In training, rows that a card keeps are used as
// long as the job says; if the card trains them and there is no other worker, as long as they stay.
// In scoring, the card forgets all rows first, and then uses what it keeps till the end: all
// batches have rows of one time.
enum class Pooled { kToTrain, kToScore };
// Does CardPooling::Begin, if rows are pooled on a card. If the card keeps a share of the tables'
// rows, it first asks the ps how many rows these have. Called by the thread that runs units, before
// the first batch of a pipeline. An error is the executor's, or that of the ps.
absl::Status BeginPooling(JobContext* context, Pooled what);

// Sizes the executor and fills its inputs from the batch and its pulled rows. Errors are the
// executor's.
absl::Status FillInputs(JobContext* context, const PreparedBatch& batch);

}  // namespace tessera::worker
