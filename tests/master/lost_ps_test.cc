#include "master/run/lost_ps.h"

#include "gtest/gtest.h"

namespace tessera::master {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

RunNode ANode(const std::string& name, uint64_t incarnation) {
  RunNode node;
  node.name = name;
  node.incarnation = incarnation;
  return node;
}

class LostPsTest : public testing::Test {
 protected:
  // Whom the next to be asked is, as "part:incarnation"; empty: nobody.
  std::string Ask() {
    const std::optional<uint32_t> part = lost_.Ask();
    if (!part.has_value()) return "";
    return std::to_string(*part) + ":" + std::to_string(lost_.places().at(*part).back.incarnation);
  }
  // Loses the part's ps, of incarnation 1, to a follower of incarnation 7.
  void LoseToFollower(uint32_t part) {
    lost_.Lose(part, Replicas::Replica{.node = ANode("f", 7), .pair = 3}, now_);
  }

  absl::Duration now_ = absl::Seconds(1000);
  LostPs lost_;
};

TEST_F(LostPsTest, AsksAPsThatHasJoinedAgainOnceAndThenEachTimeThatIsDue) {
  EXPECT_TRUE(lost_.empty());
  lost_.Lose(2, std::nullopt, now_);
  EXPECT_TRUE(lost_.Contains(2));
  EXPECT_EQ(Ask(), "") << "it has not joined";
  lost_.Join(2, ANode("ps-2", 5), now_);
  EXPECT_TRUE(lost_.Knows(5));
  EXPECT_FALSE(lost_.Knows(4));
  EXPECT_EQ(Ask(), "2:5");
  EXPECT_TRUE(lost_.asking());
  lost_.Tick(now_ + absl::Hours(1));
  EXPECT_EQ(Ask(), "") << "while it has not answered";
  EXPECT_EQ(lost_.Answered(), 2u);
  EXPECT_FALSE(lost_.asking());
  lost_.AskAt(2, now_ + absl::Seconds(2), absl::DeadlineExceededError("too late"));
  EXPECT_EQ(lost_.places().at(2).why, "too late");
  lost_.Tick(now_ + absl::Seconds(1));
  EXPECT_EQ(Ask(), "");
  lost_.Tick(now_ + absl::Seconds(2));
  EXPECT_EQ(Ask(), "2:5");
  EXPECT_EQ(lost_.Answered(), 2u);
  EXPECT_EQ(lost_.Take(2).back.name, "ps-2");
  EXPECT_TRUE(lost_.empty());
}

TEST_F(LostPsTest, AnAnswerOfWhoWasLostMeanwhileDoesNotCount) {
  lost_.Lose(0, std::nullopt, now_);
  lost_.Join(0, ANode("ps-0", 5), now_);
  EXPECT_EQ(Ask(), "0:5");
  EXPECT_TRUE(lost_.LoseAgain(5, now_));
  EXPECT_FALSE(lost_.LoseAgain(5, now_)) << "it is gone already";
  lost_.Join(0, ANode("ps-0", 6), now_);
  EXPECT_EQ(lost_.Answered(), std::nullopt);
  EXPECT_EQ(Ask(), "0:6");
  EXPECT_EQ(lost_.Answered(), 0u);
}

TEST_F(LostPsTest, AFollowerTakesThePlaceAndItsOwnerWaits) {
  LoseToFollower(1);
  EXPECT_EQ(lost_.places().at(1).pair, 3u);
  lost_.Join(1, ANode("ps-1", 8), now_);
  EXPECT_TRUE(lost_.Knows(7));
  EXPECT_TRUE(lost_.Knows(8));
  EXPECT_EQ(Ask(), "1:7");
  EXPECT_EQ(lost_.Answered(), 1u);
  const LostPs::Place place = lost_.Take(1);
  EXPECT_TRUE(place.replaces);
  EXPECT_EQ(place.back.name, "f");
}

TEST_F(LostPsTest, WithoutTheFollowerThePlaceIsItsOwnersAgain) {
  for (const bool is_lost : {false, true}) {
    LoseToFollower(1);
    lost_.Join(1, ANode("ps-1", 8), now_);
    EXPECT_EQ(Ask(), "1:7");
    if (is_lost) {
      EXPECT_TRUE(lost_.LoseAgain(7, now_));
      EXPECT_EQ(lost_.Answered(), std::nullopt);
    } else {
      EXPECT_EQ(lost_.Answered(), 1u);
      lost_.DropFollower(1, now_);
    }
    EXPECT_FALSE(lost_.places().at(1).replaces);
    EXPECT_EQ(Ask(), "1:8") << is_lost;
    EXPECT_EQ(lost_.Answered(), 1u);
  }
  // Its owner may be lost again before.
  LoseToFollower(1);
  lost_.Join(1, ANode("ps-1", 8), now_);
  EXPECT_TRUE(lost_.LoseAgain(8, now_));
  lost_.DropFollower(1, now_);
  EXPECT_EQ(Ask(), "");
}

TEST_F(LostPsTest, PatienceCountsWhileNobodyIsThereToTakeThePlace) {
  lost_.Lose(0, std::nullopt, now_);
  EXPECT_EQ(lost_.Overdue(kPatience, now_ + kPatience), std::nullopt);
  EXPECT_EQ(lost_.Overdue(kPatience, now_ + kPatience + absl::Seconds(1)), 0u);
  lost_.Join(0, ANode("ps-0", 5), now_);
  EXPECT_EQ(lost_.Overdue(kPatience, now_ + absl::Hours(1)), std::nullopt);
  lost_.LoseAgain(5, now_ + absl::Hours(1));
  EXPECT_EQ(lost_.Overdue(kPatience, now_ + absl::Hours(1) + kPatience), std::nullopt);
  EXPECT_EQ(lost_.Overdue(kPatience, now_ + absl::Hours(2)), 0u);
}

TEST_F(LostPsTest, WhatMayPassDoesForItsTime) {
  constexpr absl::Duration kDiskPatience = absl::Minutes(10);
  const absl::Status no_route = absl::UnavailableError("no route");
  const absl::Status late = absl::DeadlineExceededError("it restores");
  const absl::Status full = absl::ResourceExhaustedError("no space left");
  lost_.Lose(0, std::nullopt, now_);
  lost_.Join(0, ANode("ps-0", 5), now_);
  const auto passes = [&](absl::Duration later, const absl::Status& failed) {
    now_ += later;
    const bool may = lost_.MayPass(0, failed, kPatience, kDiskPatience, now_);
    lost_.AskAt(0, now_, failed);
    return may;
  };
  EXPECT_TRUE(passes(absl::Seconds(10), no_route));
  EXPECT_TRUE(passes(kPatience, no_route));
  EXPECT_TRUE(passes(absl::Seconds(1), late));
  EXPECT_TRUE(passes(absl::Seconds(1), no_route)) << "it was reached meanwhile";
  EXPECT_TRUE(passes(kPatience, no_route));
  EXPECT_FALSE(passes(absl::Seconds(1), no_route));
  EXPECT_FALSE(passes(absl::Seconds(1), late)) << "for the second time";
  EXPECT_TRUE(passes(absl::Seconds(1), full));
  EXPECT_TRUE(passes(absl::Seconds(1), no_route));
  EXPECT_TRUE(passes(kDiskPatience - absl::Seconds(1), full));
  EXPECT_FALSE(passes(absl::Seconds(1), full)) << "in all";
  EXPECT_FALSE(passes(absl::Seconds(1), absl::DataLossError("no log")));
  lost_.LoseAgain(5, now_);
  lost_.Join(0, ANode("ps-0", 6), now_);
  EXPECT_EQ(lost_.places().at(0).why, "");
  for (const absl::Status& failed : {no_route, late, full}) {
    EXPECT_TRUE(passes(absl::Hours(1), failed)) << "it is another";
  }
  lost_.Lose(1, Replicas::Replica{.node = ANode("ps-2", 7), .pair = 1}, now_);
  EXPECT_FALSE(lost_.MayPass(1, full, kPatience, kDiskPatience, now_)) << "a follower";
}

TEST_F(LostPsTest, WhoHasNoLogIsAskedAgainAtOnceAndANewOneMayHaveOne) {
  lost_.Lose(0, std::nullopt, now_);
  lost_.Join(0, ANode("ps-0", 5), now_);
  EXPECT_EQ(Ask(), "0:5");
  EXPECT_EQ(lost_.Answered(), 0u);
  lost_.AskWithoutLog(0);
  EXPECT_TRUE(lost_.places().at(0).log_gone);
  EXPECT_EQ(Ask(), "0:5");
  EXPECT_TRUE(lost_.LoseAgain(5, now_));
  EXPECT_FALSE(lost_.places().at(0).log_gone);
}

TEST_F(LostPsTest, TheLargestCountOfLostStepsStays) {
  lost_.Lose(0, std::nullopt, now_);
  lost_.Join(0, ANode("ps-0", 5), now_);
  EXPECT_EQ(lost_.places().at(0).steps, std::nullopt);
  EXPECT_EQ(lost_.CountSteps(0, 10), 10u);
  EXPECT_TRUE(lost_.LoseAgain(5, now_));
  EXPECT_EQ(lost_.CountSteps(0, 4), 0u);
  EXPECT_EQ(lost_.CountSteps(0, 13), 3u);
  EXPECT_EQ(lost_.places().at(0).steps, 13u);
}

TEST_F(LostPsTest, TheTimeThatTheMasterStoodStillDoesNotCount) {
  lost_.Lose(0, std::nullopt, now_);
  lost_.Lose(1, std::nullopt, now_);
  lost_.Join(1, ANode("ps-1", 5), now_);
  const absl::Status no_route = absl::UnavailableError("no route");
  const absl::Status full = absl::ResourceExhaustedError("no space left");
  EXPECT_TRUE(lost_.MayPass(1, full, kPatience, kPatience, now_));
  EXPECT_TRUE(lost_.MayPass(1, no_route, kPatience, kPatience, now_));
  now_ += absl::Hours(1);
  lost_.Lose(2, std::nullopt, now_);  // before the standstill is noticed
  lost_.StoodStill(absl::Hours(1), now_);
  now_ += absl::Seconds(1);
  EXPECT_EQ(lost_.Overdue(kPatience, now_), std::nullopt);
  EXPECT_EQ(lost_.Overdue(kPatience, now_ + kPatience), 0u);
  EXPECT_EQ(lost_.Take(0).since, lost_.Take(2).since);
  EXPECT_TRUE(lost_.MayPass(1, no_route, absl::Seconds(1), kPatience, now_));
  EXPECT_FALSE(lost_.MayPass(1, no_route, absl::ZeroDuration(), kPatience, now_));
  EXPECT_TRUE(lost_.MayPass(1, full, kPatience, absl::Seconds(1), now_));
  EXPECT_FALSE(lost_.MayPass(1, full, kPatience, absl::ZeroDuration(), now_));
}

}  // namespace
}  // namespace tessera::master
