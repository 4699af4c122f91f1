#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "tessera/v1/job_service.pb.h"
#include "tessera/v1/work.pb.h"

namespace tessera::master {

// A job's learning curve (JobStatus.history): the units in their order, several to a point, so that
// there are at most kMostPoints points. A run goes on from the points of the run before it. Not
// thread-safe.
class TrainingHistory {
 public:
  using Points = google::protobuf::RepeatedPtrField<v1::TrainingPoint>;
  static constexpr int kMostPoints = 256;  // even

  explicit TrainingHistory(Points* points) : points_(*points) {}  // outlives this

  // Training begins, perhaps again, after `step` updates: removes the points of later ones.
  void Begin(uint64_t step);
  // A unit has ended, `seconds` of training after the one before it, and the job has done `step`
  // updates, which never fall. A unit that does not raise `step` counts with the next one that
  // does; in sync these are the units of all ranks but the last.
  void Add(const v1::UnitResult& unit, uint64_t step, double seconds, absl::Time now);

 private:
  Points& points_;
  v1::TrainingPoint next_;
};

}  // namespace tessera::master
