#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/synchronization/internal/per_thread_sem.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "grpcpp/alarm.h"
#include "grpcpp/completion_queue.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

constexpr absl::Duration kLimit = absl::Milliseconds(300);
// By so much a wait that goes by the wall clock is wrong, one way or the other.
constexpr absl::Duration kOff = absl::Seconds(40);

// False: it ended before its time, or long after it.
bool TakesItsTime(const std::function<void()>& wait) {
  const absl::Duration begin = SystemClock().Monotonic();
  wait();
  const absl::Duration took = SystemClock().Monotonic() - begin;
  return took >= kLimit && took < kOff / 2;
}

// Processes of their own see another wall clock than the kernel has, by which waits would end:
// where it is ahead they last that much longer, as when clocks are set back, and where it is behind
// they end at once.
class SteadyWaitsDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    constexpr char kFakeTime[] = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
    if (!std::filesystem::exists(kFakeTime)) GTEST_SKIP() << "no libfaketime";
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    Set("LD_PRELOAD", kFakeTime);
    Set("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    Set("DONT_FAKE_MONOTONIC", "1");
  }
  void TearDown() override {
    for (const auto& [name, value] : set_) unsetenv(name.c_str());
  }

  void Set(const std::string& name, const std::string& value) {
    set_[name] = value;
    setenv(name.c_str(), value.c_str(), 1);
  }
  void SetOff(absl::Duration off) {
    Set("FAKETIME", absl::StrFormat("%+d", absl::ToInt64Seconds(off)));
  }
  static void CheckOff(absl::Duration off) {
    timespec kernel = {};
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &kernel);
    const absl::Duration found = absl::Now() - absl::TimeFromTimespec(kernel);
    if (absl::AbsDuration(found - off) > kOff / 4) _exit(100);
  }

 private:
  std::map<std::string, std::string> set_;
};

TEST_F(SteadyWaitsDeathTest, WaitsLastAsLongAsTheySayWhereverTheWallClockIs) {
  const auto wait = [](absl::Duration off) {
    CheckOff(off);
    absl::Mutex mu;
    absl::CondVar signal;
    absl::Notification never;
    const bool no = false;
    absl::MutexLock lock(&mu);
    if (!TakesItsTime([&] { mu.AwaitWithTimeout(absl::Condition(&no), kLimit); })) _exit(1);
    if (!TakesItsTime([&] { signal.WaitWithTimeout(&mu, kLimit); })) _exit(2);
    if (!TakesItsTime([&] { signal.WaitWithDeadline(&mu, absl::Now() + kLimit); })) _exit(3);
    if (!TakesItsTime([&] { never.WaitForNotificationWithTimeout(kLimit); })) _exit(4);
    _exit(0);
  };
  for (const absl::Duration off : {kOff, -kOff}) {
    SetOff(off);
    EXPECT_EXIT(wait(off), testing::ExitedWithCode(0), "") << off;
  }
}

TEST_F(SteadyWaitsDeathTest, WhatGrpcHasComesDueWherever) {
  const auto wait = [](absl::Duration off) {
    CheckOff(off);
    grpc::CompletionQueue queue;
    grpc::Alarm alarm;
    void* tag = nullptr;
    bool ok = false;
    const auto until_due = [&] {
      alarm.Set(&queue, std::chrono::system_clock::now() + absl::ToChronoNanoseconds(2 * kLimit),
                nullptr);
      queue.Next(&tag, &ok);
    };
    _exit(TakesItsTime(until_due) ? 0 : 1);
  };
  for (const absl::Duration off : {kOff, -kOff}) {
    SetOff(off);
    EXPECT_EXIT(wait(off), testing::ExitedWithCode(0), "") << off;
  }
}

TEST_F(SteadyWaitsDeathTest, AWaitThatIsWokenInVainEndsWhenItWasToThoughTheClockIsSetBack) {
  const auto wait = [&] {
    CheckOff(absl::ZeroDuration());
    namespace waits = absl::synchronization_internal;
    const auto wait_until = ABSL_INTERNAL_C_SYMBOL(AbslInternalPerThreadSemWait);
    const waits::KernelTimeout end(absl::Now() + kLimit);
    ABSL_INTERNAL_C_SYMBOL(AbslInternalPerThreadSemPost)(waits::GetOrCreateCurrentThreadIdentity());
    const absl::Duration begin = SystemClock().Monotonic();
    if (!wait_until(end)) _exit(1);
    SetOff(-kOff);
    CheckOff(-kOff);  // at once
    if (wait_until(end)) _exit(2);
    _exit(SystemClock().Monotonic() - begin < kOff / 2 ? 0 : 3);
  };
  Set("FAKETIME_NO_CACHE", "1");
  SetOff(absl::ZeroDuration());
  EXPECT_EXIT(wait(), testing::ExitedWithCode(0), "");
}

TEST_F(SteadyWaitsDeathTest, AClockThatIsSetShowsAtOnce) {
  const auto set = [&] {
    // Until abseil's own would count cycles.
    for (int i = 0; i < 30; ++i) {
      CheckOff(absl::ZeroDuration());
      absl::SleepFor(absl::Milliseconds(100));
    }
    SetOff(-kOff);
    CheckOff(-kOff);
    _exit(0);
  };
  Set("FAKETIME_NO_CACHE", "1");
  SetOff(absl::ZeroDuration());
  EXPECT_EXIT(set(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tessera
