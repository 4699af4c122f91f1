#include "ps/memory/memory_budget.h"

#include <atomic>
#include <thread>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace tessera::ps {
namespace {

constexpr uint64_t kBytes = 6400;

TEST(MemoryBudgetTest, RowsMayBeAddedUpToIt) {
  MemoryBudget budget(kBytes);
  budget.Charge(kBytes);
  EXPECT_TRUE(budget.WaitForRoom(absl::ZeroDuration()));
  budget.Charge(1);
  EXPECT_FALSE(budget.WaitForRoom(absl::Milliseconds(20)));
  EXPECT_EQ(budget.used(), kBytes + 1);
  EXPECT_EQ(budget.Excess(), kBytes + 1 - (kBytes - kBytes / 16));
}

TEST(MemoryBudgetTest, TheTierLeavesRowsHalf) {
  MemoryBudget budget(kBytes);
  budget.SetOthers(10 * kBytes);
  budget.Charge(kBytes / 2);
  EXPECT_TRUE(budget.WaitForRoom(absl::ZeroDuration()));
  budget.Charge(1);
  EXPECT_FALSE(budget.WaitForRoom(absl::ZeroDuration()));
}

TEST(MemoryBudgetTest, AWaitLastsAsLongAsRowsLeave) {
  constexpr absl::Duration kLimit = absl::Seconds(2);
  constexpr int kSteps = 15;
  MemoryBudget budget(kBytes);
  budget.Charge(kBytes + kSteps);
  std::atomic<bool> answered = false;
  std::thread waits([&] {
    EXPECT_TRUE(budget.WaitForRoom(kLimit));
    answered = true;
  });
  for (int i = 0; i < kSteps; ++i) {
    absl::SleepFor(kLimit / 10);
    EXPECT_FALSE(answered) << i;
    budget.Charge(-1);
  }
  waits.join();
}

TEST(MemoryBudgetTest, PressureBeginsBeforeItIsFull) {
  MemoryBudget budget(kBytes);
  budget.Charge(kBytes - kBytes / 32);
  EXPECT_FALSE(budget.WaitForPressure(absl::ZeroDuration()));
  budget.Charge(1);
  EXPECT_TRUE(budget.WaitForPressure(absl::ZeroDuration()));
}

TEST(MemoryBudgetTest, PagesAreHeldToWhatRowsMayHave) {
  MemoryBudget budget(kBytes);
  constexpr int64_t kSlack = kBytes / 32;
  budget.ChargePages(kBytes + kSlack);
  EXPECT_FALSE(budget.WaitForPressure(absl::ZeroDuration()));
  EXPECT_EQ(budget.ExcessPages(), 0);
  budget.ChargePages(1);
  EXPECT_TRUE(budget.WaitForPressure(absl::ZeroDuration()));
  EXPECT_EQ(budget.ExcessPages(), kSlack + 1);
  budget.ChargePages(kSlack - 1);
  EXPECT_TRUE(budget.WaitForRoom(absl::ZeroDuration()));
  budget.ChargePages(1);
  EXPECT_FALSE(budget.WaitForRoom(absl::ZeroDuration()));
  std::thread waits([&] { EXPECT_TRUE(budget.WaitForRoom(absl::Seconds(10))); });
  budget.ChargePages(-1);
  waits.join();
  // What is beside rows takes their room.
  budget.ChargePages(-2 * kSlack);
  EXPECT_EQ(budget.ExcessPages(), 0);
  budget.SetOthers(kBytes / 4);
  EXPECT_EQ(budget.ExcessPages(), kBytes / 4);
}

}  // namespace
}  // namespace tessera::ps
