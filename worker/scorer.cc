#include "worker/scorer.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "common/job/tasks.h"
#include "common/math/loss/softmax_cross_entropy.h"
#include "common/status_macros.h"
#include "common/window.h"
#include "worker/embedding_lookups.h"
#include "worker/sample_groups.h"

namespace tessera::worker {
namespace {

// About as many records are in memory at a time.
constexpr uint64_t kChunkRecords = 131072;

// Fills the ScoreFloats of a loss of several classes.
void ScoreClasses(absl::Span<const float> logits, float label, float* scores) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - *largest);
  const auto log_probability = [&](float x) {
    return static_cast<float>(math::SoftmaxCrossEntropy::LogProbability<double>(x, *largest, sum));
  };
  scores[0] =
      std::isnan(sum) ? static_cast<float>(sum) : static_cast<float>(largest - logits.begin());
  scores[1] = log_probability(*largest);
  scores[2] = std::isnan(label) ? label : log_probability(logits[static_cast<size_t>(label)]);
}

// Where the batches of what was read begin and the last one ends, in rows. A batch has the good
// ones of `batch_records` records, and there is none without any.
std::vector<size_t> BatchBegins(const DataSource::Records& read, uint64_t batch_records) {
  const std::vector<uint32_t>& rows_before = read.rows_before_bad;
  const size_t records = read.batch.size + rows_before.size();
  std::vector<size_t> begins = {0};
  size_t bad = 0;  // so many bad records come before the batch's end
  for (size_t end = batch_records; end < records + batch_records; end += batch_records) {
    while (bad < rows_before.size() && rows_before[bad] + bad < end) ++bad;
    const size_t rows = std::min<size_t>(end, records) - bad;
    if (rows > begins.back()) begins.push_back(rows);
  }
  return begins;
}

// Hands out the bad records of what was read, in the form of Scores::bad.
class BadRecords {
 public:
  explicit BadRecords(absl::Span<const uint32_t> rows_before) : rows_before_(rows_before) {}

  // Takes the next bad records that come before row `end`. Returns for each how many rows from
  // `begin` on come before it.
  absl::Span<const uint32_t> Take(uint64_t begin, uint64_t end) {
    taken_.clear();
    for (; next_ < rows_before_.size() && rows_before_[next_] < end; ++next_) {
      taken_.push_back(rows_before_[next_] - static_cast<uint32_t>(begin));
    }
    return taken_;
  }

 private:
  const absl::Span<const uint32_t> rows_before_;
  size_t next_ = 0;
  std::vector<uint32_t> taken_;
};

}  // namespace

Scorer::Scorer(JobContext* context)
    : context_(context),
      preparers_(PrepareThreads(*context), KeyPreparer(context->plan.get(), context->router.get())),
      layout_(ScoreLayout::Of(context->spec())) {}

absl::StatusOr<Scorer::Summary> Scorer::Score(const std::vector<v1::RecordRange>& ranges,
                                              uint64_t step, const Sink& sink) {
  const TableRows dense[] = {context_->trained_blocks->Read(), context_->statistics_blocks->Read()};
  TESSERA_RETURN_IF_ERROR(
      context_->parameters->Pull(dense, {.step = step, .read_only = true})->Wait());
  TESSERA_RETURN_IF_ERROR(context_->TakePulled());

  context_->executor->KeepParametersOnCard(false);
  // Forgets rows that the card has kept, so that all rows of this call are about equally old.
  TESSERA_RETURN_IF_ERROR(BeginPooling(context_, Pooled::kToScore));
  Summary summary;
  const JoinedRanges joined(ranges);
  const uint64_t total = joined.records();
  const uint64_t chunk = kChunkRecords - kChunkRecords % ScoreBatchRecords(context_->spec());
  for (uint64_t begin = 0; begin < total; begin += chunk) {
    TESSERA_ASSIGN_OR_RETURN(
        const DataSource::Records records,
        context_->source->Read(joined.Slice(begin, std::min(begin + chunk, total))));
    TESSERA_RETURN_IF_ERROR(ScoreRecords(records, step, sink));
    summary.samples += records.batch.size;
    summary.bad_records += records.bad_records;
    if (summary.first_bad.empty()) summary.first_bad = records.first_bad;
  }
  return summary;
}

void Scorer::CollectScores(const Batch& batch) {
  const size_t width = layout_.output_floats();
  outputs_.resize(batch.size * width);
  size_t column = 0;
  for (size_t task = 0; task < layout_.tasks.size(); ++task) {
    const JobTask& of = layout_.tasks[task];
    const absl::Span<const float> outputs = context_->executor->output(task);
    const size_t classes = context_->model->OutputWidth(task);
    const bool of_classes = OutputsOf(of.loss) == math::Outputs::kClasses;
    for (uint32_t i = 0; i < batch.size; ++i) {
      float* const to = &outputs_[i * width + column];
      if (!of_classes) {
        *to = outputs[i];
        continue;
      }
      const float label = batch.labels[i * batch.label_width() + of.label];
      ScoreClasses(outputs.subspan(i * classes, classes), label, to);
    }
    column += ScoreFloats(of.loss);
  }
  labels_.clear();
  for (uint32_t i = 0; i < batch.size; ++i) {
    const auto row = batch.labels.begin() + i * layout_.label_columns;
    labels_.insert(labels_.end(), row, row + layout_.label_columns);
    if (layout_.weighted) labels_.push_back(batch.weights[i]);
  }
  FindGroups(batch, context_->evaluation_group_column, &groups_);
}

absl::Status Scorer::ScoreRecords(const DataSource::Records& read, uint64_t step,
                                  const Sink& sink) {
  const Batch& records = read.batch;
  const std::vector<size_t> begins = BatchBegins(read, ScoreBatchRecords(context_->spec()));
  std::vector<uint32_t> rows(records.size);
  std::iota(rows.begin(), rows.end(), 0u);
  const auto fill = [&](size_t thread, PreparedBatch* batch) {
    const size_t begin = begins[batch->index];
    GatherRows(records, absl::MakeConstSpan(rows).subspan(begin, begins[batch->index + 1] - begin),
               &batch->batch);
    PrepareLookups(*context_, &preparers_[thread], batch);
  };
  BatchPipeline pipeline(
      0, begins.size() - 1, preparers_.size(),
      {.fill = fill,
       .place = [this](PreparedBatch* batch) { PlaceLookups(*context_, batch); },
       .finish = [this](PreparedBatch* batch) { FinishLookups(*context_, batch); }});
  const auto pull = [this, step](PreparedBatch* batch) {
    return batch == nullptr ? nullptr
                            : context_->parameters->Pull(EmbeddingReads(*context_, batch),
                                                         {.step = step, .read_only = true});
  };
  BadRecords bad(read.rows_before_bad);
  uint64_t scored = 0;
  std::unique_ptr<PreparedBatch> batch = pipeline.Next();
  // Declared before `pending`, which fills it and must be destroyed first.
  std::unique_ptr<PreparedBatch> next;
  std::unique_ptr<PendingCall> pending = pull(batch.get());
  while (batch != nullptr) {
    TESSERA_RETURN_IF_ERROR(pending->Wait());
    next = pipeline.Next();
    pending = pull(next.get());
    TESSERA_RETURN_IF_ERROR(FillInputs(context_, *batch));
    context_->executor->StartForward(context_->served(), context_->model_statistics());
    if (context_->card != nullptr && next != nullptr) {
      context_->card->StageAhead(*next, pending.get());
    }
    context_->executor->FinishForward();
    TESSERA_RETURN_IF_ERROR(context_->executor->status());
    CollectScores(batch->batch);
    const uint64_t begin = std::exchange(scored, scored + batch->batch.size);
    TESSERA_RETURN_IF_ERROR(sink({outputs_, labels_, groups_, bad.Take(begin, scored)}));
    pipeline.Recycle(std::move(batch));
    batch = std::move(next);
  }
  const absl::Span<const uint32_t> last = bad.Take(scored, scored + 1);
  return last.empty() ? absl::OkStatus() : sink({{}, {}, {}, last});
}

}  // namespace tessera::worker
