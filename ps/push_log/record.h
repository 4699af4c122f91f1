#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/checksum.h"
#include "common/round_up.h"

namespace tessera::ps::push_log {

// What the writer and the reader of a push log agree on; FORMAT.md has the grammar. All numbers are
// little-endian; these structs are the bytes.
static_assert(std::endian::native == std::endian::little,
              "push logs are written as the machine holds them");

enum class Kind : uint32_t {
  kHead = 1,    // v1::PushLogHead
  kPush = 2,    // v1::LoggedPush, and its bulk
  kAssign = 3,  // v1::AssignRequest
  kExpiry = 4,  // v1::LoggedExpiry
  kRows = 5,    // v1::RowChunk, received from another ps
};

// Stands before every record. Behind it: `text_bytes` of a protobuf message, zeros up to a multiple
// of 8, then `bulk_bytes`, which are a multiple of 8, too.
struct RecordHeader {
  uint64_t magic;
  uint64_t number;  // grows by one, over all segments
  Kind kind;
  uint32_t text_bytes;
  uint64_t bulk_bytes;
  uint64_t payload_checksum;  // of text, zeros and bulk
  uint64_t header_checksum;   // of the bytes before
};
static_assert(sizeof(RecordHeader) == 48);
inline constexpr uint64_t kMagic = 0x31474F4C52535354;  // "TSSRLOG1": 1 is the version
inline constexpr uint32_t kMaxTextBytes = 64 << 20;
inline constexpr uint64_t kMaxBulkBytes = 1ull << 31;

constexpr uint64_t Padded(uint64_t bytes) { return RoundUp(bytes, sizeof(uint64_t)); }

inline uint64_t HeaderChecksum(const RecordHeader& header) {
  return Checksum64Of(absl::string_view(reinterpret_cast<const char*>(&header),
                                        offsetof(RecordHeader, header_checksum)));
}

constexpr char VersionOf(uint64_t magic) { return static_cast<char>(magic >> 56); }
// Whether it is one, whole, of a log of another version. A header is the same in all versions.
inline bool IsOfAnotherVersion(const RecordHeader& header) {
  return header.magic << 8 == kMagic << 8 && header.magic != kMagic &&
         header.header_checksum == HeaderChecksum(header);
}

inline constexpr char kSuffix[] = ".log";
// Name of a file that was a segment, and will be one again.
inline constexpr char kSpare[] = "spare";
inline std::string SegmentName(uint64_t number) { return absl::StrFormat("%08d.log", number); }

}  // namespace tessera::ps::push_log
