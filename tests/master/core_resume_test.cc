// A master that restarts takes up the run that was under way, while its ps and workers go on.
#include <random>
#include <tuple>
#include <utility>
#include <variant>

#include "common/job/job_state.h"
#include "master/run/run_state.h"
#include "tests/master/core_harness.h"

namespace tessera::master {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;
using testing::SizeIs;

class CoreResumeTest : public testing::Test, protected CoreHarness {
 protected:
  static v1::JobSpec Quiet(v1::Consistency mode = v1::SYNC) {
    v1::JobSpec spec = SmallJob();
    spec.mutable_consistency()->set_sparse(mode);
    spec.mutable_consistency()->set_dense(mode);
    spec.mutable_train()->set_epochs(10);
    spec.mutable_evaluation()->set_every_epochs(1000);
    return spec;
  }
  static v1::JobSpec EverySteps(uint64_t steps) {
    v1::JobSpec spec = Quiet();
    spec.mutable_checkpoint()->set_every_steps(steps);
    return spec;
  }
  // Until a checkpoint is being written, and training goes on.
  void RunIntoWrite(const std::string& id) {
    hold_writes_ = true;
    for (int i = 0; i < 300 && !writing_.has_value(); ++i) Round();
    ASSERT_TRUE(writing_.has_value());
    const uint64_t step = Job(id).step();
    for (int i = 0; i < 300 && Job(id).step() == step; ++i) Round();
    hold_writes_ = false;
  }
  // A job of two workers, each of whose evaluations finds a bad record.
  std::string SubmitWithBadValidation() {
    JoinAll(1, 2);
    v1::JobSpec spec = Quiet();
    spec.mutable_evaluation()->set_every_epochs(1);
    spec.mutable_data()->set_max_bad_records(100);
    on_unit_ = [](const std::string& worker, const v1::NextWorkResponse& unit,
                  v1::UnitResult* result) {
      if (unit.has_evaluate() && worker == "worker-0") result->set_bad_records(1);
    };
    return Submit(spec, 2, 1);
  }
  std::vector<std::pair<uint64_t, bool>> CutsWhereTheMasterDiesInOne(v1::JobSpec spec);
};

TEST_F(CoreResumeTest, TheJobGoesOnWhereItIs) {
  JoinAll(2, 2);
  const std::string id = Submit(Quiet(), 2, 2);
  RunUntilStep(id, 15);
  const uint64_t step = Job(id).step();
  const uint64_t samples = Job(id).samples();
  RestartMasterAlone();
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  EXPECT_EQ(Job(id).step(), step);
  EXPECT_EQ(Job(id).samples(), samples);
  EXPECT_THAT(Events(id), Contains(HasSubstr("the master restarted; the job goes on at step")));
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_EQ(Job(id).generation(), 1u);
  EXPECT_EQ(Job(id).step(), 100u);
  EXPECT_THAT(opens_, SizeIs(1));
  // Nothing is left of the run in the log.
  for (const auto& [key, value] : log_) EXPECT_THAT(key, Not(testing::StartsWith(kRunPrefix)));
}

// Which batch of which window and epoch a rank trained, and the number of its push.
class CoreResumeProperty : public testing::TestWithParam<std::tuple<v1::Consistency, uint64_t>>,
                           protected CoreHarness {};

TEST_P(CoreResumeProperty, EveryBatchIsTrainedOnceHoweverOftenTheMasterDies) {
  const auto [mode, seed] = GetParam();
  std::mt19937_64 random(seed);
  v1::JobSpec spec = SmallJob();
  spec.mutable_consistency()->set_sparse(mode);
  spec.mutable_consistency()->set_dense(mode);
  spec.mutable_train()->set_batch_size(20);
  spec.mutable_checkpoint()->set_every_steps(7);
  spec.mutable_checkpoint()->set_keep_best(seed % 2 == 0);
  spec.mutable_evaluation()->set_every_steps(11);
  const uint32_t workers = 1 + seed % 3;
  JoinAll(2, static_cast<int>(workers));
  const std::string id = Submit(spec, workers, 2);
  // A unit that was handed out twice is done twice by the harness, which a worker would not: it
  // knows the unit by its number.
  std::map<std::pair<uint32_t, uint64_t>, v1::Train> units;
  on_unit_ = [&](const std::string& worker, const v1::NextWorkResponse& unit, v1::UnitResult*) {
    if (unit.has_train()) {
      const uint32_t rank = core_->AssignmentFor(alive_.at(worker)).rank();
      units[{rank, unit.unit_id()}] = unit.train();
    }
  };
  int restarts = 0;
  for (int i = 0; i < 5000 && Job(id).state() != v1::SUCCEEDED; ++i) {
    Round();
    if (random() % 5 != 0 || Job(id).state() != v1::RUNNING || Job(id).phase() == "loading" ||
        Job(id).phase() == "counting" || Job(id).generation() > 1) {
      continue;
    }
    RestartMasterAlone();
    ++restarts;
  }
  ASSERT_EQ(Job(id).state(), v1::SUCCEEDED) << Job(id).ShortDebugString();
  EXPECT_GT(restarts, 3);
  std::map<std::tuple<uint32_t, uint32_t, uint64_t, uint64_t>, int> batches;
  for (const auto& [at, unit] : units) {
    const uint32_t rank = mode == v1::SYNC ? at.first : 0;
    for (uint64_t b = unit.batch_begin(); b < unit.batch_end(); ++b) {
      ++batches[{rank, unit.epoch(), unit.window(), b}];
    }
  }
  for (const auto& [batch, times] : batches) ASSERT_EQ(times, 1);
  if (mode == v1::ASYNC) {
    EXPECT_EQ(Job(id).step(), batches.size());
  } else {
    EXPECT_EQ(Job(id).step() * workers, batches.size());
  }
  EXPECT_EQ(Job(id).restarts(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CoreResumeProperty,
                         testing::Combine(testing::Values(v1::SYNC, v1::ASYNC),
                                          testing::Range<uint64_t>(0, 12)));

TEST_F(CoreResumeTest, AnAnswerThatNeverArrivedIsGivenAgain) {
  JoinAll(1, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 15);
  Worker& worker = workers_.at("worker-0");
  const auto lost = core_->NextWork(Request(worker), now_);
  ASSERT_TRUE(lost.ok() && lost->has_value());
  for (const StateLog::Write& write : core_->TakeWrites()) log_[write.key] = write.value.value();
  RestartMasterAlone();
  const auto again = core_->NextWork(Request(workers_.at("worker-0")), now_);
  ASSERT_TRUE(again.ok() && again->has_value());
  EXPECT_EQ((*again)->SerializeAsString(), (*lost)->SerializeAsString());
}

TEST_F(CoreResumeTest, ACallThatComesLateIsNoReport) {
  JoinAll(1, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 15);
  // The first of all.
  v1::NextWorkRequest first = Request(workers_.at("worker-0"));
  first.set_completed_unit(0);
  first.clear_result();
  EXPECT_EQ(core_->NextWork(first, now_).status().code(), absl::StatusCode::kInvalidArgument);
  RunUntil(id, v1::SUCCEEDED);
}

TEST_F(CoreResumeTest, AnEvaluationThatIsFoldedBeginsAnew) {
  JoinAll(1, 2);
  v1::JobSpec spec = Quiet();
  spec.mutable_evaluation()->set_every_epochs(1);
  spec.mutable_evaluation()->add_metrics("binned_auc");
  spec.mutable_evaluation()->set_monitor("binned_auc");
  const std::string id = Submit(spec, 2, 1);
  for (int i = 0; i < 100 && Job(id).phase() != "evaluating"; ++i) Round();
  ASSERT_EQ(Job(id).phase(), "evaluating");
  const uint64_t step = Job(id).step();
  Round();
  RestartMasterAlone();
  ASSERT_EQ(Job(id).phase(), "evaluating");
  RunUntilStep(id, step + 1);
  ASSERT_THAT(measured_, SizeIs(1));
  EXPECT_EQ(measured_[0].sums->samples(), kValidation);
}

TEST_F(CoreResumeTest, AnEvaluationBeginsAnew) {
  const std::string id = SubmitWithBadValidation();
  for (int i = 0; i < 100 && Job(id).phase() != "evaluating"; ++i) Round();
  ASSERT_EQ(Job(id).phase(), "evaluating");
  const uint64_t step = Job(id).step();
  Round();
  RestartMasterAlone();
  EXPECT_EQ(Job(id).phase(), "evaluating");
  EXPECT_THAT(measured_, IsEmpty());
  // What worker-0 has scored for the old round, or failed to, is of no use.
  workers_.at("worker-0").result.set_code(static_cast<int>(absl::StatusCode::kUnavailable));
  RunUntilStep(id, step + 1);
  ASSERT_THAT(measured_, SizeIs(1));
  EXPECT_EQ(measured_[0].labels.size(), kValidation);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  // One of the first validation, one of the test: not two of the first.
  EXPECT_EQ(Job(id).bad_records(), 2u);
}

TEST_F(CoreResumeTest, BadRecordsOfAnEvaluationThatBeginsAnewAreNotShown) {
  const std::string id = SubmitWithBadValidation();
  for (int i = 0; i < 300 && Job(id).bad_records() == 0; ++i) Step();
  ASSERT_EQ(Job(id).phase(), "evaluating");
  // With an event the job's figures are written down.
  Kill("worker-1");
  Join(v1::WORKER, "worker-1");
  ASSERT_EQ(Job(id).bad_records(), 1u);
  RestartMasterAlone();
  EXPECT_EQ(Job(id).bad_records(), 0u);
}

TEST_F(CoreResumeTest, ACheckpointThatWasCommittedMeanwhileIsTheJobs) {
  JoinAll(1, 1);
  const std::string id = Submit(EverySteps(10), 1, 1);
  RunIntoWrite(id);
  // The master died behind the commit.
  const auto& write = std::get<WriteCheckpoint>(writing_->work);
  disk_[write.folder] = write.manifest;
  const std::string folder = write.folder;
  RestartMasterAlone();
  EXPECT_EQ(Job(id).checkpoint(), "");
  Round();
  EXPECT_EQ(Job(id).checkpoint(), folder);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
}

TEST_F(CoreResumeTest, ACheckpointThatWasNotIsCutAgainSoon) {
  JoinAll(1, 1);
  const std::string id = Submit(EverySteps(50), 1, 1);
  RunIntoWrite(id);
  RestartMasterAlone();
  const uint64_t step = Job(id).step();
  RunUntilStep(id, step + 12);
  ASSERT_THAT(writes_, SizeIs(1));
  EXPECT_GT(writes_[0].manifest.step(), 50u);
  EXPECT_LT(writes_[0].manifest.step(), step + 12);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
}

TEST_F(CoreResumeTest, TheBestModelThatWasLostIsTrainedAgain) {
  JoinAll(1, 1);
  v1::JobSpec spec = Quiet();
  spec.mutable_checkpoint()->set_keep_best(true);
  spec.mutable_evaluation()->set_every_epochs(5);
  aucs_ = {0.9};
  const std::string id = Submit(spec, 1, 1);
  RunIntoWrite(id);
  RestartMasterAlone();
  aucs_ = {0.9};
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 1u);
  EXPECT_THAT(Job(id).checkpoint(), HasSubstr("step-000000000050"));
}

TEST_F(CoreResumeTest, TheLastCheckpointIsCutAgainAtItsBarrier) {
  JoinAll(1, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  hold_writes_ = true;
  for (int i = 0; i < 300 && !writing_.has_value(); ++i) Round();
  ASSERT_EQ(Job(id).step(), 100u);
  RestartMasterAlone();
  hold_writes_ = false;
  EXPECT_EQ(Job(id).phase(), "checkpointing");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_THAT(cuts_, SizeIs(2));
  EXPECT_THAT(Job(id).checkpoint(), HasSubstr("step-000000000100"));
}

TEST_F(CoreResumeTest, WhatWasNotRemovedBeforeTheLastCheckpointIsRemovedThen) {
  JoinAll(1, 1);
  const std::string id = Submit(EverySteps(30), 1, 1);
  on_write_ = [this](const WriteCheckpoint& write) {
    hold_writes_ = write.manifest.step() == 100;
    return absl::OkStatus();
  };
  for (int i = 0; i < 1000 && !hold_writes_; ++i) Round();
  Rounds(3);
  ASSERT_TRUE(writing_.has_value());
  ASSERT_TRUE(std::holds_alternative<PruneCheckpoints>(writing_->work));
  RestartMasterAlone();
  hold_writes_ = false;
  prunes_.clear();
  RunUntil(id, v1::SUCCEEDED);
  ASSERT_THAT(prunes_, SizeIs(1));
  EXPECT_EQ(prunes_[0].folder, Job(id).checkpoint());
}

// The disk takes no other. Where the job went back to it nobody knows whether it was an early one.
TEST_F(CoreResumeTest, AJobEndsWithTheLastCheckpointThatItHas) {
  JoinAll(1, 1);
  for (const bool master_dies : {true, false}) {
    SCOPED_TRACE(master_dies ? "the master" : "the ps");
    cuts_.clear();
    on_write_ = nullptr;
    v1::JobSpec spec = Quiet();
    spec.mutable_tables(0)->mutable_expiry()->set_after_steps(5);
    const std::string id = Submit(spec, 1, 1);
    for (int i = 0; i < 600 && (Job(id).phase() != "evaluating" || cuts_.empty()); ++i) Step();
    ASSERT_EQ(Job(id).phase(), "evaluating");
    ASSERT_EQ(Job(id).step(), 100u);
    const std::string checkpoint = Job(id).checkpoint();
    on_write_ = [](const WriteCheckpoint&) {
      return absl::ResourceExhaustedError("the disk is full");
    };
    if (master_dies) {
      RestartMasterAlone();
    } else {
      Kill("ps-0");
      Join(v1::PS, "ps-0");
    }
    for (int i = 0; i < 9000 && !HasEnded(Job(id).state()); ++i) Round();
    EXPECT_EQ(Job(id).state(), v1::SUCCEEDED) << Job(id).message();
    EXPECT_EQ(Job(id).checkpoint(), checkpoint);
    const auto expired = Contains(HasSubstr("may be that were due to expire"));
    if (master_dies) {
      EXPECT_THAT(Events(id), Not(expired));
    } else {
      EXPECT_THAT(Events(id), expired);
    }
  }
}

// Steps of the cuts, and whether they were early, of a job that is to be suspended at step 10. Its
// master dies as that checkpoint is committed.
std::vector<std::pair<uint64_t, bool>> CoreResumeTest::CutsWhereTheMasterDiesInOne(
    v1::JobSpec spec) {
  JoinAll(1, 1);
  spec.mutable_tables(0)->mutable_expiry()->set_after_steps(5);
  spec.mutable_checkpoint()->set_keep_best(true);
  spec.mutable_evaluation()->set_every_steps(10);
  aucs_ = {0.5, 0.6, 0.7, 0.8, 0.9, 0.91, 0.92, 0.93, 0.94, 0.95};
  const std::string id = Submit(spec, 1, 1);
  for (int i = 0; i < 600 && Job(id).phase() != "evaluating"; ++i) Step();
  EXPECT_EQ(Job(id).step(), 10u);
  hold_writes_ = true;
  EXPECT_TRUE(core_->Suspend(id, now_).ok());
  Advance(absl::ZeroDuration());
  for (int i = 0; i < 100 && !writing_.has_value(); ++i) Round();
  EXPECT_TRUE(writing_.has_value());
  if (!writing_.has_value()) return {};
  const auto& write = std::get<WriteCheckpoint>(writing_->work);
  disk_[write.folder] = write.manifest;
  RestartMasterAlone();
  EXPECT_TRUE(core_->Resume(id, now_).ok());
  hold_writes_ = false;
  RunUntilStep(id, 15);
  std::vector<std::pair<uint64_t, bool>> cuts;
  for (const CutCheckpoint& cut : cuts_) {
    cuts.emplace_back(cut.calls[0].second.step(), cut.calls[0].second.early());
  }
  return cuts;
}

TEST_F(CoreResumeTest, AnEarlyCheckpointThatTheMasterHadUnderWayIsMadeUpFor) {
  EXPECT_THAT(CutsWhereTheMasterDiesInOne(Quiet()), ElementsAre(Pair(10, true), Pair(10, false)));
}

// Its rows are to expire after the evaluation of the step, which had been given up.
TEST_F(CoreResumeTest, SoIsOneThatWasDueBeforeItsModelWasMeasured) {
  EXPECT_THAT(CutsWhereTheMasterDiesInOne(EverySteps(10)),
              ElementsAre(Pair(10, true), Pair(10, false)));
}

TEST_F(CoreResumeTest, AWorkerThatDiedWithTheMasterIsReplaced) {
  JoinAll(1, 3);
  const std::string id = Submit(Quiet(), 2, 1);
  RunUntilStep(id, 15);
  RestartMasterAlone({"worker-1"});
  workers_.erase("worker-1");
  for (int i = 0; i < 250; ++i) Advance(absl::Milliseconds(100));
  EXPECT_THAT(Events(id), Contains(HasSubstr("worker-1 lost (it has not joined in 20s)")));
  EXPECT_THAT(Events(id), Contains(HasSubstr("worker-2 takes over rank 1")));
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
}

TEST_F(CoreResumeTest, APsThatDiedWithTheMasterSendsTheJobToItsCheckpoint) {
  JoinAll(1, 1);
  const std::string id = Submit(EverySteps(10), 1, 1);
  RunUntilStep(id, 25);
  RestartMasterAlone({"ps-0"});
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  // Under its name, and not as the one that was.
  Join(v1::PS, "ps-0");
  EXPECT_EQ(Job(id).state(), v1::RESTARTING);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 1u);
  EXPECT_EQ(opens_.back().calls[0].second.first_step(), 20u);
}

TEST_F(CoreResumeTest, APsWithAPushLogThatDiedWithTheMasterComesBackWithIt) {
  JoinAll(1, 1);
  v1::JobSpec spec = EverySteps(10);
  spec.mutable_recovery()->set_push_log(v1::RecoverySpec::ASYNC);
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 25);
  RestartMasterAlone({"ps-0"});
  Join(v1::PS, "ps-0");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_TRUE(opens_.back().calls[0].second.recover());
  EXPECT_EQ(opens_.back().calls[0].second.first_step(), 20u);
}

TEST_F(CoreResumeTest, AMoveBeginsAnew) {
  JoinAll(2, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 15);
  hold_writes_ = true;
  v1::ScaleRequest request;
  request.set_job_id(id);
  request.set_ps(2);
  ASSERT_TRUE(core_->Scale(request, now_).ok());
  for (int i = 0; i < 50 && !writing_.has_value(); ++i) Round();
  const uint64_t move = std::get<CopyPartitions>(writing_->work).calls[0].second.open().move();
  RestartMasterAlone();
  hold_writes_ = false;
  for (int i = 0; i < 50 && copies_.empty(); ++i) Round();
  ASSERT_FALSE(copies_.empty());
  EXPECT_GT(copies_[0].calls[0].second.open().move(), move);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_EQ(opens_.back().calls.size(), 2u);
}

TEST_F(CoreResumeTest, ASuspensionGoesOnAndLosesNothing) {
  JoinAll(1, 2);
  const std::string id = Submit(Quiet(), 2, 1);
  for (const uint64_t step : {15, 35}) {
    RunUntilStep(id, step);
    hold_writes_ = true;
    ASSERT_TRUE(core_->Suspend(id, now_).ok());
    // On its way to the barrier, and while its checkpoint is written.
    for (uint64_t i = 0; i < step / 5; ++i) Round();
    RestartMasterAlone();
    hold_writes_ = false;
    RunUntil(id, v1::SUSPENDED);
    EXPECT_THAT(Job(id).checkpoint(),
                HasSubstr(absl::StrCat("step-", absl::Dec(Job(id).step(), absl::kZeroPad12))));
    ASSERT_TRUE(core_->Resume(id, now_).ok());
  }
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).samples(), 10 * kTrain);
}

TEST_F(CoreResumeTest, AJobThatWasCancelledIsNotTakenUp) {
  JoinAll(1, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 15);
  const auto before = log_;
  ASSERT_TRUE(core_->Cancel(id, now_).ok());
  Advance(absl::ZeroDuration());
  // What a master would find that died with the job cancelled and the run still there.
  for (const auto& [key, value] : before) log_.try_emplace(key, value);
  RestartMaster();
  EXPECT_EQ(Job(id).state(), v1::FAILED);
  EXPECT_EQ(Job(id).reason(), "Cancelled");
}

TEST_F(CoreResumeTest, AJobThatAsksForWhatThisVersionDoesNotHaveHasFailedAndOthersGoOn) {
  JoinAll(1, 2);
  const std::string later = Submit(Quiet(), 1, 1), other = Submit(Quiet(), 1, 1);
  RunUntilStep(later, 15);
  RunUntilStep(other, 15);
  const std::map<std::string, std::string> before = log_;
  const auto write_later = [&](const std::function<void(v1::JobStatus&)>& change) {
    v1::JobRecord record;
    ASSERT_TRUE(record.ParseFromString(before.at(JobKey(1))));
    change(*record.mutable_status());
    log_[JobKey(1)] = record.SerializeAsString();
  };
  const struct {
    std::function<void(v1::JobStatus&)> change;
    const char* what;
  } cases[] = {
      {[](auto& job) { job.set_task(static_cast<v1::Task>(99)); }, "task: found number 99"},
      {[](auto& job) { job.set_state(static_cast<v1::JobState>(99)); }, "state: found number 99"},
      {[](auto& job) {
         v1::OptimizerSpec& optimizer = *job.mutable_spec()->mutable_tables(0)->mutable_optimizer();
         optimizer.clear_sgd();
         optimizer.GetReflection()->MutableUnknownFields(&optimizer)->AddLengthDelimited(999, "");
       },
       "tables[0].optimizer: found field number 999"},
      {[](auto& job) {
         job.mutable_spec()->mutable_consistency()->set_sparse(static_cast<v1::Consistency>(99));
       },
       "consistency.sparse: found number 99"},
      {[](auto& job) { job.mutable_spec()->mutable_model()->set_loss(static_cast<v1::Loss>(99)); },
       "model.loss: found number 99"},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.what);
    write_later(one.change);
    const auto core = MasterCore::New({}, log_, now_);
    ASSERT_TRUE(core.ok()) << core.status();
    const v1::JobStatus job = (*core)->GetJob(later, now_).value();
    EXPECT_EQ(job.state(), v1::FAILED);
    EXPECT_EQ(job.reason(), "InvalidJob");
    EXPECT_THAT(job.message(), HasSubstr(one.what));
    EXPECT_EQ((*core)->GetJob(other, now_)->state(), v1::RUNNING);
  }
  RestartMasterAlone();
  RunUntil(other, v1::SUCCEEDED);
  EXPECT_EQ(Job(other).restarts(), 0u);
  EXPECT_EQ(Job(later).state(), v1::FAILED);
}

TEST_F(CoreResumeTest, ARunThatCannotBeReadIsNamed) {
  JoinAll(1, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 15);
  log_[RunPlanKey(1)] = "\xff\xff";
  const auto core = MasterCore::New({}, log_, now_);
  EXPECT_EQ(core.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(core.status().message()), HasSubstr(RunPlanKey(1)));
}

}  // namespace
}  // namespace tessera::master
