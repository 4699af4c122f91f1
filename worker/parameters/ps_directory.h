#pragma once

#include <cstdint>

#include "tessera/v1/cluster.pb.h"
#include "worker/parameters/peer_directory.h"

namespace tessera::worker {

// The ps of an assignment, by their numbers in the partition map. A ps that comes back with its
// push log may have another address. Thread-safe.
class PsDirectory : public PeerDirectory {
 public:
  // `channels` is borrowed and outlives the directory.
  PsDirectory(const v1::PartitionMap& partitions, Channels* channels);

  uint64_t map_version() const { return map_version_; }
  // Updates the addresses; `partitions` is of the same map version.
  void Update(const v1::PartitionMap& partitions);

 private:
  const uint64_t map_version_;
};

}  // namespace tessera::worker
