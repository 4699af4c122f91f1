#include "master/core/core.h"

#include "tests/master/core_scale_harness.h"

// Other ps for a job that trains.
namespace tessera::master {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class CoreScaleTest : public testing::Test, protected CoreScaleHarness {
 protected:
  // A job that trains on one ps, and is to go to two; it does not evaluate.
  std::string SubmitAndScale() {
    JoinAll(2, 1);
    v1::JobSpec spec = Quiet();
    spec.mutable_evaluation()->set_every_epochs(1000);
    const std::string id = Submit(spec, 1, 1);
    RunUntilStep(id, 20);
    EXPECT_TRUE(Scale(id, 2).ok());
    return id;
  }
};

TEST_F(CoreScaleTest, AJobGrowsWhileItTrainsAndNothingIsTrainedTwice) {
  JoinAll(3, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 20);
  const uint64_t first = Job(id).generation();
  ASSERT_EQ(Scale(id, 3).value().ps(), 3u);
  RunUntilPs(id, 3);
  EXPECT_EQ(Job(id).generation(), first + 1);
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_THAT(cuts_, IsEmpty());
  // All rows, then what has changed, while nobody pushes.
  ASSERT_GE(copies_.size(), 2u);
  EXPECT_FALSE(copies_[0].calls[0].second.changed());
  for (size_t i = 1; i < copies_.size(); ++i) EXPECT_TRUE(copies_[i].calls[0].second.changed());
  ASSERT_EQ(copies_[0].calls.size(), 2u);
  std::set<uint32_t> moved;
  for (const auto& [ps, request] : copies_[0].calls) {
    EXPECT_NE(ps.name, "ps-0");
    EXPECT_EQ(request.open().generation(), first + 1);
    EXPECT_EQ(request.open().take_over(), first);
    ASSERT_EQ(request.sources_size(), 1);
    EXPECT_EQ(request.sources(0).address(), "ps-0:1");
    moved.insert(request.sources(0).partitions().begin(), request.sources(0).partitions().end());
  }
  EXPECT_EQ(moved.size(), 4096u - 1366u);
  std::vector<int> owners(4096, 0);
  for (const auto& [ps, request] : opens_.back().calls) {
    EXPECT_EQ(request.take_over(), first);
    EXPECT_EQ(request.checkpoint(), "");
    for (const uint32_t p : request.partitions()) ++owners[p];
  }
  EXPECT_THAT(owners, testing::Each(1));
  // Workers route by the same map.
  const v1::PartitionMap map =
      core_->AssignmentFor(workers_.at("worker-0").incarnation).partitions();
  ASSERT_EQ(map.ps_size(), 3);
  for (int i = 0; i < 3; ++i) {
    for (const uint32_t p : opens_.back().calls[static_cast<size_t>(i)].second.partitions()) {
      EXPECT_EQ(map.owner(static_cast<int>(p)), static_cast<uint32_t>(i));
    }
  }
  EXPECT_EQ(Job(id).shares_size(), 3);
  RunUntil(id, v1::SUCCEEDED);
  ExpectEachStepOnce(200);
  EXPECT_EQ(closes_, 1);
}

TEST_F(CoreScaleTest, TheTopOnesLeaveAndAreClosedOnceTheOthersHaveTheRows) {
  JoinAll(3, 1);
  const std::string id = Submit(Quiet(), 1, 3);
  RunUntilStep(id, 20);
  ASSERT_EQ(Scale(id, 1).value().ps(), 1u);
  EXPECT_EQ(closes_, 0);
  RunUntilPs(id, 1);
  Round();
  EXPECT_THAT(PsOf(opens_.back()), testing::ElementsAre("ps-0"));
  EXPECT_EQ(closes_, 1);
  ASSERT_EQ(last_close_.ps.size(), 2u);
  // One that has left is not missed.
  Kill("ps-2");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreScaleTest, PartitionsMoveByTheirWeight) {
  JoinAll(2, 1);
  const std::string id = Submit(Quiet(), 1, 2);
  RunUntilStep(id, 20);
  // All that is hot is on ps-0.
  on_weigh_ = [](const WeighPartitions& weigh) {
    ActionResult result;
    for (const auto& [ps, request] : weigh.calls) {
      v1::WeighPartitionsResponse& of = result.weights.emplace_back();
      for (int i = 0; i < 2048; ++i) {
        of.add_bytes(1000);
        of.add_updates(ps.name == "ps-0" && i < 64 ? 1'000'000 : 0);
      }
    }
    return result;
  };
  v1::ScaleRequest request;
  request.set_job_id(id);
  request.set_balance(true);
  ASSERT_TRUE(core_->Scale(request, now_).ok());
  RunUntilPs(id, 2);
  EXPECT_THAT(Events(id), Contains("asked to balance its ps"));
  EXPECT_THAT(Events(id),
              Contains(HasSubstr("44 of 4096 partitions with 1% of the rows' bytes and 50%")));
  // And again, where they are equal.
  on_weigh_ = [](const WeighPartitions& weigh) {
    ActionResult result;
    for (size_t i = 0; i < weigh.calls.size(); ++i) {
      v1::WeighPartitionsResponse& of = result.weights.emplace_back();
      // The first 2000 of each have all there is.
      for (int p = 0; p < 4096; ++p) {
        of.add_bytes(p < 2000 ? 1 : 0);
        of.add_updates(p < 2000 ? 1 : 0);
      }
    }
    return result;
  };
  const size_t opens = opens_.size();
  ASSERT_TRUE(core_->Scale(request, now_).ok());
  for (int i = 0; i < 5; ++i) Round();
  EXPECT_FALSE(Job(id).has_scaling());
  EXPECT_EQ(opens_.size(), opens);
  EXPECT_THAT(Events(id), Contains("is balanced: no partition moves"));
}

TEST_F(CoreScaleTest, TheLastCopyIsToHaveAllStepsBeforeTheBarrier) {
  JoinAll(2, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 20);
  copies_.clear();
  ASSERT_TRUE(Scale(id, 2).ok());
  RunUntilPs(id, 2);
  ASSERT_GE(copies_.size(), 2u);
  EXPECT_EQ(copies_.front().calls.at(0).second.steps(), 0u);
  EXPECT_EQ(copies_.back().calls.at(0).second.steps(), opens_.back().calls[0].second.first_step());
}

TEST_F(CoreScaleTest, WhereNoPartitionChangesItsOwnerNothingIsCopied) {
  options_.partitions = 1;
  StartMaster();
  JoinAll(2, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 20);
  ASSERT_TRUE(Scale(id, 2).ok());
  RunUntilPs(id, 2);
  EXPECT_THAT(Events(id), Contains(HasSubstr("from 1 ps to 2: 0 of 1 partitions")));
  for (const CopyPartitions& copy : copies_) EXPECT_TRUE(copy.calls.empty());
  EXPECT_LE(copies_.size(), 1u);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreScaleTest, ADrainedPsLeavesAndTheOthersShareWhatItHad) {
  JoinAll(3, 1);
  const std::string id = Submit(Quiet(), 1, 3);
  RunUntilStep(id, 20);
  EXPECT_TRUE(absl::IsInvalidArgument(Scale(id, 0, {"ps-7"}).status()));
  EXPECT_THAT(std::string(Scale(id, 0, {"ps-0", "ps-1", "ps-2"}).status().message()),
              HasSubstr("without ps-0, ps-1, ps-2 it would have no ps; give it others first"));
  ASSERT_EQ(Scale(id, 0, {"ps-1"}).value().ps(), 2u);
  RunUntilPs(id, 2);
  EXPECT_THAT(PsOf(opens_.back()), testing::ElementsAre("ps-0", "ps-2"));
  // Another takes its place where as many are asked for.
  Join(v1::PS, "ps-8");
  ASSERT_EQ(Scale(id, 2, {"ps-0"}).value().ps(), 2u);
  for (int i = 0; i < 100 && PsOf(opens_.back())[0] == "ps-0"; ++i) Round();
  EXPECT_EQ(PsOf(opens_.back()).size(), 2u);
  EXPECT_THAT(PsOf(opens_.back()), Not(Contains("ps-0")));
}

TEST_F(CoreScaleTest, ADrainComesOnTopOfWhatWasAskedForAndHasNotHappenedYet) {
  JoinAll(1, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 20);
  ASSERT_EQ(Scale(id, 2).value().ps(), 2u);
  ASSERT_EQ(Scale(id, 0, {"ps-0"}).value().ps(), 1u);
  ASSERT_EQ(Scale(id, 0, {"ps-0"}).value().ps(), 1u);  // a repeat
  Join(v1::PS, "ps-1");
  for (int i = 0; i < 100 && Job(id).has_scaling(); ++i) Round();
  EXPECT_THAT(PsOf(opens_.back()), testing::ElementsAre("ps-1"));
}

TEST_F(CoreScaleTest, AMoveWaitsForPsThatAreNotHereAndTrainingGoesOn) {
  JoinAll(1, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 20);
  ASSERT_TRUE(Scale(id, 2).ok());
  const uint64_t step = Job(id).step();
  for (int i = 0; i < 5 || Job(id).phase() != "training"; ++i) Round();
  EXPECT_GT(Job(id).step(), step);
  EXPECT_EQ(Job(id).scaling().phase(), "waiting");
  Advance(absl::Seconds(2));
  EXPECT_THAT(Job(id).waits(), Contains(testing::MatchesRegex(
                                   "training goes on; the move to 2 ps waits until so many are "
                                   "here .start tessera-ps. for [1-9] s")));
  Join(v1::PS, "ps-1");
  EXPECT_THAT(Events(id), Contains("ps-1 joined"));
  RunUntilPs(id, 2);
}

TEST_F(CoreScaleTest, AMoveSaysWhichPsItWaitsFor) {
  const std::string id = SubmitAndScale();
  const std::optional<Action> weigh = core_->TakeAction(Lane::kAside);
  ASSERT_TRUE(weigh.has_value());
  core_->SetUnanswered(weigh->id, {"ps-0"});
  Advance(absl::Seconds(6));
  EXPECT_THAT(Waits(id), Contains("training goes on; the move to 2 ps waits for ps-0 to weigh "
                                  "their partitions for 6 s"));
  core_->ActionDone(weigh->id, Failed(absl::UnimplementedError("no weights")), now_);
  // Two rounds, of which the second is still under way at the barrier.
  for (const bool last : {false, true}) {
    hold_writes_ = true;
    for (int i = 0; i < 20 && !writing_.has_value(); ++i) Round();
    ASSERT_TRUE(writing_.has_value());
    core_->SetUnanswered(writing_->id, {"ps-1"});
    if (last) break;
    Advance(absl::Seconds(6));
    EXPECT_THAT(Waits(id), Contains(HasSubstr("the move to 2 ps waits for ps-1 to copy rows, in "
                                              "round 1 for 6 s")));
    hold_writes_ = false;
    ASSERT_TRUE(FinishWrite());
  }
  for (int i = 0; i < 20 && Job(id).phase() != "moving"; ++i) Round();
  Advance(absl::Seconds(2));
  EXPECT_THAT(Waits(id), Contains(HasSubstr("workers wait for ps-1 (moving) for 2 s")));
  hold_writes_ = false;
  RunUntilPs(id, 2);
}

TEST_F(CoreScaleTest, WhileTheBarrierIsHeldUpACopyBeginsOnceASecond) {
  const std::string id = SubmitAndScale();
  // The worker does not end its unit.
  for (int i = 0; i < 3000; ++i) {
    Tell();
    FinishWrite();
    Advance(absl::Milliseconds(10));
  }
  EXPECT_GE(copies_.size(), 25u);
  EXPECT_LE(copies_.size(), 50u);
  RunUntilPs(id, 2);
}

TEST_F(CoreScaleTest, WhatCannotBeCopiedTravelsByTheCheckpointOfABarrier) {
  JoinAll(2, 1);
  on_copy_ = [](const CopyPartitions&) {
    return Failed(absl::FailedPreconditionError("rows on disk"));
  };
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 20);
  ASSERT_TRUE(Scale(id, 2).ok());
  RunUntilPs(id, 2);
  ASSERT_EQ(writes_.size(), 1u);
  for (const auto& [ps, request] : opens_.back().calls) {
    EXPECT_EQ(request.take_over(), 0u);
    EXPECT_EQ(request.checkpoint(), writes_[0].folder);
    EXPECT_EQ(request.first_step(), writes_[0].manifest.step());
  }
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreScaleTest, ACopyThatFailsIsGivenUpAndWhatWasCopiedIsDropped) {
  JoinAll(2, 1);
  on_copy_ = [](const CopyPartitions& copy) {
    return copy.calls[0].second.drop() ? ActionResult()
                                       : Failed(absl::ResourceExhaustedError("no memory"));
  };
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 20);
  ASSERT_TRUE(Scale(id, 2).ok());
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_THAT(Events(id), Contains(HasSubstr("the move is given up: no memory")));
  ASSERT_EQ(copies_.size(), 2u);
  EXPECT_TRUE(copies_[1].calls[0].second.drop());
  EXPECT_EQ(opens_.size(), 1u);
  EXPECT_EQ(cuts_.size(), 1u);  // at the end
  ExpectEachStepOnce(200);
}

TEST_F(CoreScaleTest, TheLossOfAPsThatIsToComeEndsTheMoveAndNotTheRun) {
  JoinAll(2, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 20);
  hold_writes_ = true;  // the copy does not end
  ASSERT_TRUE(Scale(id, 2).ok());
  for (int i = 0; i < 50 && !writing_.has_value(); ++i) Round();
  Kill("ps-1");
  EXPECT_THAT(Events(id), Contains(HasSubstr("the move is given up: ps-1 is lost")));
  hold_writes_ = false;
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreScaleTest, ACheckpointThatFallsDueCutsTheCopyShortWhichBeginsAgain) {
  JoinAll(2, 1);
  const std::string id = SubmitAndMoveUntilUnwanted(Quiet());
  ASSERT_THAT(core_->UnwantedActions(), testing::ElementsAre(writing_->id));
  EXPECT_EQ(cuts_.size(), 1u);
  EXPECT_EQ(cuts_[0].calls[0].second.step(), 40u);
  CutShort();
  hold_writes_ = false;
  RunUntilPs(id, 2);
  EXPECT_FALSE(copies_[0].calls[0].second.changed());
  EXPECT_EQ(writes_.size(), 1u);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreScaleTest, RowsOfAMoveThatACheckpointHasCutShortAreDroppedWhenItIsGivenUp) {
  JoinAll(2, 1);
  for (const bool cancelled : {false, true}) {
    SCOPED_TRACE(cancelled);
    closed_.clear();
    copies_.clear();
    const std::string id = SubmitAndMoveUntilUnwanted(Quiet());
    CutShort();
    // Nothing is copied while the checkpoint is written.
    for (int i = 0; i < 20; ++i) Round();
    ASSERT_EQ(copies_.size(), 0u) << "that have ended";
    if (cancelled) {
      ASSERT_TRUE(core_->Cancel(id, now_).ok());
      hold_writes_ = false;
      FinishWrite();
      for (int i = 0; i < 20; ++i) Round();
      EXPECT_THAT(closed_, testing::ElementsAre("ps-0", "ps-1"));
      continue;
    }
    FinishWrite();
    hold_writes_ = false;
    ASSERT_TRUE(Scale(id, 1).ok());
    RunUntil(id, v1::SUCCEEDED);
    ASSERT_EQ(copies_.size(), 1u);
    EXPECT_TRUE(copies_[0].calls[0].second.drop());
    EXPECT_THAT(closed_, testing::ElementsAre("ps-0", "ps-1")) << "the drop may have been lost";
  }
}

TEST_F(CoreScaleTest, AMoveThatCheckpointsCutShortAgainAndAgainGoesByOneOfThem) {
  JoinAll(2, 1);
  v1::JobSpec spec = Quiet();
  spec.mutable_checkpoint()->set_every_steps(20);
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 25);
  ASSERT_TRUE(Scale(id, 2).ok());
  for (int i = 0; i < 300 && Job(id).has_scaling(); ++i) {
    hold_writes_ = !writing_.has_value() || std::holds_alternative<CopyPartitions>(writing_->work);
    Round();
    if (!core_->UnwantedActions().empty()) CutShort();
  }
  EXPECT_FALSE(Job(id).has_scaling());
  hold_writes_ = false;
  Round();
  EXPECT_EQ(opens_.back().calls.size(), 2u);
  EXPECT_NE(opens_.back().calls[0].second.checkpoint(), "");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreScaleTest, AMasterThatRestartsGoesOnWithThePsThatWereAskedFor) {
  JoinAll(2, 1);
  v1::JobSpec spec = Quiet();
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 20);
  hold_writes_ = true;
  ASSERT_TRUE(Scale(id, 2).ok());
  for (int i = 0; i < 50 && !writing_.has_value(); ++i) Round();
  RestartMaster();
  hold_writes_ = false;
  opens_.clear();
  JoinAll(2, 1);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(opens_[0].calls.size(), 2u);
  EXPECT_FALSE(Job(id).has_scaling());
}

TEST_F(CoreScaleTest, APsThatIsLostAtTheSwitchSendsTheJobToItsLastCheckpointOnTheNewSet) {
  JoinAll(2, 1);
  v1::JobSpec spec = Quiet();
  spec.mutable_checkpoint()->set_every_steps(10);
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 25);
  bool fail = true;
  on_open_ = [&fail](const OpenPs& open) {
    return std::exchange(fail, false) && open.calls.size() == 2
               ? absl::UnavailableError("ps-1: connection refused")
               : absl::OkStatus();
  };
  ASSERT_TRUE(Scale(id, 2).ok());
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 1u);
  EXPECT_EQ(opens_.back().calls.size(), 2u);
  EXPECT_NE(opens_.back().calls[0].second.checkpoint(), "");
  EXPECT_EQ(opens_.back().calls[0].second.take_over(), 0u);
}

TEST_F(CoreScaleTest, JobsThatCannotBeMovedSayWhy) {
  JoinAll(1, 1);
  EXPECT_TRUE(absl::IsNotFound(Scale("nothing-9", 2).status()));
  const std::string id = Submit(Quiet(), 1, 1);
  EXPECT_TRUE(absl::IsInvalidArgument(Scale(id, 5000).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Scale(id, 0, {"ps-0"}).status()));
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_TRUE(absl::IsFailedPrecondition(Scale(id, 2).status()));
  EXPECT_THAT(std::string(Scale(id, 2).status().message()), HasSubstr("has ended"));
}

TEST_F(CoreScaleTest, AJobInTheQueueStartsWithTheNumberAskedForLast) {
  JoinAll(2, 0);
  v1::ScaleRequest balance;
  balance.set_job_id(Submit(Quiet(), 1, 0));
  balance.set_balance(true);
  EXPECT_THAT(std::string(core_->Scale(balance, now_).status().message()),
              HasSubstr("has no ps yet"));
  ASSERT_TRUE(core_->Cancel(balance.job_id(), now_).ok());
  const std::string id = Submit(Quiet(), 1, 1);
  ASSERT_EQ(Scale(id, 2).value().ps(), 2u);
  Join(v1::WORKER, "worker-0");
  RunUntilStep(id, 10);
  EXPECT_EQ(opens_[0].calls.size(), 2u);
}

}  // namespace
}  // namespace tessera::master
