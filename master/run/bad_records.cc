#include "master/run/bad_records.h"

#include "absl/strings/str_cat.h"

namespace tessera::master {

void BadRecords::Show() {
  v1::JobStatus& status = *record_->mutable_status();
  status.set_bad_records(position_->bad_records());
  status.set_set_aside_records(position_->set_aside_records());
}

bool BadRecords::TooMany() const {
  return position_->bad_records() + position_->set_aside_records() > most();
}

absl::Status BadRecords::Count(const v1::UnitResult& result, bool evaluates) {
  if (result.bad_records() == 0) return absl::OkStatus();
  position_->set_bad_records(position_->bad_records() + result.bad_records());
  if (evaluates) of_evaluation_ += result.bad_records();
  Show();
  if (first_.empty()) first_ = result.bad_record_message();
  if (!TooMany()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      position_->bad_records(), " bad records, and data.max_bad_records allows ", most(),
      "; the first: ", first_, "; mend the data, or raise data.max_bad_records to ",
      record_->status().task() == v1::PREDICT ? "give such records lines without values"
                                              : "leave such records out"));
}

absl::Status BadRecords::SetAside(uint64_t records) {
  position_->set_set_aside_records(position_->set_aside_records() + records);
  Show();
  if (!TooMany()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("it makes ", position_->set_aside_records(), " records beside ",
                   position_->bad_records(), " bad ones, and data.max_bad_records allows ", most(),
                   "; look at these records, or raise data.max_bad_records to leave them out"));
}

absl::Status BadRecords::CheckSamples(absl::string_view split, uint64_t samples) const {
  const uint64_t bad = split == "train" ? position_->bad_records() : of_evaluation_;
  if (samples > 0 || bad == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("data.", split, " has no good record, and ", bad, " bad ones",
                   first_.empty() ? "" : ", of which one is: ", first_));
}

void BadRecords::ForgetEvaluation(uint64_t bad_records) {
  position_->set_bad_records(position_->bad_records() - bad_records);
  of_evaluation_ = 0;
  Show();
}

}  // namespace tessera::master
