#include "tests/master/core_suspend_testing.h"

// Jobs that are suspended and go on.
namespace tessera::master {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

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

TEST_F(CoreSuspendTest, AnEvaluationIsNotWaitedForAndMadeWhenTheJobGoesOn) {
  JoinAll(1, 1);
  v1::JobSpec spec = Quiet(3);
  spec.mutable_checkpoint()->set_keep_best(true);
  aucs_ = {0.6, 0.8, 0.7};
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 20);
  for (int i = 0; i < 100 && Job(id).phase() != "evaluating"; ++i) Round();
  ASSERT_EQ(Job(id).evaluations_size(), 1);
  const auto workers = std::exchange(workers_, {});
  ASSERT_TRUE(Suspend(id).ok());
  RunUntil(id, v1::SUSPENDED, 100);
  EXPECT_EQ(Job(id).step(), 20u);
  workers_ = workers;
  ASSERT_TRUE(Resume(id).ok());
  // Again, before it has been made.
  for (int i = 0; i < 100 && Job(id).phase() != "evaluating"; ++i) Round();
  ASSERT_TRUE(Suspend(id).ok());
  RunUntil(id, v1::SUSPENDED, 100);
  ASSERT_TRUE(Resume(id).ok());
  RunUntil(id, v1::SUCCEEDED);
  const v1::JobStatus job = Job(id);
  ASSERT_EQ(job.evaluations_size(), 3);
  EXPECT_EQ(job.evaluations(1).step(), 20u);
  EXPECT_TRUE(job.evaluations(1).best());
  EXPECT_THAT(job.checkpoint(), HasSubstr("step-000000000020"));
  ExpectEachStepOnce(30);
}

TEST_F(CoreSuspendTest, WhereAJobBeginsNothingIsEvaluated) {
  JoinAll(1, 1);
  v1::JobSpec spec = Quiet(2);
  spec.mutable_evaluation()->set_every_steps(13);
  spec.mutable_checkpoint()->set_every_steps(10);
  RunUntil(Submit(spec, 1, 1), v1::SUCCEEDED);
  ASSERT_EQ(writes_[0].manifest.step(), 10u);
  spec.mutable_evaluation()->set_every_steps(5);
  spec.mutable_start()->set_checkpoint(writes_[0].folder);
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 11);
  // It begins there once more, and is to go before anything is trained.
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  for (int i = 0; i < 100 && !(Job(id).generation() == 2 && Job(id).phase() == "training"); ++i) {
    Step();
  }
  ASSERT_TRUE(Suspend(id).ok());
  RunUntil(id, v1::SUSPENDED);
  EXPECT_EQ(Job(id).step(), 10u);
  ASSERT_TRUE(Resume(id).ok());
  RunUntil(id, v1::SUCCEEDED);
  ASSERT_EQ(Job(id).evaluations_size(), 2);
  EXPECT_EQ(Job(id).evaluations(0).step(), 15u);
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

// Rows expire at cuts that the job has asked for.
TEST_F(CoreSuspendTest, WheneverAJobIsSuspendedItsRowsExpireAtTheSameSteps) {
  JoinAll(1, 1);
  v1::JobSpec spec = Quiet(6);
  spec.mutable_tables(0)->mutable_expiry()->set_after_steps(5);
  spec.mutable_checkpoint()->set_every_steps(13);
  spec.mutable_checkpoint()->set_keep_best(true);
  // What expires at 13 does so before what is measured at 20, in any case.
  spec.mutable_evaluation()->set_every_steps(10);
  const auto begin = [&] {
    aucs_ = {0.5, 0.6, 0.55, 0.7, 0.6, 0.8};
    measured_.clear();
    cuts_.clear();
    return Submit(spec, 1, 1);
  };
  const auto expire_at = [this] {
    std::set<uint64_t> steps;
    for (const CutCheckpoint& cut : cuts_) {
      if (!cut.calls[0].second.early()) steps.insert(cut.calls[0].second.step());
    }
    return steps;
  };
  RunUntil(begin(), v1::SUCCEEDED);
  const std::set<uint64_t> undisturbed = expire_at();
  EXPECT_THAT(undisturbed, ::testing::IsSupersetOf<uint64_t>({10, 13, 20, 26, 39, 40, 52, 60}));
  for (int at = 0;; ++at) {
    SCOPED_TRACE(at);
    const std::string id = begin();
    for (int i = 0; i < at && Job(id).state() != v1::SUCCEEDED; ++i) Step();
    if (Job(id).state() == v1::SUCCEEDED) break;
    ASSERT_TRUE(Suspend(id).ok());
    RunUntil(id, v1::SUSPENDED);
    ASSERT_TRUE(Resume(id).ok());
    RunUntil(id, v1::SUCCEEDED);
    EXPECT_EQ(expire_at(), undisturbed);
  }
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

TEST_F(CoreSuspendTest, TheBestModelWhoseWriteFailsAtItsBarrierIsCutAgainAsTheBest) {
  JoinAll(1, 1);
  v1::JobSpec spec = Quiet(3);
  spec.mutable_checkpoint()->set_keep_best(true);
  aucs_ = {0.9, 0.6};
  on_write_ = [this](const WriteCheckpoint&) {
    return writes_.size() == 1 ? absl::ResourceExhaustedError("disk full") : absl::OkStatus();
  };
  hold_writes_ = true;
  const std::string id = Submit(spec, 1, 1);
  for (int i = 0; i < 500 && cuts_.empty(); ++i) Step();
  ASSERT_EQ(cuts_.size(), 1u);
  ASSERT_EQ(Job(id).phase(), "training");
  // The job is at the barrier again, and nothing was trained.
  ASSERT_TRUE(Suspend(id).ok());
  Step();
  ASSERT_EQ(Job(id).phase(), "checkpointing");
  hold_writes_ = false;
  RunUntil(id, v1::SUCCEEDED);
  ASSERT_GT(writes_.size(), 1u);
  EXPECT_EQ(writes_[1].manifest.step(), writes_[0].manifest.step());
  EXPECT_EQ(Job(id).checkpoint(), writes_[1].folder);
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
  EXPECT_THAT(std::string(Suspend(predict).message()),
              HasSubstr("does not train, and has no checkpoint"));
  RunUntil(predict, v1::SUCCEEDED);
}

}  // namespace
}  // namespace tessera::master
