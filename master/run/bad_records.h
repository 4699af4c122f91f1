#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tessera/v1/checkpoint.pb.h"
#include "tessera/v1/job.pb.h"
#include "tessera/v1/master_state.pb.h"
#include "tessera/v1/work.pb.h"

namespace tessera::master {

// The records that a job leaves out: bad ones, which cannot be read, and those of batches that are
// set aside. Together at most data.max_bad_records. Their numbers are in the run's position, which
// its checkpoints have; the job's status shows the same ones. Pure. Not thread-safe.
class BadRecords {
 public:
  // Borrowed; both outlive it.
  BadRecords(v1::JobRecord* record, v1::Position* position)
      : record_(record), position_(position) {}

  // The run has got its position: the job's status shows the numbers in it.
  void Show();
  // Counts the bad ones of a unit; `evaluates`: of an evaluation, which may yet be forgotten.
  // INVALID_ARGUMENT, in words for people: that makes too many.
  absl::Status Count(const v1::UnitResult& result, bool evaluates);
  // A batch of so many is set aside. INVALID_ARGUMENT: as Count, and goes on from "set aside, ".
  absl::Status SetAside(uint64_t records);
  // Of so many good records of the split, in an epoch or the evaluation under way.
  // INVALID_ARGUMENT: none was good, and there were bad ones.
  absl::Status CheckSamples(absl::string_view split, uint64_t samples) const;

  // The bad ones of the evaluation under way.
  uint64_t of_evaluation() const { return of_evaluation_; }
  // It has ended: its bad records stay counted.
  void EndEvaluation() { of_evaluation_ = 0; }
  // It is given up, or an earlier master had it under way, and has counted `bad_records`. They are
  // counted again when it is made.
  void ForgetEvaluation(uint64_t bad_records);

 private:
  bool TooMany() const;
  uint64_t most() const { return record_->status().spec().data().max_bad_records(); }

  v1::JobRecord* const record_;
  v1::Position* const position_;
  uint64_t of_evaluation_ = 0;
  std::string first_;  // since this run began, with its error
};

}  // namespace tessera::master
