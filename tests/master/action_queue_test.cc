#include "master/actions/action_queue.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::master {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Purpose = ActionQueue::Purpose;

CopyPartitions Copy() { return {}; }

CutCheckpoint CutOf(const std::string& folder) {
  CutCheckpoint cut;
  cut.folder = folder;
  return cut;
}

TEST(ActionQueue, DropsRowsThenTellsThenPrunesThenDoesWhatElseTheBackgroundIsToDo) {
  ActionQueue queue;
  queue.Want(Lane::kBackground, FindCheckpoint());
  queue.WantPruning({});
  queue.WantTelling({});
  queue.WantDrop(Copy());
  EXPECT_FALSE(queue.Take(Lane::kForeground).has_value());
  const auto takes = [&queue](Purpose purpose) {
    const std::optional<Work> work = queue.Take(Lane::kBackground);
    EXPECT_EQ(queue.purpose(Lane::kBackground), purpose);
    EXPECT_EQ(queue.Done(Lane::kBackground), purpose);
    EXPECT_EQ(queue.Done(Lane::kBackground), Purpose::kOther) << "nothing is under way";
    return work;
  };
  EXPECT_TRUE(std::holds_alternative<CopyPartitions>(*takes(Purpose::kDrop)));
  EXPECT_TRUE(std::holds_alternative<TellCommitted>(*takes(Purpose::kTellCommitted)));
  EXPECT_TRUE(queue.Prunes(/*may_prune=*/true)) << "it waits still";
  EXPECT_FALSE(queue.Prunes(/*may_prune=*/false));
  EXPECT_TRUE(std::holds_alternative<PruneCheckpoints>(*takes(Purpose::kPrune)));
  EXPECT_FALSE(queue.Prunes(/*may_prune=*/true));
  EXPECT_TRUE(std::holds_alternative<FindCheckpoint>(*takes(Purpose::kOther)));
  EXPECT_FALSE(takes(Purpose::kOther).has_value());
}

TEST(ActionQueue, PrunesLaterWhereItMayNotNow) {
  ActionQueue queue;
  queue.WantPruning({});
  queue.Want(Lane::kBackground, Copy());
  EXPECT_TRUE(
      std::holds_alternative<CopyPartitions>(*queue.Take(Lane::kBackground, {.prune = false})));
  EXPECT_EQ(queue.Done(Lane::kBackground), Purpose::kCopy);
  EXPECT_FALSE(queue.Take(Lane::kBackground, {.prune = false}).has_value());
  EXPECT_TRUE(std::holds_alternative<PruneCheckpoints>(*queue.Take(Lane::kBackground)));
  EXPECT_TRUE(queue.Prunes(/*may_prune=*/false)) << "it is under way";
}

TEST(ActionQueue, KnowsACopyByItsKindAndWhetherOneIsUnderWay) {
  ActionQueue queue;
  for (const Lane lane : {Lane::kForeground, Lane::kBackground}) {
    queue.Want(lane, Copy());
    EXPECT_TRUE(queue.Wants<CopyPartitions>(lane));
    EXPECT_FALSE(queue.Wants<CutCheckpoint>(lane));
    EXPECT_FALSE(queue.Copies(lane)) << "it waits still";
    EXPECT_TRUE(queue.Take(lane).has_value());
    EXPECT_FALSE(queue.WantsAny(lane));
    EXPECT_TRUE(queue.Copies(lane));
    EXPECT_EQ(queue.CopiesBehind(), lane == Lane::kBackground);
    EXPECT_EQ(queue.Done(lane), Purpose::kCopy);
    EXPECT_FALSE(queue.Copies(lane));
  }
  queue.WantDrop(Copy());
  EXPECT_TRUE(queue.CopiesBehind()) << "rows are still to be dropped";
  EXPECT_FALSE(queue.Copies(Lane::kBackground));
  EXPECT_TRUE(queue.Take(Lane::kBackground).has_value());
  EXPECT_TRUE(queue.Copies(Lane::kBackground));
}

TEST(ActionQueue, AWishTakesThePlaceOfTheOneBeforeAndMayBeTakenBack) {
  ActionQueue queue;
  queue.Want(Lane::kForeground, CutOf("a"));
  queue.Want(Lane::kForeground, CutOf("b"));
  queue.Want(Lane::kBackground, Copy());
  queue.TakeBack(Lane::kBackground);
  EXPECT_FALSE(queue.Take(Lane::kBackground).has_value());
  EXPECT_EQ(std::get<CutCheckpoint>(*queue.Take(Lane::kForeground)).folder, "b");
  EXPECT_FALSE(queue.Take(Lane::kForeground).has_value());
}

TEST(ActionQueue, WhatIsUnderWayGoesOnWhenNothingIsWantedAnyMore) {
  ActionQueue queue;
  queue.Begin(Lane::kAside, Purpose::kWeigh);
  queue.SetUnanswered(Lane::kAside, {"ps-1"});
  queue.Want(Lane::kForeground, CutOf("c"));
  queue.Want(Lane::kBackground, Copy());
  queue.WantDrop(Copy());
  queue.WantTelling({});
  queue.WantPruning({});
  queue.Clear();
  for (const Lane lane : {Lane::kForeground, Lane::kBackground}) {
    EXPECT_FALSE(queue.Take(lane).has_value());
  }
  EXPECT_THAT(queue.unanswered(Lane::kAside), ElementsAre("ps-1"));
  EXPECT_THAT(queue.unanswered(Lane::kForeground), IsEmpty());
  EXPECT_EQ(queue.Done(Lane::kAside), Purpose::kWeigh);
}

}  // namespace
}  // namespace tessera::master
