#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "common/keep_going.h"
#include "ps/partition_set.h"
#include "ps/request_check.h"
#include "tessera/v1/checkpoint.pb.h"

// A ps's part of a checkpoint. The caller keeps pushes away while it is written and everybody away
// while it is restored.
namespace tessera::ps {

// A ps's place among those that write a checkpoint; names the file.
struct CheckpointPart {
  // A ps that was stopped past its lease must not touch what the next generation has written.
  uint64_t generation = 0;
  uint32_t part = 0;
  uint32_t parts = 1;
};

// What a ps wrote for a checkpoint.
struct WrittenPart {
  std::string folder;
  std::vector<v1::CheckpointFile> files;  // in the folder, lowest layer first
  std::vector<uint64_t> rows;             // by table: all that there were, in whatever layer
};

// Layers over a first checkpoint; a restore reads them all.
inline constexpr size_t kMaxLayers = 32;
// Whether what changed since `base` should be written as one more layer, rather than all rows anew:
// while the layers over the first, and those of `tables` whose every row changes, are small beside
// it.
bool IsIncrementWorth(const WrittenPart& base, const Tables& tables);

// Writes folder/rows-g<generation>-<part>-of-<parts> with all rows of all owned partitions, synced.
// `base`, unless null: what was written last, by these tables; then only what changed since, in
// "...-layer-<n>", beside links to its files.
//
// After an error the file is removed, and what the next part is based on must be null: the marks
// of what changed are gone. RESOURCE_EXHAUSTED: the disk is full; UNIMPLEMENTED: a disk without
// links. `keep_going` is asked before every partition of every table.
absl::StatusOr<WrittenPart> WriteTables(FileSystem& files, const std::string& folder,
                                        const CheckpointPart& part, const WrittenPart* base,
                                        const PartitionSet& partitions, const Tables& tables,
                                        KeepGoing keep_going);

// Reads the owned partitions out of a checkpoint, however many ps wrote it and however many
// partitions it has, into tables that are empty; tables are matched by name. `warm`: embeddings
// only, and a table that the checkpoint lacks stays empty.
//
// NOT_FOUND: no checkpoint there; DATA_LOSS names the damaged file; FAILED_PRECONDITION: a table is
// missing or has another shape. After an error the tables hold anything. `keep_going` is asked
// before every block.
absl::Status RestoreTables(FileSystem& files, const std::string& folder, bool warm,
                           const PartitionSet& partitions, const Tables& tables,
                           KeepGoing keep_going);

}  // namespace tessera::ps
