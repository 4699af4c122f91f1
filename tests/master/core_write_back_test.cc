#include "master/core/core.h"
#include "tests/master/core_harness.h"

// Workers that are lost with what their cards have made of rows (RowCacheSpec.write_back).
namespace tessera::master {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class CoreWriteBackTest : public testing::Test, protected CoreHarness {
 protected:
  static v1::JobSpec WriteBackJob() {
    v1::JobSpec spec = SmallJob();
    spec.mutable_consistency()->set_sparse(v1::ASYNC);
    spec.mutable_consistency()->set_dense(v1::ASYNC);
    spec.mutable_train()->mutable_row_cache()->set_share(0.5f);
    spec.mutable_train()->mutable_row_cache()->set_write_back(true);
    spec.mutable_checkpoint()->set_every_steps(8);
    return spec;
  }
  // Kills the worker while it has a unit that begins at step 12 or later, and lets another of its
  // name find so many of the unit's pushes at all ps, and at some. `card_trains`: what the first
  // one says; the second says the opposite.
  std::string LoseWorker(const v1::JobSpec& spec, uint64_t at_all, uint64_t at_some,
                         std::optional<bool> card_trains = std::nullopt) {
    const std::string id = Submit(spec, 1, 1);
    workers_.at("worker-0").card_trains = card_trains;
    std::optional<v1::Train> held;
    on_unit_ = [&](const std::string&, const v1::NextWorkResponse& unit, v1::UnitResult*) {
      if (unit.has_train() && unit.train().first_step() >= 12) held = unit.train();
    };
    for (int i = 0; i < 3000 && !held.has_value(); ++i) Round();
    on_unit_ = nullptr;
    EXPECT_TRUE(held.has_value());
    Kill("worker-0");
    Join(v1::WORKER, "worker-0");
    if (master_dies_) RestartMasterAlone();
    if (card_trains.has_value()) {
      // A call before it has opened anything.
      EXPECT_TRUE(core_->NextWork(Request(workers_.at("worker-0")), now_).ok());
    }
    if (card_trains.has_value()) workers_.at("worker-0").card_trains = !*card_trains;
    batches_ = held->batch_end() - held->batch_begin();
    workers_.at("worker-0").next_push = held->first_step() + std::min(at_all, batches_);
    workers_.at("worker-0").end_push = held->first_step() + std::min(at_some, batches_);
    Round();
    return id;
  }

  uint64_t batches_ = 0;      // of the unit
  bool master_dies_ = false;  // before it has heard the second one
};

TEST_F(CoreWriteBackTest, AWorkerLostWithinAUnitSendsTheJobBackToItsCheckpoint) {
  JoinAll(1, 1);
  for (const bool master_dies : {false, true}) {
    SCOPED_TRACE(master_dies);
    master_dies_ = master_dies;
    writes_.clear();
    const std::string id = LoseWorker(WriteBackJob(), 0, 1);
    EXPECT_EQ(Job(id).restarts(), 1u);
    EXPECT_THAT(Job(id).message(),
                AllOf(HasSubstr("rank 0 lost its worker; now it is worker-0"),
                      HasSubstr("and not pushed is lost (train.row_cache.write_back)")));
    ASSERT_FALSE(writes_.empty());
    const std::string last = writes_.back().folder;
    RunUntil(id, v1::SUCCEEDED);
    EXPECT_EQ(opens_.back().calls[0].second.checkpoint(), last);
  }
}

TEST_F(CoreWriteBackTest, WithPartialRecoveryTheJobGoesOnAndSaysWhatIsLost) {
  JoinAll(1, 1);
  v1::JobSpec spec = WriteBackJob();
  spec.mutable_recovery()->set_mode(v1::RecoverySpec::PARTIAL);
  const std::string id = LoseWorker(spec, 1, 1);
  ASSERT_GT(batches_, 1u);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_THAT(Events(id), Contains(AllOf(HasSubstr("and not pushed is lost"),
                                         HasSubstr("the job goes on (recovery.mode: partial)"))));
}

// What its card pushes is by how much rows have changed from what the lost ps had.
TEST_F(CoreWriteBackTest, APsReturnsToItsCheckpointAloneOnlyWhereNoCardMayTrain) {
  JoinAll(2, 1);
  v1::JobSpec spec = WriteBackJob();
  spec.mutable_recovery()->set_mode(v1::RecoverySpec::PARTIAL);
  // Workers say that they have no card; one that has a card may take a rank until the ps is back.
  workers_.at("worker-0").card_trains = false;
  for (const std::string device : {"auto", "cpu"}) {
    SCOPED_TRACE(device);
    spec.mutable_train()->set_device(device);
    const bool alone = device == "cpu";
    const std::string id = Submit(spec, 1, 2);
    RunUntilStep(id, 12);
    const std::string last = writes_.back().folder;
    Kill("ps-0");
    Join(v1::PS, "ps-0");
    for (int i = 0; i < 100 && opens_.back().calls[0].second.checkpoint() != last; ++i) Round();
    EXPECT_EQ(opens_.back().calls.size(), alone ? 1u : 2u);
    EXPECT_EQ(Job(id).restarts(), alone ? 0u : 1u);
    RunUntil(id, v1::SUCCEEDED);
    EXPECT_EQ(Job(id).lost_steps() > 0, alone);
  }
}

TEST_F(CoreWriteBackTest, NothingIsLostOfAUnitOfWhichNothingWasPushedOrAll) {
  JoinAll(1, 1);
  for (const uint64_t pushed : {uint64_t{0}, UINT64_MAX}) {
    const std::string id = LoseWorker(WriteBackJob(), pushed, pushed);
    RunUntil(id, v1::SUCCEEDED);
    EXPECT_EQ(Job(id).restarts(), 0u);
    EXPECT_THAT(Events(id), Not(Contains(HasSubstr("is lost"))));
  }
}

// Of a job with device: auto, which may have fallen back to the CPU.
TEST_F(CoreWriteBackTest, AWorkerThatSaysThatNoCardTrainsTakesNothingWithIt) {
  JoinAll(1, 1);
  for (const bool card_trains : {false, true}) {
    const std::string id = LoseWorker(WriteBackJob(), 0, 1, card_trains);
    EXPECT_EQ(Job(id).restarts(), card_trains ? 1u : 0u);
    RunUntil(id, v1::SUCCEEDED);
    EXPECT_EQ(Job(id).restarts(), card_trains ? 1u : 0u);
  }
}

TEST_F(CoreWriteBackTest, NothingIsLostWhereNoCardTrains) {
  JoinAll(1, 1);
  v1::JobSpec on_cpu = WriteBackJob();
  on_cpu.mutable_train()->set_device("cpu");
  v1::JobSpec plain = WriteBackJob();
  plain.mutable_train()->mutable_row_cache()->set_write_back(false);
  for (const v1::JobSpec& spec : {on_cpu, plain}) {
    const std::string id = LoseWorker(spec, 0, 1);
    RunUntil(id, v1::SUCCEEDED);
    EXPECT_EQ(Job(id).restarts(), 0u);
  }
}

}  // namespace
}  // namespace tessera::master
