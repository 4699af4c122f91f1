#include "worker/parameters/key_router.h"

#include "common/partition.h"

namespace tessera::worker {

void KeyRouter::Route(absl::Span<const uint64_t> keys, RoutedKeys* routed,
                      std::vector<uint32_t>* position) const {
  const uint32_t partitions = static_cast<uint32_t>(owner_.size());
  position->resize(keys.size());
  routed->keys.resize(keys.size());
  routed->begin.assign(ps_count_ + 1, 0);
  // A counting sort by owner. The first pass stores each key's owner in `position`.
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint32_t owner = owner_[PartitionOf(keys[i], partitions).value()];
    (*position)[i] = owner;
    ++routed->begin[owner + 1];
  }
  for (uint32_t p = 0; p < ps_count_; ++p) routed->begin[p + 1] += routed->begin[p];
  std::vector<uint32_t> next(routed->begin.begin(), routed->begin.end() - 1);
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint32_t at = next[(*position)[i]]++;
    routed->keys[at] = keys[i];
    (*position)[i] = at;
  }
}

}  // namespace tessera::worker
