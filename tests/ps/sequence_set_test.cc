#include "ps/steps/sequence_set.h"

#include <random>
#include <set>

#include "gtest/gtest.h"

namespace tessera::ps {
namespace {

TEST(SequenceSet, HoldsWhatAStdSetHolds) {
  std::mt19937_64 random(3);
  SequenceSet set;
  std::set<uint64_t> twin;
  for (int i = 0; i < 20000; ++i) {
    const uint64_t n = random() % 3000;
    EXPECT_EQ(set.Contains(n), twin.contains(n));
    EXPECT_EQ(set.Touches(n), twin.contains(n + 1) || (n > 0 && twin.contains(n - 1)));
    if (twin.insert(n).second) set.Add(n);
  }
  EXPECT_EQ(set.size(), twin.size());
}

TEST(SequenceSet, StaysSmallWhenNumbersComeNearlyInOrder) {
  SequenceSet set;
  for (uint64_t n = 1000; n < 100000; n += 4) {
    for (const uint64_t m : {n + 2, n, n + 3, n + 1}) {
      EXPECT_FALSE(set.Contains(m));
      set.Add(m);
      EXPECT_LE(set.runs().size(), 4u);
    }
    EXPECT_EQ(set.runs().size(), 1u);
  }
  EXPECT_FALSE(set.Contains(999));
  EXPECT_TRUE(set.Contains(1000));
}

TEST(SequenceSet, KnowsTheFirstNumberThatIsMissingAndWhereItEnds) {
  SequenceSet set;
  EXPECT_EQ(set.FirstMissing(), 0u);
  EXPECT_EQ(set.End(), 0u);
  set.Add(1);
  EXPECT_EQ(set.FirstMissing(), 0u);
  EXPECT_EQ(set.End(), 2u);
  set.Add(0);
  EXPECT_EQ(set.FirstMissing(), 2u);
  EXPECT_EQ(set.End(), 2u);
  set.Add(4);
  EXPECT_EQ(set.FirstMissing(), 2u);
  EXPECT_EQ(set.End(), 5u);
}

TEST(SequenceSet, FillsWhatIsMissingBelow) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 200; ++trial) {
    SequenceSet set;
    std::set<uint64_t> twin;
    for (int i = 0; i < 12; ++i) {
      const uint64_t n = random() % 30;
      if (twin.insert(n).second) set.Add(n);
    }
    const uint64_t below = random() % 31;
    set.FillBelow(below);
    for (uint64_t n = 0; n < below; ++n) twin.insert(n);
    EXPECT_EQ(set.size(), twin.size());
    for (uint64_t n = 0; n < 32; ++n) EXPECT_EQ(set.Contains(n), twin.contains(n)) << n;
    const uint64_t next = set.FirstMissing();
    EXPECT_FALSE(twin.contains(next));
    set.Add(next);
    EXPECT_GT(set.FirstMissing(), next);
  }
}

TEST(SequenceSet, TakesTheLargestNumber) {
  SequenceSet set;
  set.Add(UINT64_MAX);
  set.Add(UINT64_MAX - 1);
  set.Add(0);
  EXPECT_TRUE(set.Contains(UINT64_MAX));
  EXPECT_TRUE(set.Contains(0));
  EXPECT_FALSE(set.Contains(1));
  EXPECT_EQ(set.runs().size(), 2u);
}

}  // namespace
}  // namespace tessera::ps
