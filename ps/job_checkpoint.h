#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "ps/partition_set.h"
#include "ps/request_check.h"
#include "tessera/v1/checkpoint.pb.h"

// A ps's part of a checkpoint. The caller keeps pushes away while it is written and everybody away
// while it is restored.
namespace tessera::ps {

// Writes folder/rows-<part>-of-<parts> with all rows of all owned partitions, synced. After an
// error the file is removed. RESOURCE_EXHAUSTED: the disk is full.
absl::StatusOr<v1::CheckpointFile> WriteTables(FileSystem& files, const std::string& folder,
                                               uint32_t part, uint32_t parts,
                                               const PartitionSet& partitions,
                                               const Tables& tables);

// Reads the owned partitions out of a checkpoint, however many ps wrote it and however many
// partitions it has, into tables that are empty; tables are matched by name. `warm`: embeddings
// only, and a table that the checkpoint lacks stays empty.
//
// NOT_FOUND: no checkpoint there; DATA_LOSS names the damaged file; FAILED_PRECONDITION: a table is
// missing or has another shape. After an error the tables hold anything.
absl::Status RestoreTables(FileSystem& files, const std::string& folder, bool warm,
                           const PartitionSet& partitions, const Tables& tables);

}  // namespace tessera::ps
