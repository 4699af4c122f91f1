#include "master/state_log.h"

#include <unistd.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::master {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::string TestFolder() {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string(info->test_suite_name()) + "." + info->name();
  for (char& c : name) c = c == '/' ? '_' : c;
  std::string folder = testing::TempDir() + name + "." + std::to_string(getpid());
  std::filesystem::remove_all(folder);
  return folder;
}

// The contract, run on every implementation.
class StateLogContract : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) {
      auto log = OpenRocksDbStateLog(TestFolder());
      ASSERT_TRUE(log.ok()) << log.status();
      log_ = *std::move(log);
    } else {
      log_ = NewMemoryStateLog();
    }
  }
  std::unique_ptr<StateLog> log_;
};

TEST_P(StateLogContract, KeepsWhatWasWrittenAndForgetsWhatWasRemoved) {
  ASSERT_TRUE(log_->Apply({{"a", "1"}, {"b", "2"}}).ok());
  ASSERT_TRUE(log_->Apply({{"a", std::nullopt}, {"b", "3"}}).ok());
  EXPECT_EQ(log_->Get("a").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(log_->Get("b").value(), "3");
}

TEST_P(StateLogContract, LaterWritesOfABatchWin) {
  ASSERT_TRUE(log_->Apply({{"a", "1"}, {"a", "2"}, {"b", "1"}, {"b", std::nullopt}}).ok());
  EXPECT_EQ(log_->Get("a").value(), "2");
  EXPECT_FALSE(log_->Get("b").ok());
}

TEST_P(StateLogContract, ScansAPrefixInOrder) {
  ASSERT_TRUE(log_->Apply({{"job/2", "b"}, {"job/1", "a"}, {"joc", "x"}, {"jo", "y"}}).ok());
  EXPECT_THAT(log_->Scan("job/").value(), ElementsAre(Pair("job/1", "a"), Pair("job/2", "b")));
  EXPECT_EQ(log_->Scan("").value().size(), 4u);
}

TEST_P(StateLogContract, TakesAnyBytesAndEmptyBatches) {
  ASSERT_TRUE(log_->Apply({}).ok());
  const std::string bytes("\0\xff\n", 3);
  ASSERT_TRUE(log_->Apply({{bytes, bytes}, {"empty", ""}}).ok());
  EXPECT_EQ(log_->Get(bytes).value(), bytes);
  EXPECT_EQ(log_->Get("empty").value(), "");
}

INSTANTIATE_TEST_SUITE_P(Implementations, StateLogContract, testing::Bool(),
                         [](const auto& info) { return info.param ? "RocksDb" : "Memory"; });

TEST(RocksDbStateLog, OutlivesItsProcess) {
  const std::string folder = TestFolder();
  {
    auto log = OpenRocksDbStateLog(folder);
    ASSERT_TRUE(log.ok());
    ASSERT_TRUE((*log)->Apply({{"a", "1"}}).ok());
  }
  auto log = OpenRocksDbStateLog(folder);
  ASSERT_TRUE(log.ok());
  EXPECT_EQ((*log)->Get("a").value(), "1");
}

TEST(RocksDbStateLog, AFolderInUseIsNamed) {
  const std::string folder = TestFolder();
  auto first = OpenRocksDbStateLog(folder);
  ASSERT_TRUE(first.ok());
  const auto second = OpenRocksDbStateLog(folder);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("data folder " + folder + " in use by another process"));
}

TEST(RocksDbStateLog, AFolderThatCannotBeMadeIsAnError) {
  EXPECT_FALSE(OpenRocksDbStateLog("/proc/nowhere/x").ok());
}

}  // namespace
}  // namespace tessera::master
