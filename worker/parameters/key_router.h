#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "tessera/v1/cluster.pb.h"

namespace tessera::worker {

// Distinct keys in the order of the ps that own them: ps p's are keys[begin[p] .. begin[p + 1]).
struct RoutedKeys {
  std::vector<uint64_t> keys;
  std::vector<uint32_t> begin;  // [number of ps + 1]
};

// Knows which ps owns which key. Immutable.
class KeyRouter {
 public:
  explicit KeyRouter(const v1::PartitionMap& partitions)
      : owner_(partitions.owner().begin(), partitions.owner().end()),
        ps_count_(static_cast<uint32_t>(partitions.ps_size())) {}
  uint32_t ps_count() const { return ps_count_; }
  // Orders distinct keys by the ps that own them. position[i]: where keys[i] is in the result.
  void Route(absl::Span<const uint64_t> keys, RoutedKeys* routed,
             std::vector<uint32_t>* position) const;

 private:
  const std::vector<uint32_t> owner_;
  const uint32_t ps_count_;
};

}  // namespace tessera::worker
