#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "ps/partition_set.h"
#include "ps/sighting_filter.h"
#include "tessera/v1/job.pb.h"

namespace tessera::ps {

// Which keys of one table get a row, by its AdmissionSpec.
//
// The share of `probability` is drawn by (seed, table, key). Sightings are counted by partition, so
// they do not depend on which ps owns it. The filters of a table take at most kMaxBytes on all ps
// together, and as much again while a cut is written.
//
// Thread-safe but for Sight, whose caller holds `mu`.
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
  // With what a cut holds.
  uint64_t bytes() const ABSL_LOCKS_EXCLUDED(mu);

  // Whether there is anything to be saved.
  bool counts() const { return sightings_ > 1; }
  // Of an owned partition, what its keys that have no row have been seen, ascending.
  std::vector<Sighting> Sightings(PartitionId partition) const ABSL_LOCKS_EXCLUDED(mu);
  // In the place of what the partition has; nothing for one that is not owned.
  void SetSightings(PartitionId partition, absl::Span<const Sighting> sightings)
      ABSL_LOCKS_EXCLUDED(mu);
  // And beside it. None of them is there.
  void AddSightings(PartitionId partition, absl::Span<const Sighting> sightings)
      ABSL_LOCKS_EXCLUDED(mu);
  // Of the partitions that both own, those that `other` has counted in. It has none afterwards.
  void TakeOver(Admission& other) ABSL_LOCKS_EXCLUDED(mu);

  // Keeps what is counted at this moment, without copying it: a partition is copied when it counts
  // on. The cut before is gone.
  void BeginCut() ABSL_LOCKS_EXCLUDED(mu);
  // Sightings() as they were then; each partition once.
  std::vector<Sighting> TakeCut(PartitionId partition) ABSL_LOCKS_EXCLUDED(mu);
  void DropCut() ABSL_LOCKS_EXCLUDED(mu);

  // Held from the look for a key's row to its making.
  mutable absl::Mutex mu;

 private:
  Admission(const v1::AdmissionSpec& spec, uint64_t seed, absl::string_view table,
            const PartitionSet* partitions);

  bool IsChosen(uint64_t key) const;
  std::shared_ptr<SightingFilter> NewFilter() const;
  // For one more to be counted: no cut has it.
  SightingFilter& FilterOf(uint64_t key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  const uint32_t sightings_;
  const double probability_;
  const uint64_t seed_;
  const uint64_t table_hash_;
  const PartitionSet& partitions_;
  // By number in the partition set. None of these pointers is copied or dropped without `mu`, so
  // that its use_count says who else has the filter.
  std::vector<std::shared_ptr<SightingFilter>> filters_ ABSL_GUARDED_BY(mu);
  std::vector<std::shared_ptr<const SightingFilter>> cut_ ABSL_GUARDED_BY(mu);  // empty: none
};

}  // namespace tessera::ps
