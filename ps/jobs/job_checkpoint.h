#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "common/keep_going.h"
#include "ps/jobs/request_check.h"
#include "ps/rows/partition_set.h"
#include "tessera/v1/checkpoint.pb.h"

// A ps's part of a checkpoint. While it is cut, for a moment, the caller keeps pushes away; rows
// may change while it is written. While tables are restored the caller keeps everybody away.
namespace tessera::ps {

// A ps's place among those that write a checkpoint; names the file.
struct CheckpointPart {
  // In the file names, so that a ps stopped past its lease does not touch what the next generation
  // has written.
  uint64_t generation = 0;
  uint32_t part = 0;
  uint32_t parts = 1;
};

// What a ps wrote for a checkpoint.
struct WrittenPart {
  std::string folder;
  std::vector<v1::CheckpointFile> files;        // in the folder, lowest layer first
  size_t first_files = 1;                       // how many of them were written with all rows
  uint64_t new_bytes = 0;                       // of the files that are not links to earlier ones
  std::vector<uint64_t> rows;                   // by table: all rows, whatever their layer
  std::optional<v1::CheckpointFile> sightings;  // always written whole
};

// Most layers over those of the first checkpoint; a restore reads them all.
inline constexpr size_t kMaxLayers = 32;
// Whether to write what changed since `base` as one more layer rather than all rows anew. True
// while the layers over the first, and those of `tables` whose every row changes, are small beside
// the first.
bool IsIncrementWorth(const WrittenPart& base, const Tables& tables);

// A part that is cut or about to be, and not written yet.
struct PartCut {
  bool all = true;  // every row, or what changed since the last part
  // In the names of the files to be written, after "rows-" or "sightings-"; a further layer adds
  // its number.
  std::string name;
  WrittenPart written;                     // the files of lower layers; rows, once it is cut
  std::vector<v1::CheckpointFile> unused;  // in the folder, but not needed
};

// Makes the folder, and in it links to the files of `base`, what these tables wrote last. If `base`
// is null, the disk has no links or somebody has removed a file, all rows are to be written.
absl::StatusOr<PartCut> PrepareCut(FileSystem& files, const std::string& folder,
                                   const CheckpointPart& part, const WrittenPart* base);
// Marks the moment whose rows the part has. The cut is of all rows, even if not prepared so, where
// what has changed is no longer known.
void CutTables(const Tables& tables, PartCut& cut);
// Writes folder/rows-g<generation>-<part>-of-<parts> with all rows of all owned partitions, synced;
// or, over a base, "...-layer-<n>" with what changed since. Tables that spill take two layers. The
// upper one, written first because changing rows are copied until it is, has the rows that are
// newer in memory than on disk, or only in memory. The lower one has what was on disk at the cut.
// Tables whose rows all change at every step (Table::may_spill is false) are written before the
// others, to a file of their own of the same layer, "...-every-row", if there are both kinds.
// Sightings go beside them to "sightings-g...", if tables count any.
//
// After an error the cut and the file are gone, and so are the marks of what changed: the next part
// must be prepared with a null base. RESOURCE_EXHAUSTED: the disk is full, or too much changed
// meanwhile (RowStore::StopCopies). `keep_going` is asked before every partition of every table.
absl::StatusOr<WrittenPart> WriteCut(FileSystem& files, PartCut cut, const PartitionSet& partitions,
                                     const Tables& tables, KeepGoing keep_going);
// Drops a cut that is not written; the next part needs a null base here, too. Does nothing if there
// is no cut.
void DropCut(const Tables& tables);

// Reads the owned partitions of a checkpoint into tables that are empty, however many ps wrote it
// and however many partitions it has. Tables are matched by name. `warm`: reads embeddings only,
// and a table that the checkpoint lacks stays empty. Sightings of a checkpoint with another number
// of partitions are left out.
//
// NOT_FOUND: no checkpoint there; DATA_LOSS names the damaged file; FAILED_PRECONDITION: a table is
// missing or has another shape. After an error the contents of the tables are undefined.
// `keep_going` is asked before every block.
//
// `first_push`: pushes are numbered from here on. If the checkpoint's job counted fewer, the last
// steps of rows grow by the difference, so that no row is older than it was there.
absl::Status RestoreTables(FileSystem& files, const std::string& folder, bool warm,
                           uint64_t first_push, const PartitionSet& partitions,
                           const Tables& tables, KeepGoing keep_going);

}  // namespace tessera::ps
