#include "common/partition.h"

namespace tessera {

v1::PartitionMap NewPartitionMap(uint64_t version, uint32_t partition_count,
                                 const std::vector<v1::PsAddress>& ps) {
  v1::PartitionMap map;
  map.set_version(version);
  for (const v1::PsAddress& p : ps) *map.add_ps() = p;
  for (uint32_t p = 0; p < partition_count; ++p) {
    map.add_owner(p % static_cast<uint32_t>(ps.size()));
  }
  return map;
}

}  // namespace tessera
