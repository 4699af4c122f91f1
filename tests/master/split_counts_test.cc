#include "master/plan/split_counts.h"

#include "gtest/gtest.h"

namespace tessera::master {
namespace {

TEST(SplitCounts, AreDoneOnceEverySplitIsCounted) {
  SplitCounts counts(2);
  EXPECT_TRUE(counts.done()) << "there is nothing to count";
  counts.Add("train");
  counts.Add("test");
  EXPECT_EQ(counts.Next(Rank(1)), "train");
  EXPECT_EQ(counts.Next(Rank(0)), "test");
  EXPECT_EQ(counts.Counted(Rank(1)), "train");
  EXPECT_EQ(counts.Next(Rank(1)), std::nullopt);
  EXPECT_FALSE(counts.done()) << "rank 0 still counts";
  EXPECT_EQ(counts.Counted(Rank(0)), "test");
  EXPECT_TRUE(counts.done());
}

TEST(SplitCounts, OneRankCountsOneSplitAfterAnother) {
  SplitCounts counts(1);
  counts.Add("train");
  counts.Add("test");
  EXPECT_EQ(counts.Next(Rank(0)), "train");
  EXPECT_EQ(counts.Counted(Rank(0)), "train");
  EXPECT_FALSE(counts.done());
  EXPECT_EQ(counts.Next(Rank(0)), "test");
  EXPECT_EQ(counts.Counted(Rank(0)), "test");
  EXPECT_TRUE(counts.done());
}

}  // namespace
}  // namespace tessera::master
