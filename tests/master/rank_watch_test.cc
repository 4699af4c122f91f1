#include "master/run/rank_watch.h"

#include "gtest/gtest.h"

namespace tessera::master {
namespace {

class RankWatchTest : public testing::Test {
 protected:
  // Says for that long, every half second, that the rank's steps take ten times as long as others';
  // how often it began to rest.
  int SlowFor(Rank rank, absl::Duration time) {
    int rests = 0;
    for (const absl::Duration end = now_ + time; now_ < end;) {
      now_ += absl::Milliseconds(500);
      rests += watch_.Measured(rank, 10, now_);
    }
    return rests;
  }
  bool Rests(Rank rank) const { return watch_.Rests(rank, now_) > absl::ZeroDuration(); }

  absl::Duration now_ = absl::Seconds(1000);
  RankWatch watch_{3, 4, now_};
};

TEST_F(RankWatchTest, AWorkerIsHeardWhenItAsksAndWhenItMoves) {
  now_ += absl::Seconds(10);
  EXPECT_EQ(watch_.SinceAsked(Rank(1), now_), absl::Seconds(10)) << "since the run began";
  EXPECT_EQ(watch_.SinceHeard(Rank(1), now_), absl::Seconds(10));
  watch_.Moved(Rank(1), now_);
  EXPECT_EQ(watch_.SinceAsked(Rank(1), now_), absl::Seconds(10));
  EXPECT_EQ(watch_.SinceHeard(Rank(1), now_), absl::ZeroDuration());
  now_ += absl::Seconds(3);
  watch_.Asked(Rank(1), now_);
  now_ += absl::Seconds(2);
  EXPECT_EQ(watch_.SinceAsked(Rank(1), now_), absl::Seconds(2));
  EXPECT_EQ(watch_.SinceHeard(Rank(1), now_), absl::Seconds(2));
  EXPECT_EQ(watch_.SinceHeard(Rank(0), now_), absl::Seconds(15)) << "the others are not";
}

TEST_F(RankWatchTest, TimeInWhichNobodyCouldBeHeardDoesNotCount) {
  now_ += absl::Seconds(10);
  watch_.Moved(Rank(1), now_);
  watch_.Lost(Rank(2), 12, now_);
  now_ += absl::Seconds(1);
  now_ += absl::Minutes(5);
  watch_.StoodStill(absl::Minutes(5), now_);
  EXPECT_EQ(watch_.SinceAsked(Rank(0), now_), absl::Seconds(11));
  EXPECT_EQ(watch_.SinceHeard(Rank(1), now_), absl::Seconds(1));
  EXPECT_EQ(watch_.Overdue(absl::Minutes(2), now_), std::nullopt);
  EXPECT_EQ(watch_.Overdue(absl::Minutes(2), now_ + absl::Minutes(2)), Rank(2));
  watch_.MayAsk(now_);
  EXPECT_EQ(watch_.SinceAsked(Rank(0), now_), absl::ZeroDuration());
  // Who was heard before the standstill was noticed.
  now_ += absl::Minutes(5);
  watch_.Asked(Rank(0), now_);
  watch_.StoodStill(absl::Minutes(5), now_);
  EXPECT_EQ(watch_.SinceAsked(Rank(0), now_), absl::ZeroDuration());
}

TEST_F(RankWatchTest, ARankIsVacantUntilAnotherWorkerHasIt) {
  EXPECT_TRUE(watch_.vacant().empty());
  watch_.Lost(Rank(2), 12, now_);
  watch_.Lost(Rank(0), 0, now_ + absl::Seconds(1));
  EXPECT_TRUE(watch_.Vacant(Rank(2)));
  EXPECT_FALSE(watch_.Vacant(Rank(1)));
  ASSERT_EQ(watch_.vacant().size(), 2u);
  EXPECT_EQ(watch_.vacant().begin()->first, 0u);
  EXPECT_EQ(watch_.vacant().at(2).lost, 12u);
  now_ += absl::Minutes(1);
  EXPECT_EQ(watch_.Fill(Rank(2), now_), absl::Minutes(1));
  EXPECT_FALSE(watch_.Vacant(Rank(2)));
  EXPECT_TRUE(watch_.Vacant(Rank(0)));
  // What was not heard was the one before.
  EXPECT_EQ(watch_.SinceAsked(Rank(2), now_), absl::ZeroDuration());
  EXPECT_EQ(watch_.SinceHeard(Rank(2), now_), absl::ZeroDuration());
}

TEST_F(RankWatchTest, WhoIsLostMayComeBackAndWhoWasGivenUpMayNot) {
  watch_.Lost(Rank(0), 10, now_);
  watch_.GiveUp(Rank(1), 11, "does not ask for work", now_);
  watch_.Fill(Rank(0), now_);
  watch_.Fill(Rank(1), now_);
  EXPECT_FALSE(watch_.GaveUpOn(10));
  EXPECT_TRUE(watch_.GaveUpOn(11));
  EXPECT_FALSE(watch_.GaveUpOn(12));
}

TEST_F(RankWatchTest, ARankOfWhomNobodyWasFreeToTakeOverIsOverdueSoon) {
  const absl::Duration patience = absl::Minutes(2);
  watch_.Lost(Rank(0), 10, now_);
  watch_.GiveUp(Rank(1), 11, "", now_);  // somebody is free
  watch_.GiveUp(Rank(2), 12, "makes no step", now_);
  now_ += RankWatch::kPatienceWithGivenUp;
  EXPECT_EQ(watch_.Overdue(patience, now_), std::nullopt);
  now_ += absl::Milliseconds(1);
  EXPECT_EQ(watch_.Overdue(patience, now_), Rank(2));
  EXPECT_EQ(watch_.vacant().at(2).does_not, "makes no step");
  watch_.Fill(Rank(2), now_);
  EXPECT_EQ(watch_.Overdue(patience, now_), std::nullopt);
  now_ += patience;
  EXPECT_EQ(watch_.Overdue(patience, now_), Rank(0));
  watch_.Fill(Rank(0), now_);
  EXPECT_EQ(watch_.Overdue(patience, now_), Rank(1));
}

TEST_F(RankWatchTest, ASlowRankRestsAndAnotherWorkerInItsPlaceDoesNot) {
  EXPECT_EQ(SlowFor(Rank(1), absl::Seconds(6)), 1);
  EXPECT_TRUE(Rests(Rank(1)));
  EXPECT_LE(watch_.Rests(Rank(1), now_), StragglerRest::kFirstRest);
  EXPECT_FALSE(Rests(Rank(0)));
  watch_.Lost(Rank(1), 11, now_);
  watch_.Fill(Rank(1), now_);
  EXPECT_FALSE(Rests(Rank(1)));
}

TEST_F(RankWatchTest, SomebodyMustWork) {
  EXPECT_EQ(SlowFor(Rank(1), absl::Seconds(6)), 1);
  watch_.Lost(Rank(0), 10, now_);
  EXPECT_TRUE(Rests(Rank(1)));
  EXPECT_EQ(SlowFor(Rank(2), absl::Seconds(6)), 0) << "it is the only one that works";
  // It has been too slow all the same: then one of both rests at most.
  EXPECT_FALSE(Rests(Rank(1)));
  EXPECT_FALSE(Rests(Rank(2)));
  watch_.Fill(Rank(0), now_);
  EXPECT_TRUE(Rests(Rank(1)));
  EXPECT_TRUE(Rests(Rank(2)));
}

}  // namespace
}  // namespace tessera::master
