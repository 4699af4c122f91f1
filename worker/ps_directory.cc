#include "worker/ps_directory.h"

#include <algorithm>
#include <utility>

#include "common/log.h"

namespace tessera::worker {

PsDirectory::PsDirectory(const v1::PartitionMap& partitions, Channels* channels)
    : channels_(channels),
      size_(static_cast<size_t>(partitions.ps_size())),
      map_version_(partitions.version()) {
  for (const v1::PsAddress& ps : partitions.ps()) {
    peers_.push_back(std::make_shared<PsPeer>(ps, *channels_));
  }
}

std::shared_ptr<PsPeer> PsDirectory::At(size_t ps) const {
  absl::MutexLock lock(&mu_);
  return peers_[ps];
}

void PsDirectory::Update(const v1::PartitionMap& partitions) {
  const size_t known = std::min(size_, static_cast<size_t>(partitions.ps_size()));
  for (size_t p = 0; p < known; ++p) {
    const v1::PsAddress& ps = partitions.ps(static_cast<int>(p));
    if (At(p)->address.incarnation() == ps.incarnation()) continue;
    SPDLOG_INFO("{} is back at {}", ps.name(), ps.address());
    auto peer = std::make_shared<PsPeer>(ps, *channels_);
    absl::MutexLock lock(&mu_);
    peers_[p] = std::move(peer);
  }
}

}  // namespace tessera::worker
