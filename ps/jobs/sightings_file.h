#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "common/keep_going.h"
#include "ps/rows/partition_set.h"
#include "ps/tables/table.h"
#include "tessera/v1/checkpoint.pb.h"

// How often the keys without a row have been seen, in a file beside a ps's row files
// (common/checkpoint/FORMAT.md).
namespace tessera::ps {

// Writes folder/name with the sightings of the open cut, synced. nullopt, and no file: no table
// counts any. `keep_going` is asked before every partition of every table.
absl::StatusOr<std::optional<v1::CheckpointFile>> WriteSightings(
    FileSystem& files, const std::string& folder, const std::string& name,
    const PartitionSet& partitions, const Tables& tables, KeepGoing keep_going);

// Adds the file's sightings of owned partitions to `tables`, which are indexed by the file's table
// numbers; null: nobody wants that table's. DATA_LOSS: the file is missing, or damaged in what is
// read of it. Adds nothing if the file was written with another number of partitions: a fingerprint
// does not tell its partition.
absl::Status ReadSightings(FileSystem& files, const std::string& path,
                           const PartitionSet& partitions, const std::vector<Table*>& tables,
                           KeepGoing keep_going);

// A sighting in bytes: its fingerprint, then its count; one after another.
inline constexpr size_t kSightingBytes = sizeof(uint32_t) + sizeof(uint8_t);
void AppendSightings(absl::Span<const Sighting> sightings, std::string& bytes);
// INVALID_ARGUMENT: not a whole number of sightings, or one with a count of 0.
absl::StatusOr<std::vector<Sighting>> ParseSightings(absl::string_view bytes);

}  // namespace tessera::ps
