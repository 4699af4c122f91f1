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
  // Of what all partitions weigh, those have these shares; 0: nothing was known, or nothing is
  // there.
  double bytes_share = 0;
  double updates_share = 0;
};

// What a partition asks of its ps.
struct PartitionWeight {
  uint64_t bytes = 0;    // of its rows
  uint64_t updates = 0;  // of them, so far

  void Add(const PartitionWeight& other) {
    bytes += other.bytes;
    updates += other.updates;
  }
};

// As few partitions as it takes change their owner. The same arguments give the same result.
//
// Without `weights` no ps owns more than one partition more than another. With them each ps has the
// same share of all bytes, and of all updates, within two hundredths of a fair share, as far as
// partitions allow: they go from who has the most of one to who has the least, those first that
// bring both closer in both.
PartitionMoves PlanMoves(
    absl::Span<const uint32_t> owner,                 // [partitions]: number in the old set
    absl::Span<const std::optional<uint32_t>> stays,  // [old set]: number in the new one; nullopt:
                                                      // it leaves
    uint32_t ps,                                      // of the new set, at least 1
    absl::Span<const PartitionWeight> weights = {});  // [partitions], or empty

}  // namespace tessera::master
