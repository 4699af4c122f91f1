// Plans of jobs whose ranks go on by themselves.
#include <string>
#include <utility>
#include <vector>

#include "tests/master/plan_testing.h"

namespace tessera::master {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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

}  // namespace
}  // namespace tessera::master
