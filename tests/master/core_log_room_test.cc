#include "master/core/core.h"

#include "tests/master/core_harness.h"

// Push logs that have little room left.
namespace tessera::master {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class CoreLogRoomTest : public testing::Test, protected CoreHarness {
 protected:
  static v1::JobSpec Logged() {
    v1::JobSpec spec = SmallJob();
    spec.mutable_train()->set_epochs(30);
    spec.mutable_recovery()->set_push_log(v1::RecoverySpec::ASYNC);
    return spec;
  }
  // What ps-0's heartbeats say of the job's log from now on.
  void Says(const std::string& id, float share, uint64_t generation = 1) {
    heartbeats_["ps-0"].clear_jobs();
    v1::JobOnPs& job = *heartbeats_["ps-0"].add_jobs();
    job.set_job_id(id);
    job.set_generation(generation);
    job.set_log_share(share);
  }
  // A checkpoint makes the log as short as it says.
  void ShrinksAtEachCheckpoint(const std::string& id, float share) {
    on_write_ = [this, id, share](const WriteCheckpoint&) {
      Says(id, share);
      return absl::OkStatus();
    };
  }
  // A job that trains, with one ps.
  std::string Train() {
    JoinAll(1, 1);
    const std::string id = Submit(Logged(), 1, 1);
    RunUntilStep(id, 20);
    return id;
  }
  // The same, with little room in its log and none for checkpoints.
  std::string TrainWithoutRoom() {
    const std::string id = Train();
    on_write_ = [](const WriteCheckpoint&) {
      return absl::ResourceExhaustedError("the disk is full");
    };
    Says(id, 0.8f);
    return id;
  }
};

TEST_F(CoreLogRoomTest, ALogThatIsHalfFullGetsItsCheckpointWhileTheJobTrains) {
  const std::string id = Train();
  Says(id, 0.49f);
  Rounds(20);
  EXPECT_THAT(cuts_, IsEmpty()) << "the job asks for none before its end";
  Says(id, 0.5f);
  Advance(absl::Seconds(10));
  hold_writes_ = true;
  for (int i = 0; i < 20 && cuts_.empty(); ++i) Round();
  ASSERT_EQ(cuts_.size(), 1u);
  const uint64_t at = Job(id).step();
  Rounds(20);
  EXPECT_EQ(cuts_.size(), 1u);
  EXPECT_GT(Job(id).step(), at);
  EXPECT_EQ(Job(id).phase(), "training");
  EXPECT_THAT(Events(id), Not(Contains(HasSubstr("push log"))));
}

TEST_F(CoreLogRoomTest, ALogWithLittleRoomHoldsTrainingUntilItsCheckpointIsWritten) {
  const std::string id = Train();
  hold_writes_ = true;
  Says(id, 0.8f);
  for (int i = 0; i < 20 && cuts_.empty(); ++i) Round();
  ASSERT_EQ(cuts_.size(), 1u);
  const uint64_t at = Job(id).step();
  Rounds(50);
  EXPECT_EQ(Job(id).step(), at);
  EXPECT_EQ(Job(id).phase(), "checkpointing");
  EXPECT_THAT(Waits(id), Contains(AllOf(HasSubstr("workers wait for the checkpoint of step"),
                                        HasSubstr("ps-0's push log takes 80% of its room"))));
  EXPECT_THAT(Events(id), Contains(HasSubstr("ps-0's push log takes 80% of its room; training")));
  ShrinksAtEachCheckpoint(id, 0.1f);
  hold_writes_ = false;
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(writes_.size(), 2u) << "that one, and the job's last";
  ExpectEachStepOnce(Job(id).total_steps());
}

TEST_F(CoreLogRoomTest, WhatAPsSaysBeforeItKnowsOfTheCheckpointCausesNoOther) {
  const std::string id = Train();
  Says(id, 0.8f);
  for (int i = 0; i < 50 && writes_.empty(); ++i) Round();
  ASSERT_EQ(writes_.size(), 1u);
  hold_writes_ = true;  // the ps are not told
  const uint64_t at = Job(id).step();
  Rounds(20);
  EXPECT_GT(Job(id).step(), at);
  ASSERT_TRUE(committed_.empty());
  EXPECT_EQ(cuts_.size(), 1u);
  Says(id, 0.1f);
  hold_writes_ = false;
  Rounds(20);
  EXPECT_EQ(committed_.size(), 1u);
  EXPECT_EQ(cuts_.size(), 1u);
}

// The log has become full while a checkpoint is written.
TEST_F(CoreLogRoomTest, TrainingGoesToABarrierAndWaitsThereForTheOneThatIsBeingWritten) {
  JoinAll(1, 1);
  v1::JobSpec spec = Logged();
  spec.mutable_checkpoint()->set_every_steps(100);
  hold_writes_ = true;
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 104);
  ASSERT_EQ(cuts_.size(), 1u);
  EXPECT_EQ(Job(id).phase(), "training");
  Says(id, 0.9f);
  Rounds(20);
  const uint64_t at = Job(id).step();
  EXPECT_LT(at, 190u);
  Rounds(50);
  EXPECT_EQ(Job(id).step(), at);
  ShrinksAtEachCheckpoint(id, 0.1f);
  hold_writes_ = false;
  RunUntil(id, v1::SUCCEEDED);
}

TEST_F(CoreLogRoomTest, ACheckpointThatFailsIsCutAgainAtItsBarrier) {
  const std::string id = TrainWithoutRoom();
  for (int i = 0; i < 100 && writes_.size() < 3; ++i) Round();
  EXPECT_GE(writes_.size(), 3u);
  const uint64_t at = Job(id).step();
  for (const CutCheckpoint& cut : cuts_) EXPECT_EQ(cut.calls[0].second.step(), at);
  EXPECT_THAT(Waits(id), Contains(AllOf(HasSubstr("the job tries its checkpoint again"),
                                        HasSubstr("ps-0's push log has little room"),
                                        HasSubstr("the disk is full"))));
  ShrinksAtEachCheckpoint(id, 0.1f);
  RunUntil(id, v1::SUCCEEDED);
  ExpectEachStepOnce(Job(id).total_steps());
}

TEST_F(CoreLogRoomTest, ADiskThatStaysFullLetsTrainingGoOnForAWhile) {
  const std::string id = TrainWithoutRoom();
  Rounds(100);
  const uint64_t at = Job(id).step();
  Rounds(11 * 600);  // of a tenth of a second
  EXPECT_GT(Job(id).step(), at);
  EXPECT_THAT(Events(id), Contains(HasSubstr("failed, training goes on without it")));
}

// The model that the barrier has measured as the best is of no more use than its checkpoint.
TEST_F(CoreLogRoomTest, SoItDoesWhereTheBestModelIsKept) {
  JoinAll(1, 1);
  v1::JobSpec spec = Logged();
  spec.mutable_checkpoint()->set_keep_best(true);
  spec.mutable_evaluation()->set_every_steps(1);
  for (int i = 0; i < 1000; ++i) aucs_.push_back(0.5 + i * 0.0001);  // every one is the best
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 15);
  on_write_ = [](const WriteCheckpoint&) {
    return absl::ResourceExhaustedError("the disk is full");
  };
  Says(id, 0.8f);
  for (int i = 0; i < 200 && Job(id).phase() != "checkpointing"; ++i) Round();
  const uint64_t at = Job(id).step();
  Rounds(25 * 600);
  EXPECT_GT(Job(id).step(), at);
  EXPECT_THAT(Events(id), Contains(HasSubstr("is lost: the disk is full")));
  ShrinksAtEachCheckpoint(id, 0.1f);
  RunUntil(id, v1::SUCCEEDED);
  ExpectEachStepOnce(Job(id).total_steps());
}

TEST_F(CoreLogRoomTest, APsThatIsAwayForAMomentHasItsOwnTimeThen) {
  const std::string id = TrainWithoutRoom();
  Rounds(5 * 600);  // longer than the job waits for a ps
  bool away = false;
  on_cut_ = [&away](const CutCheckpoint&) {
    return std::exchange(away, true) ? absl::OkStatus() : absl::UnavailableError("no route");
  };
  Rounds(50);
  EXPECT_TRUE(away);
  ShrinksAtEachCheckpoint(id, 0.1f);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).generation(), 1);
}

TEST_F(CoreLogRoomTest, KindsOfFailureThatAlternateEndOneAnother) {
  const std::string id = TrainWithoutRoom();
  Rounds(50);
  const uint64_t at = Job(id).step();
  int cuts = 0;
  on_cut_ = [&cuts](const CutCheckpoint&) {
    return ++cuts % 2 == 0 ? absl::OkStatus() : absl::UnavailableError("it is being written");
  };
  Rounds(12 * 600);
  EXPECT_TRUE(Job(id).step() != at || Job(id).generation() > 1) << "it stands for good";
  EXPECT_LT(Events(id).size(), 40u);
}

// Its barriers are all for evaluations, which begin them before a log can ask for one.
TEST_F(CoreLogRoomTest, ABarrierForAnotherReasonCutsForALogToo) {
  JoinAll(1, 1);
  v1::JobSpec spec = Logged();
  spec.mutable_evaluation()->set_every_steps(1);
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 20);
  EXPECT_THAT(cuts_, IsEmpty());
  Says(id, 0.8f);
  hold_writes_ = true;
  for (int i = 0; i < 100 && cuts_.empty(); ++i) Round();
  ASSERT_EQ(cuts_.size(), 1u);
  const uint64_t at = Job(id).step();
  Rounds(50);
  EXPECT_EQ(Job(id).step(), at);
}

// Rows expire at a cut, and when a log has little room is a matter of time.
TEST_F(CoreLogRoomTest, TellsPsWhichCheckpointsTheJobHasNotAskedFor) {
  JoinAll(1, 1);
  v1::JobSpec spec = Logged();
  spec.mutable_checkpoint()->set_every_steps(100);
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 20);
  ShrinksAtEachCheckpoint(id, 0.1f);
  Says(id, 0.8f);
  RunUntil(id, v1::SUCCEEDED);
  ASSERT_GE(cuts_.size(), 4u);
  for (const CutCheckpoint& cut : cuts_) {
    const v1::WriteCheckpointRequest& request = cut.calls[0].second;
    EXPECT_EQ(request.early(), request.step() % 100 != 0) << request.step();
  }
  EXPECT_TRUE(cuts_[0].calls[0].second.early());
}

TEST_F(CoreLogRoomTest, ASuspensionDoesNotWaitForThatDisk) {
  const std::string id = TrainWithoutRoom();
  Rounds(30);
  ASSERT_TRUE(core_->Suspend(id, now_).ok());
  Rounds(50);
  EXPECT_THAT(Events(id), Contains(HasSubstr("runs on, since it cannot be suspended")));
}

TEST_F(CoreLogRoomTest, ALogOfAnotherGenerationSaysNothing) {
  const std::string id = Train();
  Says(id, 0.9f, 7);
  Rounds(50);
  EXPECT_THAT(cuts_, IsEmpty());
}

}  // namespace
}  // namespace tessera::master
