#include "master/run/straggler_rest.h"

#include "gtest/gtest.h"

namespace tessera::master {
namespace {

class StragglerRestTest : public testing::Test {
 protected:
  // Says every half second that the rank takes so many times as long; when it begins to rest.
  absl::Duration RestsAfter(StragglerRest& rest, double times, absl::Duration most) {
    const absl::Duration begin = now_;
    while (now_ - begin < most) {
      now_ += absl::Milliseconds(500);
      if (rest.Measured(Rank(1), times, now_)) return now_ - begin;
    }
    return absl::InfiniteDuration();
  }
  absl::Duration now_ = absl::Seconds(100);
};

TEST_F(StragglerRestTest, WhoCostsMoreThanItDoesRestsAndIsTriedAgain) {
  StragglerRest rest(3, 4);
  EXPECT_DOUBLE_EQ(rest.limit(), 2.5);
  EXPECT_EQ(RestsAfter(rest, 2.4, absl::Minutes(2)), absl::InfiniteDuration());
  EXPECT_EQ(RestsAfter(rest, 2.6, absl::Minutes(2)), absl::Milliseconds(5500));
  EXPECT_EQ(rest.Left(Rank(1), now_), absl::Seconds(30));
  EXPECT_EQ(rest.Left(Rank(0), now_), absl::ZeroDuration());
  // What it still says of the unit that it had does not prolong its rest.
  now_ += absl::Seconds(29);
  EXPECT_FALSE(rest.Measured(Rank(1), 10, now_));
  EXPECT_EQ(rest.Left(Rank(1), now_), absl::Seconds(1));
  // Tried again: at the first figures it rests twice as long.
  now_ += absl::Seconds(1);
  EXPECT_EQ(rest.Left(Rank(1), now_), absl::ZeroDuration());
  EXPECT_TRUE(rest.Measured(Rank(1), 10, now_));
  EXPECT_EQ(rest.Left(Rank(1), now_), absl::Seconds(60));
}

TEST_F(StragglerRestTest, TheRestHasALongestAndWhoIsQuickAgainBeginsAnew) {
  StragglerRest rest(3, 4);
  for (int i = 0; i < 8; ++i) {
    ASSERT_NE(RestsAfter(rest, 10, absl::Minutes(1)), absl::InfiniteDuration());
    EXPECT_LE(rest.Left(Rank(1), now_), StragglerRest::kLongestRest);
    now_ += rest.Left(Rank(1), now_);
  }
  EXPECT_FALSE(rest.Measured(Rank(1), 1.1, now_));
  EXPECT_EQ(RestsAfter(rest, 10, absl::Minutes(2)), absl::Milliseconds(5500));
  EXPECT_EQ(rest.Left(Rank(1), now_), StragglerRest::kFirstRest);
  // So does another worker in its place.
  rest.Forget(Rank(1));
  EXPECT_EQ(rest.Left(Rank(1), now_), absl::ZeroDuration());
}

TEST_F(StragglerRestTest, OneLongStepIsNoReason) {
  StragglerRest rest(2, 4);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(RestsAfter(rest, 50, absl::Seconds(4)), absl::InfiniteDuration());
    EXPECT_FALSE(rest.Measured(Rank(1), 1, now_ += absl::Milliseconds(500)));
  }
}

TEST_F(StragglerRestTest, NobodyRestsAloneOrWhereNobodyWaits) {
  StragglerRest alone(2, 0);
  EXPECT_EQ(RestsAfter(alone, 1000, absl::Minutes(2)), absl::InfiniteDuration());
  StragglerRest one(1, 4);
  EXPECT_FALSE(one.Measured(Rank(0), 1000, now_));
}

}  // namespace
}  // namespace tessera::master
