#include "ps/key_batch.h"

#include "common/hash.h"
#include "common/partition.h"

namespace tessera::ps {

KeyBatch::KeyBatch(absl::Span<const uint64_t> keys, const PartitionSet& partitions)
    : items_(keys.size()) {
  const uint32_t count = partitions.partition_count();
  std::vector<uint32_t> indices(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    indices[i] = partitions.IndexOf(PartitionOf(keys[i], count));
    ++begin_[StripeOf(indices[i]) + 1];
  }
  for (uint32_t s = 0; s < kStripes; ++s) begin_[s + 1] += begin_[s];
  std::array<uint32_t, kStripes + 1> next = begin_;
  for (size_t i = 0; i < keys.size(); ++i) {
    items_[next[StripeOf(indices[i])]++] = {.key = keys[i],
                                            .hash = Mix64(keys[i]),
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
