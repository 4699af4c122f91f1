#include "worker/parameters/ps_directory.h"

#include <vector>

#include "absl/strings/str_cat.h"

namespace tessera::worker {
namespace {

std::vector<PeerAddress> AddressesOf(const v1::PartitionMap& partitions) {
  std::vector<PeerAddress> peers;
  for (const v1::PsAddress& ps : partitions.ps()) {
    peers.push_back({.name = ps.name(),
                     .label = absl::StrCat(ps.name(), " (", ps.address(), ")"),
                     .address = ps.address(),
                     .incarnation = ps.incarnation()});
  }
  return peers;
}

}  // namespace

PsDirectory::PsDirectory(const v1::PartitionMap& partitions, Channels* channels)
    : PeerDirectory(AddressesOf(partitions), channels), map_version_(partitions.version()) {}

void PsDirectory::Update(const v1::PartitionMap& partitions) {
  PeerDirectory::Update(AddressesOf(partitions));
}

}  // namespace tessera::worker
