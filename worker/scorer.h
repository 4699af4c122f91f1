#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/v1/work.pb.h"
#include "worker/job_context.h"

namespace tessera::worker {

// Scores records with the parameters as they stand and changes nothing on any ps: evaluation and
// prediction. Not thread-safe.
class Scorer {
 public:
  // Borrowed, outliving the scorer.
  explicit Scorer(JobContext* context);

  // Called with the logits and labels of consecutive records, in the order of the ranges.
  using Sink = std::function<absl::Status(absl::Span<const float> logits,    // [n]
                                          absl::Span<const float> labels)>;  // [n]
  struct Summary {
    uint64_t samples = 0;
    uint64_t bad_records = 0;
    std::string first_bad;
  };
  // `step`: steps below it must have been applied to the tables in sync mode.
  absl::StatusOr<Summary> Score(const std::vector<v1::RecordRange>& ranges, uint64_t step,
                                const Sink& sink);

 private:
  absl::Status ScoreRecords(const Batch& records, uint64_t step, const Sink& sink);

  JobContext* const context_;
  KeyPreparer preparer_;  // used by the pipeline's thread only
};

}  // namespace tessera::worker
