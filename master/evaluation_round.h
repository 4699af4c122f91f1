#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/job/evaluation.h"
#include "tessera/v1/work.pb.h"

namespace tessera::master {

// What one evaluation may hold in the master's memory until it is done: ScoreLayout::sample_bytes
// of each sample, 8 or with groups 16 where there is one task.
inline constexpr uint64_t kMaxEvaluationBytes = uint64_t{1} << 31;

// One evaluation of one split: hands out its records in units and collects their scores. Whoever is
// free takes the next unit. A pure core. Not thread-safe.
class EvaluationRound {
 public:
  struct Scores {
    std::vector<float> outputs;    // [n, layout.output_floats()]
    std::vector<float> labels;     // [n, layout.label_floats()]
    std::vector<uint64_t> groups;  // empty, or as many
  };
  // Units of at most `unit_records`, which is at least 1.
  EvaluationRound(uint64_t id, std::string split, const std::vector<v1::FileRecords>& files,
                  uint64_t unit_records, ScoreLayout layout);

  const std::string& split() const { return split_; }
  uint64_t id() const { return id_; }
  const ScoreLayout& layout() const { return layout_; }
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
  // FAILED_PRECONDITION: the unit's scores have not come (but `samples` says that there are some).
  absl::Status Complete(uint64_t unit_id, uint64_t samples);
  bool done() const { return completed_ == units_.size(); }

  // In the order of the records. Once, when done.
  Scores TakeScores();

 private:
  struct Unit {
    v1::Evaluate work;
    uint64_t records = 0;
    uint64_t unit_id = 0;
    bool completed = false;
    Scores scores;
  };
  Unit* Find(uint64_t unit_id);

  const uint64_t id_;
  const std::string split_;
  const ScoreLayout layout_;
  std::vector<Unit> units_;
  size_t next_ = 0;
  size_t completed_ = 0;
};

// All records of the files, in order.
std::vector<v1::RecordRange> AllRecords(const std::vector<v1::FileRecords>& files);

}  // namespace tessera::master
