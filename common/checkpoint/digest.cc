#include "common/checkpoint/digest.h"

#include <xxhash.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/row_file_format.h"
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

// The start of all hashed bytes: the kind, then the name's length and the name, so that different
// things never have the same bytes.
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

void AddRows(const PartitionRows& rows, const std::string& prefix, OrderFreeSum& sum) {
  std::string bytes = prefix;
  for (uint64_t i = 0; i < rows.rows(); ++i) {
    bytes.resize(prefix.size());
    Append(bytes, rows.key(i));
    const absl::Span<const float> values = rows.values(i);
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    sum.Add(bytes);
  }
}

}  // namespace

absl::StatusOr<std::string> DigestCheckpoint(FileSystem& fs, const std::string& folder,
                                             KeepGoing keep_going) {
  TESSERA_ASSIGN_OR_RETURN(v1::CheckpointManifest manifest,
                           VerifyCheckpoint(fs, folder, keep_going));
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointReader> reader,
                           CheckpointReader::Open(fs, folder, std::move(manifest)));
  OrderFreeSum sum;
  for (int t = 0; t < reader->manifest().tables_size(); ++t) {
    const v1::CheckpointTable& table = reader->manifest().tables(t);
    AddTable(table, sum);
    const std::string prefix = Prefix('R', table.spec().name());
    uint64_t found = 0;
    for (uint32_t p = 0; p < reader->partition_count(); ++p) {
      TESSERA_RETURN_IF_ERROR(keep_going());
      TESSERA_ASSIGN_OR_RETURN(const PartitionRows rows,
                               reader->Read(TableIndex(static_cast<uint32_t>(t)), PartitionId(p)));
      AddRows(rows, prefix, sum);
      found += rows.rows();
    }
    if (found == table.rows()) continue;
    return absl::DataLossError(absl::StrCat(
        folder, ": damaged: the files hold ", found, " rows of table ", table.spec().name(),
        ", the manifest says ", table.rows(), "; go on from an earlier checkpoint"));
  }
  return sum.Text();
}

}  // namespace tessera
