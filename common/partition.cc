#include "common/partition.h"

namespace tessera {

std::vector<uint32_t> EvenOwners(uint32_t partition_count, uint32_t ps) {
  std::vector<uint32_t> owner(partition_count);
  for (uint32_t p = 0; p < partition_count; ++p) owner[p] = p % ps;
  return owner;
}

v1::PartitionMap NewPartitionMap(uint64_t version, uint32_t partition_count,
                                 const std::vector<v1::PsAddress>& ps) {
  v1::PartitionMap map;
  map.set_version(version);
  for (const v1::PsAddress& p : ps) *map.add_ps() = p;
  const std::vector<uint32_t> owner = EvenOwners(partition_count, static_cast<uint32_t>(ps.size()));
  *map.mutable_owner() = {owner.begin(), owner.end()};
  return map;
}

}  // namespace tessera
