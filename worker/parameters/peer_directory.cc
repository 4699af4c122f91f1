#include "worker/parameters/peer_directory.h"

#include <algorithm>
#include <utility>

#include "common/log.h"

namespace tessera::worker {

PeerDirectory::PeerDirectory(std::vector<PeerAddress> peers, Channels* channels)
    : channels_(channels), size_(peers.size()) {
  for (PeerAddress& peer : peers) {
    peers_.push_back(std::make_shared<Peer>(std::move(peer), *channels_));
  }
}

std::shared_ptr<Peer> PeerDirectory::At(size_t peer) const {
  absl::MutexLock lock(&mu_);
  return peers_[peer];
}

void PeerDirectory::Update(std::vector<PeerAddress> peers) {
  const size_t known = std::min(size_, peers.size());
  for (size_t p = 0; p < known; ++p) {
    if (At(p)->where.incarnation == peers[p].incarnation) continue;
    SPDLOG_INFO("from here on calls go to {}", peers[p].label);
    auto peer = std::make_shared<Peer>(std::move(peers[p]), *channels_);
    {
      absl::MutexLock lock(&mu_);
      std::swap(peers_[p], peer);
    }
    peer->replaced.Cancel();
  }
}

}  // namespace tessera::worker
