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
                                 bool grouped)
    : id_(id), split_(std::move(split)), grouped_(grouped) {
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
  const size_t n = scores.outputs.size();
  const size_t groups = grouped_ ? n : 0;
  if (scores.labels.size() != n || scores.groups.size() != groups || n > unit->records) {
    return absl::InvalidArgumentError(
        absl::StrCat("unit ", unit_id, ": ", n, " outputs, ", scores.labels.size(), " labels and ",
                     scores.groups.size(), " groups; expected as many labels, ", groups,
                     " groups, and at most ", unit->records, " outputs"));
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
  if (unit->scores.outputs.size() != samples) {
    return absl::InternalError(absl::StrCat("unit ", unit_id, " reports ", samples,
                                            " samples and has sent ", unit->scores.outputs.size(),
                                            " scores"));
  }
  unit->completed = true;
  ++completed_;
  return absl::OkStatus();
}

EvaluationRound::Scores EvaluationRound::TakeScores() {
  Scores all;
  size_t n = 0;
  for (const Unit& unit : units_) n += unit.scores.outputs.size();
  all.outputs.reserve(n);
  all.labels.reserve(n);
  if (grouped_) all.groups.reserve(n);
  for (Unit& unit : units_) {
    const Scores part = std::exchange(unit.scores, {});
    all.outputs.insert(all.outputs.end(), part.outputs.begin(), part.outputs.end());
    all.labels.insert(all.labels.end(), part.labels.begin(), part.labels.end());
    all.groups.insert(all.groups.end(), part.groups.begin(), part.groups.end());
  }
  return all;
}

}  // namespace tessera::master
