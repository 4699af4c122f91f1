#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace tessera::master {

// The owners of partitions after the set of ps has changed.
struct PartitionMoves {
  std::vector<uint32_t> owner;  // [partitions]: number in the new set
  uint32_t moved = 0;           // partitions whose rows have to travel
  // The moved partitions' shares of the weight of all; 0: no weights are known, or all are 0.
  double bytes_share = 0;
  double updates_share = 0;
};

// The load of a partition on its ps.
struct PartitionWeight {
  uint64_t bytes = 0;    // of its rows
  uint64_t updates = 0;  // of its rows, so far

  void Add(const PartitionWeight& other) {
    bytes += other.bytes;
    updates += other.updates;
  }
};

// Gives each partition an owner of the new set; no more partitions change their owner than needed.
// The same arguments give the same result.
//
// Without `weights` no ps owns more than one partition more than another. With them each ps has the
// same share of all bytes, and of all updates, within two hundredths of a fair share, as far as
// partitions allow. Partitions go from the ps with the most bytes, or updates, to the one with the
// least; those that bring the two ps closest in both go first.
PartitionMoves PlanMoves(
    absl::Span<const uint32_t> owner,                 // [partitions]: number in the old set
    absl::Span<const std::optional<uint32_t>> stays,  // [old set]: number in the new one; nullopt:
                                                      // it leaves
    uint32_t ps,                                      // of the new set, at least 1
    absl::Span<const PartitionWeight> weights = {});  // [partitions], or empty

}  // namespace tessera::master
