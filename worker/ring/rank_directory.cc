#include "worker/ring/rank_directory.h"

#include <vector>

#include "absl/strings/str_cat.h"

namespace tessera::worker {
namespace {

// The address of a rank that no worker has had yet: calls fail with UNAVAILABLE.
constexpr char kNowhere[] = "unix:/nonexistent/rank";

std::vector<PeerAddress> AddressesOf(const v1::Assignment& assignment) {
  std::vector<PeerAddress> peers;
  for (const v1::RankAddress& rank : assignment.ranks()) {
    const std::string name = absl::StrCat("rank ", peers.size(), " (", rank.name(),
                                          rank.address().empty() ? "" : ", ", rank.address(), ")");
    peers.push_back({.name = name,
                     .label = name,
                     .address = rank.address().empty() ? kNowhere : rank.address(),
                     .incarnation = rank.incarnation()});
  }
  return peers;
}

}  // namespace

RankDirectory::RankDirectory(const v1::Assignment& assignment, Channels* channels)
    : PeerDirectory(AddressesOf(assignment), channels) {}

void RankDirectory::Update(const v1::Assignment& assignment) {
  std::vector<PeerAddress> peers = AddressesOf(assignment);
  for (size_t p = 0; p < peers.size() && p < size(); ++p) {
    if (peers[p].incarnation == 0) peers[p] = At(p)->where;
  }
  PeerDirectory::Update(std::move(peers));
}

}  // namespace tessera::worker
