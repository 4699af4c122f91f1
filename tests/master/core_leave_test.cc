#include "master/core.h"

#include "tests/master/core_scale_harness.h"

// Ps that are told to stop, and wait until nothing would be lost.
namespace tessera::master {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class CoreLeaveTest : public testing::Test, protected CoreScaleHarness {
 protected:
  void Ask(const std::string& ps) {
    heartbeats_[ps].set_leaving(true);
    Advance(absl::ZeroDuration());
  }
  bool MayLeave(const std::string& ps) { return core_->MayLeave(alive_.at(ps)); }
  // It stops, and comes back.
  void Stop(const std::string& ps) {
    Kill(ps);
    heartbeats_.erase(ps);
  }
  void RunUntilMayLeave(const std::string& ps) {
    for (int i = 0; i < 100 && !MayLeave(ps); ++i) Round();
    ASSERT_TRUE(MayLeave(ps));
  }
};

TEST_F(CoreLeaveTest, OneThatHoldsWhatNoCheckpointHasWaitsForOne) {
  JoinAll(2, 1);
  const std::string id = Submit(Quiet(), 1, 2);
  RunUntilStep(id, 20);
  hold_writes_ = true;
  Ask("ps-1");
  EXPECT_THAT(Events(id), Contains("ps-1 is to stop: goes to the next barrier"));
  for (int i = 0; i < 30; ++i) Round();
  EXPECT_FALSE(MayLeave("ps-1")) << "its checkpoint is not committed";
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  EXPECT_THAT(Waits(id),
              Contains(HasSubstr("ps-1 is to stop, and waits for the job's checkpoint")));
  hold_writes_ = false;
  RunUntilMayLeave("ps-1");
  EXPECT_FALSE(MayLeave("ps-0"));
  ASSERT_EQ(writes_.size(), 1u);
  EXPECT_EQ(Job(id).state(), v1::RESTARTING);
  EXPECT_THAT(Job(id).message(), HasSubstr(writes_[0].folder + " has all that was trained"));
  Stop("ps-1");
  for (int i = 0; i < 30; ++i) Round();
  EXPECT_THAT(Job(id).message(), HasSubstr("1 of 2 ps are here (ps-0)"));
  Join(v1::PS, "ps-1");
  RunUntil(id, v1::SUCCEEDED);
  ExpectEachStepOnce(200);
}

TEST_F(CoreLeaveTest, TheJobGoesOnWithAnotherThatIsHere) {
  JoinAll(3, 1);
  const std::string id = Submit(Quiet(), 1, 2);
  RunUntilStep(id, 20);
  Ask("ps-0");
  RunUntilMayLeave("ps-0");
  RunUntilStep(id, 30);
  const v1::JobStatus job = Job(id);
  for (const v1::NodeStatus& node : job.nodes()) EXPECT_NE(node.name(), "ps-0");
  Stop("ps-0");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 1u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreLeaveTest, AllMayStopAtOnce) {
  JoinAll(2, 2);
  const std::string id = Submit(Quiet(), 2, 2);
  RunUntilStep(id, 10);
  Ask("ps-0");
  Ask("ps-1");
  RunUntilMayLeave("ps-0");
  RunUntilMayLeave("ps-1");
  EXPECT_EQ(writes_.size(), 1u);
}

TEST_F(CoreLeaveTest, OneThatNoJobUsesMayStopAtOnceAndIsGivenNone) {
  JoinAll(1, 1);
  Ask("ps-0");
  EXPECT_TRUE(MayLeave("ps-0"));
  const std::string id = Submit(Quiet(), 1, 1);
  for (int i = 0; i < 30; ++i) Round();
  EXPECT_THAT(opens_, IsEmpty());
  EXPECT_EQ(Job(id).reason(), "WaitingForPs");
  // Nor does one that trains already move there.
  Join(v1::PS, "ps-1");
  RunUntilStep(id, 5);
  ASSERT_TRUE(Scale(id, 2).ok());
  for (int i = 0; i < 10; ++i) Round();
  EXPECT_THAT(copies_, IsEmpty());
}

TEST_F(CoreLeaveTest, WhatComesBackByItsPushLogIsNotWaitedFor) {
  JoinAll(1, 1);
  const std::string id = Submit(LoggedJob(), 1, 1);
  RunUntilStep(id, 20);
  Ask("ps-0");
  EXPECT_TRUE(MayLeave("ps-0"));
  EXPECT_THAT(writes_, IsEmpty());
  Stop("ps-0");
  Join(v1::PS, "ps-0");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreLeaveTest, RowsThatHaveMovedWaitForTheirCheckpointWhereTheMasterIsLostToo) {
  JoinAll(2, 1);
  const std::string id = Submit(LoggedJob(), 1, 2);
  RunUntilStep(id, 20);
  ASSERT_TRUE(Scale(id, 1).ok());
  for (int i = 0; i < 3000 && opens_.size() < 2; ++i) {
    hold_writes_ = i % 2 == 1;
    Step();
  }
  ASSERT_EQ(opens_.size(), 2u);
  hold_writes_ = true;
  for (int i = 0; i < 5; ++i) Step();
  ASSERT_THAT(writes_, IsEmpty());
  RestartMasterAlone();
  Ask("ps-0");
  for (int i = 0; i < 30; ++i) Round();
  EXPECT_FALSE(MayLeave("ps-0")) << "no log leads back to rows that came from memory";
  hold_writes_ = false;
  RunUntilMayLeave("ps-0");
  EXPECT_THAT(writes_, Not(IsEmpty()));
  Stop("ps-0");
  Join(v1::PS, "ps-0");
  RunUntil(id, v1::SUCCEEDED);
  ExpectEachStepOnce(200);
}

TEST_F(CoreLeaveTest, WithoutRoomForACheckpointItStopsWithoutAndTrainingIsLost) {
  JoinAll(1, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 20);
  on_write_ = [](const WriteCheckpoint&) { return absl::ResourceExhaustedError("disk full"); };
  Ask("ps-0");
  RunUntilMayLeave("ps-0");
  EXPECT_THAT(Events(id), Contains(HasSubstr("ps-0 stops without a checkpoint at step")));
  EXPECT_EQ(Job(id).state(), v1::RUNNING) << "as long as it is here";
  on_write_ = nullptr;
  Stop("ps-0");
  Join(v1::PS, "ps-0");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 1u);
}

TEST_F(CoreLeaveTest, AMoveThatIsUnderWayIsPutOff) {
  JoinAll(2, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 10);
  hold_writes_ = true;  // the copy
  ASSERT_TRUE(Scale(id, 2).ok());
  for (int i = 0; i < 5 && !writing_.has_value(); ++i) Round();
  ASSERT_TRUE(writing_.has_value());
  Ask("ps-0");
  hold_writes_ = false;
  RunUntilMayLeave("ps-0");
  EXPECT_TRUE(Job(id).has_scaling()) << "what was asked for is not forgotten";
  Stop("ps-0");
  Join(v1::PS, "ps-2");
  RunUntil(id, v1::SUCCEEDED);
  ExpectEachStepOnce(200);
}

TEST_F(CoreLeaveTest, AMoveToOneThatIsToStopIsGivenUp) {
  JoinAll(2, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 10);
  hold_writes_ = true;
  ASSERT_TRUE(Scale(id, 2).ok());
  for (int i = 0; i < 3; ++i) Round();
  Ask("ps-1");
  EXPECT_TRUE(MayLeave("ps-1"));
  EXPECT_THAT(Events(id), Contains(HasSubstr("ps-1 is to stop")));
  hold_writes_ = false;
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
}

TEST_F(CoreLeaveTest, AtEveryInstantNothingIsTrainedTwice) {
  for (int at = 0; at < 150; at += 3) {
    SCOPED_TRACE(at);
    JoinAll(2, 2);
    trained_.clear();
    v1::JobSpec spec = Quiet();
    spec.mutable_train()->set_epochs(6);
    spec.mutable_checkpoint()->set_every_steps(13);
    spec.mutable_evaluation()->set_every_steps(10);
    spec.mutable_checkpoint()->set_keep_best(true);
    const std::string id = Submit(spec, 2, 2);
    for (int i = 0; i < at; ++i) Step();
    Ask("ps-1");
    RunUntilMayLeave("ps-1");
    Stop("ps-1");
    Join(v1::PS, "ps-1");
    RunUntil(id, v1::SUCCEEDED);
    ExpectEachStepOnce(60, 2);
    RestartMaster();
  }
}

}  // namespace
}  // namespace tessera::master
