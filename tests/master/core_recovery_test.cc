#include "master/core/core.h"

#include "tests/master/core_harness.h"

namespace tessera::master {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

class CoreRecoveryTest : public testing::Test, protected CoreHarness {};

TEST_F(CoreRecoveryTest, AfterTheLossOfAPsAReplacementGoesOnFromTheCheckpoint) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_checkpoint()->set_every_epochs(1);
  JoinAll(2, 2);
  const std::string id = Submit(spec, 2, 2);
  RunUntilStep(id, 15);
  const uint64_t total = Job(id).total_steps();
  const uint64_t cut = writes_.back().manifest.step();
  const uint64_t old_generation = Job(id).generation();
  v1::NextWorkRequest stale = Request(workers_.at("worker-0"));
  Kill("ps-1");
  EXPECT_EQ(Job(id).state(), v1::RESTARTING);
  EXPECT_THAT(Job(id).message(), HasSubstr("ps-1 lost (its connection broke)"));
  EXPECT_EQ(core_->AssignmentKey(workers_.at("worker-0").incarnation), "");
  Advance(absl::Seconds(5));
  EXPECT_EQ(Job(id).reason(), "WaitingForPs");
  Join(v1::PS, "spare");
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  EXPECT_EQ(Job(id).generation(), old_generation + 1);
  EXPECT_EQ(core_->NextWork(stale, now_).status().code(), absl::StatusCode::kAborted);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(opens_.back().calls[0].second.checkpoint(), writes_[0].folder);
  EXPECT_EQ(opens_.back().calls[0].second.first_step(), cut);
  EXPECT_EQ(Job(id).restarts(), 1u);
  EXPECT_EQ(Job(id).step(), total);
  EXPECT_THAT(Events(id), Contains(HasSubstr("restarted from step " + std::to_string(cut))));
  // Parts stay: ps-0 keeps part 0, the spare takes over part 1.
  EXPECT_EQ(Job(id).nodes(0).name(), "ps-0");
  EXPECT_EQ(Job(id).nodes(1).name(), "spare");
  // Counted once.
  EXPECT_THAT(core_->NextWork(stale, now_).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CoreRecoveryTest, ASilentPsIsLostWhenItsLeaseEnds) {
  JoinAll(1, 1);
  const std::string id = Submit(SmallJob(), 1, 1);
  RunUntilStep(id, 3);
  alive_.erase("ps-0");  // no heartbeat any more
  for (int i = 0; i < 99; ++i) Advance(absl::Milliseconds(100));
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  Advance(absl::Milliseconds(200));
  EXPECT_EQ(Job(id).state(), v1::RESTARTING);
  EXPECT_THAT(Job(id).message(), HasSubstr("ps-0 lost (no heartbeat for 10s)"));
}

// Whoever draws it sees each step once.
TEST_F(CoreRecoveryTest, TheHistoryHasWhatWasTrainedAgainOnce) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_checkpoint()->set_every_steps(4);
  JoinAll(1, 2);
  const std::string id = Submit(spec, 2, 1);
  for (const uint64_t step : {3, 9, 17}) {
    RunUntilStep(id, step);
    Kill("ps-0");
    Join(v1::PS, "ps-0");
    if (step == 9) RestartMasterAlone();
  }
  RunUntil(id, v1::SUCCEEDED);
  const v1::JobStatus job = Job(id);
  uint64_t step = 0, samples = 0;
  for (const v1::TrainingPoint& point : job.history()) {
    EXPECT_GT(point.step(), step);
    step = point.step();
    samples += point.samples();
  }
  EXPECT_EQ(step, job.step());
  EXPECT_EQ(samples, job.samples());
  EXPECT_TRUE(core_->ListJobs(now_).back().history().empty());
}

TEST_F(CoreRecoveryTest, ARestartTrainsTheSameStepsInTheSameOrder) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_checkpoint()->set_every_steps(4);
  JoinAll(1, 2);
  RunUntil(Submit(spec, 2, 1), v1::SUCCEEDED);
  const auto by_step = [&](std::vector<v1::Train> units) {
    std::map<std::string, std::string> out;
    for (const v1::Train& unit : units) {
      for (uint64_t b = unit.batch_begin(); b < unit.batch_end(); ++b) {
        const uint64_t step = unit.first_step() + b - unit.batch_begin();
        std::string content = std::to_string(unit.epoch()) + "/" + std::to_string(unit.window()) +
                              "/" + std::to_string(b);
        for (const v1::RecordRange& range : unit.ranges()) content += range.ShortDebugString();
        auto [it, fresh] = out.emplace(std::to_string(step) + ":" + unit.ranges(0).path() +
                                           std::to_string(unit.ranges(0).begin()),
                                       content);
        EXPECT_EQ(it->second, content);
      }
    }
    return out;
  };
  const auto undisturbed = by_step(std::exchange(trained_, {}));
  const std::string id = Submit(spec, 2, 1);
  for (const uint64_t step : {3, 9, 17}) {
    RunUntilStep(id, step);
    Kill("ps-0");
    Join(v1::PS, "ps-0");
  }
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(by_step(trained_), undisturbed);
  EXPECT_EQ(Job(id).restarts(), 3u);
}

TEST_F(CoreRecoveryTest, RestartsWithoutProgressEndTheJobWithTheLastReason) {
  JoinAll(1, 1);
  on_open_ = [](const OpenPs&) { return absl::UnavailableError("ps-0: no route"); };
  const std::string id = Submit(SmallJob(), 1, 1);
  RunUntil(id, v1::FAILED);
  EXPECT_EQ(Job(id).reason(), "TooManyRestarts");
  EXPECT_THAT(Job(id).message(), HasSubstr("ps-0: no route"));
  EXPECT_EQ(opens_.size(), 16u);
}

TEST_F(CoreRecoveryTest, WhereAPsHasNoRoomTheJobIsOpenedAgainForTenMinutes) {
  const std::string full = "open the job on ps-0: /data/ps-0: No space left on device";
  for (const bool lasts : {false, true}) {
    SCOPED_TRACE(lasts);
    JoinAll(1, 1);
    on_open_ = [&](const OpenPs&) { return absl::ResourceExhaustedError(full); };
    const std::string id = Submit(SmallJob(), 1, 1);
    Rounds(10);
    EXPECT_EQ(Job(id).state(), v1::RESTARTING);
    EXPECT_EQ(Job(id).reason(), "NoRoom");
    EXPECT_THAT(Job(id).message(), HasSubstr(full + "; the job is opened again"));
    now_.wall += absl::Hours(1);  // somebody sets the clock
    Rounds(5700);                 // 9.5 minutes
    ASSERT_EQ(Job(id).state(), v1::RESTARTING);
    const std::vector<std::string> events = Events(id);
    EXPECT_THAT(events, Contains(HasSubstr("starts anew: " + full)));
    EXPECT_LE(events.size(), 2u);
    if (lasts) {
      RunUntil(id, v1::FAILED, 500);
      EXPECT_EQ(Job(id).reason(), "NoRoom");
      EXPECT_THAT(Job(id).message(), HasSubstr("no room for the job in 10m: " + full));
      continue;
    }
    on_open_ = nullptr;
    RunUntilStep(id, 11);
    // The next time has ten minutes of its own.
    on_open_ = [&](const OpenPs&) { return absl::ResourceExhaustedError(full); };
    Kill("ps-0");
    Join(v1::PS, "ps-0");
    Rounds(3000);
    EXPECT_EQ(Job(id).reason(), "NoRoom");
    on_open_ = nullptr;
    RunUntil(id, v1::SUCCEEDED);
    RestartMaster();
  }
}

// Reads a checkpoint into ps that have the model before: the best one at the end, and at a move.
TEST_F(CoreRecoveryTest, APsNeedsNoRoomForARunsRowsAndThoseOfTheOneBefore) {
  JoinAll(2, 2);
  int closes = -1;  // when the ps were opened last
  on_open_ = [&](const OpenPs&) {
    const bool full = std::exchange(closes, closes_) == closes_;
    return full ? absl::ResourceExhaustedError("no room beside") : absl::OkStatus();
  };
  v1::JobSpec spec = SmallJob();
  spec.mutable_checkpoint()->set_keep_best(true);
  aucs_ = {0.6, 0.8, 0.7, 0.7, 0.7};
  const std::string best = Submit(spec, 1, 2);
  RunUntil(best, v1::SUCCEEDED, 500);
  EXPECT_EQ(Job(best).checkpoint(), writes_.at(1).folder);
  EXPECT_EQ(Job(best).restarts(), 0u);
  // No ps copies rows.
  on_copy_ = [](const CopyPartitions&) {
    ActionResult result;
    result.status = absl::UnimplementedError("rows may lie on disk");
    return result;
  };
  const std::string moves = Submit(SmallJob(), 1, 2);
  RunUntilStep(moves, 5);
  v1::ScaleRequest request;
  request.set_job_id(moves);
  request.set_ps(1);
  ASSERT_TRUE(core_->Scale(request, now_).ok());
  RunUntilStep(moves, 15);
  ASSERT_TRUE(ScaleWorkers(moves, 2).ok());
  RunUntil(moves, v1::SUCCEEDED);
  EXPECT_EQ(Job(moves).generation(), 3u);
  EXPECT_EQ(Job(moves).restarts(), 0u);
}

TEST_F(CoreRecoveryTest, ABestModelThatHasNoRoomIsTriedForTenMinutesInAll) {
  JoinAll(1, 1);
  v1::JobSpec spec = SmallJob();
  spec.mutable_checkpoint()->set_keep_best(true);
  aucs_ = {0.6, 0.8, 0.7};
  on_open_ = [&](const OpenPs& open) {
    const bool best =
        writes_.size() > 2 && open.calls[0].second.checkpoint() == writes_.at(1).folder;
    return best ? absl::ResourceExhaustedError("it had more rows") : absl::OkStatus();
  };
  const std::string id = Submit(spec, 1, 1);
  RunUntil(id, v1::FAILED, 9000);
  EXPECT_EQ(Job(id).reason(), "NoRoom");
  EXPECT_THAT(Job(id).message(), HasSubstr("no room for the job in 10m: it had more rows"));
}

TEST_F(CoreRecoveryTest, WhereAPsHasNoRoomTheJobIsOpenedOnOthersThatHave) {
  JoinAll(4, 1);
  full_ = {"ps-0", "ps-2"};
  const absl::Duration begun = now_.monotonic;
  const std::string id = Submit(SmallJob(), 1, 2);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_THAT(PsOf(opens_.back()), UnorderedElementsAre("ps-1", "ps-3"));
  EXPECT_LE(opens_.size(), 3u);
  EXPECT_LT(now_.monotonic - begun, absl::Minutes(1));
  EXPECT_THAT(Events(id), Contains(HasSubstr("ps-0: no space; the job is opened on other ps")));
}

TEST_F(CoreRecoveryTest, WhereNoPsHasRoomEachIsTriedInTurn) {
  JoinAll(3, 1);
  full_ = {"ps-0", "ps-1", "ps-2"};
  const std::string id = Submit(SmallJob(), 1, 1);
  Rounds(300);
  EXPECT_EQ(Job(id).reason(), "NoRoom");
  EXPECT_LT(opens_.size(), 20u);
  EXPECT_LE(Events(id).size(), 1 + 2 * 3u) << "each of them once, and as the last that was tried";
  full_.erase("ps-1");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_THAT(PsOf(opens_.back()), UnorderedElementsAre("ps-1"));
}

TEST_F(CoreRecoveryTest, AJobWithoutRoomHoldsBackThoseBehindItForAMinute) {
  JoinAll(1, 1);
  on_open_ = [&](const OpenPs& open) {
    const bool first = open.calls[0].second.job_id() == "demo-1";
    return first ? absl::ResourceExhaustedError("no space") : absl::OkStatus();
  };
  const std::string first = Submit(SmallJob(), 1, 1);
  ASSERT_EQ(first, "demo-1");
  Rounds(10);
  const std::string second = Submit(SmallJob(), 1, 1);
  Rounds(400);
  EXPECT_EQ(Job(second).state(), v1::CREATED);
  RunUntil(second, v1::SUCCEEDED);
  EXPECT_NE(Job(first).state(), v1::FAILED);
  on_open_ = nullptr;
  RunUntil(first, v1::SUCCEEDED);
}

TEST_F(CoreRecoveryTest, AUnitThatFailsForGoodFailsTheJobWithTheWorkersMessage) {
  JoinAll(1, 1);
  on_unit_ = [](const std::string&, const v1::NextWorkResponse& unit, v1::UnitResult* result) {
    if (!unit.has_train()) return;
    result->set_code(static_cast<int>(absl::StatusCode::kInvalidArgument));
    result->set_message("train.csv:17: \"abc\" is not a number");
  };
  const std::string id = Submit(SmallJob(), 1, 1);
  RunUntil(id, v1::FAILED);
  EXPECT_EQ(Job(id).reason(), "DataError");
  EXPECT_EQ(Job(id).message(), "worker-0: train.csv:17: \"abc\" is not a number");
}

TEST_F(CoreRecoveryTest, AUnitThatFailsForNowRestartsTheJob) {
  JoinAll(1, 1);
  bool failed = false;
  on_unit_ = [&](const std::string&, const v1::NextWorkResponse& unit, v1::UnitResult* result) {
    if (!unit.has_train() || failed) return;
    failed = true;
    result->set_code(static_cast<int>(absl::StatusCode::kUnavailable));
    result->set_message("ps-0 does not answer");
  };
  const std::string id = Submit(SmallJob(), 1, 1);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 1u);
}

TEST_F(CoreRecoveryTest, AFailingDiskOfTheMasterCostsACheckpointAndNoRestart) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_checkpoint()->set_every_epochs(1);
  JoinAll(1, 1);
  int writes = 0;
  on_write_ = [&](const WriteCheckpoint&) {
    return ++writes == 1 ? absl::AbortedError("I/O error") : absl::OkStatus();
  };
  for (const bool own : {true, false}) {
    writes = 0;
    own_disk_ = own;
    const std::string id = Submit(spec, 1, 1);
    RunUntil(id, v1::SUCCEEDED);
    EXPECT_EQ(Job(id).restarts(), own ? 0u : 1u);
  }
}

TEST_F(CoreRecoveryTest, AFailedCheckpointIsAnEventAndAFailedLastOneFailsTheJob) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_checkpoint()->set_every_epochs(1);
  JoinAll(1, 1);
  int writes = 0;
  on_write_ = [&](const WriteCheckpoint&) {
    return ++writes == 1 ? absl::ResourceExhaustedError("disk full") : absl::OkStatus();
  };
  const std::string first = Submit(spec, 1, 1);
  RunUntil(first, v1::SUCCEEDED);
  EXPECT_THAT(Events(first), Contains(HasSubstr("failed, training goes on without it: disk full")));
  writes = -1;
  on_write_ = [&](const WriteCheckpoint&) {
    return ++writes == 2 ? absl::FailedPreconditionError("not the same folder") : absl::OkStatus();
  };
  const std::string second = Submit(spec, 1, 1);
  RunUntil(second, v1::FAILED);
  EXPECT_EQ(Job(second).reason(), "CheckpointFailed");
  EXPECT_THAT(Job(second).message(), HasSubstr("start.checkpoint = demo-2/step-"));
}

TEST_F(CoreRecoveryTest, ACallMayBeRepeatedAndGetsTheSameUnit) {
  JoinAll(1, 1);
  Submit(SmallJob(), 1, 1);
  while (std::optional<Action> action = core_->TakeAction(Lane::kForeground)) {
    core_->ActionDone(action->id, {}, now_);
  }
  const v1::NextWorkRequest request = Request(workers_.at("worker-0"));
  const auto first = core_->NextWork(request, now_);
  const auto again = core_->NextWork(request, now_);
  ASSERT_TRUE(first.ok() && first->has_value());
  EXPECT_EQ((*first)->SerializeAsString(), (*again)->SerializeAsString());
  v1::NextWorkRequest wrong = request;
  wrong.set_completed_unit(99);
  EXPECT_EQ(core_->NextWork(wrong, now_).status().code(), absl::StatusCode::kInvalidArgument);
  wrong = request;
  wrong.set_incarnation(1);
  EXPECT_EQ(core_->NextWork(wrong, now_).status().code(), absl::StatusCode::kAborted);
  wrong = request;
  wrong.set_rank(7);
  EXPECT_EQ(core_->NextWork(wrong, now_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(CoreRecoveryTest, WhenAllDieJobsGoOnFromTheirCheckpointAndNumbersStillGrow) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_checkpoint()->set_every_epochs(1);
  JoinAll(1, 2);
  const std::string a = Submit(spec, 2, 1);
  const std::string b = Submit(spec, 2, 1);
  RunUntilStep(a, 15);
  const uint64_t incarnation = alive_.at("worker-1");
  const uint64_t generation = Job(a).generation();
  RestartMaster();
  EXPECT_EQ(Job(a).state(), v1::RUNNING);
  EXPECT_EQ(Job(b).state(), v1::CREATED);
  alive_.clear();
  JoinAll(1, 2);
  EXPECT_GT(alive_.at("ps-0"), incarnation);
  RunUntil(a, v1::SUCCEEDED);
  EXPECT_GT(Job(a).generation(), generation);
  EXPECT_THAT(Events(a), Contains(HasSubstr("restarted from step")));
  RunUntil(b, v1::SUCCEEDED);
  RestartMaster();
  EXPECT_EQ(Job(a).state(), v1::SUCCEEDED);
  EXPECT_EQ(Job(a).final_metrics().size(), 2u);
  EXPECT_EQ(Submit(spec, 2, 1), "demo-3");
}

TEST_F(CoreRecoveryTest, ADamagedCheckpointIsLeftOutAndTheOneBeforeIsUsed) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_checkpoint()->set_every_epochs(1);
  JoinAll(1, 1);
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 25);
  ASSERT_EQ(writes_.size(), 2u);
  on_open_ = [&](const OpenPs& open) {
    return open.calls[0].second.checkpoint() == writes_[1].folder
               ? absl::DataLossError("part 0: block 3: its checksum differs")
               : absl::OkStatus();
  };
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(opens_.back().calls[0].second.checkpoint(), writes_[0].folder);
  EXPECT_THAT(Events(id), Contains(HasSubstr("is damaged: part 0: block 3")));
}

TEST_F(CoreRecoveryTest, AJobResumesFromTheCheckpointOfAnother) {
  JoinAll(1, 1);
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(1);
  const std::string first = Submit(spec, 1, 1);
  RunUntil(first, v1::SUCCEEDED);
  spec.mutable_train()->set_epochs(3);
  spec.mutable_start()->set_checkpoint(Job(first).checkpoint());
  const uint64_t step = Job(first).step();
  trained_.clear();
  const std::string second = Submit(spec, 1, 1);
  RunUntil(second, v1::SUCCEEDED);
  EXPECT_EQ(trained_[0].epoch(), 1u);
  EXPECT_EQ(trained_[0].first_step(), step);
  EXPECT_EQ(Job(second).evaluations_size(), 3);
  spec.mutable_start()->set_warm(true);
  trained_.clear();
  const std::string warm = Submit(spec, 1, 1);
  RunUntil(warm, v1::SUCCEEDED);
  EXPECT_EQ(trained_[0].first_step(), 0u);
  EXPECT_TRUE(opens_.back().calls[0].second.warm());
}

TEST_F(CoreRecoveryTest, ResumingWithOtherTablesIsRefusedByField) {
  JoinAll(1, 1);
  v1::JobSpec spec = SmallJob();
  const std::string first = Submit(spec, 1, 1);
  RunUntil(first, v1::SUCCEEDED);
  spec.mutable_start()->set_checkpoint(Job(first).checkpoint());
  spec.mutable_tables(0)->set_dim(8);
  const std::string dim = Submit(spec, 1, 1);
  RunUntil(dim, v1::FAILED);
  EXPECT_THAT(Job(dim).message(), HasSubstr("tables[0].dim"));
  spec.mutable_tables(0)->set_dim(4);
  spec.mutable_tables(0)->mutable_optimizer()->mutable_adam();
  const std::string optimizer = Submit(spec, 1, 1);
  RunUntil(optimizer, v1::FAILED);
  EXPECT_THAT(Job(optimizer).message(), HasSubstr("tables[0].optimizer"));
  spec.mutable_start()->set_checkpoint("nowhere/step-000000000001");
  const std::string nowhere = Submit(spec, 1, 1);
  RunUntil(nowhere, v1::FAILED);
  EXPECT_EQ(Job(nowhere).reason(), "CheckpointError");
}

}  // namespace
}  // namespace tessera::master
