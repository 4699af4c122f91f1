#include "master/core/core.h"

#include <utility>

#include "master/run/run_state.h"
#include "tests/master/core_harness.h"

// Ps that are lost and come back with their push logs.
namespace tessera::master {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

class CorePsRecoveryTest : public testing::Test, protected CoreHarness {
 protected:
  static v1::JobSpec LoggedJob(uint64_t every_steps = 8) {
    v1::JobSpec spec = SmallJob();
    spec.mutable_checkpoint()->set_every_steps(every_steps);
    spec.mutable_recovery()->set_push_log(v1::RecoverySpec::ASYNC);
    return spec;
  }
  static v1::JobSpec PartialJob(uint64_t every_steps = 8) {
    v1::JobSpec spec = SmallJob();
    spec.mutable_checkpoint()->set_every_steps(every_steps);
    spec.mutable_consistency()->set_sparse(v1::ASYNC);
    spec.mutable_consistency()->set_dense(v1::ASYNC);
    spec.mutable_recovery()->set_mode(v1::RecoverySpec::PARTIAL);
    return spec;
  }
  void LoseLogs() {
    on_open_ = [](const OpenPs& open) {
      return open.calls[0].second.recover()
                 ? absl::FailedPreconditionError("there is no push log here")
                 : absl::OkStatus();
    };
  }
};

TEST_F(CorePsRecoveryTest, PsForgetALogWhenTheirMasterKnowsThatItIsNotNeeded) {
  JoinAll(2, 1);
  const std::string id = Submit(LoggedJob(), 1, 2);
  RunUntilStep(id, 7);
  // Of the one that is written now the job knows when the state log has it.
  on_write_ = [&](const WriteCheckpoint& write) {
    EXPECT_NE(Job(id).checkpoint(), write.folder);
    EXPECT_EQ(committed_.size(), writes_.size() - 1);
    return absl::OkStatus();
  };
  RunUntil(id, v1::SUCCEEDED);
  ASSERT_GE(committed_.size(), 2u);
  EXPECT_GE(committed_.size() + 1, writes_.size()) << "the last one ends the job";
  ASSERT_LE(committed_.size(), writes_.size());
  for (size_t i = 0; i < committed_.size(); ++i) {
    ASSERT_EQ(committed_[i].calls.size(), 2u);
    for (const auto& [ps, request] : committed_[i].calls) {
      EXPECT_EQ(request.folder(), writes_[i].folder);
      EXPECT_EQ(request.phase(), v1::WriteCheckpointRequest::COMMITTED);
    }
  }
}

TEST_F(CorePsRecoveryTest, AJobWithPushLogsWaitsForItsPsAndGoesOnWhereItWas) {
  JoinAll(2, 2);
  const std::string id = Submit(LoggedJob(), 2, 2);
  RunUntilStep(id, 12);
  ASSERT_EQ(opens_.size(), 1u);
  EXPECT_EQ(opens_[0].calls[1].second.push_log(), v1::RecoverySpec::ASYNC);
  EXPECT_FALSE(opens_[0].calls[1].second.recover());
  const uint64_t generation = Job(id).generation();
  const std::string before = core_->AssignmentKey(workers_.at("worker-0").incarnation);
  Kill("ps-1");
  Rounds(3);
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  EXPECT_THAT(Waits(id), Contains(HasSubstr("waits for ps-1 to come back with its push log")));
  Join(v1::PS, "spare");
  Rounds(3);
  EXPECT_EQ(opens_.size(), 1u);
  const uint64_t back = Join(v1::PS, "ps-1");
  Rounds(1);
  ASSERT_EQ(opens_.size(), 2u);
  ASSERT_EQ(opens_[1].calls.size(), 1u);
  EXPECT_EQ(opens_[1].calls[0].first.incarnation, back);
  const v1::OpenJobRequest& request = opens_[1].calls[0].second;
  EXPECT_TRUE(request.recover());
  EXPECT_EQ(request.generation(), generation);
  EXPECT_EQ(request.checkpoint(), writes_[0].folder);
  EXPECT_EQ(request.first_step(), 8u);
  EXPECT_THAT(request.incarnations(), ElementsAre(workers_.at("worker-0").incarnation,
                                                  workers_.at("worker-1").incarnation));
  EXPECT_EQ(request.partitions(0), 1u);
  EXPECT_NE(core_->AssignmentKey(workers_.at("worker-0").incarnation), before);
  EXPECT_EQ(
      core_->AssignmentFor(workers_.at("worker-0").incarnation).partitions().ps(1).incarnation(),
      back);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_EQ(Job(id).generation(), generation);
  EXPECT_THAT(Events(id), Contains(HasSubstr("ps-1 is back with all that was pushed")));
  EXPECT_EQ(core_->counts().ps_recoveries, 1u);
}

TEST_F(CorePsRecoveryTest, BeforeTheFirstCheckpointItComesBackToTheStart) {
  JoinAll(1, 1);
  const std::string id = Submit(LoggedJob(), 1, 1);
  RunUntilStep(id, 3);
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  Rounds(1);
  EXPECT_TRUE(opens_.back().calls[0].second.recover());
  EXPECT_EQ(opens_.back().calls[0].second.checkpoint(), "");
  EXPECT_EQ(opens_.back().calls[0].second.first_step(), 0u);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
}

TEST_F(CorePsRecoveryTest, WhoStaysAwayTooLongSendsTheJobBackToItsCheckpoint) {
  JoinAll(1, 1);
  const std::string id = Submit(LoggedJob(), 1, 1);
  RunUntilStep(id, 12);
  Kill("ps-0");
  Join(v1::PS, "spare");
  for (int i = 0; i < 119; ++i) Advance(absl::Seconds(1));
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  for (int i = 0; i < 3; ++i) Advance(absl::Seconds(1));
  EXPECT_EQ(Job(id).restarts(), 1u);
  EXPECT_THAT(Events(id), Contains(HasSubstr("ps-0 has not come back with its push log in 2m")));
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_FALSE(opens_.back().calls[0].second.recover());
}

TEST_F(CorePsRecoveryTest, OneThatHasLostItsLogSendsTheJobBackToItsCheckpoint) {
  JoinAll(1, 1);
  const std::string id = Submit(LoggedJob(), 1, 1);
  RunUntilStep(id, 12);
  LoseLogs();
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  Rounds(1);
  EXPECT_EQ(Job(id).state(), v1::RESTARTING);
  EXPECT_THAT(Job(id).message(), HasSubstr("there is no push log here"));
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 1u);
}

TEST_F(CorePsRecoveryTest, OneThatFailsForNowIsAskedAgain) {
  JoinAll(1, 1);
  const std::string id = Submit(LoggedJob(), 1, 1);
  RunUntilStep(id, 12);
  int refused = 0;
  on_open_ = [&](const OpenPs&) {
    return ++refused <= 3 ? absl::UnavailableError("no route") : absl::OkStatus();
  };
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(refused, 4);
  EXPECT_EQ(Job(id).restarts(), 0u);
}

TEST_F(CorePsRecoveryTest, OneThatHasNoRoomForNowKeepsItsLog) {
  JoinAll(1, 1);
  const std::string id = Submit(LoggedJob(), 1, 1);
  RunUntilStep(id, 12);
  int refused = 0;
  on_open_ = [&](const OpenPs& open) {
    EXPECT_TRUE(open.calls[0].second.recover());
    return ++refused <= 100 ? absl::ResourceExhaustedError("no space left") : absl::OkStatus();
  };
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(refused, 101);
  EXPECT_EQ(Job(id).restarts(), 0u);
}

// Its address is wrong, say: its heartbeats come all the same.
TEST_F(CorePsRecoveryTest, OneThatCannotBeCalledIsNamedAndSendsTheJobBackInTheEnd) {
  JoinAll(1, 1);
  const std::string id = Submit(LoggedJob(), 1, 1);
  RunUntilStep(id, 12);
  on_open_ = [](const OpenPs& open) {
    return open.calls[0].second.recover() ? absl::UnavailableError("no route") : absl::OkStatus();
  };
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  Rounds(1190);
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  EXPECT_THAT(Waits(id), Contains(AllOf(HasSubstr("waits for ps-0 to take up its rows"),
                                        HasSubstr(" s: no route"))));
  for (int i = 0; i < 30 && Job(id).restarts() == 0; ++i) Round();
  EXPECT_EQ(Job(id).restarts(), 1u);
  EXPECT_THAT(Job(id).message(), HasSubstr("ps-0 cannot take up the job: no route"));
  RunUntil(id, v1::SUCCEEDED);
}

TEST_F(CorePsRecoveryTest, OneThatDiesWhileItRecoversMayComeBackOnceMore) {
  JoinAll(1, 1);
  const std::string id = Submit(LoggedJob(), 1, 1);
  RunUntilStep(id, 12);
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  const std::optional<Action> action = core_->TakeAction(Lane::kForeground);
  ASSERT_TRUE(action.has_value());
  ASSERT_TRUE(std::holds_alternative<OpenPs>(action->work));
  Kill("ps-0");
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  const uint64_t third = Join(v1::PS, "ps-0");
  // The answer of the one before, however it reads, is not that of this one.
  core_->ActionDone(action->id, {}, now_);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(opens_.back().calls[0].first.incarnation, third);
  EXPECT_TRUE(opens_.back().calls[0].second.recover());
  EXPECT_EQ(Job(id).restarts(), 0u);
}

TEST_F(CorePsRecoveryTest, ACheckpointIsCutWhenAllPsAreThere) {
  JoinAll(2, 1);
  const std::string id = Submit(LoggedJob(), 1, 2);
  RunUntilStep(id, 5);
  Kill("ps-0");
  Rounds(20);
  EXPECT_EQ(Job(id).step(), 8u);
  EXPECT_TRUE(cuts_.empty());
  const uint64_t back = Join(v1::PS, "ps-0");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(cuts_[0].calls[0].first.incarnation, back);
  EXPECT_EQ(writes_[0].calls[0].first.incarnation, back);
  EXPECT_EQ(Job(id).restarts(), 0u);
}

TEST_F(CorePsRecoveryTest, ACutThatAPsIsTooLateForIsMadeAgain) {
  JoinAll(1, 1);
  const std::string id = Submit(LoggedJob(), 1, 1);
  int cuts = 0;
  on_cut_ = [&](const CutCheckpoint&) {
    return ++cuts == 1 ? absl::UnavailableError("ps-0: connection reset") : absl::OkStatus();
  };
  RunUntilStep(id, 8);
  Rounds(2);
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  EXPECT_EQ(Job(id).phase(), "checkpointing");
  // Only now is it known.
  Kill("ps-0");
  Rounds(20);
  EXPECT_EQ(cuts, 1);
  Join(v1::PS, "ps-0");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(cuts_[1].folder, cuts_[0].folder);
  EXPECT_EQ(Job(id).restarts(), 0u);
}

TEST_F(CorePsRecoveryTest, ACutThatALivePsGivesUpSendsTheJobBackAtOnce) {
  JoinAll(1, 1);
  const std::string id = Submit(LoggedJob(), 1, 1);
  int cuts = 0;
  on_cut_ = [&](const CutCheckpoint&) {
    return ++cuts == 2 ? absl::AbortedError("ps-0: its push log could not be written")
                       : absl::OkStatus();
  };
  RunUntilStep(id, 16);
  const absl::Duration cut_at = now_.monotonic;
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_LT(now_.monotonic - cut_at, absl::Seconds(30));
  EXPECT_EQ(Job(id).restarts(), 1u);
  EXPECT_THAT(Events(id), Contains(HasSubstr("its push log could not be written")));
}

TEST_F(CorePsRecoveryTest, TheLastCheckpointIsMadeAgainWhereAPsWasLostInIt) {
  JoinAll(1, 1);
  v1::JobSpec spec = LoggedJob(0);
  spec.mutable_checkpoint()->set_keep_best(true);
  spec.mutable_data()->clear_test();
  const std::string id = Submit(spec, 1, 1);
  int tries = 0;
  on_write_ = [&](const WriteCheckpoint&) {
    return ++tries == 1 ? absl::UnavailableError("ps-0: there is no such cut") : absl::OkStatus();
  };
  hold_writes_ = true;
  for (int i = 0; i < 3000 && !(writing_.has_value() && Job(id).step() == 30); ++i) {
    Round();
    if (writing_.has_value() && Job(id).step() < 30) {
      hold_writes_ = false;
      tries = 5;
      FinishWrite();
      hold_writes_ = true;
    }
  }
  ASSERT_EQ(Job(id).step(), 30u);
  tries = 0;
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  Rounds(2);
  hold_writes_ = false;
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(tries, 2);
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_THAT(Events(id), Contains(HasSubstr("there is no such cut; it is cut again")));
}

TEST_F(CorePsRecoveryTest, CheckpointsAreRemovedOnceTheStateLogHasTheNextAndNoPsIsLost) {
  JoinAll(2, 1);
  v1::JobSpec spec = LoggedJob();
  spec.mutable_checkpoint()->set_keep(1);
  on_prune_ = [this](const PruneCheckpoints& prune) {
    EXPECT_EQ(prune.keep, 1u);
    EXPECT_EQ(prune.folder, writes_.back().folder);
    v1::RunState state;
    ASSERT_TRUE(state.ParseFromString(log_.at(RunStateKey(1))));
    EXPECT_EQ(state.origin(), prune.folder);
    EXPECT_FALSE(state.has_writing());
  };
  const std::string id = Submit(spec, 1, 2);
  RunUntilStep(id, 12);
  ASSERT_EQ(prunes_.size(), 1u);
  // ps-1 is lost when its part is written, and asked before the checkpoint is committed.
  hold_writes_ = true;
  for (int i = 0; i < 50 && !writing_.has_value(); ++i) Round();
  ASSERT_TRUE(std::holds_alternative<WriteCheckpoint>(writing_->work));
  Kill("ps-1");
  bool failed = false;
  on_open_ = [&](const OpenPs& open) {
    EXPECT_EQ(prunes_.size(), 1u) << "it may be reading the checkpoint before";
    const std::string from = open.calls[0].second.checkpoint();
    if (std::exchange(failed, true)) {
      EXPECT_EQ(from, writes_.back().folder);
      return absl::OkStatus();
    }
    hold_writes_ = false;
    // All that may be done in the background meanwhile.
    while (FinishWrite()) {
    }
    EXPECT_EQ(prunes_.size(), 1u) << "it reads the checkpoint before";
    EXPECT_NE(from, writes_.back().folder);
    return absl::DataLossError("a file of " + from + " is missing");
  };
  Join(v1::PS, "ps-1");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_TRUE(failed);
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_EQ(prunes_.size(), writes_.size());
}

TEST_F(CorePsRecoveryTest, AJobsEndDoesNotWaitForALostPsToRemoveCheckpoints) {
  JoinAll(2, 1);
  const std::string id = Submit(LoggedJob(100), 1, 2);
  // It is lost between the commit and what comes after that.
  on_write_ = [this](const WriteCheckpoint&) {
    hold_writes_ = true;
    return absl::OkStatus();
  };
  for (int i = 0; i < 500 && writes_.empty(); ++i) Round();
  ASSERT_FALSE(writes_.empty());
  Rounds(20);
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  EXPECT_THAT(Waits(id), Contains(HasSubstr("wait for the master itself (checkpointing)")));
  ASSERT_TRUE(std::holds_alternative<TellCommitted>(writing_->work));
  Kill("ps-1");
  RunUntil(id, v1::SUCCEEDED, 5);
  EXPECT_TRUE(prunes_.empty());
}

TEST_F(CorePsRecoveryTest, TheBestModelThatWasLostWithItsPsIsTrainedAgain) {
  JoinAll(1, 1);
  v1::JobSpec spec = LoggedJob(0);
  spec.mutable_checkpoint()->set_keep_best(true);
  spec.mutable_data()->clear_test();
  aucs_ = {0.6, 0.9, 0.5};
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 15);
  hold_writes_ = true;
  for (int i = 0; i < 1000 && !writing_.has_value(); ++i) Round();
  RunUntilStep(id, 23);
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  Rounds(2);
  on_write_ = [&, tries = 0](const WriteCheckpoint&) mutable {
    return ++tries == 1 ? absl::UnavailableError("ps-0: there is no such cut") : absl::OkStatus();
  };
  hold_writes_ = false;
  FinishWrite();
  aucs_ = {0.9, 0.5};
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 1u);
  EXPECT_EQ(Job(id).reason(), "");
  EXPECT_THAT(Job(id).checkpoint(), HasSubstr("step-000000000020"));
}

TEST_F(CorePsRecoveryTest, AWorkerThatIsLostAtTheSameTimeIsReplacedAndNothingIsRolledBack) {
  JoinAll(2, 2);
  const std::string id = Submit(LoggedJob(), 2, 2);
  RunUntilStep(id, 12);
  Kill("worker-1");
  Kill("ps-1");
  Rounds(3);
  Join(v1::WORKER, "worker-7");
  Rounds(3);
  EXPECT_THAT(Waits(id), Contains(HasSubstr("waits for ps-1")));
  Join(v1::PS, "ps-1");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_TRUE(opens_.back().calls[0].second.recover());
  EXPECT_EQ(Job(id).restarts(), 0u);
}

TEST_F(CorePsRecoveryTest, WithPartialRecoveryAPsReturnsAlone) {
  JoinAll(2, 2);
  const std::string id = Submit(PartialJob(), 2, 2);
  RunUntilStep(id, 13);
  ASSERT_EQ(opens_.size(), 1u);
  EXPECT_EQ(opens_[0].calls[1].second.pushed_size(), 0);
  const uint64_t generation = Job(id).generation();
  Kill("ps-1");
  Rounds(3);
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  EXPECT_THAT(Waits(id), Contains(HasSubstr("waits for ps-1 to come back (start tessera-ps")));
  Join(v1::PS, "ps-1");
  const uint64_t step = Job(id).step();
  Rounds(1);
  ASSERT_EQ(opens_.size(), 2u);
  ASSERT_EQ(opens_[1].calls.size(), 1u);
  const v1::OpenJobRequest& request = opens_[1].calls[0].second;
  EXPECT_FALSE(request.recover());
  EXPECT_EQ(request.generation(), generation);
  EXPECT_EQ(request.checkpoint(), writes_[0].folder);
  // Two ranks had made the steps of the checkpoint, each half of them.
  EXPECT_EQ(writes_[0].manifest.position().next_push(), writes_[0].manifest.step() / 2);
  EXPECT_EQ(request.first_step(), writes_[0].manifest.position().next_push());
  EXPECT_EQ(request.partitions(0), 1u);
  // Nobody is to look for what both ranks have done.
  ASSERT_EQ(request.pushed_size(), 2);
  EXPECT_GT(request.pushed(0) + request.pushed(1), 8u);
  EXPECT_LE(request.pushed(0) + request.pushed(1), step);
  EXPECT_GE(Job(id).lost_steps(), step - writes_[0].manifest.step());
  const uint64_t known = Job(id).step() - writes_[0].manifest.step();
  EXPECT_THAT(Events(id), Contains(HasSubstr("ps-1 is back with the rows of " + writes_[0].folder +
                                             "; what was pushed to it since, in ")));
  RunUntil(id, v1::SUCCEEDED);
  // The units that both ranks had are counted as if they had been done.
  uint64_t longest = 0;
  for (const v1::Train& unit : trained_) {
    longest = std::max(longest, unit.batch_end() - unit.batch_begin());
  }
  EXPECT_LE(Job(id).lost_steps(), known + 2 * longest);
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_EQ(Job(id).generation(), generation);
}

TEST_F(CorePsRecoveryTest, WhatIsPushedToAPsThatDiesBeforeItAnswersIsCountedAsLostToo) {
  JoinAll(2, 2);
  v1::JobSpec spec = PartialJob();
  spec.mutable_train()->set_epochs(20);
  spec.mutable_checkpoint()->set_every_steps(40);
  const std::string id = Submit(spec, 2, 2);
  RunUntilStep(id, 43);
  const uint64_t saved = writes_.back().manifest.step();
  // It has opened the job, and the answer goes astray.
  on_open_ = [](const OpenPs&) { return absl::UnavailableError("ps-1: connection reset"); };
  Kill("ps-1");
  Join(v1::PS, "ps-1");
  Rounds(1);
  const uint64_t first = Job(id).lost_steps();
  EXPECT_GT(first, 0u);
  RunUntilStep(id, saved + first + 3);
  ASSERT_EQ(writes_.back().manifest.step(), saved);
  const uint64_t step = Job(id).step();
  Kill("ps-1");
  on_open_ = nullptr;
  Join(v1::PS, "ps-1");
  Rounds(3);
  EXPECT_GE(Job(id).lost_steps(), step - saved);
  EXPECT_GT(Job(id).lost_steps(), first);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
}

TEST_F(CorePsRecoveryTest, BeforeTheFirstCheckpointPartialRecoveryIsExact) {
  JoinAll(1, 1);
  const std::string id = Submit(PartialJob(), 1, 1);
  RunUntilStep(id, 3);
  Kill("ps-0");
  EXPECT_EQ(Job(id).state(), v1::RESTARTING);
  Join(v1::PS, "ps-0");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 1u);
  EXPECT_EQ(Job(id).lost_steps(), 0u);
}

TEST_F(CorePsRecoveryTest, APushLogIsPreferredToPartialRecovery) {
  JoinAll(1, 1);
  v1::JobSpec spec = PartialJob();
  spec.mutable_recovery()->set_push_log(v1::RecoverySpec::ASYNC);
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 12);
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  Rounds(1);
  EXPECT_TRUE(opens_.back().calls[0].second.recover());
  EXPECT_EQ(Job(id).lost_steps(), 0u);
  // That one has lost it.
  LoseLogs();
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  Rounds(2);
  EXPECT_FALSE(opens_.back().calls[0].second.recover());
  EXPECT_EQ(opens_.back().calls[0].second.pushed_size(), 1);
  EXPECT_EQ(opens_.back().calls[0].second.push_log(), v1::RecoverySpec::ASYNC);
  EXPECT_THAT(Events(id), Contains(HasSubstr("there is no push log here")));
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_GT(Job(id).lost_steps(), 0u);
}

}  // namespace
}  // namespace tessera::master
