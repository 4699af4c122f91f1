#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/scores.h"
#include "tessera/v1/work.pb.h"

namespace tessera::master {

// The most memory that one evaluation that keeps scores may hold in the master until it is done:
// ScoreLayout::sample_bytes for each sample, that is 8, or 16 with groups, if there is one task.
inline constexpr uint64_t kMaxEvaluationBytes = uint64_t{1} << 31;

// One evaluation of one split: hands out its records in units and collects their scores. If
// `folded` names metrics, it collects their sums: a unit's sums are merged and forgotten when it
// completes, so memory grows only with the units under way. Sums are exact (ScoreSums), so neither
// the order in which units complete nor their number changes a bit. Whichever rank is free takes
// the next unit. A pure core. Not thread-safe.
class EvaluationRound {
 public:
  struct Scores {
    std::vector<float> outputs;    // [n, layout.output_floats()]
    std::vector<float> labels;     // [n, layout.label_floats()]
    std::vector<uint64_t> groups;  // empty, or as many
  };
  // Units of at most `unit_records`, which is at least 1. `folded` is empty or names metrics that
  // can be added up.
  EvaluationRound(uint64_t id, std::string split, const std::vector<v1::FileRecords>& files,
                  uint64_t unit_records, ScoreLayout layout, std::vector<std::string> folded);

  const std::string& split() const { return split_; }
  uint64_t id() const { return id_; }
  const ScoreLayout& layout() const { return layout_; }
  const std::vector<std::string>& folded() const { return folded_; }
  // The records to score next; nullopt: all are handed out. If the caller hands the unit out, it
  // calls HandedOut with the unit's id before the next Next.
  std::optional<v1::Evaluate> Next();
  void HandedOut(uint64_t unit_id);
  // A unit under way goes to another worker, under another id. Scores that came under the old id,
  // or still come, count no more.
  void HandedOutAgain(uint64_t unit_id, uint64_t new_unit_id);
  // Sets all scores of a unit; a repeated call replaces them. INVALID_ARGUMENT: no unit of this
  // round that is under way, more scores than records, or different numbers of outputs, labels and
  // groups.
  absl::Status SetScores(uint64_t unit_id, Scores scores);
  // As SetScores, where metrics are folded; `sums` comes from FoldScores.
  absl::Status SetSums(uint64_t unit_id, std::unique_ptr<ScoreSums> sums);
  // The unit is done. INTERNAL: other than `samples` scores have come. INVALID_ARGUMENT: the unit
  // is not under way.
  absl::Status Complete(uint64_t unit_id, uint64_t samples);
  bool done() const { return completed_ == units_.size(); }

  // All scores, in the order of the records. Called once, when done; nothing is folded.
  Scores TakeScores();
  // The sums of all samples. Called once, when done; metrics are folded.
  std::unique_ptr<ScoreSums> TakeSums();

 private:
  struct Unit {
    v1::Evaluate work;
    uint64_t records = 0;
    uint64_t unit_id = 0;
    bool completed = false;
    Scores scores;
    std::unique_ptr<ScoreSums> sums;  // null: none came, or sums_ has them
  };
  Unit* Find(uint64_t unit_id);
  absl::StatusOr<Unit*> UnderWay(uint64_t unit_id);

  const uint64_t id_;
  const std::string split_;
  const ScoreLayout layout_;
  const std::vector<std::string> folded_;
  std::unique_ptr<ScoreSums> sums_;  // of the units completed; null: nothing is folded
  std::vector<Unit> units_;
  size_t next_ = 0;
  size_t completed_ = 0;
};

// The scores that one unit may bring.
struct ScoresExpected {
  uint64_t bytes = 0;  // at most; bounds a stream
  ScoreLayout layout;
  std::vector<std::string> folded;  // EvaluationRound::folded; not empty: SetSums, not SetScores
};

// The sums of a unit's scores for the folded metrics `names`. Takes as long as measuring, about 0.1
// us a sample and metric: not to be called under a mutex. INVALID_ARGUMENT: different numbers of
// outputs, labels and groups.
absl::StatusOr<std::unique_ptr<ScoreSums>> FoldScores(const ScoreLayout& layout,
                                                      const std::vector<std::string>& names,
                                                      const EvaluationRound::Scores& scores);

// All records of the files, in order.
std::vector<v1::RecordRange> AllRecords(const std::vector<v1::FileRecords>& files);

}  // namespace tessera::master
