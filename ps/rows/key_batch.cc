#include "ps/rows/key_batch.h"

#include "common/hash.h"
#include "common/partition.h"

namespace tessera::ps {

void KeyBatch::Group(absl::Span<const uint64_t> keys, const PartitionSet& partitions) {
  if (numbers_.size() < keys.size()) {
    items_.resize(keys.size());
    hashes_.resize(keys.size());
    indices_.resize(keys.size());
    numbers_.resize(keys.size());  // the last, so that it has grown only where all have
  }
  const size_t n = keys.size();
  const uint32_t count = partitions.partition_count();
  // Local copies, so that the compiler need not reload them after each store.
  uint64_t* const hashes = hashes_.data();
  uint32_t* const indices = indices_.data();
  Item* const items = items_.data();
  std::array<uint32_t, kStripes> next = {};
  for (size_t i = 0; i < n; ++i) {
    hashes[i] = Mix64(keys[i]);
    indices[i] = partitions.IndexOf(PartitionOfHash(hashes[i], count));
    ++next[StripeOf(indices[i])];
  }
  begin_[0] = 0;
  for (uint32_t s = 0; s < kStripes; ++s) {
    begin_[s + 1] = begin_[s] + next[s];
    next[s] = begin_[s];
  }
  for (size_t i = 0; i < n; ++i) {
    items[next[StripeOf(indices[i])]++] = {.key = keys[i],
                                           .hash = hashes[i],
                                           .position = static_cast<uint32_t>(i),
                                           .map = MapOf(indices[i])};
  }
}

size_t KeyBatch::FirstNotOwned(absl::Span<const uint64_t> keys, const PartitionSet& partitions) {
  const uint32_t count = partitions.partition_count();
  for (size_t i = 0; i < keys.size(); ++i) {
    if (partitions.IndexOf(PartitionOf(keys[i], count)) == PartitionSet::kNotOwned) return i;
  }
  return keys.size();
}

}  // namespace tessera::ps
