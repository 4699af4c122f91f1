#include "master/core/core.h"

#include "absl/strings/match.h"
#include "master/actions/action_runner.h"
#include "tests/master/core_harness.h"

// Checkpoints that are written while a job trains.
namespace tessera::master {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class CoreCheckpointTest : public testing::Test, protected CoreHarness {
 protected:
  static v1::JobSpec EverySteps(uint64_t steps) {
    v1::JobSpec spec = SmallJob();
    spec.mutable_checkpoint()->set_every_steps(steps);
    return spec;
  }
  // Until a checkpoint is cut and its write is under way, which then stands still.
  std::string SubmitAndHold(const v1::JobSpec& spec) {
    hold_writes_ = true;
    const std::string id = Submit(spec, 1, 1);
    for (int i = 0; i < 3000 && !writing_.has_value(); ++i) Round();
    EXPECT_TRUE(writing_.has_value());
    return id;
  }
  // Of all writes, or cuts, that number fails so, from 1 on.
  void FailWrite(size_t number, const absl::Status& why) {
    on_write_ = [this, number, why](const WriteCheckpoint&) {
      return writes_.size() == number ? why : absl::OkStatus();
    };
  }
  void FailCut(size_t number, const absl::Status& why) {
    on_cut_ = [this, number, why](const CutCheckpoint&) {
      return cuts_.size() == number ? why : absl::OkStatus();
    };
  }
  void TriesTheLastOneAgainAfter(const absl::Status& error);
  // Steps of the evaluations that are marked.
  std::vector<uint64_t> BestOf(const std::string& id) {
    std::vector<uint64_t> steps;
    const v1::JobStatus job = Job(id);
    for (const v1::Evaluation& evaluation : job.evaluations()) {
      if (evaluation.best()) steps.push_back(evaluation.step());
    }
    return steps;
  }
  void Release() {
    hold_writes_ = false;
    EXPECT_TRUE(FinishWrite());
  }
};

TEST_F(CoreCheckpointTest, TrainingGoesOnWhileOneIsWritten) {
  JoinAll(2, 1);
  hold_writes_ = true;
  const std::string id = Submit(EverySteps(8), 1, 2);
  RunUntilStep(id, 14);
  EXPECT_EQ(Job(id).phase(), "training");
  ASSERT_EQ(cuts_.size(), 1u);
  EXPECT_THAT(writes_, IsEmpty());
  EXPECT_EQ(Job(id).checkpoint(), "");
  for (const auto& [ps, request] : cuts_[0].calls) {
    EXPECT_EQ(request.phase(), v1::WriteCheckpointRequest::CUT);
    EXPECT_EQ(request.step(), 8u);
  }
  Release();
  EXPECT_EQ(Job(id).checkpoint(), "demo-1/step-000000000008");
  // Of the barrier, though training is further.
  EXPECT_EQ(writes_[0].manifest.step(), 8u);
  EXPECT_EQ(writes_[0].manifest.position().step(), 8u);
  EXPECT_EQ(writes_[0].calls.size(), 2u);
  for (const auto& [ps, request] : writes_[0].calls) {
    EXPECT_EQ(request.phase(), v1::WriteCheckpointRequest::WRITE);
    EXPECT_EQ(request.folder(), cuts_[0].folder);
  }
  RunUntil(id, v1::SUCCEEDED);
}

// So that a ps that came back without the end of its push log is found out before it is too late.
TEST_F(CoreCheckpointTest, ACutSaysWhichPushesOfEachRankAllPsHave) {
  JoinAll(1, 2);
  for (const v1::Consistency mode : {v1::SYNC, v1::ASYNC}) {
    SCOPED_TRACE(v1::Consistency_Name(mode));
    cuts_.clear();
    v1::JobSpec spec = EverySteps(8);
    spec.mutable_consistency()->set_sparse(mode);
    spec.mutable_consistency()->set_dense(mode);
    RunUntil(Submit(spec, 2, 1), v1::SUCCEEDED);
    ASSERT_GE(cuts_.size(), 2u);
    uint64_t before = 0;
    for (const CutCheckpoint& cut : cuts_) {
      const v1::WriteCheckpointRequest& request = cut.calls[0].second;
      if (mode == v1::SYNC) {
        EXPECT_EQ(request.confirmed_size(), 0);
        continue;
      }
      ASSERT_EQ(request.confirmed_size(), 2);
      EXPECT_EQ(request.confirmed(0) + request.confirmed(1), request.step());
      EXPECT_GT(request.step(), before);
      before = request.step();
    }
    for (const WriteCheckpoint& write : writes_) {
      EXPECT_EQ(write.calls[0].second.confirmed_size(), 0) << "it is the cut that says so";
    }
  }
}

TEST_F(CoreCheckpointTest, OneThatFallsDueMeanwhileWaitsAtItsBarrierAndIsOfItsStep) {
  JoinAll(1, 1);
  const std::string id = SubmitAndHold(EverySteps(4));
  RunUntilStep(id, 8);
  Rounds(50);
  EXPECT_EQ(Job(id).step(), 8u);
  EXPECT_EQ(Job(id).phase(), "checkpointing");
  EXPECT_EQ(cuts_.size(), 1u);
  EXPECT_THAT(Job(id).waits(), Contains(HasSubstr("workers wait for the checkpoint of step 4")));
  core_->SetUnanswered(writing_->id, {"ps-0"});
  EXPECT_THAT(Job(id).waits(), Contains(HasSubstr("to be written by ps-0")));
  Release();
  RunUntil(id, v1::SUCCEEDED);
  ASSERT_GE(writes_.size(), 2u);
  EXPECT_EQ(writes_[1].manifest.step(), 8u);
  EXPECT_EQ(writes_[1].calls[0].second.base(), writes_[0].folder);
}

TEST_F(CoreCheckpointTest, TheLastOneIsAwaitedBeforeTheJobHasItsResult) {
  JoinAll(1, 1);
  v1::JobSpec spec = SmallJob();
  const std::string id = SubmitAndHold(spec);
  Rounds(50);
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  EXPECT_EQ(Job(id).phase(), "checkpointing");
  EXPECT_EQ(Job(id).step(), Job(id).total_steps());
  EXPECT_TRUE(Job(id).final_metrics().empty());
  Release();
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).checkpoint(), writes_.back().folder);
  EXPECT_EQ(Job(id).final_metrics().count("test"), 1u);
  EXPECT_EQ(Job(id).message(),
            "test auc 0.500000, test logloss 0.700000, validation auc 0.500000, validation logloss "
            "0.700000");
  EXPECT_EQ(cuts_.size(), 1u);
}

TEST_F(CoreCheckpointTest, AnEvaluationIsMadeWhileOneIsWritten) {
  JoinAll(1, 1);
  v1::JobSpec spec = EverySteps(4);
  spec.mutable_evaluation()->set_every_steps(6);
  const std::string id = SubmitAndHold(spec);
  RunUntilStep(id, 7);
  EXPECT_EQ(Job(id).evaluations_size(), 1);
  EXPECT_EQ(cuts_.size(), 1u);
}

TEST_F(CoreCheckpointTest, OneThatIsNotWrittenWhenAPsIsLostIsDroppedAndTheOneBeforeIsUsed) {
  JoinAll(1, 1);
  const std::string id = Submit(EverySteps(4), 1, 1);
  RunUntilStep(id, 5);
  ASSERT_EQ(writes_.size(), 1u);
  hold_writes_ = true;
  for (int i = 0; i < 100 && !writing_.has_value(); ++i) Round();
  ASSERT_TRUE(writing_.has_value());
  EXPECT_THAT(core_->UnwantedActions(), IsEmpty());
  Kill("ps-0");
  EXPECT_THAT(core_->UnwantedActions(), ElementsAre(writing_->id));
  Join(v1::PS, "ps-0");
  // The next generation does not look for its checkpoint while the last one may still write.
  const size_t opens = opens_.size();
  Rounds(30);
  EXPECT_EQ(opens_.size(), opens);
  CutShort();
  hold_writes_ = false;
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(opens_.back().calls[0].second.checkpoint(), writes_[0].folder);
  // What a generation has not committed is no base of what the next one cuts.
  EXPECT_EQ(Job(id).restarts(), 1u);
  EXPECT_EQ(writes_[1].manifest.step(), 8u);
  EXPECT_EQ(writes_[1].calls[0].second.base(), writes_[0].folder);
}

TEST_F(CoreCheckpointTest, NextCutAndTheEndWaitUntilEarlierOnesAreRemoved) {
  JoinAll(1, 1);
  on_write_ = [this](const WriteCheckpoint&) {
    hold_writes_ = true;
    return absl::OkStatus();
  };
  const std::string id = Submit(EverySteps(20), 1, 1);
  for (size_t number = 1; number <= 2; ++number) {
    for (int i = 0; i < 500 && writes_.size() < number; ++i) Round();
    Rounds(20);
    EXPECT_EQ(Job(id).state(), v1::RUNNING);
    EXPECT_EQ(Job(id).phase(), "checkpointing");
    EXPECT_THAT(Waits(id), Contains(HasSubstr("wait for the master itself (checkpointing)")));
    EXPECT_EQ(cuts_.size(), number);
    ASSERT_TRUE(std::holds_alternative<PruneCheckpoints>(writing_->work));
    hold_writes_ = false;
  }
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(prunes_.size(), 2u);
}

TEST_F(CoreCheckpointTest, AFailedWriteIsAnEventAndTheNextOneIsBasedOnWhatWasCommitted) {
  JoinAll(1, 1);
  FailWrite(2, absl::ResourceExhaustedError("disk full"));
  const std::string id = Submit(EverySteps(4), 1, 1);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_THAT(Events(id), Contains(HasSubstr("checkpoint at step 8 failed, training goes on "
                                             "without it: disk full")));
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_EQ(writes_[2].calls[0].second.base(), writes_[0].folder);
}

TEST_F(CoreCheckpointTest, WherePsAreOutOfStepAllBeginAnewTogether) {
  JoinAll(2, 1);
  on_write_ = [this](const WriteCheckpoint&) {
    out_of_step_ = writes_.size() == 2;
    return writes_.size() == 3 ? absl::ResourceExhaustedError("disk full") : absl::OkStatus();
  };
  const std::string id = Submit(EverySteps(4), 1, 2);
  RunUntil(id, v1::SUCCEEDED);
  ASSERT_GT(cuts_.size(), 5u);
  std::vector<std::string> bases;
  for (const CutCheckpoint& cut : cuts_) {
    for (const auto& [ps, request] : cut.calls) bases.push_back(request.base());
  }
  bases.resize(12);
  const std::string& first = cuts_[0].folder;
  EXPECT_THAT(bases, ElementsAre("", "", first, first, "", "", "", "", cuts_[3].folder,
                                 cuts_[3].folder, cuts_[4].folder, cuts_[4].folder))
      << "the third one failed";
}

TEST_F(CoreCheckpointTest, AFailedCutIsAnEventAndNothingIsWritten) {
  JoinAll(1, 1);
  FailCut(1, absl::FailedPreconditionError("already cut"));
  const std::string id = Submit(EverySteps(4), 1, 1);
  RunUntilStep(id, 7);
  EXPECT_THAT(Events(id), Contains(HasSubstr("checkpoint at step 4 failed")));
  EXPECT_THAT(writes_, IsEmpty());
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(writes_[0].manifest.step(), 8u);
}

TEST_F(CoreCheckpointTest, APsThatHasDroppedTheJobRestartsIt) {
  JoinAll(1, 1);
  FailWrite(2, absl::AbortedError("ps-0: generation 1 is not open"));
  const std::string id = Submit(EverySteps(4), 1, 1);
  RunUntil(id, v1::RESTARTING);
  EXPECT_EQ(Job(id).message(), "checkpoint at step 8: ps-0: generation 1 is not open");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 1u);
  EXPECT_EQ(opens_.back().calls[0].second.checkpoint(), writes_[0].folder);
}

TEST_F(CoreCheckpointTest, APsThatLivesAndIsNotReachedForAWriteCostsThatCheckpointAlone) {
  JoinAll(1, 1);
  FailWrite(2, absl::UnavailableError("ps-0: connection reset"));
  const std::string id = Submit(EverySteps(4), 1, 1);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_THAT(Events(id), Contains(HasSubstr("checkpoint at step 8 failed, training goes on")));
  EXPECT_EQ(writes_[2].calls[0].second.base(), writes_[0].folder);
}

TEST_F(CoreCheckpointTest, APsThatLivesAndIsNotReachedForACutIsAskedAgain) {
  JoinAll(1, 1);
  FailCut(2, absl::DeadlineExceededError("ps-0 does not answer within 10s"));
  const std::string id = Submit(EverySteps(4), 1, 1);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_THAT(Events(id), Contains(HasSubstr("it is cut again")));
  EXPECT_EQ(writes_[1].manifest.step(), 8u);
}

TEST_F(CoreCheckpointTest, APsThatIsNotReachedForACutAndIsLostRestartsTheJob) {
  JoinAll(1, 1);
  FailCut(2, absl::UnavailableError("ps-0: connection reset"));
  const std::string id = Submit(EverySteps(4), 1, 1);
  for (int i = 0; i < 3000 && cuts_.size() < 2; ++i) Round();
  ASSERT_EQ(cuts_.size(), 2u);
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  Kill("ps-0");
  EXPECT_THAT(Job(id).message(), HasSubstr("ps-0 lost"));
  Join(v1::PS, "ps-0");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 1u);
}

TEST_F(CoreCheckpointTest, AnEarlierOneThatFailsAtTheEndDoesNotFailTheJob) {
  JoinAll(1, 1);
  v1::JobSpec spec = EverySteps(20);
  const std::string id = SubmitAndHold(spec);
  Rounds(100);  // the end waits for it
  EXPECT_EQ(Job(id).step(), Job(id).total_steps());
  EXPECT_EQ(cuts_.size(), 1u);
  FailWrite(1, absl::ResourceExhaustedError("disk full"));
  Release();
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).checkpoint(), writes_.back().folder);
  EXPECT_EQ(writes_.back().manifest.step(), Job(id).step());
}

void CoreCheckpointTest::TriesTheLastOneAgainAfter(const absl::Status& error) {
  JoinAll(1, 1);
  bool fails = true;
  on_write_ = [&](const WriteCheckpoint&) { return fails ? error : absl::OkStatus(); };
  const std::string id = Submit(SmallJob(), 1, 1);
  for (int i = 0; i < 300; ++i) Round();
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  EXPECT_EQ(Job(id).step(), Job(id).total_steps());
  EXPECT_GT(writes_.size(), 10u);
  EXPECT_THAT(Waits(id), Contains(HasSubstr("the job tries its checkpoint again for ")));
  EXPECT_THAT(Waits(id), Contains(HasSubstr(std::string(error.message()))));
  // Said once.
  const std::vector<std::string> events = Events(id);
  EXPECT_EQ(
      std::count_if(events.begin(), events.end(),
                    [&](const std::string& e) { return absl::StrContains(e, error.message()); }),
      1);
  fails = false;
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_EQ(Job(id).checkpoint(), writes_.back().folder);
}

TEST_F(CoreCheckpointTest, TheLastOneIsTriedAgainUntilThereIsRoomForIt) {
  TriesTheLastOneAgainAfter(absl::ResourceExhaustedError("disk full"));
}

TEST_F(CoreCheckpointTest, TheLastOneIsTriedAgainUntilItsDiskCanBeWrittenTo) {
  TriesTheLastOneAgainAfter(absl::PermissionDeniedError("read-only file system"));
}

TEST_F(CoreCheckpointTest, ADiskThatStaysFullFailsTheJobInTheEndAndSaysWhatToDo) {
  JoinAll(1, 1);
  on_write_ = [](const WriteCheckpoint&) { return absl::ResourceExhaustedError("disk full"); };
  const std::string id = Submit(SmallJob(), 1, 1);
  RunUntil(id, v1::FAILED, 10000);
  EXPECT_EQ(Job(id).reason(), "CheckpointFailed");
  EXPECT_THAT(Job(id).message(), HasSubstr("disk full; make room below the checkpoint root"));
  EXPECT_GT(writes_.size(), 500u);
}

TEST_F(CoreCheckpointTest, ALastOneThatCannotBeWrittenAtAllFailsTheJobAtOnce) {
  JoinAll(1, 1);
  FailWrite(1, absl::FailedPreconditionError("the master does not see it"));
  const std::string id = Submit(SmallJob(), 1, 1);
  RunUntil(id, v1::FAILED);
  EXPECT_EQ(writes_.size(), 1u);
}

TEST_F(CoreCheckpointTest, TheBestModelIsOneThatWasWritten) {
  JoinAll(1, 1);
  v1::JobSpec spec = SmallJob();
  spec.mutable_checkpoint()->set_keep_best(true);
  aucs_ = {0.6, 0.7, 0.5};
  FailWrite(2, absl::ResourceExhaustedError("disk full"));
  const std::string id = Submit(spec, 1, 1);
  RunUntil(id, v1::SUCCEEDED);
  // That of the second epoch is lost: the best that there is, is the first's.
  EXPECT_EQ(writes_[1].manifest.position().best_checkpoint(), writes_[1].folder);
  EXPECT_EQ(Job(id).checkpoint(), writes_[0].folder);
  EXPECT_THAT(prunes_.back().keep_besides, Contains(writes_[0].folder));
  EXPECT_THAT(BestOf(id), ElementsAre(10));
  EXPECT_THAT(Events(id), Contains("the best model so far, of step 20, auc 0.700000, is lost: disk "
                                   "full; the best that is left is of step 10, auc 0.600000"));
}

TEST_F(CoreCheckpointTest, OneThatIsBetterThanTheBestThatWasWrittenIsTheBestThen) {
  for (const bool cut : {false, true}) {
    SCOPED_TRACE(cut);
    JoinAll(1, 1);
    v1::JobSpec spec = SmallJob();
    spec.mutable_checkpoint()->set_keep_best(true);
    aucs_ = {0.6, 0.8, 0.7};
    writes_.clear();
    cuts_.clear();
    cut ? FailCut(2, absl::FailedPreconditionError("already cut"))
        : FailWrite(2, absl::ResourceExhaustedError("disk full"));
    const std::string id = Submit(spec, 1, 1);
    RunUntil(id, v1::SUCCEEDED);
    EXPECT_THAT(Job(id).checkpoint(), HasSubstr("step-000000000030"));
    EXPECT_THAT(BestOf(id), ElementsAre(30));
    EXPECT_EQ(writes_.back().manifest.position().best(), 0.8) << "what the rules have seen";
    on_cut_ = nullptr;
    on_write_ = nullptr;
    RestartMaster();
  }
}

TEST_F(CoreCheckpointTest, ABestModelThatIsLostChangesNothingOfWhatIsTrained) {
  for (const bool full : {false, true}) {
    SCOPED_TRACE(full);
    JoinAll(1, 1);
    v1::JobSpec spec = SmallJob();
    spec.mutable_train()->set_epochs(9);
    spec.mutable_checkpoint()->set_keep_best(true);
    spec.mutable_tables(0)->mutable_expiry()->set_after_steps(1000);
    spec.mutable_train()->mutable_early_stopping()->set_patience(3);
    spec.mutable_train()->mutable_schedule()->mutable_plateau()->set_factor(0.5f);
    spec.mutable_train()->mutable_schedule()->mutable_plateau()->set_patience(2);
    aucs_ = {0.6, 0.8, 0.7, 0.75, 0.65};
    trained_.clear();
    cuts_.clear();
    writes_.clear();
    if (full) FailWrite(2, absl::ResourceExhaustedError("disk full"));
    const std::string id = Submit(spec, 1, 1);
    RunUntil(id, v1::SUCCEEDED);
    EXPECT_EQ(Job(id).step(), 50u);
    for (const v1::Train& unit : trained_) {
      EXPECT_EQ(unit.learning_rate_scale(), unit.epoch() < 4 ? 1 : 0.5) << unit.epoch();
    }
    EXPECT_THAT(BestOf(id), ElementsAre(full ? 40 : 20));
    EXPECT_THAT(Job(id).checkpoint(), HasSubstr(full ? "step-000000000040" : "000000000020"));
    std::vector<uint64_t> expired;  // the steps of the cuts at which rows do
    for (const CutCheckpoint& cut : cuts_) {
      const v1::WriteCheckpointRequest& request = cut.calls[0].second;
      if (!request.early()) expired.push_back(request.step());
    }
    EXPECT_THAT(expired, ElementsAre(10, 20, 50)) << "the others are matters of disks";
    on_write_ = nullptr;
    RestartMaster();
  }
}

TEST_F(CoreCheckpointTest, WhatWasMeasuredWhileTheBestModelWasWrittenTakesItsPlaceAtItsBarrier) {
  JoinAll(1, 1);
  v1::JobSpec spec = EverySteps(20);
  spec.mutable_checkpoint()->set_keep_best(true);
  aucs_ = {0.8, 0.7, 0.5};
  const std::string id = SubmitAndHold(spec);
  RunUntilStep(id, 20);
  Rounds(10);
  ASSERT_EQ(Job(id).evaluations_size(), 2);
  EXPECT_THAT(BestOf(id), ElementsAre(10));
  FailWrite(1, absl::ResourceExhaustedError("disk full"));
  Release();
  EXPECT_THAT(BestOf(id), ElementsAre(20));
  EXPECT_THAT(Events(id), Contains(HasSubstr("the best that is left is of step 20")));
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_THAT(Job(id).checkpoint(), HasSubstr("step-000000000020"));
  EXPECT_THAT(BestOf(id), ElementsAre(20));
}

TEST_F(CoreCheckpointTest, WhereTheOnlyBestModelIsLostNoneIsMarked) {
  JoinAll(1, 1);
  v1::JobSpec spec = SmallJob();
  spec.mutable_checkpoint()->set_keep_best(true);
  spec.mutable_evaluation()->set_every_steps(8);
  FailWrite(1, absl::ResourceExhaustedError("disk full"));
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 10);
  EXPECT_THAT(BestOf(id), IsEmpty());
  EXPECT_THAT(Events(id), Contains(HasSubstr("is lost: disk full; none is left")));
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_THAT(BestOf(id), ElementsAre(16));
}

TEST_F(CoreCheckpointTest, EarlyStoppingWaitsForTheWriteOfTheBestModel) {
  JoinAll(1, 1);
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(9);
  spec.mutable_checkpoint()->set_keep_best(true);
  spec.mutable_train()->mutable_early_stopping()->set_patience(1);
  aucs_ = {0.8, 0.5, 0.8};
  const std::string id = SubmitAndHold(spec);
  Rounds(100);
  EXPECT_EQ(Job(id).phase(), "checkpointing");
  EXPECT_EQ(cuts_.size(), 1u);
  Release();
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(cuts_.size(), 2u);
  EXPECT_EQ(Job(id).checkpoint(), writes_[0].folder);
}

TEST_F(CoreCheckpointTest, CancellingAJobCutsItsWriteShort) {
  JoinAll(1, 1);
  const std::string id = SubmitAndHold(EverySteps(4));
  ASSERT_TRUE(core_->Cancel(id, now_).ok());
  EXPECT_THAT(core_->UnwantedActions(), ElementsAre(writing_->id));
  EXPECT_EQ(Job(id).state(), v1::FAILED);
  CutShort();
  EXPECT_EQ(Job(id).state(), v1::FAILED);
  EXPECT_EQ(Job(id).reason(), "Cancelled");
  EXPECT_EQ(Job(id).checkpoint(), "");
}

TEST_F(CoreCheckpointTest, AMasterThatRestartsWhileOneIsWrittenGoesOnFromTheOneBefore) {
  JoinAll(1, 1);
  const std::string id = Submit(EverySteps(4), 1, 1);
  RunUntilStep(id, 5);
  hold_writes_ = true;
  for (int i = 0; i < 100 && !writing_.has_value(); ++i) Round();
  RunUntilStep(id, 10);
  RestartMaster();
  hold_writes_ = false;
  alive_.clear();
  JoinAll(1, 1);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(opens_.back().calls[0].second.checkpoint(), writes_[0].folder);
  EXPECT_EQ(writes_[1].manifest.step(), 8u);
}

TEST_F(CoreCheckpointTest, OnesByTheClockAreNotAskedForWhileOneIsWritten) {
  JoinAll(1, 1);
  v1::JobSpec spec = SmallJob();
  spec.mutable_checkpoint()->set_every_minutes(0.05f);  // 30 rounds
  spec.mutable_train()->set_epochs(200);
  const std::string id = SubmitAndHold(spec);
  const uint64_t cut_at = Job(id).step();
  Rounds(100);
  EXPECT_EQ(cuts_.size(), 1u);
  EXPECT_GT(Job(id).step(), cut_at);
  EXPECT_EQ(Job(id).phase(), "training");
  Release();
  Rounds(10);
  EXPECT_EQ(cuts_.size(), 2u);
}

TEST_F(CoreCheckpointTest, MayTakeLongerOfMoreRows) {
  EXPECT_EQ(LongestCall(0), absl::Minutes(30));
  EXPECT_EQ(LongestCall(72'000'000'000), absl::Minutes(90));
  JoinAll(2, 1);
  hold_writes_ = true;
  const std::string id = Submit(EverySteps(8), 1, 2);
  Round();
  for (const auto& [ps, row_bytes] : {std::pair("ps-0", 3000), std::pair("ps-1", 500)}) {
    v1::JobOnPs& job = *heartbeats_[ps].add_jobs();
    job.set_job_id(id);
    job.set_generation(Job(id).generation());
    job.set_row_bytes(row_bytes);
  }
  ASSERT_FALSE(writing_.has_value());
  for (int i = 0; i < 100 && !writing_.has_value(); ++i) Round();
  ASSERT_TRUE(writing_.has_value());
  EXPECT_EQ(writing_->row_bytes, 3500u);
}

}  // namespace
}  // namespace tessera::master
