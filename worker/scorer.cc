#include "worker/scorer.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "common/hash.h"
#include "common/status_macros.h"
#include "common/window.h"

namespace tessera::worker {
namespace {

// Records in memory at a time, and in one pull.
constexpr uint64_t kChunkRecords = 131072;
constexpr uint64_t kBatchRecords = 4096;

}  // namespace

Scorer::Scorer(JobContext* context)
    : context_(context), preparer_(context->plan.get(), context->router.get()) {}

absl::StatusOr<Scorer::Summary> Scorer::Score(const std::vector<v1::RecordRange>& ranges,
                                              uint64_t step, const Sink& sink) {
  const TableRows dense[] = {context_->trained_blocks->Read(), context_->statistics_blocks->Read()};
  TESSERA_RETURN_IF_ERROR(context_->parameters->Pull(dense, step, /*read_only=*/true)->Wait());
  context_->trained_blocks->CopyOut(absl::MakeSpan(context_->trained));
  context_->statistics_blocks->CopyOut(absl::MakeSpan(context_->statistics));

  Summary summary;
  const uint64_t total = CountRecords(ranges);
  for (uint64_t begin = 0; begin < total; begin += kChunkRecords) {
    TESSERA_ASSIGN_OR_RETURN(
        const DataSource::Records records,
        context_->source->Read(SliceRanges(ranges, begin, std::min(begin + kChunkRecords, total))));
    TESSERA_RETURN_IF_ERROR(ScoreRecords(records.batch, step, sink));
    summary.samples += records.batch.size;
    summary.bad_records += records.bad_records;
    if (summary.first_bad.empty()) summary.first_bad = records.first_bad;
  }
  return summary;
}

void Scorer::FindGroups(const Batch& batch) {
  groups_.clear();
  const std::string& name = context_->spec().evaluation().group_by();
  if (name.empty()) return;
  const Schema& schema = context_->source->schema();
  for (const uint32_t c : schema.sparse) {
    if (schema.columns[c].name != name) continue;
    const SparseColumn& column = batch.sparse[schema.columns[c].sparse_index];
    for (uint32_t r = 0; r < batch.size; ++r) {
      uint64_t group = 0;  // of records without an id
      for (uint32_t k = column.offsets[r]; k < column.offsets[r + 1]; ++k) {
        group = MixPair(group, column.keys[k]);
      }
      groups_.push_back(group);
    }
  }
}

absl::Status Scorer::ScoreRecords(const Batch& records, uint64_t step, const Sink& sink) {
  // No larger than a training batch, which `tessera check` has found to fit a message.
  const uint64_t batch_records = std::min<uint64_t>(
      kBatchRecords, std::max<uint32_t>(context_->spec().train().batch_size(), 1));
  std::vector<uint32_t> rows(records.size);
  std::iota(rows.begin(), rows.end(), 0u);
  BatchPipeline pipeline(
      0, (records.size + batch_records - 1) / batch_records, [&](uint64_t i, PreparedBatch* batch) {
        GatherRows(records, absl::MakeConstSpan(rows).subspan(i * batch_records, batch_records),
                   &batch->batch);
        PrepareLookups(*context_, &preparer_, batch);
      });
  const auto pull = [this, step](PreparedBatch* batch) {
    return batch == nullptr ? nullptr
                            : context_->parameters->Pull(EmbeddingReads(*context_, batch), step,
                                                         /*read_only=*/true);
  };
  std::unique_ptr<PreparedBatch> batch = pipeline.Next();
  // Before the call that fills it, which must be gone first.
  std::unique_ptr<PreparedBatch> next;
  std::unique_ptr<PendingCall> pending = pull(batch.get());
  while (batch != nullptr) {
    TESSERA_RETURN_IF_ERROR(pending->Wait());
    next = pipeline.Next();
    pending = pull(next.get());
    FillInputs(context_, *batch);
    const absl::Span<const float> outputs =
        context_->executor->Forward(context_->trained, context_->statistics);
    FindGroups(batch->batch);
    TESSERA_RETURN_IF_ERROR(sink({outputs, batch->batch.labels, groups_}));
    pipeline.Recycle(std::move(batch));
    batch = std::move(next);
  }
  return absl::OkStatus();
}

}  // namespace tessera::worker
