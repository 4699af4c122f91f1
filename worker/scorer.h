#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/job/scores.h"
#include "tessera/v1/work.pb.h"
#include "worker/data/data_source.h"
#include "worker/job_context.h"

namespace tessera::worker {

// Scores records for evaluation and prediction, with the parameters as they are on the ps, which it
// does not change. Not thread-safe.
class Scorer {
 public:
  // `context` is borrowed and outlives the scorer.
  explicit Scorer(JobContext* context);

  struct Scores {
    // As in ScoreLayout. Samples with equal ids in evaluation.group_by have equal groups.
    absl::Span<const float> outputs;    // [n, output_floats]
    absl::Span<const float> labels;     // [n, label_floats]
    absl::Span<const uint64_t> groups;  // [n]; empty without group_by
    // For each bad record between these samples, in order: how many of the n come before it.
    absl::Span<const uint32_t> bad;
  };
  // Called with the scores of consecutive records, in the order of the ranges. n may be 0. A
  // sample's bits hang on where its record stands from the first one on, by ScoreBatchRecords.
  using Sink = std::function<absl::Status(const Scores& scores)>;
  struct Summary {
    uint64_t samples = 0;
    uint64_t bad_records = 0;
    std::string first_bad;
  };
  // `step`: the ps answer for tables in sync mode once they have applied all steps below it.
  absl::StatusOr<Summary> Score(const std::vector<v1::RecordRange>& ranges, uint64_t step,
                                const Sink& sink);

 private:
  absl::Status ScoreRecords(const DataSource::Records& read, uint64_t step, const Sink& sink);

  void CollectScores(const Batch& batch);  // into outputs_, labels_ and groups_

  JobContext* const context_;
  std::vector<KeyPreparer> preparers_;  // one for each thread of the pipeline
  const ScoreLayout layout_;
  std::vector<float> outputs_;
  std::vector<float> labels_;
  std::vector<uint64_t> groups_;
};

}  // namespace tessera::worker
