#include "master/core/core.h"
#include "tests/master/core_scale_harness.h"

// What may end, or undo, a move to other ps at its barrier.
namespace tessera::master {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class CoreMoveBarrierTest : public testing::Test, protected CoreScaleHarness {
 protected:
  // What the first copy that is made at a barrier comes to; others are made.
  void LastCopy(std::function<ActionResult()> what) {
    on_copy_ = [this, what, first = true](const CopyPartitions& copy) mutable {
      if (!in_foreground_ || !std::exchange(first, false)) return ActionResult();
      EXPECT_TRUE(copy.calls[0].second.changed());
      last_copy_ = copies_.size();
      return what();
    };
  }
  // None before that was.
  size_t last_copy_ = 0;
};

TEST_F(CoreMoveBarrierTest, AMoveThatIsGivenUpAtItsBarrierHoldsItUntilItsLastCopyHasEnded) {
  JoinAll(3, 1);
  const std::string id = Submit(Quiet(), 1, 2);
  RunUntilStep(id, 20);
  size_t begun = 0;
  on_copy_ = [&](const CopyPartitions&) {
    // One in the background may end at the barrier; the last one is what the job stands for.
    if (!in_foreground_ || begun > 0) return ActionResult();
    EXPECT_EQ(Job(id).phase(), "moving");
    // Meanwhile somebody wants another number of ps.
    begun = copies_.size();
    EXPECT_TRUE(Scale(id, 1).ok());
    const uint64_t step = Job(id).step();
    for (int i = 0; i < 5; ++i) {
      FinishWrite();  // in the background: what was copied is dropped
      Advance(absl::Milliseconds(100));
    }
    EXPECT_EQ(Job(id).phase(), "moving");
    EXPECT_EQ(Job(id).step(), step);
    for (size_t c = begun; c < copies_.size(); ++c) {
      EXPECT_TRUE(copies_[c].calls[0].second.drop()) << c;
    }
    return ActionResult();
  };
  ASSERT_TRUE(Scale(id, 3).ok());
  RunUntilPs(id, 1);
  ASSERT_GT(begun, 0u);
  // The move after it copied all rows anew, and what had changed, before the switch.
  std::vector<bool> changed;
  for (size_t c = begun; c < copies_.size(); ++c) {
    if (!copies_[c].calls[0].second.drop()) changed.push_back(copies_[c].calls[0].second.changed());
  }
  ASSERT_GE(changed.size(), 2u);
  EXPECT_FALSE(changed.front());
  EXPECT_TRUE(changed.back());
  RunUntil(id, v1::SUCCEEDED);
  ExpectEachStepOnce(200);
}

TEST_F(CoreMoveBarrierTest,
       AMoveThatIsGivenUpAtItsBarrierBeforeItsRoundHasBegunLeavesItWithTheDrop) {
  JoinAll(2, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 20);
  ASSERT_TRUE(Scale(id, 2).ok());
  for (int i = 0; i < 50 && Job(id).phase() != "moving"; ++i) Round();
  ASSERT_EQ(Job(id).phase(), "moving");
  ASSERT_FALSE(writing_.has_value());
  const size_t rounds = copies_.size();
  ASSERT_TRUE(Scale(id, 1).ok());
  Advance(absl::Seconds(1));
  EXPECT_EQ(Job(id).phase(), "moving") << "until what was copied is dropped";
  RunUntil(id, v1::SUCCEEDED);
  ASSERT_EQ(copies_.size(), rounds + 1);
  EXPECT_TRUE(copies_.back().calls[0].second.drop());
  EXPECT_EQ(opens_.size(), 1u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreMoveBarrierTest, WhatCannotBeCopiedThereTravelsByACheckpointOfThatBarrier) {
  JoinAll(2, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 20);
  size_t trained = 0;
  LastCopy([&] {
    trained = trained_.size();
    return Failed(absl::FailedPreconditionError("the marks are gone"));
  });
  on_open_ = [&](const OpenPs&) {
    EXPECT_EQ(trained_.size(), trained) << "nobody trains in between";
    return absl::OkStatus();
  };
  ASSERT_TRUE(Scale(id, 2).ok());
  RunUntilPs(id, 2);
  EXPECT_THAT(Events(id), Contains("the rows travel by a checkpoint: the marks are gone"));
  ASSERT_EQ(writes_.size(), 1u);
  EXPECT_EQ(opens_.back().calls[0].second.checkpoint(), writes_[0].folder);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreMoveBarrierTest, ACopyThatFailsThereEndsTheMoveAndNotTheTraining) {
  JoinAll(2, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 20);
  LastCopy([] { return Failed(absl::ResourceExhaustedError("no memory")); });
  ASSERT_TRUE(Scale(id, 2).ok());
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_THAT(Events(id), Contains(HasSubstr("the move is given up: no memory")));
  ASSERT_EQ(copies_.size(), last_copy_ + 1);
  EXPECT_TRUE(copies_.back().calls[0].second.drop());
  EXPECT_EQ(opens_.size(), 1u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreMoveBarrierTest, WithPushLogsACopyThatFailsThereBeginsAnewBehindIt) {
  JoinAll(2, 1);
  const std::string id = Submit(LoggedJob(), 1, 2);
  RunUntilStep(id, 20);
  size_t trained = 0;
  LastCopy([&] {
    trained = trained_.size();
    return Failed(absl::UnavailableError("ps-1: no route"));
  });
  ASSERT_TRUE(Scale(id, 1).ok());
  RunUntilPs(id, 1);
  ASSERT_GE(copies_.size(), last_copy_ + 2);
  EXPECT_FALSE(copies_[last_copy_].calls[0].second.changed()) << "from the first round on";
  EXPECT_TRUE(copies_.back().calls[0].second.changed());
  EXPECT_GT(trained_.size(), trained);
  EXPECT_GT(opens_.back().calls[0].second.take_over(), 0u) << "not by the checkpoint";
  EXPECT_THAT(Events(id), Not(Contains(HasSubstr("given up"))));
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreMoveBarrierTest, APsThatIsLostDuringTheLastCopyIsNotSwitchedFrom) {
  JoinAll(2, 1);
  const std::string id = Submit(LoggedJob(), 1, 2);
  LostAreNotReached();
  RunUntilStep(id, 20);
  LastCopy([this] {
    Kill("ps-1");  // it has answered
    return ActionResult();
  });
  ASSERT_TRUE(Scale(id, 1).ok());
  for (int i = 0; i < 50 && last_copy_ == 0; ++i) Round();
  ASSERT_GT(last_copy_, 0u);
  for (int i = 0; i < 5; ++i) Round();
  EXPECT_EQ(opens_.size(), 1u);
  EXPECT_TRUE(Job(id).has_scaling());
  Join(v1::PS, "ps-1");
  RunUntilPs(id, 1);
  EXPECT_THAT(Events(id), Contains(HasSubstr("ps-1 is back with all that was pushed")));
  ASSERT_GE(copies_.size(), last_copy_ + 3);
  EXPECT_TRUE(copies_[last_copy_].calls[0].second.drop());
  EXPECT_FALSE(copies_[last_copy_ + 1].calls[0].second.changed()) << "from the first round on";
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreMoveBarrierTest, AJobThatIsAtItsEndBeforeItsRowsHaveMovedEndsWhereItIs) {
  JoinAll(2, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 150);
  hold_writes_ = true;  // the first round does not end
  ASSERT_TRUE(Scale(id, 2).ok());
  for (int i = 0; i < 100 && Job(id).has_scaling(); ++i) Round();
  EXPECT_THAT(Events(id), Contains(HasSubstr("the move is given up: the job is at its end")));
  ASSERT_TRUE(writing_.has_value());
  EXPECT_THAT(core_->UnwantedActions(), testing::ElementsAre(writing_->id));
  CutShort();
  hold_writes_ = false;
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(opens_.size(), 1u);
  ExpectEachStepOnce(200);
}

}  // namespace
}  // namespace tessera::master
