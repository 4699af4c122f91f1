#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/backoff.h"
#include "common/file_system.h"
#include "common/log.h"
#include "common/process/exit_code.h"
#include "common/process/file_descriptors.h"
#include "common/process/no_thread.h"
#include "common/process/number_flags.h"
#include "common/process/resident.h"
#include "common/process/server_process.h"
#include "common/process/stop_signal.h"
#include "common/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/thread_limit.h"

namespace tessera {
namespace {

// In a process of their own: other tests leave threads behind that do not block the signals.
TEST(StopSignalDeathTest, FirstSignalWakesTheWaiterAndRunsTheCallback) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        StopSignal stop;
        absl::Notification called;
        stop.OnStop([&] { called.Notify(); });
        if (stop.Wait(absl::Milliseconds(1))) _exit(1);
        kill(getpid(), SIGTERM);
        if (!stop.Wait(absl::Seconds(10)) || stop.signal() != SIGTERM) _exit(2);
        _exit(called.WaitForNotificationWithTimeout(absl::Seconds(10)) ? 0 : 3);
      },
      testing::ExitedWithCode(0), "");
}

TEST(StopSignal, AskingStopsWithoutASignalAndALateCallbackRunsAtOnce) {
  StopSignal stop;
  stop.Ask();
  EXPECT_TRUE(stop.Wait(absl::ZeroDuration()));
  EXPECT_EQ(stop.signal(), 0);
  bool called = false;
  stop.OnStop([&] { called = true; });
  EXPECT_TRUE(called);
}

TEST(StopSignalDeathTest, SecondSignalEndsTheProcessAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        StopSignal stop;
        kill(getpid(), SIGINT);
        stop.Wait();
        kill(getpid(), SIGINT);
        while (true) pause();
      },
      testing::ExitedWithCode(128 + SIGINT), "");
}

TEST(ResidentBytes, GrowsWithMemoryThatIsTouched) {
  const uint64_t before = ResidentBytes();
  ASSERT_GT(before, 0u);
  std::vector<char> block(64 << 20, 1);
  EXPECT_GT(ResidentBytes(), before + (32 << 20));
  EXPECT_EQ(block.back(), 1);
}

TEST(Backoff, DoublesUpToTheLongestWithJitterAndStartsOverAfterReset) {
  Backoff backoff({absl::Milliseconds(100), absl::Seconds(2), 7});
  absl::Duration full = absl::Milliseconds(100);
  for (int i = 0; i < 10; ++i) {
    const absl::Duration wait = backoff.Next();
    EXPECT_GE(wait, full * 0.5);
    EXPECT_LT(wait, full);
    full = std::min(full * 2, absl::Seconds(2));
  }
  backoff.Reset();
  EXPECT_LT(backoff.Next(), absl::Milliseconds(100));
}

TEST(Backoff, CallersWithDifferentSeedsWaitDifferently) {
  Backoff a({absl::Milliseconds(100), absl::Seconds(2), 1});
  Backoff b({absl::Milliseconds(100), absl::Seconds(2), 2});
  EXPECT_NE(a.Next(), b.Next());
}

TEST(FileDescriptorsDeathTest, TooFewAreAnErrorThatNamesBothNumbers) {
  EXPECT_TRUE(CheckFileDescriptors().ok());
  EXPECT_EXIT(
      {
        rlimit limit = {};
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = limit.rlim_max = 24;
        setrlimit(RLIMIT_NOFILE, &limit);
        const absl::Status status = CheckFileDescriptors(64);
        std::fprintf(stderr, "%s", status.ToString().c_str());
        _exit(status.code() == absl::StatusCode::kFailedPrecondition ? 7 : 8);
      },
      testing::ExitedWithCode(7), "24 files, expected at least 64");
  // As many as it may have it takes.
  EXPECT_EXIT(
      {
        rlimit limit = {};
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = 70;
        setrlimit(RLIMIT_NOFILE, &limit);
        const bool ok = CheckFileDescriptors(64).ok();
        getrlimit(RLIMIT_NOFILE, &limit);
        _exit(ok && limit.rlim_cur == limit.rlim_max ? 7 : 8);
      },
      testing::ExitedWithCode(7), "");
}

TEST(ExitCode, SaysWhetherAnotherStartMayDo) {
  EXPECT_EQ(ExitCodeOfStart(absl::ResourceExhaustedError("the disk is full")), 128);
  EXPECT_EQ(ExitCodeOfStart(absl::UnavailableError("the port is in use")), 128);
  EXPECT_EQ(ExitCodeOfStart(absl::FailedPreconditionError("the folder is in use")), 1);
}

// The code that a server with only the common flags exits with.
std::optional<int> ParseServer(std::vector<std::string> arguments) {
  CLI::App app;
  ServerProcess process;
  process.AddFlags(app);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return ServerProcess::Parse(app, static_cast<int>(argv.size()), argv.data());
}

TEST(ServerProcess, GoesOnAfterGoodFlagsAndSaysWhichAreWrong) {
  EXPECT_EQ(ParseServer({"server"}), std::nullopt);
  EXPECT_EQ(ParseServer({"server", "--log-level", "debug"}), std::nullopt);
  testing::internal::CaptureStdout();
  EXPECT_EQ(ParseServer({"server", "--version"}), 0);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), std::string(kVersion) + "\n");
  // spdlog takes a level that it does not know for "off".
  testing::internal::CaptureStderr();
  EXPECT_EQ(ParseServer({"server", "--log-level", "verbose"}), 2);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("verbose"));
  testing::internal::CaptureStderr();
  EXPECT_EQ(ParseServer({"server", "--token-flie", "x"}), 2);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("--token-flie"));
}

TEST(StopSignalDeathTest, WithoutAThreadForItTheProcessEndsAndMayBeTriedAgain) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        LimitThreads(0);
        StopSignal stop;
        _exit(0);
      },
      testing::ExitedWithCode(128), "error: no thread for SIGTERM and SIGINT; allow more of them");
}

TEST(OrNoThread, IsAnErrorOfThreadsAndNoOther) {
  const auto throws = [](std::errc error) {
    return OrNoThread("this test", [error]() -> absl::StatusOr<int> {
      if (error == std::errc()) return 7;
      throw std::system_error(std::make_error_code(error));
    });
  };
  EXPECT_EQ(throws(std::errc()).value(), 7);
  const absl::Status status = throws(std::errc::resource_unavailable_try_again).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()), testing::StartsWith("no thread for this test; "));
  EXPECT_THROW(throws(std::errc::permission_denied).IgnoreError(), std::system_error);
}

TEST(ServerProcessDeathTest, AFileAtTheLimitOfItsSizeIsAnErrorOfTheWrite) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string path = absl::StrCat(testing::TempDir(), "limit-", getpid());
  EXPECT_EXIT(
      {
        if (!ServerProcess().Begin("server").ok()) _exit(1);
        rlimit limit = {};
        limit.rlim_cur = limit.rlim_max = 1000;
        setrlimit(RLIMIT_FSIZE, &limit);
        auto file = PosixFileSystem().Create(path);
        if (!file.ok()) _exit(2);
        // What fits is written, and then nothing.
        absl::Status status = (*file)->Append(std::string(2000, 'x'));
        if (status.ok()) status = (*file)->Sync();
        PosixFileSystem().Remove(path).IgnoreError();
        _exit(absl::IsResourceExhausted(status) ? 7 : 8);
      },
      testing::ExitedWithCode(7), "");
}

TEST(ServerProcessDeathTest, ALogThatNobodyReadsAnyMoreDoesNotEndTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        int ends[2];
        if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0) _exit(1);
        close(ends[0]);
        if (!ServerProcess().Begin("server").ok()) _exit(2);
        SPDLOG_INFO("to stop");
        _exit(7);
      },
      testing::ExitedWithCode(7), "");
}

// What an option takes from a command line; nullopt: it is refused.
std::optional<uint64_t> Taken(const CLI::Validator& validator, const std::string& text) {
  CLI::App app;
  uint64_t value = 0;
  app.add_option("--x", value)->transform(validator);
  try {
    std::string line = "--x=" + text;
    app.parse(line);
  } catch (const CLI::ParseError&) {
    return {};
  }
  return value;
}

TEST(NumberFlags, TakeWholeNumbersAndNoOthers) {
  EXPECT_EQ(Taken(WholeNumber(), "0"), 0);
  EXPECT_EQ(Taken(WholeNumber(), "18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(Taken(WholeNumber(7), "7"), 7);
  EXPECT_EQ(Taken(WholeNumber(7), "8"), std::nullopt);
  EXPECT_EQ(Taken(WholeNumber(), "010"), 10);
  EXPECT_EQ(Taken(WholeNumber(10), "0008"), 8);
  EXPECT_EQ(Taken(WholeNumber(7, /*least=*/2), "2"), 2);
  EXPECT_EQ(Taken(WholeNumber(7, /*least=*/2), "1"), std::nullopt);
  for (const char* wrong : {"-1", "18446744073709551616", "1.5", "1e3", "+1", "0x10", "x"}) {
    EXPECT_EQ(Taken(WholeNumber(), wrong), std::nullopt) << wrong;
  }
}

TEST(NumberFlags, TakeRealNumbersInTheirRange) {
  const CLI::Validator validator = RealNumber(0.5, 2);
  for (const char* good : {"0.5", "1", "2e0", "02"}) EXPECT_EQ(validator(good), "");
  for (const char* wrong : {"0.4", "2.1", "nan", "-nan", "inf", "1,5", "x", ""}) {
    EXPECT_EQ(validator(wrong),
              absl::StrCat("is \"", wrong, "\", expected a number from 0.5 to 2"));
  }
}

TEST(NumberFlags, TakeSizesInBytesAndInUnits) {
  EXPECT_EQ(Taken(ByteSize(), "0"), 0);
  EXPECT_EQ(Taken(ByteSize(), "1000"), 1000);
  EXPECT_EQ(Taken(ByteSize(), "64KiB"), 64 << 10);
  EXPECT_EQ(Taken(ByteSize(), "8GiB"), uint64_t{8} << 30);
  EXPECT_EQ(Taken(ByteSize(), "8gib"), uint64_t{8} << 30);
  EXPECT_EQ(Taken(ByteSize(), "010"), 10);
  EXPECT_EQ(Taken(ByteSize(), "010KiB"), 10 << 10);
  EXPECT_EQ(Taken(ByteSize(1), "1"), 1);
  EXPECT_EQ(Taken(ByteSize(1), "0"), std::nullopt);
  for (const char* wrong : {"-1", "-8GiB", "99999999999999GiB", "18446744073709551616", "1.5GiB",
                            "GiB", "8 parsec", "8xB"}) {
    EXPECT_EQ(Taken(ByteSize(), wrong), std::nullopt) << wrong;
  }
}

}  // namespace
}  // namespace tessera
