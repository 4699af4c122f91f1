#include "ps/key_batch.h"

#include "common/hash.h"
#include "common/partition.h"

namespace tessera::ps {

void KeyBatch::Group(absl::Span<const uint64_t> keys, const PartitionSet& partitions) {
  if (items_.size() < keys.size()) {
    items_.resize(keys.size());
    indices_.resize(keys.size());
    rows_.resize(keys.size());
    positions_.resize(keys.size());
  }
  const uint32_t count = partitions.partition_count();
  begin_.fill(0);
  for (size_t i = 0; i < keys.size(); ++i) {
    indices_[i] = partitions.IndexOf(PartitionOf(keys[i], count));
    ++begin_[StripeOf(indices_[i]) + 1];
  }
  for (uint32_t s = 0; s < kStripes; ++s) begin_[s + 1] += begin_[s];
  std::array<uint32_t, kStripes + 1> next = begin_;
  for (size_t i = 0; i < keys.size(); ++i) {
    items_[next[StripeOf(indices_[i])]++] = {.key = keys[i],
                                             .hash = Mix64(keys[i]),
                                             .position = static_cast<uint32_t>(i),
                                             .map = MapOf(indices_[i])};
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
