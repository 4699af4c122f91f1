#include "ps/partition_set.h"

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

}  // namespace tessera::ps
