#include "common/checkpoint/prune.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/checkpoint_testing.h"
#include "tests/common/fault_file_system.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class PruneTest : public testing::Test {
 protected:
  static std::string Folder(uint64_t step) { return "job/" + CheckpointFolderName(step); }
  void Write(uint64_t step, const std::string& best = "") {
    ASSERT_TRUE(WriteTestCheckpoint(fs_, Folder(step), SmallModel(), 4, 1).ok());
    auto manifest = ReadManifest(fs_, Folder(step));
    ASSERT_TRUE(manifest.ok());
    manifest->set_step(step);
    manifest->mutable_position()->set_best_checkpoint(best);
    ASSERT_TRUE(WriteManifest(fs_, Folder(step), *manifest).ok());
  }
  void WriteHalf(uint64_t step) {
    ASSERT_TRUE(fs_.CreateFolder(Folder(step)).ok());
    fs_.SetContent(Folder(step) + "/rows-0", "half");
  }
  void Damage(uint64_t step, const std::string& file) {
    std::string bytes = fs_.Content(Folder(step) + "/" + file);
    bytes[bytes.size() / 2] ^= 1;
    fs_.SetContent(Folder(step) + "/" + file, bytes);
  }
  // Steps of the folders that are left, after pruning.
  std::vector<uint64_t> Left(const PruneOptions& options) {
    const auto plan = PlanPrune(fs_, "job", options);
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (!plan.ok()) return {};
    EXPECT_TRUE(Prune(fs_, "job", *plan).ok());
    std::vector<uint64_t> left;
    const std::vector<std::string> names = *fs_.List("job");
    for (const std::string& name : names) {
      if (const auto folder = ParseCheckpointFolder(name)) left.push_back(folder->step);
    }
    return left;
  }

  FaultFileSystem fs_;
};

TEST_F(PruneTest, KeepsTheNewestAndTheBest) {
  for (const uint64_t step : {10, 20, 30, 40, 50}) Write(step, "job/" + CheckpointFolderName(20));
  const auto plan = PlanPrune(fs_, "job", {.keep = 2});
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<std::string> said;
  for (const PruneStep& step : *plan) {
    said.push_back((step.remove ? "remove " : "keep ") + step.name.substr(15) + ": " + step.reason);
  }
  EXPECT_THAT(
      said, ElementsAre("keep 50: among the newest 2", "keep 40: among the newest 2",
                        "remove 30: older than the newest 2", "keep 20: the best by its evaluation",
                        "remove 10: older than the newest 2"));
  EXPECT_EQ(fs_.List("job")->size(), 5u) << "a plan removes nothing";
  EXPECT_THAT(Left({.keep = 2}), ElementsAre(20, 40, 50));
  EXPECT_THAT(Left({.keep = 2}), ElementsAre(20, 40, 50));
}

TEST_F(PruneTest, NeverRemovesTheNewestThatIsSound) {
  for (const uint64_t step : {10, 20, 30, 40}) Write(step, "job/" + CheckpointFolderName(10) + "/");
  Damage(40, kManifestName);
  Damage(30, "rows-0");
  // The best is the word of the newest manifest that can be read, that of 30.
  EXPECT_THAT(Left({.keep = 1}), ElementsAre(10, 20, 40));
}

TEST_F(PruneTest, RemovesNothingWhereNoneIsSound) {
  Write(10);
  Write(20);
  Damage(10, "rows-0");
  Damage(20, "rows-0");
  const absl::Status status = PlanPrune(fs_, "job", {.keep = 1}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("none of its 2 checkpoints is sound"));
  EXPECT_EQ(PlanPrune(fs_, "none", {.keep = 1}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(PlanPrune(fs_, "job", {.keep = 0}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PruneTest, LeftoversGoButNotOneThatMayBeBeingWritten) {
  Write(20);
  WriteHalf(10);
  WriteHalf(30);
  ASSERT_TRUE(fs_.CreateFolder("job/step-notes").ok());
  fs_.SetContent("job/step-notes/mine", "");
  EXPECT_THAT(Left({.keep = 1}), ElementsAre(20, 30));
  EXPECT_THAT(Left({.keep = 1, .job_stopped = true}), ElementsAre(20));
  EXPECT_TRUE(fs_.Exists("job/step-notes/mine"));
}

TEST(RemoveCheckpoint, OfALinkTakesTheLink) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("remove_link." + std::to_string(::getpid()));
  std::filesystem::create_directories(folder / "archive");
  std::ofstream(folder / "archive" / kManifestName) << "{}";
  std::filesystem::create_directory_symlink(folder / "archive", folder / "step-1");
  EXPECT_TRUE(RemoveCheckpoint(PosixFileSystem(), (folder / "step-1").string()).ok());
  EXPECT_FALSE(std::filesystem::is_symlink(folder / "step-1"));
  EXPECT_TRUE(std::filesystem::exists(folder / "archive" / kManifestName));
  EXPECT_TRUE(RemoveCheckpoint(PosixFileSystem(), (folder / "archive").string()).ok());
  EXPECT_FALSE(std::filesystem::exists(folder / "archive"));
  EXPECT_TRUE(RemoveCheckpoint(PosixFileSystem(), (folder / "archive").string()).ok());
  std::filesystem::remove_all(folder);
}

TEST_F(PruneTest, EndsSoonWhenItIsToldTo) {
  for (const uint64_t step : {10, 20, 30}) Write(step);
  const auto stop = [] { return absl::CancelledError("enough"); };
  EXPECT_EQ(PlanPrune(fs_, "job", {.keep = 1}, stop).status(), absl::CancelledError("enough"));
  const auto plan = PlanPrune(fs_, "job", {.keep = 1});
  ASSERT_TRUE(plan.ok());
  int asked = 0;
  const auto second = [&asked] {
    return ++asked == 2 ? absl::CancelledError("enough") : absl::OkStatus();
  };
  EXPECT_EQ(Prune(fs_, "job", *plan, second), absl::CancelledError("enough"));
  EXPECT_FALSE(fs_.Exists(Folder(10) + "/rows-0"));
  EXPECT_TRUE(VerifyCheckpoint(fs_, Folder(20)).ok());
}

}  // namespace
}  // namespace tessera
