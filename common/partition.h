#pragma once

#include <cstdint>
#include <vector>

#include "common/hash.h"
#include "common/ids.h"
#include "tessera/v1/cluster.pb.h"

namespace tessera {

inline constexpr uint32_t kDefaultPartitions = 4096;

// PartitionOf for callers that have Mix64(key) already.
constexpr PartitionId PartitionOfHash(uint64_t hash, uint32_t partition_count) {
  // The high bits of the hash choose the partition; its low bits stay free for the maps inside one.
  return PartitionId(
      static_cast<uint32_t>((static_cast<unsigned __int128>(hash) * partition_count) >> 64));
}

// The partition of a key, and the only rule that places rows: key -> partition here, partition ->
// ps in the PartitionMap. The table does not matter: the rows of one key in all tables share a
// partition. Part of the checkpoint format.
constexpr PartitionId PartitionOf(uint64_t key, uint32_t partition_count) {
  return PartitionOfHash(Mix64(key), partition_count);
}

// For each partition p the index of its owner among `ps` processes: p mod ps.
std::vector<uint32_t> EvenOwners(uint32_t partition_count, uint32_t ps);
// A map with the owners of EvenOwners.
v1::PartitionMap NewPartitionMap(uint64_t version, uint32_t partition_count,
                                 const std::vector<v1::PsAddress>& ps);

}  // namespace tessera
