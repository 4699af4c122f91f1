#include "common/checkpoint/digest.h"

#include <xxhash.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/row_file_reader.h"
#include "common/status_macros.h"

namespace tessera {
namespace {

class OrderFreeSum {
 public:
  void Add(absl::string_view bytes) {
    const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
    low_ += hash.low64;
    high_ += hash.high64;
  }
  std::string Text() const {
    return absl::StrCat(absl::Hex(high_, absl::kZeroPad16), absl::Hex(low_, absl::kZeroPad16));
  }

 private:
  uint64_t low_ = 0;
  uint64_t high_ = 0;
};

template <typename T>
void Append(std::string& out, const T& value) {
  const absl::string_view bytes = row_file::BytesOf(value);
  out.append(bytes.data(), bytes.size());
}

// What is hashed begins with its kind and the name behind its length, so that no two things that
// differ have the same bytes.
std::string Prefix(char kind, const std::string& table) {
  std::string out(1, kind);
  Append(out, static_cast<uint64_t>(table.size()));
  return out + table;
}

void AddTable(const v1::CheckpointTable& table, OrderFreeSum& sum) {
  std::string bytes = Prefix('T', table.spec().name());
  Append(bytes, table.spec().dim());
  Append(bytes, table.slot_floats());
  sum.Add(bytes);
}

void AddBlock(const RowBlock& block, const std::string& prefix, OrderFreeSum& sum) {
  std::string bytes = prefix;
  for (uint64_t i = 0; i < block.rows(); ++i) {
    bytes.resize(prefix.size());
    Append(bytes, block.key(i));
    const absl::Span<const float> values = block.values(i);
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    sum.Add(bytes);
  }
}

class Digest {
 public:
  Digest(FileSystem& fs, std::string folder, const v1::CheckpointManifest& manifest)
      : fs_(fs), folder_(std::move(folder)), manifest_(manifest), rows_(manifest.tables_size()) {}

  absl::StatusOr<std::string> Compute() {
    for (const v1::CheckpointTable& table : manifest_.tables()) {
      AddTable(table, sum_);
      row_prefixes_.push_back(Prefix('R', table.spec().name()));
    }
    for (const v1::CheckpointFile& file : manifest_.files()) {
      TESSERA_RETURN_IF_ERROR(AddFile(absl::StrCat(folder_, "/", file.name())));
    }
    for (int t = 0; t < manifest_.tables_size(); ++t) {
      if (rows_[t] != manifest_.tables(t).rows()) {
        return Contradiction(folder_,
                             absl::StrCat("the files hold ", rows_[t], " rows of table ",
                                          manifest_.tables(t).spec().name(), ", the manifest says ",
                                          manifest_.tables(t).rows()));
      }
    }
    return sum_.Text();
  }

 private:
  static absl::Status Contradiction(const std::string& path, absl::string_view what) {
    return absl::DataLossError(
        absl::StrCat(path, ": damaged: ", what, "; go on from an earlier checkpoint"));
  }

  absl::Status AddFile(const std::string& path) {
    TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<RowFileReader> reader,
                             RowFileReader::Open(fs_, path));
    if (reader->partition_count() != manifest_.partition_count()) {
      return Contradiction(
          path, absl::StrCat("it has ", reader->partition_count(),
                             " partitions, the manifest says ", manifest_.partition_count()));
    }
    for (const row_file::IndexEntry& entry : reader->blocks()) {
      const std::string place =
          absl::StrCat("the block of table ", entry.table, ", partition ", entry.partition);
      if (entry.table >= static_cast<uint32_t>(manifest_.tables_size())) {
        return Contradiction(path, absl::StrCat(place, " is of no table in the manifest"));
      }
      const v1::CheckpointTable& table = manifest_.tables(static_cast<int>(entry.table));
      if (entry.floats_per_row != table.spec().dim() + table.slot_floats()) {
        return Contradiction(
            path, absl::StrCat(place, " has rows of ", entry.floats_per_row, " floats, expected ",
                               table.spec().dim(), " + ", table.slot_floats()));
      }
      if (!seen_.emplace(entry.table, entry.partition).second) {
        return Contradiction(path, absl::StrCat(place, " is in another file too"));
      }
      TESSERA_ASSIGN_OR_RETURN(const RowBlock block, reader->Read(entry));
      AddBlock(block, row_prefixes_[entry.table], sum_);
      rows_[entry.table] += entry.rows;
    }
    return absl::OkStatus();
  }

  FileSystem& fs_;
  const std::string folder_;
  const v1::CheckpointManifest& manifest_;
  std::vector<std::string> row_prefixes_;  // by table
  std::vector<uint64_t> rows_;             // by table, so far
  absl::flat_hash_set<std::pair<uint32_t, uint32_t>> seen_;
  OrderFreeSum sum_;
};

}  // namespace

absl::StatusOr<std::string> DigestCheckpoint(FileSystem& fs, const std::string& folder) {
  TESSERA_ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest, VerifyCheckpoint(fs, folder));
  return Digest(fs, folder, manifest).Compute();
}

}  // namespace tessera
