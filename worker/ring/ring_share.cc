#include "worker/ring/ring_share.h"

#include <algorithm>

#include "common/window.h"

namespace tessera::worker {

RingShares::Blocks RingShares::Share(uint32_t share) const {
  const Part part = EvenPart(blocks_, share, ranks_);
  return {part.begin, part.end};
}

uint32_t RingShares::Pieces(uint32_t share) const {
  return static_cast<uint32_t>((Share(share).size() + kPieceBlocks - 1) / kPieceBlocks);
}

RingShares::Blocks RingShares::Piece(uint32_t share, uint32_t piece) const {
  const Blocks whole = Share(share);
  const uint64_t begin = std::min(whole.begin + piece * kPieceBlocks, whole.end);
  return {begin, std::min(begin + kPieceBlocks, whole.end)};
}

std::vector<uint32_t> RingShares::Taken(uint32_t rank) const {
  std::vector<uint32_t> shares;
  for (uint32_t hop = 1; hop < ranks_; ++hop) {
    shares.push_back((rank + 2 * ranks_ - 1 - hop) % ranks_);
  }
  return shares;
}

}  // namespace tessera::worker
