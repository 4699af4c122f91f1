#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/random.h"
#include "common/window.h"
#include "tests/master/plan_testing.h"

namespace tessera::master {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The records of one batch of a unit, as the worker would train them.
std::vector<std::string> Batch(const PlanOptions& options, Rank rank, const v1::Train& unit,
                               uint64_t batch) {
  std::vector<std::string> records;
  for (const v1::RecordRange& range : unit.ranges()) {
    for (uint64_t i = range.begin(); i < range.end(); ++i) {
      records.push_back(range.path() + ":" + std::to_string(i));
    }
  }
  const uint64_t key = StreamKey(RandomFor::kRecordOrder, options.seed, unit.epoch(), unit.window(),
                                 options.sync ? rank.value() : 0);
  const std::vector<uint32_t> order = RandomPermutation(key, static_cast<uint32_t>(records.size()));
  std::vector<std::string> out;
  for (uint64_t i = batch * unit.batch_size();
       i < std::min<uint64_t>((batch + 1) * unit.batch_size(), order.size()); ++i) {
    out.push_back(records[order[i]]);
  }
  return out;
}

// Everything that was trained: by (step, rank) in sync mode; how often each record of each epoch.
struct Trained {
  std::map<std::pair<uint64_t, uint32_t>, std::vector<std::string>> by_step;
  std::map<std::pair<uint32_t, std::string>, int> counts;
  std::vector<uint64_t> barriers;  // steps
  int scaled = 0;
};

// Runs a plan to its end with workers of random speed. With `deaths`, all is thrown away now and
// then and training goes on from the position of the last barrier, as after the loss of a process;
// or only the plan is, and goes on from what it had saved, as after that of the master. With
// `scales`, others in number go on at some of the barriers that allow it.
Trained Train(PlanOptions options, uint64_t seed, bool deaths, bool scales = false) {
  std::mt19937_64 random(seed);
  Trained trained;        // up to the last barrier
  v1::Position position;  // of the last barrier
  while (true) {
    std::unique_ptr<TrainingPlan> plan = Plan(options, position);
    Trained now = trained;
    std::vector<std::optional<v1::Train>> held(options.workers);
    bool died = false;
    while (!died) {
      if (plan->AtBarrier()) {
        now.barriers.push_back(plan->position().step());
        trained = now;
        position = plan->position();
        if (plan->due().finished) return trained;
        const bool may_scale = scales && (!options.sync || position.open_size() == 0);
        if (may_scale && (trained.scaled == 0 || random() % 2 == 0)) {
          options.workers = 1 + static_cast<uint32_t>(random() % 5);
          ++trained.scaled;
          break;
        }
        plan->Pass();
      }
      const Rank rank(random() % options.workers);
      std::optional<v1::Train>& unit = held[rank.value()];
      if (!unit.has_value()) {
        unit = plan->Next(rank);
        continue;
      }
      v1::UnitResult result;
      for (uint64_t b = unit->batch_begin(); b < unit->batch_end(); ++b) {
        const std::vector<std::string> batch = Batch(options, rank, *unit, b);
        for (const std::string& record : batch) now.counts[{unit->epoch(), record}] += 1;
        now.by_step[{unit->first_step() + b - unit->batch_begin(), rank.value()}] = batch;
        result.set_samples(result.samples() + batch.size());
      }
      result.set_train_seconds(0.001 * static_cast<double>(random() % 1000));
      plan->Done(rank, result);
      unit.reset();
      if (random() % 20 == 0) plan->Yield(Rank(random() % options.workers));
      if (random() % 50 == 0) plan->RequestBarrier();
      if (scales && random() % 20 == 0) plan->RequestBarrierBetweenWindows();
      died = deaths && random() % 60 == 0;
      if (!deaths || random() % 10 != 0) continue;
      v1::PlanState state;
      EXPECT_TRUE(state.ParseFromString(plan->Save().SerializeAsString()));
      const v1::Position before = plan->position();
      plan = *NewTrainingPlan(options, Files(), position, &state);
      EXPECT_EQ(plan->position().SerializeAsString(), before.SerializeAsString());
      EXPECT_EQ(plan->Save().SerializeAsString(), state.SerializeAsString());
    }
  }
}

class PlanProperty : public testing::TestWithParam<std::tuple<bool, uint64_t>> {};

TEST_P(PlanProperty, EveryRecordIsTrainedOnceAnEpochWhateverTheSpeedsAndDeaths) {
  const auto [sync, seed] = GetParam();
  PlanOptions options = Options(sync, 1 + seed % 4);
  options.evaluate_every_epochs = 1;
  options.checkpoint_every_steps = 7;
  const Trained trained = Train(options, seed, /*deaths=*/true);
  EXPECT_EQ(trained.counts.size(), 2 * kRecords);
  for (const auto& [what, count] : trained.counts) {
    ASSERT_EQ(count, 1) << "epoch " << what.first << " record " << what.second;
  }
}

TEST_P(PlanProperty, EveryRecordIsTrainedOnceAnEpochWhileWorkersComeAndGo) {
  const auto [sync, seed] = GetParam();
  PlanOptions options = Options(sync, 1 + seed % 4);
  options.checkpoint_every_steps = 7;
  options.epochs = 3;
  // Also where shards are longer than a worker's windows.
  if (seed % 2 == 0) options.shuffle_window_records = 40;
  const Trained trained = Train(options, seed, /*deaths=*/true, /*scales=*/true);
  EXPECT_GT(trained.scaled, 0);
  EXPECT_EQ(trained.counts.size(), 3 * kRecords);
  for (const auto& [what, count] : trained.counts) {
    ASSERT_EQ(count, 1) << "epoch " << what.first << " record " << what.second;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, PlanProperty,
                         testing::Combine(testing::Bool(), testing::Range<uint64_t>(0, 25)));

TEST(TrainingPlan, SyncTrainsTheSameBatchesAtTheSameStepsWhateverHappened) {
  for (uint64_t seed = 0; seed < 25; ++seed) {
    PlanOptions options = Options(true, 1 + seed % 4);
    options.evaluate_every_steps = 11;
    const Trained undisturbed = Train(options, 1000, false);
    const Trained disturbed = Train(options, seed, true);
    EXPECT_EQ(undisturbed.by_step, disturbed.by_step) << "seed " << seed;
  }
}

TEST(TrainingPlan, SyncRanksGetTheSameBoundariesAndDivideTheBatch) {
  std::unique_ptr<TrainingPlan> plan = Plan(Options(true, 3));
  std::vector<v1::Train> units;
  for (uint32_t r = 0; r < 3; ++r) units.push_back(*plan->Next(Rank(r)));
  uint32_t batch = 0;
  uint64_t part = 0;
  for (const v1::Train& unit : units) {
    EXPECT_EQ(unit.batch_begin(), 0u);
    EXPECT_EQ(unit.batch_end(), 2u);
    EXPECT_EQ(unit.first_step(), 0u);
    EXPECT_EQ(unit.window_records(), units[0].window_records());
    part += CountRecords({unit.ranges().begin(), unit.ranges().end()});
    batch += unit.batch_size();
  }
  EXPECT_EQ(batch, 32u);
  EXPECT_EQ(part, units[0].window_records());
}

TEST(TrainingPlan, TheEpochUnderWayIsThatOfTheSlowestSyncRank) {
  std::unique_ptr<TrainingPlan> plan = Plan(Options(true, 2));
  ASSERT_TRUE(plan->Next(Rank(1)).has_value());
  uint32_t ahead = 0;
  while (ahead == 0) {
    const std::optional<v1::Train> unit = plan->Next(Rank(0));
    ASSERT_TRUE(unit.has_value());
    ahead = unit->epoch();
    EXPECT_EQ(plan->epoch(), 0u);
    plan->Done(Rank(0), {});
  }
  while (plan->epoch() == 0) {
    plan->Done(Rank(1), {});
    ASSERT_TRUE(plan->Next(Rank(1)).has_value());
  }
  EXPECT_EQ(plan->epoch(), 1u);
}

TEST(TrainingPlan, AFastSyncRankRunsAheadButNotAcrossABarrier) {
  PlanOptions options = Options(true, 2);
  options.checkpoint_every_steps = 5;
  std::unique_ptr<TrainingPlan> plan = Plan(options);
  ASSERT_TRUE(plan->Next(Rank(1)).has_value());
  std::vector<uint64_t> ends;
  while (std::optional<v1::Train> unit = plan->Next(Rank(0))) {
    ends.push_back(unit->batch_end());
    plan->Done(Rank(0), {});
  }
  EXPECT_EQ(ends.back(), 5u);
  EXPECT_TRUE(plan->BarrierDue());
  EXPECT_FALSE(plan->AtBarrier());
  do {
    plan->Done(Rank(1), {});
  } while (plan->Next(Rank(1)).has_value());
  EXPECT_TRUE(plan->AtBarrier());
  EXPECT_TRUE(plan->due().checkpoint);
  EXPECT_EQ(plan->position().step(), 5u);
  plan->Pass();
  EXPECT_EQ(plan->Next(Rank(1))->first_step(), 5u);
}

TEST(TrainingPlan, UnitsGrowTowardsOneSecond) {
  PlanOptions options = Options(true, 1);
  options.shuffle_window_records = 100000;
  std::unique_ptr<TrainingPlan> plan = Plan(options);
  std::vector<uint64_t> sizes;
  for (int i = 0; i < 4; ++i) {
    const v1::Train unit = *plan->Next(Rank(0));
    sizes.push_back(unit.batch_end() - unit.batch_begin());
    v1::UnitResult result;
    result.set_train_seconds(0.05 * static_cast<double>(sizes.back()));
    plan->Done(Rank(0), result);
  }
  EXPECT_THAT(sizes, ElementsAre(2, 8, 20, 20));
}

TEST(TrainingPlan, UnitsAreLongerWhereEachEndsWithAWriteBack) {
  v1::JobSpec spec;
  EXPECT_EQ(PlanOptionsOf(spec, 1).unit_seconds, 1);
  spec.mutable_train()->mutable_row_cache()->set_write_back(true);
  EXPECT_EQ(PlanOptionsOf(spec, 1).unit_seconds, 4);
}

TEST(TrainingPlan, AsyncStopsAtTheExactStep) {
  PlanOptions options = Options(false, 3);
  options.epochs = 0;
  options.steps = 10;
  const Trained trained = Train(options, 5, false);
  EXPECT_EQ(trained.barriers.back(), 10u);
}

TEST(TrainingPlan, BarriersComeAtTheirStepsAndAtTheEnd) {
  PlanOptions options = Options(true, 2);
  options.epochs = 0;
  options.steps = 25;
  options.evaluate_every_steps = 10;
  std::unique_ptr<TrainingPlan> plan = Plan(options);
  std::vector<std::string> barriers;
  while (true) {
    if (plan->AtBarrier()) {
      const Due due = plan->due();
      barriers.push_back(std::to_string(plan->position().step()) + (due.evaluate ? "e" : "") +
                         (due.finished ? "f" : ""));
      if (due.finished) break;
      plan->Pass();
    }
    for (uint32_t r = 0; r < 2; ++r) {
      if (plan->Next(Rank(r)).has_value()) plan->Done(Rank(r), {});
    }
  }
  EXPECT_THAT(barriers, ElementsAre("10e", "20e", "25f"));
}

TEST(TrainingPlan, APositionAtTheEndHasNothingLeft) {
  v1::Position position;
  position.set_epoch(2);
  position.set_step(100);
  std::unique_ptr<TrainingPlan> plan = Plan(Options(true, 2), position);
  EXPECT_TRUE(plan->AtBarrier());
  EXPECT_TRUE(plan->due().finished);
  EXPECT_FALSE(plan->Next(Rank(0)).has_value());
}

TEST(TrainingPlan, ABarrierBetweenWindowsWaitsForTheEndOfAnOpenOne) {
  std::unique_ptr<TrainingPlan> plan = Plan(Options(true, 1));
  ASSERT_TRUE(plan->Next(Rank(0)).has_value());
  plan->RequestBarrierBetweenWindows();
  EXPECT_FALSE(plan->BarrierDue());
  do {
    plan->Done(Rank(0), {});
  } while (plan->Next(Rank(0)).has_value());
  ASSERT_TRUE(plan->AtBarrier());
  EXPECT_TRUE(plan->due().requested);
  EXPECT_EQ(plan->position().open_size(), 0);
  EXPECT_EQ(plan->position().next_window(), 1u);
  plan->Pass();
  EXPECT_FALSE(plan->BarrierDue());
  // Where none is open, at once.
  plan->RequestBarrierBetweenWindows();
  EXPECT_TRUE(plan->AtBarrier());
}

TEST(TrainingPlan, AnOpenWindowIsOfItsRanksAlone) {
  std::unique_ptr<TrainingPlan> plan = Plan(Options(true, 2));
  for (uint32_t r = 0; r < 2; ++r) ASSERT_TRUE(plan->Next(Rank(r)).has_value());
  for (uint32_t r = 0; r < 2; ++r) plan->Done(Rank(r), {});
  plan->RequestBarrier();
  ASSERT_TRUE(plan->AtBarrier());
  ASSERT_EQ(plan->position().open_size(), 1);
  const auto others = NewTrainingPlan(Options(true, 3), Files(), plan->position());
  EXPECT_THAT(std::string(others.status().message()), HasSubstr("same number of workers"));
}

TEST(TrainingPlan, RefusesWhatCannotBeTrained) {
  EXPECT_THAT(std::string(NewTrainingPlan(Options(true, 1), {File("a", 0)}, {}).status().message()),
              HasSubstr("hold no records"));
  EXPECT_THAT(std::string(NewTrainingPlan(Options(true, 33), Files(), {}).status().message()),
              HasSubstr("train.batch_size"));
  v1::Position position;
  position.set_next_window(1);
  position.set_window_records(600);
  EXPECT_THAT(std::string(NewTrainingPlan(Options(true, 3), Files(), position).status().message()),
              HasSubstr("same number of workers"));
}

TEST(TrainingPlan, APositionWithinAnEpochIsOfItsFilesAlone) {
  const std::vector<v1::FileRecords> fewer = {File("a", 1234)}, longer = {File("a", 3000)},
                                     moved = {File("a", 777), File("b", 1234), File("c", 1)};
  for (const bool sync : {true, false}) {
    std::unique_ptr<TrainingPlan> plan = Plan(Options(sync, 1));
    while (plan->position().next_window() < 6) {
      ASSERT_TRUE(plan->Next(Rank(0)).has_value());
      plan->Done(Rank(0), {});
    }
    plan->RequestBarrier();
    v1::Position at = plan->position();
    EXPECT_EQ(at.epoch_records(), kRecords);
    EXPECT_TRUE(NewTrainingPlan(Options(sync, 1), Files(), at).ok());
    for (const auto& files : {fewer, longer, moved}) {
      EXPECT_THAT(std::string(NewTrainingPlan(Options(sync, 1), files, at).status().message()),
                  HasSubstr("within an epoch of 2012 records"));
    }
    // Of a checkpoint that does not say its files: what cannot be of these.
    at.clear_epoch_records();
    at.clear_epoch_files();
    EXPECT_TRUE(NewTrainingPlan(Options(sync, 1), Files(), at).ok());
    EXPECT_FALSE(NewTrainingPlan(Options(sync, 1), fewer, at).ok());
    at.clear_open();
    v1::OpenWindow* const open = at.add_open();
    open->set_next_batch(9);  // of ten or eleven
    EXPECT_TRUE(NewTrainingPlan(Options(sync, 1), Files(), at).ok());
    open->set_next_batch(11);
    EXPECT_FALSE(NewTrainingPlan(Options(sync, 1), Files(), at).ok());
    if (sync) continue;
    open->set_next_batch(2);
    open->set_end_batch(12);
    EXPECT_FALSE(NewTrainingPlan(Options(sync, 1), Files(), at).ok());
  }
}

TEST(TrainingPlan, RefusesMoreShardsThanMemoryIsToHold) {
  PlanOptions options = Options(false, 2);
  options.shard_records = 4;
  const uint64_t most = uint64_t{1} << 23;
  const std::vector<v1::FileRecords> files = {File("a", 4 * most), File("b", 1)};
  EXPECT_EQ(NewTrainingPlan(options, files, {}).status(),
            absl::InvalidArgumentError("data.shard_records: 33554433 records in shards of 4 are "
                                       "8388609 shards; expected at most 8388608; use shards of 5 "
                                       "records or more"));
}

TEST(TrainingPlan, KnowsTheTotalNumberOfSteps) {
  for (const bool sync : {true, false}) {
    PlanOptions options = Options(sync, 2);
    options.epochs = 1;
    const uint64_t total = Plan(options)->total_steps();
    EXPECT_EQ(Train(options, 3, false).barriers.back(), total);
  }
}

}  // namespace
}  // namespace tessera::master
