#include "worker/embedding_lookups.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/job/defaults.h"
#include "common/status_macros.h"
#include "worker/embeddings/pooling.h"

namespace tessera::worker {

size_t PrepareThreads(const JobContext& context) {
  return context.card == nullptr ? 1 : context.card->PrepareThreads();
}

void PrepareLookups(const JobContext& context, KeyPreparer* preparer, PreparedBatch* batch) {
  preparer->Prepare(batch->batch, &batch->keys);
  if (context.card != nullptr) context.card->Prepare(batch);
}

void PlaceLookups(const JobContext& context, PreparedBatch* batch) {
  if (context.card != nullptr) context.card->Place(batch);
}

void FinishLookups(const JobContext& context, PreparedBatch* batch) {
  if (context.card != nullptr) context.card->Tell(batch);
  const auto lookups = context.plan->lookups();
  batch->rows.resize(lookups.size());
  for (size_t l = 0; l < lookups.size(); ++l) {
    batch->rows[l].resize(PulledKeys(*batch, lookups[l].key_set).keys.size() * lookups[l].dim);
  }
  if (!context.card_trains()) return;
  batch->whole_rows.resize(lookups.size());
  for (size_t l = 0; l < lookups.size(); ++l) {
    const auto* const trained = TrainedRowsOf(*batch, lookups[l].key_set);
    const size_t rows = trained == nullptr ? 0 : trained->whole.keys.size();
    batch->whole_rows[l].resize(rows * context.card_optimizers[l].floats());
  }
}

absl::Status BeginPooling(JobContext* context, Pooled what) {
  if (context->card == nullptr) return absl::OkStatus();
  const bool trains = what == Pooled::kToTrain;
  // A ps rounds what is added to rows of bfloat16, and the card is to have the rounded rows.
  const auto& tables = context->spec().tables();
  const bool rounds = std::any_of(tables.begin(), tables.end(), [](const v1::TableSpec& table) {
    return table.row_type() == v1::BFLOAT16;
  });
  const bool alone = context->card_trains() && context->assignment.workers() == 1 && !rounds;
  const uint32_t max_age = trains && !alone ? CardRowAgeOf(context->spec()) : CardPooling::kAnyAge;
  if (context->spec().train().row_cache().share() > 0 && max_age > 0) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<uint64_t> rows, context->parameters->CountRows());
    if (rows.size() < static_cast<size_t>(context->spec().tables_size())) {
      return absl::InternalError(absl::StrCat("the ps have rows of ", rows.size(),
                                              " tables, expected ", context->spec().tables_size(),
                                              " and more"));
    }
    context->card->SizeKeptRows(rows);
    TESSERA_RETURN_IF_ERROR(WithContext(context->executor->status(), "train.row_cache.share"));
  }
  context->card->Begin(max_age, /*afresh=*/!trains, trains);
  return absl::OkStatus();
}

std::vector<TableRows> EmbeddingReads(const JobContext& context, PreparedBatch* batch) {
  std::vector<TableRows> reads;
  const auto lookups = context.plan->lookups();
  for (size_t l = 0; l < lookups.size(); ++l) {
    const EmbeddingPlan::Lookup& lookup = lookups[l];
    reads.push_back({.table = lookup.table,
                     .dim = lookup.dim,
                     .keys = &PulledKeys(*batch, lookup.key_set),
                     .rows = batch->rows[l].data(),
                     .bfloat16 = lookup.wire_bfloat16});
    const auto* const trained = TrainedRowsOf(*batch, lookup.key_set);
    if (trained == nullptr || trained->whole.keys.empty()) continue;
    reads.push_back({.table = lookup.table,
                     .dim = context.card_optimizers[l].floats(),
                     .keys = &trained->whole,
                     .rows = batch->whole_rows[l].data(),
                     .whole = true});
  }
  return reads;
}

absl::Status FillInputs(JobContext* context, const PreparedBatch& batch) {
  Executor& executor = *context->executor;
  executor.Resize(batch.batch.size);
  TESSERA_RETURN_IF_ERROR(executor.status());
  std::copy(batch.batch.dense.begin(), batch.batch.dense.end(), executor.dense().begin());
  const auto lookups = context->plan->lookups();
  if (context->card != nullptr) context->card->Pool(batch);
  for (size_t l = 0; context->card == nullptr && l < lookups.size(); ++l) {
    PoolRows(batch.batch, context->plan->key_sets()[lookups[l].key_set], lookups[l],
             batch.keys[lookups[l].key_set], batch.rows[l],
             [&executor](size_t input) { return executor.pooled(input); });
  }
  const auto lengths = context->model->lengths();
  for (size_t i = 0; i < lengths.size(); ++i) {
    SequenceLengths(batch.batch.sparse[lengths[i].sparse_index], executor.length(i));
  }
  return absl::OkStatus();
}

}  // namespace tessera::worker
