#include "master/plan/evaluation_round.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/window.h"

namespace tessera::master {
namespace {

size_t SamplesOf(const ScoreLayout& layout, const EvaluationRound::Scores& scores) {
  return scores.labels.size() / layout.label_floats();
}

absl::Status CheckCounts(const ScoreLayout& layout, const EvaluationRound::Scores& scores) {
  const size_t n = SamplesOf(layout, scores);
  if (scores.labels.size() == n * layout.label_floats() &&
      scores.outputs.size() == n * layout.output_floats() &&
      scores.groups.size() == (layout.grouped ? n : 0)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      scores.outputs.size(), " outputs, ", scores.labels.size(), " labels and ",
      scores.groups.size(), " groups; expected ", layout.output_floats(), " outputs, ",
      layout.label_floats(), " labels and ", layout.grouped ? 1 : 0, " groups of each sample"));
}

absl::Status CheckSamples(uint64_t unit_id, uint64_t samples, uint64_t records) {
  if (samples <= records) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("unit ", unit_id, ": scores of ", samples,
                                                 " samples; expected at most ", records));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ScoreSums>> FoldScores(const ScoreLayout& layout,
                                                      const std::vector<std::string>& names,
                                                      const EvaluationRound::Scores& scores) {
  TESSERA_RETURN_IF_ERROR(CheckCounts(layout, scores));
  auto sums = std::make_unique<ScoreSums>(layout, names);
  sums->Add(scores.outputs, scores.labels);
  return sums;
}

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
                                 ScoreLayout layout, std::vector<std::string> folded)
    : id_(id),
      split_(std::move(split)),
      layout_(std::move(layout)),
      folded_(std::move(folded)),
      sums_(folded_.empty() ? nullptr : std::make_unique<ScoreSums>(layout_, folded_)) {
  const JoinedRanges all(AllRecords(files));
  const uint64_t records = all.records();
  for (uint64_t begin = 0; begin < records; begin += unit_records) {
    Unit& unit = units_.emplace_back();
    unit.records = std::min(unit_records, records - begin);
    unit.work.set_evaluation_id(id_);
    unit.work.set_split(split_);
    for (v1::RecordRange& range : all.Slice(begin, begin + unit.records)) {
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
  unit->sums.reset();
}

EvaluationRound::Unit* EvaluationRound::Find(uint64_t unit_id) {
  for (Unit& unit : units_) {
    if (unit.unit_id == unit_id && unit_id != 0) return &unit;
  }
  return nullptr;
}

absl::StatusOr<EvaluationRound::Unit*> EvaluationRound::UnderWay(uint64_t unit_id) {
  Unit* const unit = Find(unit_id);
  if (unit == nullptr || unit->completed) {
    return absl::InvalidArgumentError(
        absl::StrCat("unit ", unit_id, " is not under way in evaluation ", id_));
  }
  return unit;
}

absl::Status EvaluationRound::SetScores(uint64_t unit_id, Scores scores) {
  if (sums_ != nullptr) {
    TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<ScoreSums> sums, FoldScores(layout_, folded_, scores));
    return SetSums(unit_id, std::move(sums));
  }
  TESSERA_ASSIGN_OR_RETURN(Unit * unit, UnderWay(unit_id));
  TESSERA_RETURN_IF_ERROR(CheckCounts(layout_, scores));
  TESSERA_RETURN_IF_ERROR(CheckSamples(unit_id, SamplesOf(layout_, scores), unit->records));
  unit->scores = std::move(scores);
  return absl::OkStatus();
}

absl::Status EvaluationRound::SetSums(uint64_t unit_id, std::unique_ptr<ScoreSums> sums) {
  TESSERA_ASSIGN_OR_RETURN(Unit * unit, UnderWay(unit_id));
  TESSERA_RETURN_IF_ERROR(CheckSamples(unit_id, sums->samples(), unit->records));
  unit->sums = std::move(sums);
  return absl::OkStatus();
}

absl::Status EvaluationRound::Complete(uint64_t unit_id, uint64_t samples) {
  TESSERA_ASSIGN_OR_RETURN(Unit * unit, UnderWay(unit_id));
  const uint64_t sent =
      unit->sums != nullptr ? unit->sums->samples() : SamplesOf(layout_, unit->scores);
  if (sent != samples) {
    return absl::InternalError(absl::StrCat("unit ", unit_id, " reports ", samples,
                                            " samples and has sent the scores of ", sent));
  }
  unit->completed = true;
  ++completed_;
  if (unit->sums != nullptr) {
    sums_->Merge(*unit->sums);
    unit->sums.reset();
  }
  return absl::OkStatus();
}

std::unique_ptr<ScoreSums> EvaluationRound::TakeSums() { return std::move(sums_); }

EvaluationRound::Scores EvaluationRound::TakeScores() {
  Scores all;
  size_t n = 0;
  for (const Unit& unit : units_) n += SamplesOf(layout_, unit.scores);
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
