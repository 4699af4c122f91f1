#include "master/core/core.h"
#include "tests/master/core_scale_harness.h"

// Other ps for a job with push logs.
namespace tessera::master {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class CoreScaleLoggedTest : public testing::Test, protected CoreScaleHarness {};

TEST_F(CoreScaleLoggedTest, AJobWithPushLogsHasACheckpointRightAfterItsRowsHaveMoved) {
  JoinAll(2, 1);
  const std::string id = Submit(LoggedJob(), 1, 2);
  RunUntilStep(id, 20);
  const uint64_t generation = Job(id).generation();
  ASSERT_TRUE(Scale(id, 1).ok());
  RunUntilPs(id, 1);
  EXPECT_THAT(copies_, Not(IsEmpty()));
  EXPECT_EQ(opens_.back().calls[0].second.take_over(), generation);
  EXPECT_EQ(opens_.back().calls[0].second.push_log(), v1::RecoverySpec::ASYNC);
  for (int i = 0; i < 3; ++i) Round();
  ASSERT_EQ(writes_.size(), 1u);
  EXPECT_EQ(writes_[0].manifest.step(), opens_.back().calls[0].second.first_step());
  EXPECT_EQ(cuts_.size(), 1u);
  // From then on a log leads back to it.
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  for (int i = 0; i < 3; ++i) Round();
  EXPECT_TRUE(opens_.back().calls[0].second.recover());
  EXPECT_EQ(opens_.back().calls[0].second.take_over(), 0u);
  EXPECT_EQ(opens_.back().calls[0].second.checkpoint(), writes_[0].folder);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ExpectEachStepOnce(200);
}

// To lose ps before the first checkpoint after the switch is committed.
class CoreUnsavedRowsTest : public CoreScaleLoggedTest {
 protected:
  // A job that has one checkpoint, and has moved to ps-0 since.
  std::string MovedJob() {
    JoinAll(2, 1);
    v1::JobSpec spec = LoggedJob();
    spec.mutable_checkpoint()->set_every_steps(15);
    const std::string id = Submit(spec, 1, 2);
    RunUntilStep(id, 20);
    EXPECT_EQ(writes_.size(), 1u);
    EXPECT_TRUE(Scale(id, 1).ok());
    for (int i = 0; i < 3000 && opens_.size() < 2; ++i) {
      hold_writes_ = i % 2 == 1;  // round after round of copies: the worker has its turn, too
      Step();
    }
    EXPECT_EQ(opens_.size(), 2u);
    hold_writes_ = true;
    for (int i = 0; i < 5; ++i) Step();
    EXPECT_EQ(writes_.size(), 1u);
    return id;
  }
};

TEST_F(CoreUnsavedRowsTest, TheLogsOfBothGenerationsBringThemBack) {
  const std::string id = MovedJob();
  const v1::OpenJobRequest opened = opens_.back().calls[0].second;
  EXPECT_TRUE(opened.checkpoint().empty());
  for (const bool with_master : {false, true}) {
    Kill("ps-0");
    EXPECT_EQ(Job(id).state(), v1::RUNNING);
    if (with_master) RestartMasterAlone();
    const uint64_t back = Join(v1::PS, "ps-0");
    for (int i = 0; i < 5; ++i) Round();
    const auto& [node, request] = opens_.back().calls[0];
    EXPECT_EQ(node.incarnation, back);
    EXPECT_TRUE(request.recover());
    EXPECT_EQ(request.checkpoint(), writes_[0].folder) << "where the logs before the switch begin";
    EXPECT_EQ(request.first_step(), opened.first_step());
    EXPECT_EQ(request.take_over(), 0u);
  }
  hold_writes_ = false;
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_GE(writes_[1].manifest.step(), opened.first_step());
  ExpectEachStepOnce(200);
}

TEST_F(CoreUnsavedRowsTest, WithoutThoseLogsAllReturnToTheCheckpoint) {
  const std::string id = MovedJob();
  on_open_ = [](const OpenPs& open) {
    return open.calls[0].second.recover() ? absl::DataLossError("the log goes to record 7")
                                          : absl::OkStatus();
  };
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  for (int i = 0; i < 3; ++i) Round();
  hold_writes_ = false;
  EXPECT_THAT(Events(id), Contains(HasSubstr("the log goes to record 7")));
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 1u);
}

TEST_F(CoreScaleLoggedTest, AMoveBeginsWhenWhatTheOneBeforeItBroughtIsDropped) {
  JoinAll(3, 1);
  const std::string id = SubmitAndMoveUntilUnwanted(LoggedJob());
  CutShort();
  // The checkpoint that did it is written, and what comes after that stands still.
  on_write_ = [this](const WriteCheckpoint&) {
    hold_writes_ = true;
    return absl::OkStatus();
  };
  hold_writes_ = false;
  for (int i = 0; i < 50 && writes_.empty(); ++i) Round();
  for (int i = 0; i < 5 && !writing_.has_value(); ++i) Round();
  ASSERT_TRUE(std::holds_alternative<TellCommitted>(writing_->work));
  on_write_ = nullptr;
  ASSERT_TRUE(Scale(id, 3).ok());
  for (int i = 0; i < 10; ++i) Round();
  EXPECT_TRUE(copies_.empty());
  hold_writes_ = false;
  RunUntilPs(id, 3);
  ASSERT_GE(copies_.size(), 3u);
  EXPECT_TRUE(copies_[0].calls[0].second.drop());
  EXPECT_FALSE(copies_[1].calls[0].second.drop());
  EXPECT_FALSE(copies_[1].calls[0].second.changed()) << "all rows, first";
  EXPECT_TRUE(copies_[2].calls[0].second.changed());
  EXPECT_THAT(Events(id), Not(Contains(HasSubstr("travel by a checkpoint"))));
}

TEST_F(CoreScaleLoggedTest, APsThatIsLostWhileRowsAreCopiedComesBackAndTheyAreCopiedAnew) {
  JoinAll(2, 1);
  const std::string id = Submit(LoggedJob(), 1, 2);
  RunUntilStep(id, 20);
  int failed = 0;
  on_copy_ = [&](const CopyPartitions& copy) {
    if (copy.calls[0].second.drop() || failed++ > 0) return ActionResult();
    return Failed(absl::UnavailableError("ps-1: no route"));
  };
  ASSERT_TRUE(Scale(id, 1).ok());
  for (int i = 0; i < 5 && failed == 0; ++i) Round();
  ASSERT_EQ(failed, 1);
  Kill("ps-1");
  for (int i = 0; i < 5; ++i) Round();
  EXPECT_TRUE(Job(id).has_scaling());
  Join(v1::PS, "ps-1");
  RunUntilPs(id, 1);
  ASSERT_GE(copies_.size(), 3u);
  EXPECT_FALSE(copies_[1].calls[0].second.changed()) << "from the first round on";
  EXPECT_GT(opens_.back().calls[0].second.take_over(), 0u);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreScaleLoggedTest, APsThatStaysAndComesBackIsTheOneThatTheJobMovesTo) {
  JoinAll(2, 1);
  const std::string id = Submit(LoggedJob(), 1, 2);
  LostAreNotReached();
  RunUntilStep(id, 20);
  hold_writes_ = true;
  ASSERT_TRUE(Scale(id, 1).ok());
  for (int i = 0; i < 20 && !writing_.has_value(); ++i) Round();
  ASSERT_TRUE(writing_.has_value());
  ASSERT_TRUE(std::holds_alternative<CopyPartitions>(writing_->work));
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  for (int i = 0; i < 3; ++i) Round();
  EXPECT_THAT(Events(id), Contains(HasSubstr("ps-0 is back with all that was pushed")));
  EXPECT_THAT(Events(id), Contains(HasSubstr("the move to 1 ps begins anew")));
  hold_writes_ = false;
  RunUntilPs(id, 1);
  EXPECT_EQ(opens_.back().calls[0].first.incarnation, alive_.at("ps-0"));
  EXPECT_GT(opens_.back().calls[0].second.take_over(), 0u) << "not by the checkpoint";
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreScaleLoggedTest, APsWhoseCopyTakesItsPlaceIsNotMovedTo) {
  JoinAll(3, 1);
  v1::JobSpec spec = LoggedJob();
  spec.mutable_recovery()->set_replicas(1);
  const std::string id = Submit(spec, 1, 2);
  LostAreNotReached();
  RunUntilStep(id, 20);
  ASSERT_EQ(tells_.size(), 1u);
  ASSERT_EQ(tells_[0].ps.name, "ps-0");
  v1::JobOnPs& says = *heartbeats_["ps-0"].add_jobs();
  says.set_job_id(id);
  says.set_replica(tells_[0].request.pair());
  hold_writes_ = true;
  // The copy is to have a part of the rows besides.
  ASSERT_TRUE(Scale(id, 3).ok());
  for (int i = 0; i < 20 && !writing_.has_value(); ++i) Round();
  ASSERT_TRUE(writing_.has_value());
  Kill("ps-0");
  heartbeats_.clear();
  for (int i = 0; i < 3; ++i) Round();
  EXPECT_THAT(Events(id), Contains(HasSubstr("ps-2, which has a copy of its rows, takes ps-0's")));
  hold_writes_ = false;
  for (int i = 0; i < 20; ++i) Round();
  EXPECT_EQ(opens_.back().calls.size(), 1u) << "too few are here";
  Join(v1::PS, "ps-3");
  RunUntilPs(id, 3);
  EXPECT_THAT(PsOf(opens_.back()), testing::ElementsAre("ps-2", "ps-1", "ps-3"));
  EXPECT_GT(opens_.back().calls[0].second.take_over(), 0u) << "not by the checkpoint";
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreScaleLoggedTest, APsThatComesBackBeforeTheSwitchIsMissedWhenItIsLostAgain) {
  JoinAll(2, 1);
  const std::string id = Submit(LoggedJob(), 1, 2);
  CannotCopy();
  RunUntilStep(id, 20);
  ASSERT_TRUE(Scale(id, 1).ok());
  for (int i = 0; i < 20 && copies_.empty(); ++i) Round();
  hold_writes_ = true;  // of the checkpoint by which the rows travel
  for (int i = 0; i < 20; ++i) Round();
  ASSERT_TRUE(writing_.has_value());
  ASSERT_TRUE(std::holds_alternative<WriteCheckpoint>(writing_->work));
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  for (int i = 0; i < 5; ++i) Round();
  EXPECT_THAT(Events(id), Contains(HasSubstr("ps-0 is back with all that was pushed")));
  hold_writes_ = false;
  RunUntilPs(id, 1);
  ASSERT_THAT(PsOf(opens_.back()), testing::ElementsAre("ps-0"));
  EXPECT_EQ(opens_.back().calls[0].first.incarnation, alive_.at("ps-0"));
  for (int i = 0; i < 5; ++i) Round();
  const size_t opens = opens_.size();
  Kill("ps-0");
  Advance(absl::Seconds(2));
  EXPECT_THAT(Waits(id), Contains(HasSubstr("ps-0")));
  Join(v1::PS, "ps-0");
  for (int i = 0; i < 5; ++i) Round();
  ASSERT_GT(opens_.size(), opens);
  EXPECT_TRUE(opens_.back().calls[0].second.recover());
  RunUntil(id, v1::SUCCEEDED);
  ExpectEachStepOnce(200);
}

TEST_F(CoreScaleLoggedTest, APsThatIsLostBeforeTheSwitchIsWaitedFor) {
  JoinAll(2, 1);
  const std::string id = Submit(LoggedJob(), 1, 2);
  CannotCopy();
  RunUntilStep(id, 20);
  ASSERT_TRUE(Scale(id, 1).ok());
  for (int i = 0; i < 20 && copies_.empty(); ++i) Round();
  hold_writes_ = true;  // of the checkpoint by which the rows travel
  for (int i = 0; i < 20; ++i) Round();
  ASSERT_TRUE(writing_.has_value());
  ASSERT_TRUE(std::holds_alternative<WriteCheckpoint>(writing_->work));
  Kill("ps-0");
  hold_writes_ = false;
  const size_t opens = opens_.size();
  for (int i = 0; i < 20; ++i) Round();
  EXPECT_EQ(opens_.size(), opens) << "to nobody who is lost";
  EXPECT_TRUE(Job(id).has_scaling());
  Join(v1::PS, "ps-0");
  for (int i = 0; i < 5; ++i) Round();
  ASSERT_GT(opens_.size(), opens);
  EXPECT_TRUE(opens_[opens].calls[0].second.recover());
  EXPECT_EQ(opens_[opens].calls[0].first.incarnation, alive_.at("ps-0"));
  RunUntilPs(id, 1);
  EXPECT_EQ(opens_.back().calls[0].first.incarnation, alive_.at("ps-0"));
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreScaleLoggedTest, APsThatLacksMemoryForTheRowsEndsTheMoveAndTrainingGoesOn) {
  JoinAll(4, 1);
  on_copy_ = [](const CopyPartitions& copy) {
    return copy.calls[0].second.drop() ? ActionResult()
                                       : Failed(absl::ResourceExhaustedError("no memory"));
  };
  const std::string id = Submit(LoggedJob(), 1, 4);
  RunUntilStep(id, 20);
  ASSERT_TRUE(Scale(id, 1).ok());
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_THAT(Events(id), Contains("the job keeps its 4 ps, the move is given up: no memory"));
  EXPECT_EQ(opens_.size(), 1u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreScaleLoggedTest, AFullDiskEndsAMoveByCheckpointAndTrainingGoesOn) {
  JoinAll(2, 1);
  const std::string id = Submit(LoggedJob(), 1, 2);
  CannotCopy();
  RunUntilStep(id, 20);
  bool full = true;
  on_write_ = [&full](const WriteCheckpoint&) {
    return full ? absl::ResourceExhaustedError("disk full") : absl::OkStatus();
  };
  ASSERT_TRUE(Scale(id, 1).ok());
  for (int i = 0; i < 50; ++i) Round();
  EXPECT_FALSE(Job(id).has_scaling());
  EXPECT_THAT(Events(id), Contains(HasSubstr("the job keeps its 2 ps, the move is given up")));
  full = false;
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(opens_.size(), 1u);
  ExpectEachStepOnce(200);
}

}  // namespace
}  // namespace tessera::master
