#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/evaluation_rules.h"
#include "common/job/metric_names.h"
#include "tessera/v1/checkpoint.pb.h"
#include "tessera/v1/job.pb.h"
#include "tessera/v1/master_state.pb.h"

namespace tessera::master {

// The evaluations of a run, oldest first, those of the jobs that it goes on from before its own,
// and which of them is marked as the best by the metric that the job monitors: the best one that a
// checkpoint has, or is to have. Follows the spec's rules (plateau, early stopping), whose state is
// in the job's position. They go by the best value that was seen, which may be better than the
// marked one: what is trained must not hang on which checkpoints could be written. Of more than a
// thousand, or a MiB, the oldest are forgotten, but for the best one and those whose checkpoints
// may take its place: the job's record, manifests and statuses have them all. Pure. Not
// thread-safe.
class Evaluations {
 public:
  explicit Evaluations(const v1::JobRecord* record) : record_(*record) {}  // borrowed

  const std::vector<v1::Evaluation>& all() const { return all_; }
  void Set(std::vector<v1::Evaluation> all) { all_ = std::move(all); }
  // Takes it up as it is; no rule follows it.
  void Append(const v1::Evaluation& evaluation) { all_.push_back(evaluation); }
  // The best one is no checkpoint's any more.
  void MarkNone();

  struct Added {
    EvaluationOutcome outcome;
    bool best = false;       // it is marked as the best
    std::string text;        // what was measured
    bool undefined = false;  // the monitored metric is NaN, for the first time
  };
  // Adds one of the validation split, and follows the rules. `before`: what LoseBest may get,
  // should the checkpoint fail that is being written; empty: none is.
  Added Add(v1::Evaluation evaluation, const std::string& before, v1::Position& position);

  struct Left {
    std::string text;         // what is lost, why, and which is marked as the best now
    bool at_barrier = false;  // it is the one at the barrier
  };
  // The only checkpoint that had the best model, of `step`, is lost. Marks the evaluation whose
  // checkpoint is `before` (empty: there is none), or, if `at_barrier`, that of the position's step
  // where it is better: its checkpoint is still to be cut. The rules go on from the best value
  // seen.
  Left LoseBest(uint64_t step, const std::string& before, bool at_barrier, absl::string_view why,
                v1::Position& position);

 private:
  const v1::JobSpec& spec() const { return record_.status().spec(); }
  // The one of the validation split at that step, or of that checkpoint; null: there is none.
  const v1::Evaluation* At(uint64_t step) const;
  const v1::Evaluation* Of(const std::string& checkpoint) const;
  Followed Monitored(const v1::Evaluation& evaluation) const;
  // The marked one; null: there is none.
  const v1::Evaluation* Best() const;
  // Whether a model of that value is to be kept in place of `best` (null: there is none).
  bool BetterThan(const v1::Evaluation* best, const Followed& followed) const;
  // But for the marked one and those of `kept`, which are checkpoints.
  void ForgetOldest(const std::vector<std::string>& kept);

  const v1::JobRecord& record_;
  std::vector<v1::Evaluation> all_;
};

}  // namespace tessera::master
