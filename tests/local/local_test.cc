#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "local/child_process.h"
#include "local/commands/work_folder.h"
#include "local/restart_policy.h"
#include "local/truth.h"
#include "tests/local/folder.h"
#include "tests/paths.h"

namespace tessera::local {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

Death WaitFor(ChildProcess& process) {
  for (int i = 0; i < 10000; ++i) {
    if (const std::optional<Death> death = process.Poll()) return *death;
    absl::SleepFor(absl::Milliseconds(1));
  }
  ADD_FAILURE() << "the process has not ended in 10 s";
  return {};
}

TEST(RestartPolicy, WaitsLongerTheMoreAProcessDies) {
  RestartPolicy policy({});
  const auto first = policy.Died(absl::Seconds(1));
  std::optional<absl::Duration> last = first;
  for (int i = 2; i < RestartPolicy::kMaxDeaths; ++i) {
    last = policy.Died(absl::Seconds(i));
    ASSERT_TRUE(last.has_value()) << i;
  }
  EXPECT_LT(*first, absl::Milliseconds(101));
  EXPECT_GT(*last, absl::Milliseconds(900));
  EXPECT_FALSE(policy.Died(absl::Seconds(10)).has_value());
}

TEST(RestartPolicy, NeverGivesUpAProcessThatDiesNowAndThen) {
  RestartPolicy policy({});
  for (int i = 0; i < 100; ++i) {
    const auto wait = policy.Died(i * (RestartPolicy::kWithin + absl::Seconds(1)));
    ASSERT_TRUE(wait.has_value()) << i;
    EXPECT_LT(*wait, absl::Milliseconds(101));
  }
}

TEST(ChildProcess, ReportsItsExitCodeAndKeepsItsOutput) {
  Folder folder;
  auto process =
      ChildProcess::Start({"/bin/sh", "-c", "echo hello; echo oops >&2; exit 7"}, folder / "log");
  ASSERT_TRUE(process.ok()) << process.status();
  const Death death = WaitFor(*process);
  EXPECT_EQ(death.ToString(), "exited with code 7");
  EXPECT_EQ(Tail(folder / "log", 0, 10), "hello\noops");
  EXPECT_EQ(Tail(folder / "log", 0, 2), "hello\noops");
  EXPECT_EQ(Tail(folder / "log", 0, 1), "oops");
  EXPECT_EQ(Tail(folder / "log", 6, 10), "oops");
  EXPECT_EQ(Tail(folder / "log", 11, 10), "");
  EXPECT_EQ(Tail(folder / "none", 0, 10), "");
}

TEST(ChildProcess, ReportsTheSignalThatKilledIt) {
  Folder folder;
  auto process = ChildProcess::Start({"/bin/sleep", "100"}, folder / "log");
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_FALSE(process->Poll().has_value());
  process->Send(SIGKILL);
  EXPECT_EQ(WaitFor(*process).ToString(), "was killed by signal 9 (Killed)");
}

TEST(ChildProcess, ReportsItsEndThoughWhoeverStartedUsIgnoresChildren) {
  Folder folder;
  const auto before = signal(SIGCHLD, SIG_IGN);
  auto process = ChildProcess::Start({"/bin/sh", "-c", "exit 7"}, folder / "log");
  ASSERT_TRUE(process.ok()) << process.status();
  const Death death = WaitFor(*process);
  signal(SIGCHLD, before);
  EXPECT_EQ(death.ToString(), "exited with code 7");
}

// Who starts it goes by its exit code, as for one that finds its disk full.
TEST(ChildProcess, OfAPsOrAWorkerThatCannotListenIsToBeStartedAgain) {
  const auto server = RpcServer::Start({}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  Folder folder;
  for (const std::string program : {"/tessera-ps", "/tessera-worker"}) {
    auto process = ChildProcess::Start(
        {ProgramFolder() + program, "--listen", (*server)->address()}, folder / "log");
    ASSERT_TRUE(process.ok()) << process.status();
    EXPECT_EQ(WaitFor(*process).ToString(), "exited with code 128") << program;
  }
}

TEST(ChildProcess, OfAPsOrAWorkerThatLacksTheNameOfTheMastersCertificatesIsBadUsage) {
  Folder folder;
  for (const std::string program : {"/tessera-ps", "/tessera-worker"}) {
    auto process =
        ChildProcess::Start({ProgramFolder() + program, "--master", "a:1,b:1", "--tls-ca",
                             folder / "ca", "--token-file", folder / "token"},
                            folder / "log");
    ASSERT_TRUE(process.ok()) << process.status();
    EXPECT_EQ(WaitFor(*process).ToString(), "exited with code 2") << program;
    EXPECT_THAT(Tail(folder / "log", 0, 2), HasSubstr("--tls-server-name: missing;")) << program;
  }
}

TEST(ChildProcess, DiesWithItsOwner) {
  Folder folder;
  pid_t pid = 0;
  {
    auto process = ChildProcess::Start({"/bin/sleep", "100"}, folder / "log");
    ASSERT_TRUE(process.ok()) << process.status();
    pid = process->pid();
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST(ChildProcess, SaysThatAProgramIsMissing) {
  Folder folder;
  const absl::Status status = ChildProcess::Start({"/no/such"}, folder / "log").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot run /no/such"));
}

TEST(FreePort, CanBeServedOn) {
  const auto port = FreePort();
  ASSERT_TRUE(port.ok()) << port.status();
  const auto server = RpcServer::Start({.listen = absl::StrCat("127.0.0.1:", *port)}, {});
  EXPECT_TRUE(server.ok()) << server.status();
}

TEST(ReadTruth, GivesTheBestOfEverySplit) {
  Folder folder;
  folder.Write("truth.json",
               R"({"splits": {"test": {"best_auc": 0.81, "best_logloss": 0.42, "file": "t"}}})");
  const auto best = ReadTruth(PosixFileSystem(), folder / "truth.json");
  ASSERT_TRUE(best.ok()) << best.status();
  EXPECT_EQ(best->at("test").auc, 0.81);
  EXPECT_EQ(best->at("test").logloss, 0.42);
}

TEST(ReadTruth, RefusesOtherFiles) {
  Folder folder;
  for (const char* text : {"", "no json", "[]", "{}", R"({"splits": 1})",
                           R"({"splits": {"test": {"best_auc": "high"}}})"}) {
    folder.Write("truth.json", text);
    const absl::Status status = ReadTruth(PosixFileSystem(), folder / "truth.json").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("truth.json"));
  }
  EXPECT_EQ(ReadTruth(PosixFileSystem(), folder / "none").status().code(),
            absl::StatusCode::kNotFound);
}

TEST(LinkCheckpoint, RefusesAFolderWithoutACheckpoint) {
  Folder folder;
  EXPECT_EQ(LinkCheckpoint(folder / "none", folder / "root").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(LinkCheckpoint(folder / ".", folder / "root").code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tessera::local
