#include "master/core/core.h"

#include "tests/master/core_harness.h"

// Ps whose rows another one has, which takes their place.
namespace tessera::master {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class CoreReplicasTest : public testing::Test, protected CoreHarness {
 protected:
  static v1::JobSpec Replicated() {
    v1::JobSpec spec = SmallJob();
    spec.mutable_train()->set_epochs(20);
    spec.mutable_checkpoint()->set_every_steps(30);
    spec.mutable_recovery()->set_push_log(v1::RecoverySpec::ASYNC);
    spec.mutable_recovery()->set_replicas(1);
    return spec;
  }
  // As heartbeats say it.
  void SaysInSync(const std::string& ps, const std::string& id, uint64_t pair) {
    v1::Heartbeat& heartbeat = heartbeats_[ps];
    heartbeat.clear_jobs();
    heartbeat.add_jobs()->set_job_id(id);
    heartbeat.mutable_jobs(0)->set_replica(pair);
  }
  void SaysFollows(const std::string& ps, const std::string& id, uint64_t pair,
                   const std::string& error = "") {
    v1::Heartbeat& heartbeat = heartbeats_[ps];
    heartbeat.clear_jobs();
    heartbeat.add_jobs()->set_job_id(id);
    heartbeat.mutable_jobs(0)->set_follows(pair);
    heartbeat.mutable_jobs(0)->set_follow_error(error);
  }
  // One of two ps, the second follows; both have been told.
  std::string StartPair() {
    JoinAll(2, 1);
    const std::string id = Submit(Replicated(), 1, 1);
    RunUntilStep(id, 10);
    EXPECT_THAT(tells_, SizeIs(1));
    return id;
  }
  void BeInSync(const std::string& id) {
    SaysInSync("ps-0", id, tells_.back().request.pair());
    SaysFollows("ps-1", id, tells_.back().request.pair());
    Round();
    EXPECT_THAT(Events(id), Contains("ps-1 has a copy of ps-0's rows"));
  }
};

TEST_F(CoreReplicasTest, WhoIsFreeFollowsAndTakesThePlace) {
  const std::string id = StartPair();
  const TellFollower& tell = tells_[0];
  EXPECT_EQ(tell.ps.name, "ps-0");
  ASSERT_TRUE(tell.follower.has_value());
  EXPECT_EQ(tell.follower->first.name, "ps-1");
  const v1::OpenJobRequest& open = tell.follower->second;
  EXPECT_EQ(open.follow(), "ps-0:1");
  EXPECT_EQ(open.pair(), tell.request.pair());
  EXPECT_EQ(open.generation(), Job(id).generation());
  EXPECT_FALSE(open.recover());
  BeInSync(id);
  const uint64_t generation = Job(id).generation();
  Kill("ps-0");
  heartbeats_.clear();
  for (int i = 0; i < 3; ++i) Round();
  EXPECT_EQ(opens_.back().calls[0].first.name, "ps-1");
  EXPECT_TRUE(opens_.back().calls[0].second.recover());
  EXPECT_THAT(Events(id), Contains(HasSubstr("ps-1, which has a copy of its rows, takes ps-0's")));
  const v1::Assignment assignment = core_->AssignmentFor(alive_.at("worker-0"));
  EXPECT_EQ(assignment.generation(), generation);
  ASSERT_EQ(assignment.partitions().ps_size(), 1);
  EXPECT_EQ(assignment.partitions().ps(0).address(), "ps-1:1");
  // The one that was lost comes back, and follows in its turn.
  Join(v1::PS, "ps-0");
  for (int i = 0; i < 3; ++i) Round();
  ASSERT_THAT(tells_, SizeIs(2));
  EXPECT_EQ(tells_[1].ps.name, "ps-1");
  EXPECT_EQ(tells_[1].follower->first.name, "ps-0");
  EXPECT_GT(tells_[1].request.pair(), tells_[0].request.pair());
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ExpectEachStepOnce(200);
  // Its copy goes with the job.
  for (int i = 0; i < 3; ++i) Round();
  EXPECT_EQ(closes_, 2);
}

// The copy's log takes room on the disk of the ps that has it.
TEST_F(CoreReplicasTest, OneThatIsBackWithALogNobodyNeedsIsToldWhenTheJobEnds) {
  JoinAll(3, 1);
  v1::JobSpec spec = Replicated();
  spec.mutable_train()->set_epochs(100);
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 10);
  BeInSync(id);
  // Another follows; the one that is back has its log all the same.
  Kill("ps-1");
  heartbeats_.clear();
  for (int i = 0; i < 500 && (i == 0 || !tells_.back().follower.has_value()); ++i) Round();
  ASSERT_TRUE(tells_.back().follower.has_value());
  ASSERT_EQ(tells_.back().follower->first.name, "ps-2");
  logs_["ps-1"] = {id, "other-9"};
  Join(v1::PS, "ps-1");
  RunUntilStep(id, Job(id).step() + 50);
  EXPECT_THAT(closed_, Not(Contains("ps-1"))) << "it may be asked for its log yet";
  unreached_ = {"ps-1"};
  RunUntil(id, v1::SUCCEEDED);
  Rounds(10);
  EXPECT_THAT(closed_, testing::ElementsAre("ps-0", "ps-2"));
  unreached_.clear();
  Rounds(3);
  EXPECT_THAT(closed_, Contains("ps-1"));
  EXPECT_EQ(last_close_.request.job_id(), id);
  EXPECT_EQ(last_close_.request.generation(), Job(id).generation());
  const int closes = closes_;
  Rounds(10);
  EXPECT_EQ(closes_, closes) << "once is enough";
}

TEST_F(CoreReplicasTest, ACopysLogWithLittleRoomIsCalledByThePsThatHasIt) {
  const std::string id = StartPair();
  BeInSync(id);
  v1::JobOnPs& job = *heartbeats_["ps-1"].mutable_jobs(0);
  job.set_generation(Job(id).generation());
  job.set_log_share(0.8f);
  Round();
  EXPECT_THAT(Events(id),
              Contains(HasSubstr("ps-1's copy's push log takes 80% of its room; training waits")));
}

TEST_F(CoreReplicasTest, APsThatMayHaveACopyIsToldOfWhenItJoins) {
  JoinAll(1, 1);
  const std::string id = Submit(Replicated(), 1, 1);
  RunUntilStep(id, 10);
  Join(v1::PS, "ps-1");
  EXPECT_THAT(Events(id), Contains("ps-1 joined"));
  Rounds(3);
  ASSERT_THAT(tells_, SizeIs(1));
  Join(v1::PS, "ps-2");
  EXPECT_THAT(Events(id), Not(Contains("ps-2 joined")));
}

TEST_F(CoreReplicasTest, WhoFollowsAndGetsRowsOfItsOwnKeepsThem) {
  const std::string id = StartPair();
  BeInSync(id);
  heartbeats_.clear();
  v1::ScaleRequest request;
  request.set_job_id(id);
  request.set_ps(2);
  ASSERT_TRUE(core_->Scale(request, now_).ok());
  for (int i = 0; i < 100 && Job(id).shares_size() < 2; ++i) Round();
  ASSERT_EQ(Job(id).shares_size(), 2);
  ASSERT_FALSE(copies_.empty());
  EXPECT_EQ(copies_.back().calls[0].first.name, "ps-1");
  EXPECT_EQ(closes_, 0) << "to close the job would drop what was brought to ps-1";
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreReplicasTest, WhoDoesNotHaveAllWaitsForTheLogAsBefore) {
  const std::string id = StartPair();
  Kill("ps-0");
  for (int i = 0; i < 5; ++i) Round();
  EXPECT_THAT(opens_, SizeIs(1));
  Join(v1::PS, "ps-0");
  for (int i = 0; i < 5; ++i) Round();
  EXPECT_EQ(opens_.back().calls[0].first.name, "ps-0");
  EXPECT_THAT(Events(id), Contains(HasSubstr("ps-0 is back with all that was pushed")));
  RunUntil(id, v1::SUCCEEDED);
  ExpectEachStepOnce(200);
}

TEST_F(CoreReplicasTest, OneThatIsLostIsReplacedAndThePsToldFirst) {
  const std::string id = StartPair();
  BeInSync(id);
  Kill("ps-1");
  heartbeats_.erase("ps-1");
  EXPECT_THAT(Events(id), Contains(HasSubstr("ps-0's rows have no copy any more: ps-1 is lost")));
  Round();
  // Nobody follows, and nobody waits.
  ASSERT_THAT(tells_, SizeIs(2));
  EXPECT_FALSE(tells_[1].follower.has_value());
  EXPECT_GT(tells_[1].request.pair(), tells_[0].request.pair());
  // What the ps said of the pair before counts no more.
  Kill("ps-0");
  heartbeats_.clear();
  Join(v1::PS, "ps-2");
  for (int i = 0; i < 5; ++i) Round();
  EXPECT_THAT(opens_, SizeIs(1));
  Join(v1::PS, "ps-0");
  for (int i = 0; i < 80; ++i) Round();
  ASSERT_THAT(tells_, SizeIs(3));
  EXPECT_EQ(tells_[2].follower->first.name, "ps-2");
  RunUntil(id, v1::SUCCEEDED);
  ExpectEachStepOnce(200);
}

TEST_F(CoreReplicasTest, WhatAPsSaidBeforeItWasToldOfALaterPairDoesNotCount) {
  const std::string id = StartPair();
  BeInSync(id);
  const uint64_t first = tells_[0].request.pair();
  SaysFollows("ps-1", id, first, "a hole in its disk");
  Round();
  Round();
  ASSERT_GE(tells_.size(), 2u);
  // It says still that the first is in sync.
  Kill("ps-0");
  for (int i = 0; i < 5; ++i) Round();
  EXPECT_THAT(opens_, SizeIs(1)) << "ps-1 has not all that was acknowledged";
}

TEST_F(CoreReplicasTest, OneThatKeepsPushesWaitingIsGivenUp) {
  const std::string id = StartPair();
  BeInSync(id);
  heartbeats_["ps-0"].mutable_jobs(0)->set_replica_wait_ms(2000);
  Round();
  EXPECT_THAT(Job(id).waits(),
              Contains("pushes to ps-0 wait for ps-1, which has a copy of its rows, for 2 s"));
  heartbeats_["ps-0"].mutable_jobs(0)->set_replica_wait_ms(4000);
  Round();
  Round();
  EXPECT_THAT(Events(id), Contains(HasSubstr("ps-1 does not take what is pushed")));
  ASSERT_GE(tells_.size(), 2u);
  EXPECT_FALSE(tells_[1].follower.has_value());
}

TEST_F(CoreReplicasTest, WhereItCannotTakeThePlaceTheLogIsWaitedFor) {
  const std::string id = StartPair();
  BeInSync(id);
  on_open_ = [](const OpenPs& open) {
    return open.calls[0].first.name == "ps-1" ? absl::FailedPreconditionError("has followed nobody")
                                              : absl::OkStatus();
  };
  Kill("ps-0");
  heartbeats_.clear();
  Join(v1::PS, "ps-0");
  for (int i = 0; i < 10; ++i) Round();
  EXPECT_THAT(Events(id), Contains(HasSubstr("ps-1 cannot take ps-0's place")));
  EXPECT_THAT(Events(id), Contains(HasSubstr("ps-0 is back with all that was pushed")));
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreReplicasTest, BothMayBeLostAtOnce) {
  const std::string id = StartPair();
  BeInSync(id);
  Kill("ps-0");
  Kill("ps-1");
  heartbeats_.clear();
  for (int i = 0; i < 5; ++i) Round();
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  Join(v1::PS, "ps-0");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreReplicasTest, EveryPartHasOneAsFarAsPsGo) {
  JoinAll(5, 1);
  const std::string id = Submit(Replicated(), 1, 3);
  RunUntilStep(id, 10);
  ASSERT_THAT(tells_, SizeIs(2));
  EXPECT_NE(tells_[0].follower->first.name, tells_[1].follower->first.name);
  EXPECT_NE(tells_[0].ps.name, tells_[1].ps.name);
  for (int i = 0; i < 100; ++i) Advance(absl::Seconds(1));
  EXPECT_THAT(tells_, SizeIs(2));
  Join(v1::PS, "ps-9");
  Round();
  Round();
  ASSERT_THAT(tells_, SizeIs(3));
  EXPECT_EQ(tells_[2].follower->first.name, "ps-9");
}

TEST_F(CoreReplicasTest, OneThatRefusesIsNotAskedAgainAtOnce) {
  on_tell_ = [](const TellFollower& tell) {
    return tell.follower.has_value() ? absl::InvalidArgumentError("no --data-dir")
                                     : absl::OkStatus();
  };
  const std::string id = [&] {
    JoinAll(2, 1);
    const std::string submitted = Submit(Replicated(), 1, 1);
    RunUntilStep(submitted, 10);
    return submitted;
  }();
  const size_t tells = tells_.size();
  for (int i = 0; i < 10; ++i) Advance(absl::Milliseconds(100));
  EXPECT_LE(tells_.size(), tells + 2);
  RunUntil(id, v1::SUCCEEDED);
}

TEST_F(CoreReplicasTest, AMasterThatRestartsKnowsThePairAndHearsAnew) {
  const std::string id = StartPair();
  BeInSync(id);
  const uint64_t pair = tells_[0].request.pair();
  RestartMasterAlone();
  Round();
  EXPECT_THAT(tells_, SizeIs(1)) << "they follow as they did";
  SaysInSync("ps-0", id, pair);
  Round();
  Kill("ps-0");
  heartbeats_.clear();
  for (int i = 0; i < 3; ++i) Round();
  EXPECT_THAT(Events(id), Contains(HasSubstr("ps-1, which has a copy of its rows, takes ps-0's")));
}

TEST_F(CoreReplicasTest, AMasterThatRestartsTakesNoTwoProcessesOfANameForOne) {
  JoinAll(2, 2);
  v1::JobSpec spec = Replicated();
  spec.mutable_train()->set_epochs(1000);
  const std::string follows = Submit(spec, 1, 1);
  RunUntilStep(follows, 10);
  ASSERT_THAT(tells_, SizeIs(1));
  ASSERT_EQ(tells_[0].follower->first.name, "ps-1");
  spec.mutable_recovery()->set_replicas(0);
  spec.set_name("other");
  const std::string uses = Submit(spec, 1, 2);
  RunUntilStep(uses, 10);
  // One job is told of the process that comes back, the other is not before the master is gone.
  on_open_ = [](const OpenPs&) { return absl::UnavailableError("ps-1: no route"); };
  Kill("ps-1");
  Join(v1::PS, "ps-1");
  for (int i = 0; i < 80; ++i) Round();
  EXPECT_EQ(tells_.back().follower->first.incarnation, alive_.at("ps-1"));
  on_open_ = nullptr;
  RestartMaster();
  for (const char* name : {"ps-0", "worker-0", "worker-1"}) ASSERT_TRUE(Rejoin(name).ok());
  // It has not heard what it was.
  Join(v1::PS, "ps-1");
  for (int i = 0; i < 80; ++i) Round();
  EXPECT_EQ(tells_.back().follower->first.incarnation, alive_.at("ps-1"));
  EXPECT_EQ(opens_.back().calls[0].first.incarnation, alive_.at("ps-1"));
  EXPECT_EQ(Job(uses).generation(), 1u);
}

TEST_F(CoreReplicasTest, AMasterAndAPsThatAreLostAtOnceLeaveTheCopy) {
  const std::string id = StartPair();
  BeInSync(id);
  const uint64_t generation = Job(id).generation();
  RestartMasterAlone({"ps-0"});
  heartbeats_.erase("ps-0");
  // It may only be slow to find the master.
  for (int i = 0; i < 40; ++i) Round();
  EXPECT_THAT(opens_, SizeIs(1));
  for (int i = 0; i < 20; ++i) Round();
  ASSERT_THAT(opens_, SizeIs(2));
  EXPECT_EQ(opens_.back().calls[0].first.name, "ps-1");
  EXPECT_TRUE(opens_.back().calls[0].second.recover());
  EXPECT_THAT(Events(id), Contains(HasSubstr("ps-1, which has a copy of its rows, takes ps-0's")));
  EXPECT_EQ(Job(id).generation(), generation);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreReplicasTest, AMasterAndAPsThatAreLostAtOnceLeaveNoCopyThatWasNotInSync) {
  const std::string id = StartPair();
  SaysFollows("ps-1", id, tells_.back().request.pair());
  RestartMasterAlone({"ps-0"});
  for (int i = 0; i < 300; ++i) Round();
  EXPECT_THAT(opens_, SizeIs(1)) << "ps-1 may lack what was acknowledged";
  Join(v1::PS, "ps-0");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreReplicasTest, OneThatWasGivenUpBeforeTheMasterWasLostIsNoCopy) {
  const std::string id = StartPair();
  BeInSync(id);
  const uint64_t first = tells_[0].request.pair();
  // The ps may have been told of the later pair: who told it does not know.
  on_tell_ = [](const TellFollower&) { return absl::DeadlineExceededError("no answer"); };
  SaysFollows("ps-1", id, first, "a hole in its disk");
  Round();
  Round();
  ASSERT_GE(tells_.size(), 2u);
  RestartMasterAlone({"ps-0"});
  heartbeats_.clear();
  for (int i = 0; i < 300; ++i) Round();
  EXPECT_THAT(opens_, SizeIs(1)) << "ps-1 has not all that was acknowledged";
}

TEST_F(CoreReplicasTest, TheNextMasterEndsWhatACopyHadBegun) {
  const std::string id = StartPair();
  BeInSync(id);
  on_open_ = [](const OpenPs&) { return absl::UnavailableError("ps-1: no route"); };
  const uint64_t incarnation = alive_.at("ps-0");
  Kill("ps-0");
  Round();
  // It lives after all, and has not heard that it counts no more.
  alive_["ps-0"] = incarnation;
  on_open_ = nullptr;
  RestartMasterAlone();
  SaysFollows("ps-1", id, tells_[0].request.pair());
  EXPECT_NE(alive_["ps-0"], incarnation);
  heartbeats_.erase("ps-0");
  for (int i = 0; i < 3; ++i) Round();
  EXPECT_EQ(opens_.back().calls[0].first.name, "ps-1");
  EXPECT_THAT(Events(id), Contains(HasSubstr("ps-1, which has a copy of its rows, takes ps-0's")));
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreReplicasTest, APsThatIsBackWithoutItsCopyIsToldThatNobodyFollowsIt) {
  const std::string id = StartPair();
  BeInSync(id);
  on_open_ = [](const OpenPs&) { return absl::UnavailableError("ps-1: no route"); };
  const uint64_t incarnation = alive_.at("ps-0");
  Kill("ps-0");
  Round();
  // The copy is lost before it takes the place, and the next master finds the ps as it was.
  Kill("ps-1");
  Round();
  alive_["ps-0"] = incarnation;
  on_open_ = nullptr;
  RestartMasterAlone();
  heartbeats_.clear();
  SaysInSync("ps-0", id, tells_[0].request.pair());
  Round();
  Round();
  ASSERT_THAT(tells_, SizeIs(2));
  EXPECT_EQ(tells_[1].ps.name, "ps-0");
  EXPECT_EQ(tells_[1].request.follower(), "");
  EXPECT_GT(tells_[1].request.pair(), tells_[0].request.pair());
  heartbeats_.clear();
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ExpectEachStepOnce(200);
}

TEST_F(CoreReplicasTest, JobsWithoutPushLogsOrWishesHaveNone) {
  JoinAll(2, 1);
  v1::JobSpec spec = Replicated();
  spec.mutable_recovery()->set_replicas(0);
  const std::string id = Submit(spec, 1, 1);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_THAT(tells_, IsEmpty());
}

}  // namespace
}  // namespace tessera::master
