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
#include "ps/rows/partition_set.h"
#include "ps/tables/sighting_filter.h"
#include "tessera/v1/job.pb.h"

namespace tessera::ps {

// Decides, by the table's AdmissionSpec, which keys get a row.
//
// Whether a key is in the share `probability` is drawn by (seed, table, key). Sightings are counted
// by partition, so they do not depend on which ps owns it. The filters of a table take at most
// kMaxBytes on all ps together, and as much again while a cut is written.
//
// Thread-safe except Sight, whose caller holds `mu`.
class Admission {
 public:
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 30;

  // Null if every key gets a row at its first pull. INVALID_ARGUMENT names table and field.
  // `partitions` is borrowed and outlives it.
  static absl::StatusOr<std::unique_ptr<Admission>> New(const v1::AdmissionSpec& spec,
                                                        uint64_t seed, absl::string_view table,
                                                        const PartitionSet* partitions);

  // Whether a pull makes a row for the key.
  bool AtPull(uint64_t key) const { return sightings_ <= 1 && IsChosen(key); }

  // Counts keys of one update that have no row, each once however often it comes. Returns those
  // that get a row now, ascending; their counts start anew.
  std::vector<uint64_t> Sight(std::vector<uint64_t> keys) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Memory of the filters, including those that a cut keeps.
  uint64_t bytes() const ABSL_LOCKS_EXCLUDED(mu);
  // Of bytes(), what grows with the keys that are counted; a cut keeps as much again at most.
  uint64_t counting_bytes() const ABSL_LOCKS_EXCLUDED(mu);

  // Whether sightings are counted, and so must be saved.
  bool counts() const { return sightings_ > 1; }
  // Sightings of an owned partition's keys that have no row, ascending.
  std::vector<Sighting> Sightings(PartitionId partition) const ABSL_LOCKS_EXCLUDED(mu);
  // Replaces the partition's sightings; does nothing if it is not owned.
  void SetSightings(PartitionId partition, absl::Span<const Sighting> sightings)
      ABSL_LOCKS_EXCLUDED(mu);
  // Adds to the partition's sightings; none of these fingerprints is there yet.
  void AddSightings(PartitionId partition, absl::Span<const Sighting> sightings)
      ABSL_LOCKS_EXCLUDED(mu);
  // Moves over the filters of partitions that both own, where `other` has counted any.
  void TakeOver(Admission& other) ABSL_LOCKS_EXCLUDED(mu);

  // Keeps the counts of this moment without a copy: a partition is copied when it counts on. Drops
  // the cut before.
  void BeginCut() ABSL_LOCKS_EXCLUDED(mu);
  // Sightings() as they were at BeginCut; call once for each partition.
  std::vector<Sighting> TakeCut(PartitionId partition) ABSL_LOCKS_EXCLUDED(mu);
  void DropCut() ABSL_LOCKS_EXCLUDED(mu);

  // Held from looking up a key's row until it is made.
  mutable absl::Mutex mu;

 private:
  Admission(const v1::AdmissionSpec& spec, uint64_t seed, absl::string_view table,
            const PartitionSet* partitions);

  bool IsChosen(uint64_t key) const;
  std::shared_ptr<SightingFilter> NewFilter() const;
  uint64_t CountingBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // The key's filter, to be counted in: copied first if a cut keeps it.
  SightingFilter& FilterOf(uint64_t key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  const uint32_t sightings_;
  const double probability_;
  const uint64_t seed_;
  const uint64_t table_hash_;
  const PartitionSet& partitions_;
  // By number in the partition set. These pointers are copied and dropped only under `mu`, so
  // use_count tells whether somebody else has the filter.
  std::vector<std::shared_ptr<SightingFilter>> filters_ ABSL_GUARDED_BY(mu);
  std::vector<std::shared_ptr<const SightingFilter>> cut_ ABSL_GUARDED_BY(mu);  // empty: no cut
};

}  // namespace tessera::ps
