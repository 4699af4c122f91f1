#pragma once

#include "tessera/v1/cluster.pb.h"
#include "worker/parameters/peer_directory.h"

namespace tessera::worker {

// The workers of an assignment, by rank; empty unless they call each other. A rank that is taken
// over has another address. Thread-safe.
class RankDirectory : public PeerDirectory {
 public:
  // `channels` is borrowed and outlives the directory.
  RankDirectory(const v1::Assignment& assignment, Channels* channels);

  // Updates the addresses; `assignment` is of the same generation. A vacant rank stays as it was.
  void Update(const v1::Assignment& assignment);
};

}  // namespace tessera::worker
