#pragma once

#include <endian.h>
#include <xxhash.h>

#include <compare>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/hash.h"

namespace tessera::ps {

// A row's place in the tier. Rows of one partition lie together, ascending by key.
struct ColdKey {
  uint32_t partition = 0;
  uint64_t key = 0;
  auto operator<=>(const ColdKey&) const = default;
};

// How a row stands in RocksDB; nothing outside this file knows it.
//
//   key   = partition u32 big-endian | key u64 big-endian                 12 bytes
//   value = record [record_bytes]    | checksum u64 little-endian
//
// The checksum is XXH3-64 of the record, seeded with table and key: it also finds a record that
// lies under the wrong key or in the wrong table. RocksDB's own checksums cover blocks, not what
// happens to a value between them and us.
namespace cold_record {

inline constexpr size_t kKeyBytes = 12;
inline constexpr size_t kChecksumBytes = 8;

inline void EncodeKey(const ColdKey& key, char* out /* [kKeyBytes] */) {
  const uint32_t partition = htobe32(key.partition);
  const uint64_t number = htobe64(key.key);
  std::memcpy(out, &partition, sizeof(partition));
  std::memcpy(out + sizeof(partition), &number, sizeof(number));
}

inline ColdKey DecodeKey(const char* in /* [kKeyBytes] */) {
  uint32_t partition;
  uint64_t number;
  std::memcpy(&partition, in, sizeof(partition));
  std::memcpy(&number, in + sizeof(partition), sizeof(number));
  return {.partition = be32toh(partition), .key = be64toh(number)};
}

inline uint64_t ChecksumOf(uint32_t table, uint64_t key, absl::string_view record) {
  return htole64(XXH3_64bits_withSeed(record.data(), record.size(), MixPair(table, key)));
}

// The record of a value, or an empty view: its length or its checksum is wrong.
inline absl::string_view Verify(uint32_t table, uint64_t key, absl::string_view value,
                                size_t record_bytes) {
  if (value.size() != record_bytes + kChecksumBytes) return {};
  const absl::string_view record = value.substr(0, record_bytes);
  const uint64_t expected = ChecksumOf(table, key, record);
  return std::memcmp(value.data() + record_bytes, &expected, kChecksumBytes) == 0
             ? record
             : absl::string_view();
}

}  // namespace cold_record
}  // namespace tessera::ps
