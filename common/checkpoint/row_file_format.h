#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tessera::row_file {

// The format of a ps's part of a checkpoint, for its writer and its reader; FORMAT.md has the
// grammar and an example. All numbers are little-endian; the structs are stored as they lie in
// memory.
static_assert(std::endian::native == std::endian::little,
              "row files are written as the machine holds them");

// The version that is written; the reader takes all from kOldestFormatVersion on.
inline constexpr uint32_t kFormatVersion = 2;
inline constexpr uint32_t kOldestFormatVersion = 1;
inline constexpr uint64_t kHeaderMagic = 0x31574F5252535354;   // "TSSRROW1"
inline constexpr uint64_t kTrailerMagic = 0x31444E4552535354;  // "TSSREND1"
inline constexpr uint32_t kBlockMagic = 0x4B4C4254;            // "TBLK"

struct Header {
  uint64_t magic;
  uint32_t format_version;
  uint32_t partition_count;
  uint64_t reserved;  // 0
  uint64_t checksum;  // of the bytes before it
};
static_assert(sizeof(Header) == 32);

// Precedes the records of a block; a uint64 checksum of both follows them.
struct BlockHeader {
  uint32_t magic;
  uint32_t table;
  uint32_t partition;
  // dim and slots; 0: the block lists removed keys, whose rows a lower layer has.
  uint32_t floats_per_row;
  uint64_t rows;          // at least 1
  uint64_t record_bytes;  // of all rows
};
static_assert(sizeof(BlockHeader) == 32);
inline constexpr uint64_t kBlockOverhead = sizeof(BlockHeader) + sizeof(uint64_t);

// A record: uint64 key, uint32 frequency, uint64 last_step, float32 [floats_per_row]; no padding.
inline constexpr uint64_t kRecordKey = 0;
inline constexpr uint64_t kRecordFrequency = 8;
inline constexpr uint64_t kRecordLastStep = 12;
inline constexpr uint64_t kRecordValues = 20;
// Bound of BlockHeader::floats_per_row, so that sizes computed from it cannot overflow.
inline constexpr uint32_t kMaxFloatsPerRow = 1u << 20;
constexpr uint64_t RecordBytes(uint32_t floats_per_row) {
  return kRecordValues + sizeof(float) * uint64_t{floats_per_row};
}

// One entry of the index, which follows the blocks and lists them in their order.
struct IndexEntry {
  uint32_t table;
  uint32_t partition;
  uint32_t floats_per_row;
  uint32_t reserved;  // 0
  uint64_t offset;    // of the BlockHeader in the file
  uint64_t bytes;     // of the block, header and checksum included
  uint64_t rows;
};
static_assert(sizeof(IndexEntry) == 40);

// Ends the file.
struct Trailer {
  uint64_t index_offset;
  uint64_t index_entries;
  uint64_t checksum;  // of the index and the two numbers above
  uint64_t magic;
};
static_assert(sizeof(Trailer) == 32);

template <typename T>
absl::string_view BytesOf(const T& value) {
  return absl::string_view(reinterpret_cast<const char*>(&value), sizeof(T));
}
template <typename T>
T Load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

// Writes one record to `record`, which has room for it.
inline void StoreRecord(uint64_t key, uint32_t frequency, uint64_t last_step,
                        absl::Span<const float> values, char* record) {
  std::memcpy(record + kRecordKey, &key, sizeof(key));
  std::memcpy(record + kRecordFrequency, &frequency, sizeof(frequency));
  std::memcpy(record + kRecordLastStep, &last_step, sizeof(last_step));
  if (values.empty()) return;
  std::memcpy(record + kRecordValues, values.data(), values.size() * sizeof(float));
}

}  // namespace tessera::row_file
