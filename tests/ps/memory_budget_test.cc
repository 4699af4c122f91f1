#include "ps/memory_budget.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <thread>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/clock.h"
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

// A process of its own sees another wall clock than the kernel has, by which absl's waits end:
// where it is ahead they last that much longer, as when clocks are set back, and where it is behind
// they end at once.
TEST(MemoryBudgetDeathTest, WaitsDoNotGoByTheWallClock) {
  constexpr char kFakeTime[] = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
  if (!std::filesystem::exists(kFakeTime)) GTEST_SKIP() << "no libfaketime";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("LD_PRELOAD", kFakeTime, 1);
  for (const char* const name : {"FAKETIME_DONT_FAKE_MONOTONIC", "DONT_FAKE_MONOTONIC"}) {
    setenv(name, "1", 1);
  }
  constexpr absl::Duration kLimit = absl::Milliseconds(300);
  const auto wait = [=](int64_t off_by_seconds) {
    timespec kernel = {};
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &kernel);
    const int64_t off = absl::ToUnixSeconds(absl::Now()) - kernel.tv_sec - off_by_seconds;
    if (std::abs(off) > 1) _exit(1);
    MemoryBudget budget(kBytes);
    const absl::Duration begin = SystemClock().Monotonic();
    if (budget.WaitForPressure(kLimit)) _exit(2);
    budget.Charge(kBytes + 1);
    if (budget.WaitForRoom(kLimit)) _exit(3);
    const absl::Duration waited = SystemClock().Monotonic() - begin;
    _exit(waited >= 2 * kLimit && waited < absl::Seconds(3) ? 0 : 4);
  };
  for (const int64_t off_by_seconds : {5, -7200}) {
    setenv("FAKETIME", absl::StrFormat("%+d", off_by_seconds).c_str(), 1);
    EXPECT_EXIT(wait(off_by_seconds), testing::ExitedWithCode(0), "");
  }
  for (const char* const name :
       {"LD_PRELOAD", "FAKETIME", "FAKETIME_DONT_FAKE_MONOTONIC", "DONT_FAKE_MONOTONIC"}) {
    unsetenv(name);
  }
}

TEST(MemoryBudgetTest, PressureBeginsBeforeItIsFull) {
  MemoryBudget budget(kBytes);
  budget.Charge(kBytes - kBytes / 32);
  EXPECT_FALSE(budget.WaitForPressure(absl::ZeroDuration()));
  budget.Charge(1);
  EXPECT_TRUE(budget.WaitForPressure(absl::ZeroDuration()));
}

}  // namespace
}  // namespace tessera::ps
