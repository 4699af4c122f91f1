#include "master/core/core.h"

#include "tests/master/core_harness.h"

// Workers that are lost, and those that take over their ranks.
namespace tessera::master {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class CoreWorkerRecoveryTest : public testing::Test, protected CoreHarness {
 protected:
  // Until the worker holds a unit that `is` says yes to; it keeps it without a report.
  void HoldUnit(const std::string& id, const std::string& worker,
                const std::function<bool(const v1::NextWorkResponse&)>& is) {
    on_unit_ = [&](const std::string& name, const v1::NextWorkResponse& unit, v1::UnitResult*) {
      if (name == worker && is(unit)) held_ = unit;
    };
    for (int i = 0; i < 3000 && !held_.has_value(); ++i) Round();
    on_unit_ = nullptr;
    ASSERT_TRUE(held_.has_value()) << Job(id).ShortDebugString();
  }

  std::optional<v1::NextWorkResponse> held_;
};

TEST_F(CoreWorkerRecoveryTest, AFreeWorkerThatJoinedEarlierJoinsAgainBeforeItTakesOver) {
  JoinAll(2, 0);
  Join(v1::WORKER, "worker-2");
  Join(v1::WORKER, "worker-0");
  Join(v1::WORKER, "worker-1");
  const std::string id = Submit(SmallJob(), 2, 2);
  RunUntilStep(id, 12);
  const uint64_t spare = alive_.at("worker-2");
  const uint64_t lost = alive_.at("worker-1");
  ASSERT_LT(spare, lost);
  Kill("worker-1");
  // Ps would take its calls for late ones of somebody before worker-1.
  EXPECT_FALSE(core_->IsAlive(spare));
  EXPECT_EQ(Rejoin("worker-2").status().code(), absl::StatusCode::kAborted);
  EXPECT_GT(Join(v1::WORKER, "worker-2"), lost);
  EXPECT_THAT(Events(id), Contains(HasSubstr("worker-2 takes over rank 1")));
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
}

TEST_F(CoreWorkerRecoveryTest, AFreeWorkerTakesOverAtOnceAndTheRunGoesOn) {
  JoinAll(2, 3);
  const std::string id = Submit(SmallJob(), 2, 2);
  RunUntilStep(id, 12);
  const uint64_t generation = Job(id).generation();
  const uint64_t step = Job(id).step();
  const uint64_t total = Job(id).total_steps();
  EXPECT_EQ(core_->AssignmentKey(alive_.at("worker-2")), "");
  const v1::NextWorkRequest stale = Request(workers_.at("worker-1"));
  Kill("worker-1");
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  EXPECT_THAT(Events(id), Contains(HasSubstr("worker-1 lost (its connection broke)")));
  EXPECT_THAT(Events(id), Contains(HasSubstr("worker-2 takes over rank 1 at step " +
                                             std::to_string(step) + " after 0.0 s")));
  EXPECT_EQ(core_->AssignmentFor(alive_.at("worker-2")).rank(), 1u);
  // Whoever had the rank is told so.
  const absl::Status refused = core_->NextWork(stale, now_).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("rank 1 of demo-1 is worker-2"));
  // It comes back too late for its rank, and is free.
  Join(v1::WORKER, "worker-1");
  EXPECT_EQ(core_->AssignmentKey(alive_.at("worker-1")), "");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).step(), total);
  EXPECT_EQ(Job(id).generation(), generation);
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_EQ(opens_.size(), 1u);
  EXPECT_EQ(core_->counts().worker_takeovers, 1u);
  EXPECT_EQ(Job(id).nodes(3).name(), "worker-2");
  EXPECT_EQ(Job(id).nodes(3).rank(), 1u);
}

TEST_F(CoreWorkerRecoveryTest, WhoHoldsNoRankIsNamedUntilSomebodyJoins) {
  JoinAll(1, 2);
  const std::string id = Submit(SmallJob(), 2, 1);
  RunUntilStep(id, 12);
  Kill("worker-0");
  Advance(absl::Seconds(3));
  EXPECT_THAT(Waits(id), Contains("the job waits for a worker to take over rank 0, which worker-0 "
                                  "had (start tessera-worker, under any --name) for 3 s"));
  EXPECT_THAT(Waits(id), Not(Contains(HasSubstr("waits for worker-0 to train"))));
  EXPECT_FALSE(Job(id).nodes(1).alive());
  Join(v1::WORKER, "another");
  EXPECT_THAT(Events(id), Contains(HasSubstr("another takes over rank 0")));
  EXPECT_TRUE(Job(id).nodes(1).alive());
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
}

TEST_F(CoreWorkerRecoveryTest, WhoComesBackUnderItsNameHasItsRankAgain) {
  JoinAll(1, 2);
  const std::string id = Submit(SmallJob(), 2, 1);
  RunUntilStep(id, 12);
  Kill("worker-0");
  Kill("worker-1");
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  Join(v1::WORKER, "worker-1");
  EXPECT_EQ(core_->AssignmentFor(alive_.at("worker-1")).rank(), 1u);
  Join(v1::WORKER, "worker-0");
  EXPECT_EQ(core_->AssignmentFor(alive_.at("worker-0")).rank(), 0u);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_EQ(core_->counts().worker_takeovers, 2u);
}

TEST_F(CoreWorkerRecoveryTest, TheUnitThatWasHeldIsHandedOutAgainUnderAnotherNumber) {
  JoinAll(1, 2);
  const std::string id = Submit(SmallJob(), 2, 1);
  HoldUnit(id, "worker-1",
           [](const auto& unit) { return unit.has_train() && unit.train().first_step() > 4; });
  Kill("worker-1");
  Join(v1::WORKER, "worker-1");
  const auto again = core_->NextWork(Request(workers_.at("worker-1")), now_);
  ASSERT_TRUE(again.ok() && again->has_value()) << again.status();
  EXPECT_EQ((*again)->train().SerializeAsString(), held_->train().SerializeAsString());
  EXPECT_GT((*again)->unit_id(), held_->unit_id());
  // Asked again, the same answer.
  EXPECT_EQ((**core_->NextWork(Request(workers_.at("worker-1")), now_)).unit_id(),
            (*again)->unit_id());
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).samples(), 3 * kTrain);
  EXPECT_EQ(Job(id).restarts(), 0u);
}

TEST_F(CoreWorkerRecoveryTest, ScoresThatTheLostOneSentAreReplacedAndLateOnesRefused) {
  JoinAll(1, 2);
  const std::string id = Submit(SmallJob(), 2, 1);
  HoldUnit(id, "worker-1", [](const auto& unit) { return unit.has_evaluate(); });
  v1::ScoresChunk late;
  late.set_job_id(id);
  late.set_generation(Job(id).generation());
  late.set_evaluation_id(held_->evaluate().evaluation_id());
  late.set_unit_id(held_->unit_id());
  Kill("worker-1");
  Join(v1::WORKER, "worker-1");
  // Half of them, of one that does not know that it is lost.
  EXPECT_EQ(core_->AddScores(late, {{0.5f}, {0.5f}, {}}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(core_->MayScore(late).status().code(), absl::StatusCode::kAborted);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  for (const ComputeMetrics& measured : measured_) {
    EXPECT_THAT(measured.outputs.size(), testing::AnyOf(kValidation, kTest));
  }
}

TEST_F(CoreWorkerRecoveryTest, AFoldedUnitOfTheLostOneCountsOnce) {
  JoinAll(1, 2);
  v1::JobSpec spec = SmallJob();
  for (const char* metric : {"binned_auc", "mae"}) spec.mutable_evaluation()->add_metrics(metric);
  spec.mutable_evaluation()->set_monitor("binned_auc");
  const std::string id = Submit(spec, 2, 1);
  HoldUnit(id, "worker-1", [](const auto& unit) { return unit.has_evaluate(); });
  Kill("worker-1");
  Join(v1::WORKER, "worker-1");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  ASSERT_EQ(measured_.size(), 4u);
  for (const ComputeMetrics& measured : measured_) {
    ASSERT_NE(measured.sums, nullptr);
    EXPECT_THAT(measured.outputs, testing::IsEmpty());
    EXPECT_THAT(measured.sums->samples(), testing::AnyOf(kValidation, kTest));
  }
}

TEST_F(CoreWorkerRecoveryTest, CountsAndPredictionsAreHandedOutAgain) {
  JoinAll(1, 2);
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(1);
  const std::string first = Submit(spec, 2, 1);
  HoldUnit(first, "worker-0", [](const auto& unit) { return unit.has_count(); });
  Kill("worker-0");
  Join(v1::WORKER, "worker-0");
  RunUntil(first, v1::SUCCEEDED);
  EXPECT_EQ(Job(first).restarts(), 0u);
  v1::SubmitRequest predict;
  *predict.mutable_spec() = spec;
  predict.mutable_spec()->mutable_start()->set_checkpoint(Job(first).checkpoint());
  predict.set_workers(2);
  predict.set_ps(1);
  predict.set_task(v1::PREDICT);
  predict.set_output("out");
  const std::string second = Submit(predict);
  held_.reset();
  outputs_.clear();
  HoldUnit(second, "worker-1", [](const auto& unit) { return unit.has_predict(); });
  Kill("worker-1");
  Join(v1::WORKER, "another");
  RunUntil(second, v1::SUCCEEDED);
  EXPECT_EQ(Job(second).restarts(), 0u);
  // Of worker-1's part twice, of the other's once.
  EXPECT_EQ(outputs_.size(), 3u);
  EXPECT_EQ(std::set<std::string>(outputs_.begin(), outputs_.end()).size(), 2u);
  EXPECT_EQ(outputs_.back(), held_->predict().output());
}

TEST_F(CoreWorkerRecoveryTest, ARankThatFindsNobodySendsTheJobBackToItsCheckpoint) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_checkpoint()->set_every_steps(8);
  JoinAll(1, 2);
  const std::string id = Submit(spec, 2, 1);
  RunUntilStep(id, 12);
  Kill("worker-1");
  for (int i = 0; i < 1190; ++i) Round();  // 100 ms each
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  for (int i = 0; i < 20; ++i) Round();
  EXPECT_EQ(Job(id).state(), v1::RESTARTING);
  EXPECT_EQ(Job(id).restarts(), 1u);
  const std::string last = writes_.back().folder;
  Join(v1::WORKER, "worker-1");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(opens_.back().calls[0].second.checkpoint(), last);
}

TEST_F(CoreWorkerRecoveryTest, ALossBeforeThePsHaveTheirTablesCostsNothing) {
  JoinAll(1, 2);
  const std::string id = Submit(SmallJob(), 2, 1);
  const std::optional<Action> open = core_->TakeAction(Lane::kForeground);
  ASSERT_TRUE(open.has_value());
  Kill("worker-0");
  Join(v1::WORKER, "worker-9");
  core_->ActionDone(open->id, {}, now_);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
}

TEST_F(CoreWorkerRecoveryTest, OneThatLivesAndAsksForNoWorkIsReplacedWhereSomebodyIsFree) {
  JoinAll(1, 3);
  const std::string id = Submit(SmallJob(), 2, 1);
  workers_.erase("worker-1");  // it heartbeats, and that is all
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_THAT(Events(id), Contains("worker-1 has not asked for work for 1m"));
  EXPECT_THAT(Events(id), Contains(HasSubstr("worker-2 takes over rank 1")));
}

TEST_F(CoreWorkerRecoveryTest, OneThatLivesAndAsksForNoWorkGetsANewStartWhereNobodyIsFree) {
  JoinAll(1, 2);
  const std::string id = Submit(SmallJob(), 2, 1);
  const Worker silent = workers_.at("worker-1");
  workers_.erase("worker-1");
  for (int i = 0; i < 3000 && Job(id).restarts() == 0; ++i) Round();
  EXPECT_EQ(Job(id).restarts(), 1u);
  EXPECT_THAT(Job(id).message(), HasSubstr("rank 1, which worker-1 had, does not ask for work"));
  workers_["worker-1"] = silent;
  RunUntil(id, v1::SUCCEEDED);
}

// Workers that live, hold a unit and get nowhere.
class CoreStuckWorkerTest : public CoreWorkerRecoveryTest {
 protected:
  CoreStuckWorkerTest() {
    options_.stuck_after = absl::Seconds(20);
    RestartMaster();
  }
  // From now on the worker heartbeats, and that is all.
  void Stick(const std::string& id, const std::string& worker) {
    HoldUnit(id, worker,
             [](const auto& unit) { return unit.has_train() && unit.train().first_step() > 4; });
    stuck_ = workers_.at(worker);
    workers_.erase(worker);
  }
  void Seconds(int seconds) {
    for (int i = 0; i < 10 * seconds; ++i) Round();
  }

  Worker stuck_;
};

TEST_F(CoreStuckWorkerTest, AFreeOneTakesOverAndLateCallsAreRefused) {
  JoinAll(1, 3);
  const std::string id = Submit(SmallJob(), 2, 1);
  Stick(id, "worker-1");
  const v1::NextWorkRequest late = Request(stuck_);
  Seconds(19);
  EXPECT_EQ(core_->AssignmentKey(alive_.at("worker-2")), "");
  Seconds(2);
  EXPECT_THAT(Events(id), Contains("worker-1 has made no step for 20 s, and waits for nobody: it "
                                   "is taken for lost"));
  EXPECT_THAT(Events(id), Contains(HasSubstr("worker-2 takes over rank 1")));
  EXPECT_EQ(core_->NextWork(late, now_).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(core_->AssignmentKey(alive_.at("worker-1")), "");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_EQ(Job(id).samples(), 3 * kTrain);
}

TEST_F(CoreStuckWorkerTest, OneThatJoinedEarlierJoinsAgainAndTakesOver) {
  Join(v1::PS, "ps-0");
  for (const char* worker : {"worker-2", "worker-0", "worker-1"}) Join(v1::WORKER, worker);
  const std::string id = Submit(SmallJob(), 2, 1);
  Stick(id, "worker-1");
  Seconds(21);
  EXPECT_FALSE(core_->IsAlive(alive_.at("worker-2")));
  Seconds(5);
  Join(v1::WORKER, "worker-2");
  EXPECT_THAT(Events(id), Contains(HasSubstr("worker-2 takes over rank 1")));
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
}

TEST_F(CoreStuckWorkerTest, WhoWaitsForSomebodyOrMakesStepsIsNotStuck) {
  JoinAll(1, 3);
  const std::string id = Submit(SmallJob(), 2, 1);
  Stick(id, "worker-1");
  heartbeats_["worker-1"].add_waits("waits for ps-0 (ps-0:1): pull of step 7, since 40 s");
  Seconds(50);
  heartbeats_["worker-1"].clear_waits();
  heartbeats_["worker-1"].mutable_pace()->set_steps(1);
  Seconds(50);
  EXPECT_THAT(Events(id), Not(Contains(HasSubstr("has made no step"))));
  heartbeats_["worker-1"].clear_pace();
  Seconds(21);
  EXPECT_THAT(Events(id), Contains(HasSubstr("worker-2 takes over rank 1")));
}

TEST_F(CoreStuckWorkerTest, WhereNobodyIsFreeItIsNamedAndReplacedByWhoJoins) {
  JoinAll(1, 2);
  const std::string id = Submit(SmallJob(), 2, 1);
  Stick(id, "worker-1");
  Seconds(60);
  EXPECT_THAT(Waits(id), Contains(HasSubstr("; it makes no step, and waits for nobody: start "
                                            "tessera-worker, under any --name, to take its "
                                            "place")));
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  Join(v1::WORKER, "another");
  EXPECT_THAT(Events(id), Contains(HasSubstr("another takes over rank 1")));
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
}

TEST_F(CoreStuckWorkerTest, WhereNobodyComesTheJobReturnsToItsCheckpoint) {
  JoinAll(1, 2);
  const std::string id = Submit(SmallJob(), 2, 1);
  Stick(id, "worker-1");
  Seconds(135);
  EXPECT_EQ(Job(id).restarts(), 0u);
  for (int i = 0; i < 200 && Job(id).restarts() == 0; ++i) Round();
  EXPECT_EQ(Job(id).restarts(), 1u);
  EXPECT_THAT(Job(id).message(), HasSubstr("rank 1, which worker-1 had, makes no step, and no "
                                           "other worker is free"));
  workers_["worker-1"] = stuck_;
  RunUntil(id, v1::SUCCEEDED);
}

TEST_F(CoreWorkerRecoveryTest, TheLastMeasureOfTheBestModelFindsAWorkerToo) {
  JoinAll(1, 2);
  v1::JobSpec spec = SmallJob();
  spec.mutable_checkpoint()->set_keep_best(true);
  aucs_ = {0.9, 0.6, 0.6};
  const std::string id = Submit(spec, 2, 1);
  // Nobody holds rank 1 when training is over.
  for (int i = 0; i < 3000 && !(Job(id).step() == 30 && Job(id).phase() == "checkpointing"); ++i) {
    Round();
  }
  Kill("worker-1");
  for (int i = 0; i < 20; ++i) Round();
  Join(v1::WORKER, "worker-1");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_EQ(Job(id).checkpoint(), writes_[0].folder);
}

// Jobs whose workers sum their dense gradients among themselves.
class CoreRingTest : public testing::Test, protected CoreHarness {
 protected:
  static v1::JobSpec RingJob() {
    v1::JobSpec spec = SmallJob();
    spec.mutable_train()->set_dense_gradients(v1::TrainSpec::ALL_REDUCE);
    return spec;
  }
  std::vector<std::string> RanksOf(const std::string& worker) {
    std::vector<std::string> ranks;
    const v1::Assignment assignment = core_->AssignmentFor(alive_.at(worker));
    for (const v1::RankAddress& rank : assignment.ranks()) {
      ranks.push_back(absl::StrCat(rank.name(), " ", rank.address(), " ", rank.incarnation()));
    }
    return ranks;
  }
  std::string Who(const std::string& worker, uint64_t incarnation) {
    return absl::StrCat(worker, " ", worker, ":1 ", incarnation);
  }
};

TEST_F(CoreRingTest, EveryRankIsToldWhereTheOthersAreAndWhoTakesOneOver) {
  JoinAll(1, 3);
  const std::string id = Submit(RingJob(), 2, 1);
  RunUntilStep(id, 12);
  const uint64_t first = alive_.at("worker-0"), second = alive_.at("worker-1");
  for (const char* worker : {"worker-0", "worker-1"}) {
    EXPECT_THAT(RanksOf(worker),
                testing::ElementsAre(Who("worker-0", first), Who("worker-1", second)));
  }
  const std::string before = core_->AssignmentKey(first);
  without_address_ = {"worker-7"};
  Join(v1::WORKER, "worker-7");
  Kill("worker-2");
  Kill("worker-1");
  EXPECT_THAT(RanksOf("worker-0"), testing::ElementsAre(Who("worker-0", first), Who("worker-1", 0)))
      << "worker-7 is free, and nobody can call it";
  const uint64_t third = Join(v1::WORKER, "worker-3");
  EXPECT_NE(core_->AssignmentKey(first), before) << "it is sent again";
  EXPECT_THAT(RanksOf("worker-0"),
              testing::ElementsAre(Who("worker-0", first), Who("worker-3", third)));
  EXPECT_EQ(RanksOf("worker-3"), RanksOf("worker-0"));
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
}

TEST_F(CoreRingTest, OtherJobsTellNobody) {
  JoinAll(1, 2);
  const std::string id = Submit(SmallJob(), 2, 1);
  RunUntilStep(id, 12);
  EXPECT_TRUE(RanksOf("worker-0").empty());
  const std::string before = core_->AssignmentKey(alive_.at("worker-0"));
  Kill("worker-1");
  Join(v1::WORKER, "worker-3");
  EXPECT_EQ(core_->AssignmentKey(alive_.at("worker-0")), before);
}

TEST_F(CoreRingTest, AWorkerWithoutAnAddressIsNotTakenAndTheStatusSaysWhatToDo) {
  without_address_ = {"worker-0", "worker-1"};
  JoinAll(1, 3);
  const std::string id = Submit(RingJob(), 2, 1);
  Round();
  EXPECT_EQ(Job(id).state(), v1::CREATED);
  EXPECT_EQ(Job(id).reason(), "WaitingForWorkers");
  EXPECT_THAT(Job(id).message(),
              testing::AllOf(HasSubstr("1 of 2 workers are here (worker-2); start tessera-worker"),
                             HasSubstr("--listen HOST:PORT"),
                             HasSubstr("2 of those here have no address")));
  Join(v1::WORKER, "worker-3");
  RunUntil(id, v1::SUCCEEDED);
}

// As one whose machine was suspended.
TEST_F(CoreWorkerRecoveryTest, AMasterThatStoodStillBeyondEveryLeaseTakesNobodyForDead) {
  JoinAll(2, 2);
  const std::string id = Submit(SmallJob(), 2, 2);
  RunUntilStep(id, 10);
  for (const bool by_tick : {false, true}) {
    StandStill(absl::Minutes(3));
    if (by_tick) {
      core_->Tick(now_);
    } else {
      EXPECT_TRUE(core_->Heartbeat(alive_.at("ps-0"), {}, now_));
    }
    Advance(absl::ZeroDuration());
    EXPECT_TRUE(core_->IsAlive(alive_.at("ps-1")));
    EXPECT_TRUE(core_->IsAlive(alive_.at("worker-1")));
  }
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_THAT(Events(id), testing::Not(testing::Contains(HasSubstr("lost"))));
  EXPECT_THAT(Events(id), testing::Not(testing::Contains(HasSubstr("take over"))));
}

TEST_F(CoreWorkerRecoveryTest, NorDoesItsStandstillCountAgainstWhoWasLostBefore) {
  JoinAll(1, 1);
  v1::JobSpec spec = SmallJob();
  spec.mutable_recovery()->set_push_log(v1::RecoverySpec::ASYNC);
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 10);
  Kill("ps-0");
  Kill("worker-0");
  StandStill(absl::Minutes(3));
  core_->Tick(now_);
  JoinAll(1, 1);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
}

// As one whose clock ticks late, since its disk is slow.
TEST_F(CoreWorkerRecoveryTest, AMasterThatHearsHeartbeatsDoesNotStandStill) {
  JoinAll(1, 2);
  core_->Tick(now_);
  for (int second = 0; second < 12; ++second) {
    StandStill(absl::Seconds(1));
    for (const char* name : {"ps-0", "worker-0"}) {
      EXPECT_TRUE(core_->Heartbeat(alive_.at(name), {}, now_));
    }
  }
  core_->Tick(now_);
  EXPECT_TRUE(core_->IsAlive(alive_.at("worker-0")));
  EXPECT_FALSE(core_->IsAlive(alive_.at("worker-1")))
      << "nobody has heard it for longer than a lease";
}

}  // namespace
}  // namespace tessera::master
