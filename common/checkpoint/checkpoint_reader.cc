#include "common/checkpoint/checkpoint_reader.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/status_macros.h"

namespace tessera {
namespace {

absl::Status Contradiction(const std::string& path, absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat(path, ": damaged: ", what, "; go on from an earlier checkpoint"));
}

std::string PlaceOf(uint32_t table, uint32_t partition) {
  return absl::StrCat("the block of table ", table, ", partition ", partition);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(
    FileSystem& fs, const std::string& folder, v1::CheckpointManifest manifest) {
  std::unique_ptr<CheckpointReader> reader(new CheckpointReader(folder, std::move(manifest)));
  for (const v1::CheckpointFile& file : reader->manifest_.files()) {
    TESSERA_RETURN_IF_ERROR(reader->Add(fs, file));
  }
  TESSERA_RETURN_IF_ERROR(reader->CheckNoFileIsMissing());
  std::stable_sort(reader->files_.begin(), reader->files_.end(),
                   [](const File& a, const File& b) { return a.layer < b.layer; });
  return reader;
}

absl::Status CheckpointReader::Add(FileSystem& fs, const v1::CheckpointFile& file) {
  TESSERA_ASSIGN_OR_RETURN(const std::string path, PathBelow(folder_, file.name()));
  absl::StatusOr<std::unique_ptr<RowFileReader>> reader = RowFileReader::Open(fs, path);
  if (absl::IsNotFound(reader.status())) return MissingFile(fs, path);
  TESSERA_RETURN_IF_ERROR(reader.status());
  if ((*reader)->partition_count() != manifest_.partition_count()) {
    return Contradiction(
        path, absl::StrCat("it has ", (*reader)->partition_count(), " partitions, the manifest ",
                           manifest_.partition_count()));
  }
  std::vector<uint64_t> rows(manifest_.tables_size(), 0);
  for (const row_file::IndexEntry& entry : (*reader)->blocks()) {
    if (entry.table >= rows.size()) {
      return Contradiction(path, absl::StrCat(PlaceOf(entry.table, entry.partition),
                                              " is of no table in the manifest"));
    }
    const v1::CheckpointTable& table = manifest_.tables(static_cast<int>(entry.table));
    if (entry.floats_per_row == 0) {
      if (file.layer() > 0) continue;
      return Contradiction(path, absl::StrCat(PlaceOf(entry.table, entry.partition),
                                              " takes rows away that no layer below can have"));
    }
    if (entry.floats_per_row != table.spec().dim() + table.slot_floats()) {
      return Contradiction(
          path,
          absl::StrCat(PlaceOf(entry.table, entry.partition), " has rows of ", entry.floats_per_row,
                       " floats, expected ", table.spec().dim(), " + ", table.slot_floats()));
    }
    rows[entry.table] += entry.rows;
  }
  for (int t = 0; t < file.rows_size() && t < manifest_.tables_size(); ++t) {
    if (file.rows(t) == rows[t]) continue;
    return Contradiction(
        path, absl::StrCat("it has ", rows[t], " rows of table ", manifest_.tables(t).spec().name(),
                           ", the manifest says ", file.rows(t)));
  }
  files_.push_back({.path = path, .layer = file.layer(), .reader = *std::move(reader)});
  return absl::OkStatus();
}

absl::Status CheckpointReader::CheckNoFileIsMissing() const {
  for (int t = 0; t < manifest_.tables_size(); ++t) {
    const v1::CheckpointTable& table = manifest_.tables(t);
    // An upper bound: several layers may have a row.
    uint64_t at_most = 0;
    for (const File& file : files_) {
      for (const row_file::IndexEntry& entry : file.reader->blocks()) {
        if (entry.table == static_cast<uint32_t>(t) && entry.floats_per_row > 0) {
          at_most += entry.rows;
        }
      }
    }
    if (at_most >= table.rows()) continue;
    return absl::DataLossError(absl::StrCat(
        folder_, ": damaged: the ", files_.size(), " files that its manifest names hold ", at_most,
        " rows of table ", table.spec().name(), ", it says that there are ", table.rows(),
        "; go on from an earlier checkpoint"));
  }
  return absl::OkStatus();
}

std::optional<uint64_t> PartitionRows::Find(uint64_t key) const {
  uint64_t low = 0;
  uint64_t high = rows();
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (this->key(middle) < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == rows() || this->key(low) != key) return std::nullopt;
  return low;
}

absl::StatusOr<TableIndex> CheckpointReader::FindTable(const std::string& name) const {
  std::string names;
  for (int t = 0; t < manifest_.tables_size(); ++t) {
    const std::string& found = manifest_.tables(t).spec().name();
    if (found == name) return TableIndex(static_cast<uint32_t>(t));
    absl::StrAppend(&names, names.empty() ? "" : ", ", found);
  }
  return absl::NotFoundError(
      absl::StrCat(folder_, ": no table ", name, "; there are ", names.empty() ? "none" : names));
}

absl::StatusOr<PartitionRows> CheckpointReader::Read(TableIndex table,
                                                     PartitionId partition) const {
  PartitionRows out;
  // The rows of the layers so far, ascending by key.
  std::vector<PartitionRows::Place> merged;
  // The file whose blocks were merged last.
  const File* last = nullptr;
  for (const File& file : files_) {
    const row_file::IndexEntry* const gone = file.reader->Find(table, partition, /*gone=*/true);
    const row_file::IndexEntry* const changed = file.reader->Find(table, partition);
    if (gone == nullptr && changed == nullptr) continue;
    if (last != nullptr && last->layer == file.layer) {
      return Contradiction(file.path, absl::StrCat(PlaceOf(table.value(), partition.value()),
                                                   " is in ", last->path, " too"));
    }
    last = &file;
    if (gone != nullptr) {
      TESSERA_ASSIGN_OR_RETURN(const RowBlock keys, file.reader->Read(*gone));
      uint64_t k = 0;
      std::erase_if(merged, [&](const PartitionRows::Place& place) {
        const uint64_t key = out.blocks_[place.block].key(place.row);
        while (k < keys.rows() && keys.key(k) < key) ++k;
        return k < keys.rows() && keys.key(k) == key;
      });
    }
    if (changed == nullptr) continue;
    TESSERA_ASSIGN_OR_RETURN(RowBlock block, file.reader->Read(*changed));
    const uint32_t number = static_cast<uint32_t>(out.blocks_.size());
    const uint32_t rows = static_cast<uint32_t>(block.rows());
    out.blocks_.push_back(std::move(block));
    std::vector<PartitionRows::Place> next;
    next.reserve(merged.size() + rows);
    size_t m = 0;
    for (uint32_t row = 0; row < rows; ++row) {
      const uint64_t key = out.blocks_[number].key(row);
      for (; m < merged.size(); ++m) {
        const uint64_t below = out.blocks_[merged[m].block].key(merged[m].row);
        if (below >= key) {
          m += below == key;
          break;
        }
        next.push_back(merged[m]);
      }
      next.push_back({number, row});
    }
    next.insert(next.end(), merged.begin() + static_cast<ptrdiff_t>(m), merged.end());
    merged = std::move(next);
  }
  out.places_ = std::move(merged);
  return out;
}

}  // namespace tessera
