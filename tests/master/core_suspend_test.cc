#include "master/core.h"

#include "tests/master/core_harness.h"

// Jobs that are suspended and go on, by a user's wish and for others of higher priority.
namespace tessera::master {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class CoreSuspendTest : public testing::Test, protected CoreHarness {
 protected:
  static v1::JobSpec Quiet(uint32_t epochs = 20) {
    v1::JobSpec spec = SmallJob();
    spec.mutable_checkpoint()->set_every_steps(1000000);
    spec.mutable_train()->set_epochs(epochs);
    return spec;
  }
  static v1::JobSpec Urgent(int32_t priority) {
    v1::JobSpec spec = Quiet(1);
    spec.set_name("urgent");
    spec.set_priority(priority);
    return spec;
  }
  absl::Status Suspend(const std::string& id) {
    const absl::Status status = core_->Suspend(id, now_);
    Advance(absl::ZeroDuration());
    return status;
  }
  absl::Status Resume(const std::string& id) {
    const absl::Status status = core_->Resume(id, now_);
    Advance(absl::ZeroDuration());
    return status;
  }
  // Long enough that the running job may be pre-empted, while its workers are at a unit.
  void Age() {
    for (int i = 0; i < 20; ++i) Advance(absl::Seconds(1));
  }
};

TEST_F(CoreSuspendTest, ARunningJobCutsACheckpointGivesUpItsProcessesAndGoesOnElsewhere) {
  JoinAll(2, 1);
  const std::string id = Submit(Quiet(), 1, 2);
  RunUntilStep(id, 20);
  hold_writes_ = true;
  ASSERT_TRUE(Suspend(id).ok());
  EXPECT_TRUE(Job(id).has_suspending());
  for (int i = 0; i < 20; ++i) Round();
  // Not before its checkpoint is committed.
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  EXPECT_EQ(closes_, 0);
  ASSERT_TRUE(writing_.has_value());
  hold_writes_ = false;
  RunUntil(id, v1::SUSPENDED);
  const v1::JobStatus job = Job(id);
  EXPECT_FALSE(job.has_suspending());
  EXPECT_EQ(job.reason(), "Suspended");
  EXPECT_THAT(job.message(), HasSubstr("tessera resume " + id));
  EXPECT_EQ(job.nodes_size(), 0);
  EXPECT_EQ(job.phase(), "");
  ASSERT_EQ(writes_.size(), 1u);
  EXPECT_EQ(job.checkpoint(), writes_[0].folder);
  EXPECT_EQ(writes_[0].manifest.step(), job.step());
  Round();
  EXPECT_EQ(closes_, 1);
  EXPECT_EQ(last_close_.ps.size(), 2u);
  EXPECT_EQ(core_->AssignmentKey(alive_.at("worker-0")), "");
  // It stays so, whoever joins, and whatever else runs.
  const std::string other = Submit(Urgent(0), 1, 1);
  RunUntil(other, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).state(), v1::SUSPENDED);
  // Others than before.
  for (const char* name : {"ps-0", "ps-1", "worker-0"}) Kill(name);
  Join(v1::PS, "ps-7");
  Join(v1::PS, "ps-8");
  Join(v1::WORKER, "worker-9");
  ASSERT_TRUE(Resume(id).ok());
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_THAT(PsOf(opens_.back()), ElementsAre("ps-7", "ps-8"));
  EXPECT_THAT(Events(id), Contains(HasSubstr("goes on from step")));
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_EQ(Job(id).samples(), 20 * kTrain);
}

TEST_F(CoreSuspendTest, NothingIsTrainedTwiceHoweverOftenAJobIsSuspended) {
  for (const bool logged : {false, true}) {
    SCOPED_TRACE(logged);
    JoinAll(1, 1);
    v1::JobSpec spec = Quiet();
    spec.mutable_checkpoint()->set_every_steps(30);
    if (logged) spec.mutable_recovery()->set_push_log(v1::RecoverySpec::ASYNC);
    trained_.clear();
    const std::string id = Submit(spec, 1, 1);
    for (const uint64_t step : {10, 11, 40, 90, 120, 199}) {
      RunUntilStep(id, step);
      ASSERT_TRUE(Suspend(id).ok()) << step;
      RunUntil(id, v1::SUSPENDED);
      for (int i = 0; i < 3; ++i) Round();
      ASSERT_TRUE(Resume(id).ok());
    }
    RunUntil(id, v1::SUCCEEDED);
    ExpectEachStepOnce(200);
    EXPECT_EQ(Job(id).final_metrics().count("test"), 1u);
    RestartMaster();
  }
}

TEST_F(CoreSuspendTest, InEachPhaseAJobCanBeSuspendedAndGoesOn) {
  JoinAll(1, 2);
  v1::JobSpec spec = Quiet(6);
  spec.mutable_checkpoint()->set_every_steps(13);
  spec.mutable_evaluation()->set_every_steps(10);
  spec.mutable_checkpoint()->set_keep_best(true);
  std::set<std::string> phases;
  for (int at = 0; at < 120; ++at) {
    SCOPED_TRACE(at);
    trained_.clear();
    const std::string id = Submit(spec, 2, 1);
    for (int i = 0; i < at; ++i) {
      Step();
      if (Job(id).state() == v1::SUCCEEDED) break;
    }
    if (Job(id).state() == v1::SUCCEEDED) break;
    phases.insert(Job(id).phase());
    ASSERT_TRUE(Suspend(id).ok());
    RunUntil(id, v1::SUSPENDED);
    ASSERT_TRUE(Resume(id).ok());
    RunUntil(id, v1::SUCCEEDED);
    EXPECT_EQ(Job(id).samples(), 6 * kTrain);
    ExpectEachStepOnce(60, 2);
    EXPECT_EQ(Job(id).final_metrics().count("test"), 1u);
  }
  EXPECT_THAT(phases, Contains("loading"));
  EXPECT_THAT(phases, Contains("training"));
  EXPECT_THAT(phases, Contains("evaluating"));
  EXPECT_THAT(phases, Contains("checkpointing"));
}

TEST_F(CoreSuspendTest, AJobThatHasNotBegunLeavesTheQueueAndComesBack) {
  JoinAll(1, 1);
  const std::string first = Submit(Quiet(), 1, 1);
  const std::string second = Submit(Quiet(1), 1, 1);
  ASSERT_TRUE(Suspend(second).ok());
  EXPECT_EQ(Job(second).state(), v1::SUSPENDED);
  RunUntil(first, v1::SUCCEEDED);
  for (int i = 0; i < 5; ++i) Round();
  EXPECT_EQ(Job(second).state(), v1::SUSPENDED);
  ASSERT_TRUE(Resume(second).ok());
  RunUntil(second, v1::SUCCEEDED);
}

TEST_F(CoreSuspendTest, ARestartedMasterRemembers) {
  JoinAll(1, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 20);
  ASSERT_TRUE(Suspend(id).ok());
  RunUntil(id, v1::SUSPENDED);
  RestartMaster();
  JoinAll(1, 1);
  for (int i = 0; i < 20; ++i) Round();
  EXPECT_EQ(Job(id).state(), v1::SUSPENDED);
  ASSERT_TRUE(Resume(id).ok());
  RestartMaster();
  JoinAll(1, 1);
  RunUntilStep(id, 40);
  // Lost on its way to the barrier.
  hold_writes_ = true;
  ASSERT_TRUE(Suspend(id).ok());
  for (int i = 0; i < 10; ++i) Round();
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  RestartMaster();
  hold_writes_ = false;
  JoinAll(1, 1);
  Round();
  EXPECT_EQ(Job(id).state(), v1::SUSPENDED);
  ASSERT_TRUE(Resume(id).ok());
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).samples(), 20 * kTrain);
}

TEST_F(CoreSuspendTest, WhatCannotBeSuspendedOrResumedSaysWhy) {
  JoinAll(1, 1);
  EXPECT_TRUE(absl::IsNotFound(Suspend("nobody-1")));
  EXPECT_TRUE(absl::IsNotFound(Resume("nobody-1")));
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 20);
  EXPECT_TRUE(absl::IsFailedPrecondition(Resume(id)));
  EXPECT_THAT(std::string(Resume(id).message()), HasSubstr("is not suspended: RUNNING"));
  ASSERT_TRUE(Suspend(id).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(Suspend(id)));
  EXPECT_THAT(std::string(Suspend(id).message()), HasSubstr("is being suspended already"));
  RunUntil(id, v1::SUSPENDED);
  EXPECT_TRUE(absl::IsFailedPrecondition(Suspend(id)));
  EXPECT_THAT(std::string(Suspend(id).message()), HasSubstr("is suspended already"));
  ASSERT_TRUE(core_->Cancel(id, now_).ok());
  EXPECT_EQ(Job(id).state(), v1::FAILED);
  EXPECT_EQ(Job(id).reason(), "Cancelled");
  for (const absl::Status& status : {Suspend(id), Resume(id)}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr("has ended already: FAILED"));
  }
}

TEST_F(CoreSuspendTest, AJobThatIsResumedOnItsWayToTheBarrierRunsOn) {
  JoinAll(1, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 20);
  hold_writes_ = true;
  ASSERT_TRUE(Suspend(id).ok());
  for (int i = 0; i < 10; ++i) Round();
  ASSERT_TRUE(writing_.has_value());
  ASSERT_TRUE(Resume(id).ok());
  hold_writes_ = false;
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).generation(), 1u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreSuspendTest, AJobWhoseCheckpointFailsRunsOn) {
  for (const bool at_cut : {true, false}) {
    SCOPED_TRACE(at_cut);
    JoinAll(1, 1);
    trained_.clear();
    const std::string id = Submit(Quiet(), 1, 1);
    RunUntilStep(id, 20);
    bool full = true;
    const auto fails = [&full](const auto&) {
      return full ? absl::ResourceExhaustedError("disk full") : absl::OkStatus();
    };
    if (at_cut) on_cut_ = fails;
    if (!at_cut) on_write_ = fails;
    ASSERT_TRUE(Suspend(id).ok());
    for (int i = 0; i < 20; ++i) Round();
    EXPECT_EQ(Job(id).state(), v1::RUNNING);
    EXPECT_FALSE(Job(id).has_suspending());
    EXPECT_THAT(Events(id), Contains(HasSubstr("runs on, since it cannot be suspended")));
    full = false;
    ASSERT_TRUE(Suspend(id).ok());
    RunUntil(id, v1::SUSPENDED);
    ASSERT_TRUE(Resume(id).ok());
    RunUntil(id, v1::SUCCEEDED);
    ExpectEachStepOnce(200);
    on_cut_ = nullptr;
    on_write_ = nullptr;
    RestartMaster();
  }
}

TEST_F(CoreSuspendTest, ALossOnTheWayToTheBarrierSuspendsTheJobAtItsLastCheckpoint) {
  JoinAll(1, 1);
  v1::JobSpec spec = Quiet();
  spec.mutable_checkpoint()->set_every_steps(10);
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 25);
  hold_writes_ = true;
  ASSERT_TRUE(Suspend(id).ok());
  for (int i = 0; i < 10; ++i) Round();
  Kill("ps-0");
  hold_writes_ = false;
  for (int i = 0; i < 10; ++i) Round();
  EXPECT_EQ(Job(id).state(), v1::SUSPENDED);
  Join(v1::PS, "ps-0");
  for (int i = 0; i < 10; ++i) Round();
  EXPECT_EQ(Job(id).state(), v1::SUSPENDED);
  ASSERT_TRUE(Resume(id).ok());
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).samples(), 20 * kTrain);
}

TEST_F(CoreSuspendTest, AMoveToOtherPsWaitsAndTheResumedJobStartsOnThem) {
  JoinAll(2, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 20);
  hold_writes_ = true;
  v1::ScaleRequest scale;
  scale.set_job_id(id);
  scale.set_ps(2);
  ASSERT_TRUE(core_->Scale(scale, now_).ok());
  for (int i = 0; i < 5; ++i) Round();
  ASSERT_TRUE(Suspend(id).ok());
  hold_writes_ = false;
  RunUntil(id, v1::SUSPENDED);
  EXPECT_EQ(opens_.back().calls.size(), 1u);
  ASSERT_TRUE(Resume(id).ok());
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(opens_.back().calls.size(), 2u);
  EXPECT_FALSE(Job(id).has_scaling());
  ExpectEachStepOnce(200);
}

TEST_F(CoreSuspendTest, AJobThatTakesAllThatLiveGoesOnWithAllThatLiveThen) {
  JoinAll(1, 1);
  Advance(absl::Seconds(2));
  v1::JobSpec spec = Quiet();
  spec.mutable_consistency()->set_sparse(v1::ASYNC);
  spec.mutable_consistency()->set_dense(v1::ASYNC);
  const std::string id = Submit(spec, 0, 0);
  RunUntilStep(id, 20);
  ASSERT_TRUE(Suspend(id).ok());
  RunUntil(id, v1::SUSPENDED);
  Join(v1::PS, "ps-1");
  Join(v1::WORKER, "worker-1");
  ASSERT_TRUE(Resume(id).ok());
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(opens_.back().calls.size(), 2u);
  EXPECT_EQ(opens_.back().calls[0].second.workers(), 2u);
  EXPECT_EQ(Job(id).samples(), 20 * kTrain);
}

TEST_F(CoreSuspendTest, ARunningPredictionIsNotSuspended) {
  JoinAll(1, 1);
  const std::string id = Submit(Quiet(1), 1, 1);
  RunUntil(id, v1::SUCCEEDED);
  v1::SubmitRequest request;
  *request.mutable_spec() = SmallJob();
  request.mutable_spec()->mutable_start()->set_checkpoint(Job(id).checkpoint());
  request.set_task(v1::PREDICT);
  request.set_output("out.csv");
  request.set_workers(1);
  request.set_ps(1);
  const std::string predict = Submit(request);
  EXPECT_THAT(std::string(Suspend(predict).message()), HasSubstr("predicts"));
  RunUntil(predict, v1::SUCCEEDED);
}

// ---- priorities

TEST_F(CoreSuspendTest, TheQueueIsOrderedByPriorityThenByNumber) {
  JoinAll(1, 1);
  v1::JobSpec keeps = Quiet(1);
  keeps.set_preemptible(false);
  const std::string first = Submit(keeps, 1, 1);
  std::vector<std::string> ids;
  for (const int32_t priority : {-1, 0, 5, 0, 5}) ids.push_back(Submit(Urgent(priority), 1, 1));
  std::vector<std::string> order;
  for (int i = 0; i < 3000 && order.size() < ids.size(); ++i) {
    Round();
    for (const std::string& id : ids) {
      const bool seen = std::count(order.begin(), order.end(), id) > 0;
      if (!seen && Job(id).state() == v1::RUNNING) order.push_back(id);
    }
  }
  EXPECT_THAT(order, ElementsAre(ids[2], ids[4], ids[1], ids[3], ids[0]));
}

TEST_F(CoreSuspendTest, AJobOfHigherPriorityPreemptsTheRunningOneWhichGoesOnByItself) {
  JoinAll(1, 1);
  const std::string low = Submit(Quiet(40), 1, 1);
  RunUntilStep(low, 20);
  const std::string same = Submit(Urgent(0), 1, 1);
  Age();
  for (int i = 0; i < 3; ++i) Round();
  EXPECT_EQ(Job(low).state(), v1::RUNNING);
  EXPECT_FALSE(Job(low).has_suspending());
  const std::string high = Submit(Urgent(5), 1, 1);
  EXPECT_THAT(Events(low), Contains(HasSubstr("to be pre-empted by " + high + ", of priority 5")));
  RunUntil(high, v1::RUNNING);
  EXPECT_EQ(Job(low).state(), v1::SUSPENDED);
  EXPECT_EQ(Job(low).reason(), "Preempted");
  EXPECT_THAT(Job(low).message(), HasSubstr("by " + high));
  EXPECT_THAT(std::string(Resume(low).message()), HasSubstr("goes on by itself"));
  RunUntil(high, v1::SUCCEEDED);
  // It is older than the one of its priority.
  RunUntil(low, v1::RUNNING);
  EXPECT_EQ(Job(same).state(), v1::CREATED);
  RunUntil(low, v1::SUCCEEDED);
  EXPECT_EQ(Job(low).samples(), 40 * kTrain);
  EXPECT_EQ(Job(low).restarts(), 0u);
  RunUntil(same, v1::SUCCEEDED);
}

TEST_F(CoreSuspendTest, AJobIsNotPreemptedBeforeItHasTrainedForAWhile) {
  JoinAll(1, 1);
  const std::string low = Submit(Quiet(200), 1, 1);
  const std::string high = Submit(Urgent(5), 1, 1);
  // It had not begun when the other came, but has its processes.
  EXPECT_EQ(Job(low).state(), v1::RUNNING);
  for (int i = 0; i < 5; ++i) Round();
  EXPECT_FALSE(Job(low).has_suspending());
  const absl::Duration begun = now_.monotonic;
  RunUntil(high, v1::RUNNING);
  EXPECT_GE(now_.monotonic - begun, absl::Seconds(9));
  EXPECT_GT(Job(low).step(), 0u);
  const uint64_t step = Job(low).step();
  // Each time it is its turn, it gets further.
  RunUntil(low, v1::RUNNING);
  const std::string again = Submit(Urgent(5), 1, 1);
  RunUntil(again, v1::RUNNING);
  EXPECT_GT(Job(low).step(), step);
}

TEST_F(CoreSuspendTest, AJobThatSaysSoIsNotPreempted) {
  JoinAll(1, 1);
  v1::JobSpec spec = Quiet();
  spec.set_preemptible(false);
  const std::string low = Submit(spec, 1, 1);
  RunUntilStep(low, 20);
  const std::string high = Submit(Urgent(5), 1, 1);
  Age();
  RunUntil(low, v1::SUCCEEDED);
  EXPECT_EQ(Job(low).generation(), 1u + 0);
  RunUntil(high, v1::SUCCEEDED);
}

TEST_F(CoreSuspendTest, AJobThatCouldNotRunPreemptsNobody) {
  JoinAll(1, 1);
  const std::string low = Submit(Quiet(), 1, 1);
  RunUntilStep(low, 20);
  const std::string high = Submit(Urgent(5), /*workers=*/2, 1);
  Age();
  for (int i = 0; i < 5; ++i) Round();
  EXPECT_EQ(Job(low).state(), v1::RUNNING);
  EXPECT_FALSE(Job(low).has_suspending());
  // Nor does it keep one that has begun from going on.
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  EXPECT_EQ(Job(low).state(), v1::RESTARTING);
  RunUntil(low, v1::RUNNING);
  RunUntilStep(low, 40);
  Age();
  Join(v1::WORKER, "worker-1");
  RunUntil(high, v1::RUNNING);
  RunUntil(low, v1::SUCCEEDED);
  EXPECT_EQ(Job(high).state(), v1::SUCCEEDED);
}

TEST_F(CoreSuspendTest, APreemptionIsCalledOffWhenItsCauseIsGone) {
  JoinAll(1, 1);
  const std::string low = Submit(Quiet(), 1, 1);
  RunUntilStep(low, 20);
  Age();
  hold_writes_ = true;
  const std::string high = Submit(Urgent(5), 1, 1);
  for (int i = 0; i < 5; ++i) Round();
  EXPECT_EQ(Job(low).suspending().preempted_by(), high);
  ASSERT_TRUE(core_->Cancel(high, now_).ok());
  EXPECT_FALSE(Job(low).has_suspending());
  hold_writes_ = false;
  RunUntil(low, v1::SUCCEEDED);
  EXPECT_THAT(Events(low), Contains(HasSubstr("does not wait for its place any more")));
  ExpectEachStepOnce(200);
}

TEST_F(CoreSuspendTest, APreemptedJobCanBeSuspendedByAUser) {
  JoinAll(1, 1);
  const std::string low = Submit(Quiet(), 1, 1);
  RunUntilStep(low, 20);
  Age();
  const std::string high = Submit(Urgent(5), 1, 1);
  RunUntil(high, v1::RUNNING);
  ASSERT_TRUE(Suspend(low).ok());
  EXPECT_EQ(Job(low).reason(), "Suspended");
  RunUntil(high, v1::SUCCEEDED);
  for (int i = 0; i < 10; ++i) Round();
  EXPECT_EQ(Job(low).state(), v1::SUSPENDED);
  ASSERT_TRUE(Resume(low).ok());
  RunUntil(low, v1::SUCCEEDED);
}

TEST_F(CoreSuspendTest, ARestartedMasterLetsAPreemptedJobGoOnByItself) {
  JoinAll(1, 1);
  const std::string low = Submit(Quiet(), 1, 1);
  RunUntilStep(low, 20);
  Age();
  const std::string high = Submit(Urgent(5), 1, 1);
  RunUntil(high, v1::RUNNING);
  RestartMaster();
  JoinAll(1, 1);
  EXPECT_EQ(Job(low).state(), v1::SUSPENDED);
  RunUntil(high, v1::SUCCEEDED);
  RunUntil(low, v1::SUCCEEDED);
  EXPECT_EQ(Job(low).samples(), 20 * kTrain);
}

TEST_F(CoreSuspendTest, AnInterruptedJobLetsOneOfHigherPriorityGoFirst) {
  JoinAll(1, 1);
  const std::string low = Submit(Quiet(), 1, 1);
  RunUntilStep(low, 20);
  Kill("ps-0");
  EXPECT_EQ(Job(low).state(), v1::RESTARTING);
  const std::string high = Submit(Urgent(5), 1, 1);
  Join(v1::PS, "ps-0");
  RunUntil(high, v1::RUNNING);
  EXPECT_EQ(Job(low).state(), v1::SUSPENDED);
  EXPECT_EQ(Job(low).reason(), "Preempted");
  RunUntil(low, v1::SUCCEEDED);
  EXPECT_EQ(Job(low).samples(), 20 * kTrain);
}

TEST_F(CoreSuspendTest, PrioritiesHaveBounds) {
  v1::SubmitRequest request;
  *request.mutable_spec() = Urgent(1001);
  const absl::Status status = core_->Submit(request, now_).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("priority: found 1001"));
}

}  // namespace
}  // namespace tessera::master
