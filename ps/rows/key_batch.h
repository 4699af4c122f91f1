#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "ps/rows/partition_set.h"

namespace tessera::ps {

// The keys of one call, hashed once and grouped by stripe; within a stripe they keep their order. A
// stripe is a fixed share of the owned partitions, which stand under one lock. Keeps its memory
// from call to call. Not thread-safe.
class KeyBatch {
 public:
  static constexpr uint32_t kStripes = 64;

  struct Item {
    uint64_t key;
    uint64_t hash;      // Mix64(key)
    uint32_t position;  // in the caller's batch
    uint32_t map;       // number of its partition within the stripe
  };

  // All keys lie in owned partitions (see FirstNotOwned). `keys` is read now and not kept.
  void Group(absl::Span<const uint64_t> keys, const PartitionSet& partitions);

  absl::Span<const Item> stripe(uint32_t s) const {
    return absl::MakeConstSpan(items_).subspan(begin_[s], begin_[s + 1] - begin_[s]);
  }
  // Scratch space for the store: one number for each item of a stripe, overwritten by the next
  // stripe.
  absl::Span<uint32_t> numbers(uint32_t s) {
    return absl::MakeSpan(numbers_).first(stripe(s).size());
  }
  size_t bytes() const { return items_.size() * (sizeof(Item) + 16); }

  // Stripe and number within it of an owned partition, by its number in the set.
  static constexpr uint32_t StripeOf(uint32_t index) { return index % kStripes; }
  static constexpr uint32_t MapOf(uint32_t index) { return index / kStripes; }

  // Position of the first key of a partition that the set does not own; keys.size(): none.
  static size_t FirstNotOwned(absl::Span<const uint64_t> keys, const PartitionSet& partitions);

 private:
  // [the largest batch so far]
  std::vector<Item> items_;
  std::vector<uint64_t> hashes_;
  std::vector<uint32_t> indices_;
  std::vector<uint32_t> numbers_;
  std::array<uint32_t, kStripes + 1> begin_ = {};
};

}  // namespace tessera::ps
