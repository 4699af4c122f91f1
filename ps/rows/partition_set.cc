#include "ps/rows/partition_set.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tessera::ps {

absl::StatusOr<PartitionSet> PartitionSet::New(uint32_t partition_count,
                                               absl::Span<const uint32_t> owned) {
  if (partition_count == 0 || partition_count > kMaxPartitions) {
    return absl::InvalidArgumentError(
        absl::StrCat("partition_count is ", partition_count, ", expected 1 to ", kMaxPartitions));
  }
  PartitionSet set;
  set.index_.assign(partition_count, kNotOwned);
  for (const uint32_t p : owned) {
    if (p >= partition_count) {
      return absl::InvalidArgumentError(
          absl::StrCat("partition ", p, " does not exist, there are ", partition_count));
    }
    if (set.index_[p] != kNotOwned) {
      return absl::InvalidArgumentError(absl::StrCat("partition ", p, " is listed twice"));
    }
    set.index_[p] = 0;
  }
  for (uint32_t p = 0; p < partition_count; ++p) {
    if (set.index_[p] == kNotOwned) continue;
    set.index_[p] = static_cast<uint32_t>(set.owned_.size());
    set.owned_.push_back(PartitionId(p));
  }
  return set;
}

bool PartitionSet::SharesKeysWith(PartitionId p, uint32_t count) const {
  // Partitions are equal parts of all hashes, in their order (PartitionOf). So those that share
  // hashes with `p` begin at p / count of them and end at (p + 1) / count.
  const uint64_t here = partition_count();
  const uint64_t first = p.value() * here / count;
  const uint64_t end = ((p.value() + uint64_t{1}) * here + count - 1) / count;
  return std::any_of(index_.begin() + static_cast<ptrdiff_t>(first),
                     index_.begin() + static_cast<ptrdiff_t>(end),
                     [](uint32_t index) { return index != kNotOwned; });
}

}  // namespace tessera::ps
