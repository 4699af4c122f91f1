#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/checkpoint/row_file_reader.h"
#include "common/file_system.h"
#include "common/ids.h"
#include "tessera/v1/checkpoint.pb.h"

namespace tessera {

// The rows of one table in one partition of a checkpoint, ascending by key; each row comes from the
// highest layer that has the key. Owns its bytes; read-only.
class PartitionRows {
 public:
  uint64_t rows() const { return places_.size(); }
  uint64_t key(uint64_t i) const { return block(i).key(places_[i].row); }
  uint32_t frequency(uint64_t i) const { return block(i).frequency(places_[i].row); }
  uint64_t last_step(uint64_t i) const { return block(i).last_step(places_[i].row); }
  // [dim + slot floats]: embedding, then slots.
  absl::Span<const float> values(uint64_t i) const { return block(i).values(places_[i].row); }
  // The index of the key's row; nullopt: there is none.
  std::optional<uint64_t> Find(uint64_t key) const;

 private:
  friend class CheckpointReader;
  struct Place {
    uint32_t block;
    uint32_t row;
  };
  const RowBlock& block(uint64_t i) const { return blocks_[places_[i].block]; }

  std::vector<RowBlock> blocks_;
  std::vector<Place> places_;
};

// Reads the rows of a checkpoint from all its files and layers. Thread-safe.
//
// DATA_LOSS names a file that is missing, damaged or contradicts the manifest. VerifyCheckpoint,
// not this class, checks the checksums of whole files.
class CheckpointReader {
 public:
  // `fs` is borrowed and outlives the reader. Opens every file and checks its index.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Open(FileSystem& fs,
                                                                const std::string& folder,
                                                                v1::CheckpointManifest manifest);

  const v1::CheckpointManifest& manifest() const { return manifest_; }
  uint32_t partition_count() const { return manifest_.partition_count(); }
  // NOT_FOUND lists the known tables.
  absl::StatusOr<TableIndex> FindTable(const std::string& name) const;
  // Needs memory for the partition's blocks in all layers.
  absl::StatusOr<PartitionRows> Read(TableIndex table, PartitionId partition) const;

 private:
  struct File {
    std::string path;
    uint32_t layer;
    std::unique_ptr<RowFileReader> reader;
  };

  CheckpointReader(std::string folder, v1::CheckpointManifest manifest)
      : folder_(std::move(folder)), manifest_(std::move(manifest)) {}
  absl::Status Add(FileSystem& fs, const v1::CheckpointFile& file);
  // DATA_LOSS: the files in the manifest have fewer rows than it says.
  absl::Status CheckNoFileIsMissing() const;

  const std::string folder_;
  const v1::CheckpointManifest manifest_;
  std::vector<File> files_;  // by layer, the lowest first; constant after Open
};

}  // namespace tessera
