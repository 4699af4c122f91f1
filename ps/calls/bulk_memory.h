#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/types/span.h"
#include "common/round_up.h"
#include "common/wire/buffer.h"

namespace tessera::ps {

// Memory for the bulk of one call: field after field, each begun at a multiple of 8, with zeros
// between. A push log stores pushes in the same layout.
class BulkMemory {
 public:
  // Bytes that a field of `bytes` takes here.
  static constexpr uint64_t Padded(uint64_t bytes) { return RoundUp(bytes, sizeof(uint64_t)); }

  // `padded_bytes`: the sum over all fields that will be added. Throws std::bad_alloc.
  explicit BulkMemory(uint64_t padded_bytes) : memory_(padded_bytes), at_(memory_.data()) {}
  // The next field, for the caller to write.
  absl::Span<char> Add(uint64_t bytes) {
    const absl::Span<char> field(at_, bytes);
    at_ += Padded(bytes);
    std::fill(field.end(), at_, '\0');
    return field;
  }
  wire::Buffer Finish() && { return std::move(memory_); }

 private:
  wire::Buffer memory_;
  char* at_;
};

}  // namespace tessera::ps
