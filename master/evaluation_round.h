#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/evaluation.h"
#include "tessera/v1/work.pb.h"

namespace tessera::master {

// What one evaluation that keeps scores may hold in the master's memory until it is done:
// ScoreLayout::sample_bytes of each sample, 8 or with groups 16 where there is one task.
inline constexpr uint64_t kMaxEvaluationBytes = uint64_t{1} << 31;

// One evaluation of one split: hands out its records in units and collects their scores, or, where
// `folded` names metrics, their sums: those of a unit are merged when it completes and forgotten,
// so that memory goes with the units under way. Sums are exact (ScoreSums), so neither the order in
// which units complete nor how many there are changes a bit. Whoever is free takes the next unit. A
// pure core. Not thread-safe.
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
  // Records [begin, end) to score next; nullopt: all are handed out. The caller says under which
  // unit id it went out.
  std::optional<v1::Evaluate> Next();
  void HandedOut(uint64_t unit_id);
  // A unit under way goes to somebody else, under another number. What was sent under the old one,
  // or still comes, counts no more.
  void HandedOutAgain(uint64_t unit_id, uint64_t new_unit_id);
  // The whole scores of a unit; a repeat replaces them. INVALID_ARGUMENT: not a unit of this round,
  // more scores than records, or not as many of each.
  absl::Status SetScores(uint64_t unit_id, Scores scores);
  // The same where metrics are folded, of who has called FoldScores.
  absl::Status SetSums(uint64_t unit_id, std::unique_ptr<ScoreSums> sums);
  // INTERNAL: as many scores as `samples` says have not come. INVALID_ARGUMENT: no unit under way.
  absl::Status Complete(uint64_t unit_id, uint64_t samples);
  bool done() const { return completed_ == units_.size(); }

  // In the order of the records. Once, when done; nothing is folded.
  Scores TakeScores();
  // Of all samples. Once, when done; metrics are folded.
  std::unique_ptr<ScoreSums> TakeSums();

 private:
  struct Unit {
    v1::Evaluate work;
    uint64_t records = 0;
    uint64_t unit_id = 0;
    bool completed = false;
    Scores scores;
    std::unique_ptr<ScoreSums> sums;  // null: none came, or they are merged
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

// What may come of one unit.
struct ScoresExpected {
  uint64_t bytes = 0;  // at most, for bounding a stream
  ScoreLayout layout;
  std::vector<std::string> folded;  // EvaluationRound::folded; not empty: SetSums, not SetScores
};

// What is kept of a unit's scores where the metrics `names` are folded. As long as measuring takes,
// about 0.1 us a sample and metric: not under a mutex. INVALID_ARGUMENT: not as many of each.
absl::StatusOr<std::unique_ptr<ScoreSums>> FoldScores(const ScoreLayout& layout,
                                                      const std::vector<std::string>& names,
                                                      const EvaluationRound::Scores& scores);

// All records of the files, in order.
std::vector<v1::RecordRange> AllRecords(const std::vector<v1::FileRecords>& files);

}  // namespace tessera::master
