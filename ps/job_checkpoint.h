#pragma once

#include <cstdint>
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

// A ps's part of a checkpoint. The caller keeps pushes away while it is cut, for the moment that
// this takes; rows may change while it is written. And everybody, while tables are restored.
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
  std::vector<v1::CheckpointFile> files;        // in the folder, lowest layer first
  size_t first_files = 1;                       // of them, those that were written with all rows
  uint64_t new_bytes = 0;                       // of those that are no links to earlier ones
  std::vector<uint64_t> rows;                   // by table: all that there were, in whatever layer
  std::optional<v1::CheckpointFile> sightings;  // whole, whatever the layers
};

// Layers over those of a first checkpoint; a restore reads them all.
inline constexpr size_t kMaxLayers = 32;
// Whether what changed since `base` should be written as one more layer, rather than all rows anew:
// while the layers over the first, and those of `tables` whose every row changes, are small beside
// it.
bool IsIncrementWorth(const WrittenPart& base, const Tables& tables);

// A part on its way: what it will be when it is written.
struct PartCut {
  bool all = true;      // every row, or what changed since the last part
  std::string name;     // of the files to be written: behind "rows-", that of a layer over others
                        // continued, or "sightings-"
  WrittenPart written;  // the files of lower layers; rows, once it is cut
  std::vector<v1::CheckpointFile> unused;  // in the folder, and of no use
};

// Makes the folder, and in it links to the files of `base`, unless null: what was written last, by
// these tables. All rows are to be written where that is null or the disk has no links.
absl::StatusOr<PartCut> PrepareCut(FileSystem& files, const std::string& folder,
                                   const CheckpointPart& part, const WrittenPart* base);
// Marks the moment whose rows the part has; of all rows also where that was not prepared, and what
// has changed is not known any more.
void CutTables(const Tables& tables, PartCut& cut);
// Writes folder/rows-g<generation>-<part>-of-<parts> with all rows of all owned partitions, synced;
// or, over a base, "...-layer-<n>" with what changed since. Where tables spill it is two layers:
// the upper one has the rows that memory has newer than the disk, or alone, and is written first,
// since rows that change are copied until it is. The lower one has what was on disk at the cut.
// Beside them "sightings-g...", where tables count any.
//
// After an error the cut and the file are gone, and what the next part is based on must be null:
// the marks of what changed are gone. RESOURCE_EXHAUSTED: the disk is full, or too much changed
// meanwhile (RowStore::StopCopies). `keep_going` is asked before every partition of every table.
absl::StatusOr<WrittenPart> WriteCut(FileSystem& files, PartCut cut, const PartitionSet& partitions,
                                     const Tables& tables, KeepGoing keep_going);
// Forgets a cut that is not written, with the same consequence. Nothing if there is none.
void DropCut(const Tables& tables);

// Reads the owned partitions out of a checkpoint, however many ps wrote it and however many
// partitions it has, into tables that are empty; tables are matched by name. `warm`: embeddings
// only, and a table that the checkpoint lacks stays empty. Sightings of another number of
// partitions are left out.
//
// NOT_FOUND: no checkpoint there; DATA_LOSS names the damaged file; FAILED_PRECONDITION: a table is
// missing or has another shape. After an error the tables hold anything. `keep_going` is asked
// before every block.
//
// `first_push`: pushes are numbered from here on. Where the checkpoint's job counted fewer the
// marks of rows move on by the difference, so that none is older than it was there.
absl::Status RestoreTables(FileSystem& files, const std::string& folder, bool warm,
                           uint64_t first_push, const PartitionSet& partitions,
                           const Tables& tables, KeepGoing keep_going);

}  // namespace tessera::ps
