#include "master/run/partition_moves.h"

#include <algorithm>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::master {
namespace {

using Stays = std::vector<std::optional<uint32_t>>;

std::vector<uint32_t> Modulo(uint32_t partitions, uint32_t ps) {
  std::vector<uint32_t> owner(partitions);
  for (uint32_t p = 0; p < partitions; ++p) owner[p] = p % ps;
  return owner;
}

std::vector<uint32_t> PartitionsOf(const PartitionMoves& moves, uint32_t ps) {
  std::vector<uint32_t> counts(ps, 0);
  for (const uint32_t owner : moves.owner) ++counts.at(owner);
  return counts;
}

TEST(PartitionMovesTest, ANewPsGetsItsShareAndNothingMovesBetweenTheOthers) {
  const std::vector<uint32_t> before = Modulo(4096, 3);
  const PartitionMoves moves = PlanMoves(before, Stays{0, 1, 2}, 4);
  EXPECT_EQ(PartitionsOf(moves, 4), std::vector<uint32_t>(4, 1024));
  EXPECT_EQ(moves.moved, 1024u);
  for (uint32_t p = 0; p < 4096; ++p) {
    EXPECT_TRUE(moves.owner[p] == 3 || moves.owner[p] == before[p]) << p;
  }
}

TEST(PartitionMovesTest, OneThatLeavesEndsWithNoneAndOnlyItsOwnMove) {
  const std::vector<uint32_t> before = Modulo(4096, 3);
  // The one in the middle: the last takes its number.
  const PartitionMoves moves = PlanMoves(before, Stays{0, std::nullopt, 1}, 2);
  EXPECT_EQ(PartitionsOf(moves, 2), std::vector<uint32_t>(2, 2048));
  EXPECT_EQ(moves.moved, static_cast<uint32_t>(std::count(before.begin(), before.end(), 1)));
  for (uint32_t p = 0; p < 4096; ++p) {
    EXPECT_TRUE(before[p] == 1 || moves.owner[p] == before[p] / 2) << p;
  }
}

TEST(PartitionMovesTest, NothingMovesWhereNothingChanges) {
  const PartitionMoves moves = PlanMoves(Modulo(10, 3), Stays{0, 1, 2}, 3);
  EXPECT_EQ(moves.owner, Modulo(10, 3));
  EXPECT_EQ(moves.moved, 0u);
}

TEST(PartitionMovesTest, AnyChangeOfAnyMapIsBalancedMinimalAndAlwaysTheSame) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 500; ++round) {
    const uint32_t partitions = 1 + random() % 300;
    const uint32_t old_ps = 1 + random() % 9;
    const uint32_t ps = 1 + random() % 9;
    std::vector<uint32_t> before(partitions);
    for (uint32_t& owner : before) owner = random() % old_ps;
    Stays stays(old_ps);
    uint32_t number = 0;
    for (auto& s : stays) {
      if (number < ps && random() % 4 != 0) s = number++;
    }
    const PartitionMoves moves = PlanMoves(before, stays, ps);
    const std::vector<uint32_t> counts = PartitionsOf(moves, ps);
    EXPECT_LE(*std::max_element(counts.begin(), counts.end()),
              *std::min_element(counts.begin(), counts.end()) + 1);
    // At least what leavers have, and what is above a share of the largest size, has to move; and
    // the larger shares are as many as there are.
    uint32_t moved = 0;
    std::vector<uint32_t> has(ps, 0);
    for (uint32_t p = 0; p < partitions; ++p) {
      if (!stays[before[p]].has_value() || *stays[before[p]] != moves.owner[p]) ++moved;
      if (stays[before[p]].has_value()) ++has[*stays[before[p]]];
    }
    EXPECT_EQ(moved, moves.moved);
    std::sort(has.rbegin(), has.rend());
    uint32_t kept = 0;
    for (uint32_t i = 0; i < ps; ++i) {
      kept += std::min(has[i], partitions / ps + (i < partitions % ps ? 1 : 0));
    }
    EXPECT_EQ(moves.moved, partitions - kept);
    EXPECT_EQ(PlanMoves(before, stays, ps).owner, moves.owner);
  }
}

struct Shares {
  std::vector<double> bytes;    // [ps], of all
  std::vector<double> updates;  // [ps], of all
};
Shares SharesOf(const PartitionMoves& moves, uint32_t ps,
                const std::vector<PartitionWeight>& weights) {
  double bytes = 0;
  double updates = 0;
  for (const PartitionWeight& w : weights) {
    bytes += static_cast<double>(w.bytes);
    updates += static_cast<double>(w.updates);
  }
  Shares shares = {std::vector<double>(ps), std::vector<double>(ps)};
  for (size_t p = 0; p < weights.size(); ++p) {
    shares.bytes[moves.owner[p]] += static_cast<double>(weights[p].bytes) / bytes;
    shares.updates[moves.owner[p]] += static_cast<double>(weights[p].updates) / updates;
  }
  return shares;
}
void ExpectEven(const Shares& shares, double within) {
  for (const auto& kind : {shares.bytes, shares.updates}) {
    const auto [least, most] = std::minmax_element(kind.begin(), kind.end());
    EXPECT_LE(*most - *least, within / static_cast<double>(kind.size()));
  }
}

TEST(PartitionMovesTest, WhatIsUpdatedOftenIsSpreadThoughItIsSmall) {
  // All that is hot lies on one of two.
  const std::vector<uint32_t> before = Modulo(256, 2);
  std::vector<PartitionWeight> weights(256, {.bytes = 1000, .updates = 10});
  for (uint32_t p = 0; p < 32; p += 2) weights[p].updates = 1000;
  const PartitionMoves moves = PlanMoves(before, Stays{0, 1}, 2, weights);
  ExpectEven(SharesOf(moves, 2, weights), 0.03);
  EXPECT_LE(moves.moved, 20u) << "half of the hot ones, and as many others back";
  EXPECT_EQ(PlanMoves(moves.owner, Stays{0, 1}, 2, weights).moved, 0u);
}

TEST(PartitionMovesTest, NewOnesGetTheirShareOfBoth) {
  std::mt19937_64 random(5);
  std::vector<PartitionWeight> weights(4096);
  for (uint32_t p = 0; p < 4096; ++p) {
    // As rows spread, of which few are hot.
    weights[p] = {.bytes = 900 + random() % 200, .updates = 100 + random() % 100};
    if (random() % 50 == 0) weights[p].updates = 5000 + random() % 20'000;
  }
  const PartitionMoves moves = PlanMoves(Modulo(4096, 1), Stays{0}, 3, weights);
  ExpectEven(SharesOf(moves, 3, weights), 0.03);
  EXPECT_LE(moves.moved, 2800u) << "two thirds, of equal bytes";
  EXPECT_NEAR(moves.bytes_share, 2.0 / 3, 0.02);
  EXPECT_NEAR(moves.updates_share, 2.0 / 3, 0.02);
  EXPECT_EQ(PlanMoves(Modulo(4096, 1), Stays{0}, 3).bytes_share, 0) << "nobody knows it";
}

TEST(PartitionMovesTest, OnePartitionThatIsUpdatedMoreThanAllOthersStaysAndBytesAreSpread) {
  std::vector<PartitionWeight> weights(64, {.bytes = 1000, .updates = 1});
  weights[5].updates = 100'000;
  const PartitionMoves moves = PlanMoves(Modulo(64, 4), Stays{0, 1, 2, 3}, 4, weights);
  EXPECT_EQ(moves.owner[5], 1u) << "it weighs as much elsewhere";
  for (const uint32_t count : PartitionsOf(moves, 4)) EXPECT_NEAR(count, 16, 4);
  // And where a new one comes.
  const PartitionMoves again = PlanMoves(moves.owner, Stays{0, 1, 2, 3}, 5, weights);
  for (const uint32_t count : PartitionsOf(again, 5)) EXPECT_NEAR(count, 12.8, 4);
}

TEST(PartitionMovesTest, NobodyIsLeftWithoutWhereOneWeighsMoreThanAllOthers) {
  std::vector<PartitionWeight> weights(8);
  weights[3] = {.bytes = 1'000'000, .updates = 1'000'000};
  const PartitionMoves moves = PlanMoves(Modulo(8, 1), Stays{0}, 4, weights);
  for (const uint32_t count : PartitionsOf(moves, 4)) EXPECT_GE(count, 1u);
  EXPECT_EQ(moves.owner[3], 0u);
}

TEST(PartitionMovesTest, AnyWeightsAreSpreadEvenlyAndAlwaysTheSame) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    const uint32_t partitions = 200 + random() % 300;
    const uint32_t old_ps = 1 + random() % 5;
    const uint32_t ps = 1 + random() % 5;
    std::vector<uint32_t> before(partitions);
    for (uint32_t& owner : before) owner = random() % old_ps;
    Stays stays(old_ps);
    uint32_t number = 0;
    for (auto& s : stays) {
      if (number < ps && random() % 4 != 0) s = number++;
    }
    std::vector<PartitionWeight> weights(partitions);
    for (PartitionWeight& w : weights) {
      w = {.bytes = 100 + random() % 1000, .updates = 1 + random() % 5000};
    }
    const PartitionMoves moves = PlanMoves(before, stays, ps, weights);
    ExpectEven(SharesOf(moves, ps, weights), 0.05);
    EXPECT_EQ(PlanMoves(before, stays, ps, weights).owner, moves.owner);
  }
}

TEST(PartitionMovesTest, AHundredThousandPartitionsArePlannedAtOnce) {
  const uint32_t partitions = 1 << 17;
  std::vector<PartitionWeight> weights(partitions);
  for (uint32_t p = 0; p < partitions; ++p) weights[p] = {.bytes = p % 977, .updates = p % 31};
  const PartitionMoves moves = PlanMoves(Modulo(partitions, 3), Stays{0, 1, 2}, 4, weights);
  EXPECT_LE(moves.moved, partitions / 4) << "the heaviest go first";
  ExpectEven(SharesOf(moves, 4, weights), 0.03);
}

TEST(PartitionMovesTest, WithoutRowsTheyAreSharedOutByNumber) {
  const std::vector<PartitionWeight> weights(64);
  EXPECT_EQ(PartitionsOf(PlanMoves(Modulo(64, 1), Stays{0}, 4, weights), 4),
            std::vector<uint32_t>(4, 16));
}

}  // namespace
}  // namespace tessera::master
