#include "master/evaluation_round.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/window.h"

namespace tessera::master {

std::vector<v1::RecordRange> AllRecords(const std::vector<v1::FileRecords>& files) {
  std::vector<v1::RecordRange> all;
  for (const v1::FileRecords& file : files) {
    v1::RecordRange& range = all.emplace_back();
    range.set_path(file.path());
    range.set_end(file.records());
    range.set_file_bytes(file.bytes());
  }
  return all;
}

EvaluationRound::EvaluationRound(uint64_t id, std::string split,
                                 const std::vector<v1::FileRecords>& files, uint64_t unit_records,
                                 ScoreLayout layout)
    : id_(id), split_(std::move(split)), layout_(std::move(layout)) {
  const std::vector<v1::RecordRange> all = AllRecords(files);
  const uint64_t records = CountRecords(all);
  for (uint64_t begin = 0; begin < records; begin += unit_records) {
    Unit& unit = units_.emplace_back();
    unit.records = std::min(unit_records, records - begin);
    unit.work.set_evaluation_id(id_);
    unit.work.set_split(split_);
    for (v1::RecordRange& range : SliceRanges(all, begin, begin + unit.records)) {
      *unit.work.add_ranges() = std::move(range);
    }
  }
}

std::optional<v1::Evaluate> EvaluationRound::Next() {
  if (next_ == units_.size()) return std::nullopt;
  return units_[next_].work;
}

void EvaluationRound::HandedOut(uint64_t unit_id) { units_[next_++].unit_id = unit_id; }

void EvaluationRound::HandedOutAgain(uint64_t unit_id, uint64_t new_unit_id) {
  Unit* const unit = Find(unit_id);
  if (unit == nullptr) return;
  unit->unit_id = new_unit_id;
  unit->scores = {};
}

EvaluationRound::Unit* EvaluationRound::Find(uint64_t unit_id) {
  for (Unit& unit : units_) {
    if (unit.unit_id == unit_id && unit_id != 0) return &unit;
  }
  return nullptr;
}

absl::Status EvaluationRound::SetScores(uint64_t unit_id, Scores scores) {
  Unit* unit = Find(unit_id);
  if (unit == nullptr || unit->completed) {
    return absl::InvalidArgumentError(
        absl::StrCat("unit ", unit_id, " is not under way in evaluation ", id_));
  }
  const size_t n = scores.labels.size() / layout_.label_floats();
  const size_t groups = layout_.grouped ? n : 0;
  if (scores.labels.size() != n * layout_.label_floats() ||
      scores.outputs.size() != n * layout_.output_floats() || scores.groups.size() != groups ||
      n > unit->records) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unit ", unit_id, ": ", scores.outputs.size(), " outputs, ", scores.labels.size(),
        " labels and ", scores.groups.size(), " groups; expected ", layout_.output_floats(),
        " outputs, ", layout_.label_floats(), " labels and ", layout_.grouped ? 1 : 0,
        " groups of each of at most ", unit->records, " samples"));
  }
  unit->scores = std::move(scores);
  return absl::OkStatus();
}

absl::Status EvaluationRound::Complete(uint64_t unit_id, uint64_t samples) {
  Unit* unit = Find(unit_id);
  if (unit == nullptr || unit->completed) {
    return absl::InvalidArgumentError(
        absl::StrCat("unit ", unit_id, " is not under way in evaluation ", id_));
  }
  const size_t sent = unit->scores.labels.size() / layout_.label_floats();
  if (sent != samples) {
    return absl::InternalError(absl::StrCat("unit ", unit_id, " reports ", samples,
                                            " samples and has sent the scores of ", sent));
  }
  unit->completed = true;
  ++completed_;
  return absl::OkStatus();
}

EvaluationRound::Scores EvaluationRound::TakeScores() {
  Scores all;
  size_t n = 0;
  for (const Unit& unit : units_) n += unit.scores.labels.size() / layout_.label_floats();
  all.outputs.reserve(n * layout_.output_floats());
  all.labels.reserve(n * layout_.label_floats());
  if (layout_.grouped) all.groups.reserve(n);
  for (Unit& unit : units_) {
    const Scores part = std::exchange(unit.scores, {});
    all.outputs.insert(all.outputs.end(), part.outputs.begin(), part.outputs.end());
    all.labels.insert(all.labels.end(), part.labels.begin(), part.labels.end());
    all.groups.insert(all.groups.end(), part.groups.begin(), part.groups.end());
  }
  return all;
}

}  // namespace tessera::master
