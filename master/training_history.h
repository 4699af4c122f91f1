#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "tessera/v1/job_service.pb.h"
#include "tessera/v1/work.pb.h"

namespace tessera::master {

// A job's learning curve (JobStatus.history): units one after another, as many together in a point
// as it takes to have no more than kMostPoints of them. A run goes on from the points of the one
// before. Not thread-safe.
class TrainingHistory {
 public:
  using Points = google::protobuf::RepeatedPtrField<v1::TrainingPoint>;
  static constexpr int kMostPoints = 256;  // even

  explicit TrainingHistory(Points* points) : points_(*points) {}  // outlives this

  // Training begins, perhaps again, after so many updates: points of later ones go.
  void Begin(uint64_t step);
  // A unit has ended, `seconds` of training after the one before it; the job has done `step`
  // updates, which do not go back. Units after which these are no more than before, as in sync
  // those of all ranks but the last, are of the next point.
  void Add(const v1::UnitResult& unit, uint64_t step, double seconds, absl::Time now);

 private:
  Points& points_;
  v1::TrainingPoint next_;
};

}  // namespace tessera::master
