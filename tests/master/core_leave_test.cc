#include "master/core/core.h"

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

TEST_F(CoreLeaveTest, RowsThatHaveMovedComeBackByLogsWhereTheMasterIsLostToo) {
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
  EXPECT_TRUE(MayLeave("ps-0"));
  EXPECT_THAT(writes_, IsEmpty());
  Stop("ps-0");
  Join(v1::PS, "ps-0");
  for (int i = 0; i < 5; ++i) Round();
  EXPECT_TRUE(opens_.back().calls[0].second.recover());
  EXPECT_EQ(opens_.back().calls[0].second.checkpoint(), "") << "there is none";
  hold_writes_ = false;
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
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

// Ps that are told to stop while a job evaluates.
class CoreLeaveEvaluationTest : public CoreLeaveTest {
 protected:
  static constexpr uint64_t kSteps = 60;
  static v1::JobSpec Evaluated(v1::Consistency mode = v1::SYNC, uint64_t every_steps = 15) {
    v1::JobSpec spec = Quiet();
    spec.mutable_consistency()->set_sparse(mode);
    spec.mutable_consistency()->set_dense(mode);
    spec.mutable_train()->set_epochs(6);
    spec.mutable_evaluation()->set_every_steps(every_steps);
    spec.mutable_checkpoint()->set_keep_best(true);
    return spec;
  }
  std::string SubmitMeasured(const v1::JobSpec& spec) {
    trained_.clear();
    aucs_ = {0.6, 0.8, 0.7, 0.75, 0.9, 0.5};
    return Submit(spec, 2, 2);
  }
  // The job's evaluations, and of which step its result is.
  std::vector<std::string> Measured(const std::string& id) {
    std::vector<std::string> measured;
    const v1::JobStatus job = Job(id);
    for (const v1::Evaluation& evaluation : job.evaluations()) {
      measured.push_back(absl::StrCat(
          evaluation.split(), " of step ", evaluation.step(), ", epoch ", evaluation.epoch(), ": ",
          evaluation.metrics().at("auc"), evaluation.best() ? ", best" : ""));
    }
    measured.push_back(job.checkpoint().substr(job.checkpoint().rfind('/')));
    return measured;
  }
  std::vector<std::string> Undisturbed(const v1::JobSpec& spec) {
    const std::string id = SubmitMeasured(spec);
    RunUntil(id, v1::SUCCEEDED);
    return Measured(id);
  }
  void RunUntilEvaluating(const std::string& id, int evaluations_before) {
    for (int i = 0; i < 3000; ++i) {
      const v1::JobStatus job = Job(id);
      if (job.evaluations_size() == evaluations_before && job.phase() == "evaluating") return;
      Round();
    }
    FAIL() << Job(id).ShortDebugString();
  }
};

TEST_F(CoreLeaveEvaluationTest, TheEvaluationIsNotWaitedForAndTheNextRunMakesIt) {
  JoinAll(2, 2);
  const std::vector<std::string> undisturbed = Undisturbed(Evaluated());
  const std::string id = SubmitMeasured(Evaluated());
  RunUntilEvaluating(id, 1);
  const auto workers = std::exchange(workers_, {});  // it takes them hours
  Ask("ps-1");
  RunUntilMayLeave("ps-1");
  EXPECT_THAT(Events(id), Contains("the evaluation of step 30 is given up, and made when the job "
                                   "goes on"));
  EXPECT_EQ(writes_.back().manifest.step(), 30u);
  Stop("ps-1");
  Join(v1::PS, "ps-1");
  workers_ = workers;
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 1u);
  EXPECT_EQ(Measured(id), undisturbed);
  ExpectEachStepOnce(kSteps, 2);
}

TEST_F(CoreLeaveEvaluationTest, WhoseCheckpointFailsIsMadeAfterAll) {
  JoinAll(2, 2);
  const std::vector<std::string> undisturbed = Undisturbed(Evaluated());
  const std::string id = SubmitMeasured(Evaluated());
  RunUntilEvaluating(id, 2);
  on_write_ = [](const WriteCheckpoint&) { return absl::ResourceExhaustedError("disk full"); };
  Ask("ps-1");
  RunUntilMayLeave("ps-1");
  on_write_ = nullptr;
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_EQ(Measured(id), undisturbed);
}

TEST_F(CoreLeaveEvaluationTest, WorkersAreNotSilentWhileTheyEndWhatWasGivenUp) {
  JoinAll(2, 2);
  const std::string id = SubmitMeasured(Evaluated());
  RunUntilEvaluating(id, 1);
  ASSERT_EQ(workers_.erase("worker-1"), 1u);  // it holds a unit, and does it for hours
  hold_writes_ = true;
  Ask("ps-1");
  for (int i = 0; i < 900; ++i) Round();  // one and a half minutes
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  EXPECT_THAT(Waits(id), Not(Contains(HasSubstr("to ask for work"))));
  hold_writes_ = false;
  RunUntilMayLeave("ps-1");
  EXPECT_EQ(Job(id).restarts(), 1u);
  EXPECT_THAT(Events(id), Contains(HasSubstr("has all that was trained")));
}

TEST_F(CoreLeaveEvaluationTest, WhoSendsScoresOfWhatWasGivenUpHasNotFailed) {
  JoinAll(2, 2);
  const std::string id = SubmitMeasured(Evaluated());
  RunUntilEvaluating(id, 1);
  // One of the two gets a unit of it.
  Worker worker;
  v1::NextWorkResponse unit;
  for (const auto& [name, each] : std::exchange(workers_, {})) {
    const auto answer = core_->NextWork(Request(each), now_);
    ASSERT_TRUE(answer.ok()) << answer.status();
    if (!answer->has_value() || !(*answer)->has_evaluate()) continue;
    worker = each;
    unit = **answer;
  }
  ASSERT_TRUE(unit.has_evaluate());
  v1::ScoresChunk scores;
  scores.set_job_id(id);
  scores.set_generation(Job(id).generation());
  scores.set_unit_id(unit.unit_id());
  EXPECT_TRUE(core_->MayScore(scores).ok());
  hold_writes_ = true;
  Ask("ps-1");
  Round();
  const absl::Status refused = core_->MayScore(scores).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kAborted) << refused;
  worker.completed = scores.unit_id();
  worker.result.set_code(static_cast<int>(refused.code()));
  worker.result.set_message(std::string(refused.message()));
  // A call that waits for work says it again and again.
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(core_->NextWork(Request(worker), now_).ok());
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  EXPECT_EQ(Job(id).restarts(), 0u);
}

TEST_F(CoreLeaveEvaluationTest, TheLastTestKeepsNobody) {
  for (const double last : {0.7, 0.9}) {  // of the best model, and of the last
    SCOPED_TRACE(last);
    JoinAll(2, 2);
    const std::string id = SubmitMeasured(Evaluated());
    aucs_[3] = last;
    for (int i = 0; i < 3000; ++i) {
      if (Job(id).evaluations_size() == 4 && Job(id).phase() == "evaluating") break;
      Round();
    }
    Ask("ps-1");
    EXPECT_TRUE(MayLeave("ps-1"));
    Stop("ps-1");
    Join(v1::PS, "ps-1");
    RunUntil(id, v1::SUCCEEDED);
    EXPECT_EQ(Job(id).final_metrics().count("test"), 1u);
    EXPECT_EQ(Job(id).evaluations_size(), 4);
    RestartMaster();
  }
}

TEST_F(CoreLeaveEvaluationTest, AtEveryInstantTheEvaluationsAreThoseOfAnUndisturbedRun) {
  for (const auto& [mode, every_steps] : {std::pair(v1::SYNC, 15), std::pair(v1::SYNC, 0),
                                          std::pair(v1::ASYNC, 15), std::pair(v1::ASYNC, 0)}) {
    const v1::JobSpec spec = Evaluated(mode, static_cast<uint64_t>(every_steps));
    JoinAll(2, 2);
    const std::vector<std::string> undisturbed = Undisturbed(spec);
    RestartMaster();
    for (int at = 0; at < 150; at += 2) {
      SCOPED_TRACE(absl::StrCat(v1::Consistency_Name(mode), " ", every_steps, ": ", at));
      JoinAll(2, 2);
      const std::string id = SubmitMeasured(spec);
      for (int i = 0; i < at; ++i) Step();
      Ask("ps-1");
      if (at % 3 == 0) {  // the master is lost on the way
        for (int i = 0; i < at % 5; ++i) Step();
        RestartMasterAlone();
      }
      RunUntilMayLeave("ps-1");
      Stop("ps-1");
      Join(v1::PS, "ps-1");
      RunUntil(id, v1::SUCCEEDED);
      EXPECT_EQ(Measured(id), undisturbed);
      RestartMaster();
    }
  }
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
