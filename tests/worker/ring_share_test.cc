#include "worker/ring/ring_share.h"

#include <algorithm>
#include <set>

#include "gtest/gtest.h"

namespace tessera::worker {
namespace {

constexpr uint64_t kPiece = RingShares::kPieceBlocks;

TEST(RingShares, CutEveryBlockIntoOneShareAndOnePiece) {
  for (const uint32_t ranks : {1u, 2u, 3u, 4u, 7u}) {
    for (const uint64_t blocks :
         {uint64_t{0}, uint64_t{1}, uint64_t{ranks} - 1, uint64_t{ranks}, uint64_t{ranks} + 1,
          ranks * kPiece - 1, ranks * kPiece, ranks * kPiece + 1, uint64_t{10007}}) {
      SCOPED_TRACE(::testing::Message() << blocks << " blocks, " << ranks << " ranks");
      const RingShares shares(blocks, ranks);
      uint64_t next = 0;
      uint64_t smallest = blocks, largest = 0;
      for (uint32_t share = 0; share < ranks; ++share) {
        const RingShares::Blocks whole = shares.Share(share);
        smallest = std::min(smallest, whole.size());
        largest = std::max(largest, whole.size());
        ASSERT_EQ(whole.begin, next);
        for (uint32_t piece = 0; piece < shares.Pieces(share); ++piece) {
          const RingShares::Blocks part = shares.Piece(share, piece);
          ASSERT_EQ(part.begin, next);
          ASSERT_GT(part.size(), 0u);
          ASSERT_LE(part.size(), kPiece);
          next = part.end;
        }
        ASSERT_EQ(whole.end, next);
      }
      EXPECT_EQ(next, blocks);
      EXPECT_LE(largest - smallest, 1u);
    }
  }
}

TEST(RingShares, EveryShareGoesThroughAllRanksAndEndsWithItsOwn) {
  for (const uint32_t ranks : {2u, 3u, 4u, 7u}) {
    const RingShares shares(100, ranks);
    for (uint32_t share = 0; share < ranks; ++share) {
      // Who begins it is the one who takes it from nobody.
      uint32_t rank = (share + 1) % ranks;
      EXPECT_EQ(shares.Begun(rank), share);
      for (uint32_t hop = 1; hop < ranks; ++hop) {
        const uint32_t next = shares.Behind(rank);
        EXPECT_EQ(shares.Before(next), rank);
        EXPECT_EQ(shares.Taken(next)[hop - 1], share) << "it is there after " << hop << " hops";
        EXPECT_EQ(shares.Summed(next, share), hop);
        rank = next;
      }
      EXPECT_EQ(rank, share);
    }
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const std::vector<uint32_t> taken = shares.Taken(rank);
      EXPECT_EQ(std::set<uint32_t>(taken.begin(), taken.end()).size(), ranks - 1);
    }
  }
}

}  // namespace
}  // namespace tessera::worker
