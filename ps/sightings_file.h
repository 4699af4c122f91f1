#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "common/keep_going.h"
#include "ps/partition_set.h"
#include "ps/request_check.h"
#include "tessera/v1/checkpoint.pb.h"

// What the keys without a row have been seen, in a file beside a ps's row files
// (common/checkpoint/FORMAT.md).
namespace tessera::ps {

// Writes folder/name with the sightings of the cut that is open, synced. nullopt, and no file: no
// table counts any. `keep_going` is asked before every partition of every table.
absl::StatusOr<std::optional<v1::CheckpointFile>> WriteSightings(
    FileSystem& files, const std::string& folder, const std::string& name,
    const PartitionSet& partitions, const Tables& tables, KeepGoing keep_going);

// Adds what the file has of owned partitions to `tables`: by the file's numbers of tables, null
// where nobody wants them. DATA_LOSS: it is missing, or damaged in what is read of it. Where it was
// written with another number of partitions nothing is: a fingerprint does not tell its partition.
absl::Status ReadSightings(FileSystem& files, const std::string& path,
                           const PartitionSet& partitions, const std::vector<Table*>& tables,
                           KeepGoing keep_going);

// Each as its fingerprint and its count, one behind the other.
inline constexpr size_t kSightingBytes = sizeof(uint32_t) + sizeof(uint8_t);
void AppendSightings(absl::Span<const Sighting> sightings, std::string& bytes);
// INVALID_ARGUMENT: not a whole number of them, or one that was never seen.
absl::StatusOr<std::vector<Sighting>> ParseSightings(absl::string_view bytes);

}  // namespace tessera::ps
