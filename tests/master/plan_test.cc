#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "master/training_plan.h"

namespace tessera::master {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

v1::FileRecords File(const std::string& path, uint64_t records) {
  v1::FileRecords file;
  file.set_path(path);
  file.set_records(records);
  file.set_bytes(records * 10);
  return file;
}

PlanOptions Options(bool sync, uint32_t workers) {
  PlanOptions options;
  options.sync = sync;
  options.workers = workers;
  options.batch_size = 32;
  options.seed = 7;
  options.shard_records = 50;
  options.shuffle_window_records = 300;
  options.epochs = 2;
  options.first_unit_batches = 2;
  return options;
}

const std::vector<v1::FileRecords>& Files() {
  static const auto* files =
      new std::vector<v1::FileRecords>{File("a", 1234), File("b", 1), File("c", 777)};
  return *files;
}
constexpr uint64_t kRecords = 1234 + 1 + 777;

std::unique_ptr<TrainingPlan> Plan(const PlanOptions& options, const v1::Position& start = {}) {
  auto plan = NewTrainingPlan(options, Files(), start);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

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

// Of the windows in the order in which one rank has them, what each unit says of the next.
TEST(TrainingPlan, AsyncSaysWhichWindowIsNextAcrossEpochsWhereOneRankHasThemAll) {
  const PlanOptions options = Options(/*sync=*/false, 1);
  const auto plan = Plan(options);
  const auto ranges_of = [](const auto& ranges) {
    std::string text;
    for (const v1::RecordRange& range : ranges) text += range.ShortDebugString() + "\n";
    return text;
  };
  std::vector<std::string> windows, next;
  std::pair<uint32_t, uint64_t> last = {UINT32_MAX, 0};
  while (!plan->due().finished) {
    if (plan->AtBarrier()) {
      plan->Pass();
      continue;
    }
    const std::optional<v1::Train> unit = plan->Next(Rank(0));
    ASSERT_TRUE(unit.has_value());
    if (std::pair<uint32_t, uint64_t>(unit->epoch(), unit->window()) != last) {
      last = {unit->epoch(), unit->window()};
      windows.push_back(ranges_of(unit->ranges()));
      next.push_back(ranges_of(unit->next_ranges()));
    }
    plan->Done(Rank(0), {});
  }
  ASSERT_GE(windows.size(), 10u);
  windows.erase(windows.begin());
  windows.push_back("");  // nothing comes after the last
  EXPECT_EQ(next, windows);
}

TEST(TrainingPlan, AsyncRanksReadAheadWindowsOfTheirOwn) {
  const auto plan = Plan(Options(/*sync=*/false, 3));
  std::vector<std::pair<uint64_t, std::string>> last(3, {UINT64_MAX, ""});  // window, and the next
  int right = 0, windows = 0;
  while (!plan->BarrierDue()) {  // the end of the epoch
    for (uint32_t r = 0; r < 3; ++r) {
      const std::optional<v1::Train> unit = plan->Next(Rank(r));
      if (!unit.has_value()) continue;
      std::string text, next;
      for (const v1::RecordRange& range : unit->ranges()) text += range.ShortDebugString();
      for (const v1::RecordRange& range : unit->next_ranges()) next += range.ShortDebugString();
      if (unit->window() != last[r].first && last[r].first != UINT64_MAX &&
          unit->batch_begin() == 0) {
        ++windows;
        right += text == last[r].second;
      }
      last[r] = {unit->window(), next};
    }
    for (uint32_t r = 0; r < 3; ++r) plan->Done(Rank(r), {});
  }
  EXPECT_GE(windows, 4);
  EXPECT_GE(right, windows * 9 / 10) << "of " << windows;
}

TEST(TrainingPlan, AsyncGivesAnOpenWindowOfALostPositionFirst) {
  PlanOptions options = Options(false, 2);
  std::unique_ptr<TrainingPlan> plan = Plan(options);
  const v1::Train first = *plan->Next(Rank(0));
  plan->Done(Rank(0), {});
  plan->RequestBarrier();
  ASSERT_TRUE(plan->AtBarrier());
  const v1::Position position = plan->position();
  ASSERT_EQ(position.open_size(), 1);
  plan = Plan(options, position);
  const v1::Train again = *plan->Next(Rank(1));
  EXPECT_EQ(again.window(), first.window());
  EXPECT_EQ(again.batch_begin(), first.batch_end());
  const v1::Train other = *plan->Next(Rank(0));
  EXPECT_EQ(other.window(), first.window() + 1);
  // Their pushes go on where those of before end, whoever made them.
  EXPECT_EQ(position.next_push(), first.batch_end());
  EXPECT_EQ(again.first_step(), position.next_push());
  EXPECT_EQ(other.first_step(), position.next_push());
  EXPECT_EQ(plan->position().next_push(), position.next_push() + 2);
}

// Done in so many seconds a batch.
void Do(TrainingPlan& plan, Rank rank, const v1::Train& unit, double seconds) {
  v1::UnitResult result;
  result.set_train_seconds(seconds * static_cast<double>(unit.batch_end() - unit.batch_begin()));
  plan.Done(rank, result);
}

TEST(TrainingPlan, AsyncWindowsAreAsLargeAsAskedForUnlessWorkersShareTheEpoch) {
  for (const auto& [workers, records] : {std::pair(1u, 320u), std::pair(2u, 64u)}) {
    SCOPED_TRACE(workers);
    const PlanOptions options = Options(false, workers);
    const std::unique_ptr<TrainingPlan> plan = Plan(options);
    // Whole batches, and of two workers a sixteenth of half of the records.
    EXPECT_EQ(plan->position().window_records(), records);
    const v1::Train unit = *plan->Next(Rank(0));
    uint64_t found = 0;
    for (const v1::RecordRange& range : unit.ranges()) found += range.end() - range.begin();
    // Shards are not cut.
    EXPECT_GE(found, records);
    EXPECT_LT(found, records + options.shard_records);
  }
}

TEST(TrainingPlan, AsyncUnitsAreOfEachRanksOwnSpeed) {
  PlanOptions options = Options(false, 2);
  options.shuffle_window_records = 1 << 20;
  options.shard_records = 1 << 20;
  options.batch_size = 1;
  std::unique_ptr<TrainingPlan> plan = Plan(options);
  std::vector<uint64_t> sizes;
  for (int i = 0; i < 4; ++i) {
    for (uint32_t r = 0; r < 2; ++r) {
      const v1::Train unit = *plan->Next(Rank(r));
      if (i == 3) sizes.push_back(unit.batch_end() - unit.batch_begin());
      Do(*plan, Rank(r), unit, r == 0 ? 0.05 : 0.5);
    }
  }
  EXPECT_THAT(sizes, ElementsAre(20, 2));
}

TEST(TrainingPlan, AtTheEndOfAnEpochWhoIsDoneTakesWhatASlowerRankWouldBeLongAt) {
  PlanOptions options = Options(false, 2);
  options.batch_size = 1;
  options.epochs = 1;
  std::unique_ptr<TrainingPlan> plan = Plan(options);
  const double seconds[] = {0.05, 0.5};
  double at[] = {0, 0};                                  // when each rank is free
  std::map<std::pair<uint64_t, uint64_t>, int> trained;  // by window and batch
  uint64_t done[] = {0, 0};
  std::vector<bool> ended(2, false);
  while (!plan->AtBarrier()) {
    // A rank's unit is done as soon as it is handed out here, and its time goes by: the other asks
    // in between if it is free earlier.
    const uint32_t r = ended[0] || (!ended[1] && at[1] < at[0]) ? 1 : 0;
    const std::optional<v1::Train> unit = plan->Next(Rank(r));
    if (!unit.has_value()) {
      ASSERT_FALSE(ended[0] && ended[1]);
      ended[r] = true;
      continue;
    }
    for (uint64_t b = unit->batch_begin(); b < unit->batch_end(); ++b) {
      trained[{unit->window(), b}] += 1;
    }
    const uint64_t batches = unit->batch_end() - unit->batch_begin();
    done[r] += batches;
    at[r] += seconds[r] * static_cast<double>(batches);
    Do(*plan, Rank(r), *unit, seconds[r]);
  }
  EXPECT_EQ(trained.size(), kRecords);
  for (const auto& [batch, times] : trained) EXPECT_EQ(times, 1);
  // By speed, 10 to 1; and nobody waits for long.
  EXPECT_NEAR(static_cast<double>(done[0]) / static_cast<double>(done[1]), 10, 1);
  EXPECT_NEAR(at[0], at[1], 2);
}

TEST(TrainingPlan, WhatARankYieldsOthersGetAndNotTheUnitThatItHas) {
  PlanOptions options = Options(false, 2);
  options.batch_size = 4;
  std::unique_ptr<TrainingPlan> plan = Plan(options);
  const v1::Train lost = *plan->Next(Rank(0));
  plan->Yield(Rank(0));
  plan->Yield(Rank(0));  // there is nothing more
  const v1::Train unit = *plan->Next(Rank(1));
  EXPECT_EQ(unit.window(), lost.window());
  EXPECT_EQ(unit.batch_begin(), lost.batch_end());
  // The position has what is left of both, and another plan goes on from there.
  plan->Done(Rank(0), {});
  plan->RequestBarrier();
  plan->Done(Rank(1), {});
  ASSERT_TRUE(plan->AtBarrier());
  const v1::Position position = plan->position();
  ASSERT_EQ(position.open_size(), 1);
  EXPECT_EQ(position.open(0).next_batch(), unit.batch_end());
  EXPECT_EQ(position.open(0).end_batch(), 0u) << "to the window's end";
}

TEST(TrainingPlan, APartOfAWindowIsSavedWithItsEndAndSyncRefusesIt) {
  PlanOptions options = Options(false, 2);
  options.batch_size = 4;
  std::unique_ptr<TrainingPlan> plan = Plan(options);
  const v1::Train lost = *plan->Next(Rank(0));
  plan->Yield(Rank(0));
  ASSERT_TRUE(plan->Next(Rank(1)).has_value());
  plan->Done(Rank(1), {});
  plan->RequestBarrier();
  ASSERT_FALSE(plan->AtBarrier());
  v1::Position position = plan->position();
  ASSERT_EQ(position.open_size(), 2);
  EXPECT_EQ(position.open(0).next_batch(), lost.batch_begin());
  EXPECT_EQ(position.open(0).end_batch(), lost.batch_end());
  const auto sync = NewTrainingPlan(Options(true, 2), Files(), position);
  EXPECT_FALSE(sync.ok());
  plan = Plan(options, position);
  const v1::Train again = *plan->Next(Rank(1));
  EXPECT_EQ(again.batch_begin(), lost.batch_begin());
  EXPECT_EQ(again.batch_end(), lost.batch_end());
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
