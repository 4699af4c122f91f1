#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "ps/partition_set.h"
#include "ps/sighting_filter.h"
#include "tessera/v1/job.pb.h"

namespace tessera::ps {

// Which keys of one table get a row, by its AdmissionSpec.
//
// The share of `probability` is drawn by (seed, table, key). Sightings are counted by partition, so
// they do not depend on which ps owns it; counting starts anew when a job is opened, also from a
// checkpoint. The filters of a table take at most kMaxBytes on all ps together.
//
// AtPull is thread-safe.
class Admission {
 public:
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 30;

  // Null where every key gets a row with its first pull. INVALID_ARGUMENT names table and field.
  // `partitions` is borrowed and outlives it.
  static absl::StatusOr<std::unique_ptr<Admission>> New(const v1::AdmissionSpec& spec,
                                                        uint64_t seed, absl::string_view table,
                                                        const PartitionSet* partitions);

  // Whether a pull makes a row for the key.
  bool AtPull(uint64_t key) const { return sightings_ <= 1 && IsChosen(key); }

  // Counts the keys of one update that have no row, each once however often it comes; returns those
  // that get one now, ascending. Their counts start anew.
  std::vector<uint64_t> Sight(std::vector<uint64_t> keys) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  uint64_t bytes() const ABSL_LOCKS_EXCLUDED(mu);

  // Held from the look for a key's row to its making.
  mutable absl::Mutex mu;

 private:
  Admission(const v1::AdmissionSpec& spec, uint64_t seed, absl::string_view table,
            const PartitionSet* partitions);

  bool IsChosen(uint64_t key) const;
  SightingFilter& FilterOf(uint64_t key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  const uint32_t sightings_;
  const double probability_;
  const uint64_t seed_;
  const uint64_t table_hash_;
  const PartitionSet& partitions_;
  std::vector<SightingFilter> filters_ ABSL_GUARDED_BY(mu);  // by number in the partition set
};

}  // namespace tessera::ps
