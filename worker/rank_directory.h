#pragma once

#include "tessera/v1/cluster.pb.h"
#include "worker/peer_directory.h"

namespace tessera::worker {

// The workers of an assignment, by rank: none unless they call each other. A rank that is taken
// over is at another address. Thread-safe.
class RankDirectory : public PeerDirectory {
 public:
  // `channels` is borrowed and outlives the directory.
  RankDirectory(const v1::Assignment& assignment, Channels* channels);

  // Takes the ranks of the same generation as they are now. One that is vacant stays as it was.
  void Update(const v1::Assignment& assignment);
};

}  // namespace tessera::worker
