#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"

namespace tessera::ps {

// The partitions of a job that this ps owns, numbered 0 .. owned().size()-1 in ascending order.
// Constant; thread-safe.
class PartitionSet {
 public:
  static constexpr uint32_t kNotOwned = UINT32_MAX;
  static constexpr uint32_t kMaxPartitions = 1 << 20;

  // INVALID_ARGUMENT: the count is out of range, or a partition is not below it or comes twice.
  static absl::StatusOr<PartitionSet> New(uint32_t partition_count,
                                          absl::Span<const uint32_t> owned);

  uint32_t partition_count() const { return static_cast<uint32_t>(index_.size()); }
  const std::vector<PartitionId>& owned() const { return owned_; }
  // The partition's number here, or kNotOwned.
  uint32_t IndexOf(PartitionId p) const { return index_[p.value()]; }
  // Whether owned partitions share keys with partition `p` of a job that has `count` of them.
  bool SharesKeysWith(PartitionId p, uint32_t count) const;

 private:
  PartitionSet() = default;

  std::vector<uint32_t> index_;  // [partition_count]
  std::vector<PartitionId> owned_;
};

}  // namespace tessera::ps
