#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace tessera::master {

// Who owns what after the set of ps has changed.
struct PartitionMoves {
  std::vector<uint32_t> owner;  // [partitions]: number in the new set
  uint32_t moved = 0;           // partitions whose rows have to travel
};

// No ps owns more than one partition more than another, and as few as that takes change their
// owner. The same arguments give the same result.
PartitionMoves PlanMoves(
    absl::Span<const uint32_t> owner,                 // [partitions]: number in the old set
    absl::Span<const std::optional<uint32_t>> stays,  // [old set]: number in the new one; nullopt:
                                                      // it leaves
    uint32_t ps);                                     // of the new set, at least 1

}  // namespace tessera::master
