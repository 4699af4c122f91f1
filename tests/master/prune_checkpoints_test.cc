#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "master/actions/checkpoint_files.h"
#include "tests/common/checkpoint_testing.h"
#include "tests/common/fault_file_system.h"

// Which checkpoints of a job are left when one has been committed.
namespace tessera::master {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class PruneCheckpointsTest : public testing::Test {
 protected:
  static std::string Folder(uint64_t step) { return "demo-1/" + CheckpointFolderName(step); }
  static std::string PathOf(uint64_t step) { return "root/" + Folder(step); }

  // A ps with rows and one without. `base`: the step of the checkpoint whose files are linked; 0:
  // none, the checkpoint is whole. Then what the master removes.
  void Commit(uint64_t step, uint64_t base, uint32_t keep,
              const std::vector<std::string>& damaged = {}) {
    ASSERT_TRUE(fs_.CreateFolder(PathOf(step)).ok());
    v1::CheckpointManifest manifest;
    if (base > 0) manifest = *ReadManifest(fs_, PathOf(base));
    manifest.set_step(step);
    for (const v1::CheckpointFile& file : manifest.files()) {
      const std::string name = "/" + file.name();
      ASSERT_TRUE(fs_.Link(PathOf(base) + name, PathOf(step) + name).ok());
    }
    std::vector<TestTable> model = SmallModel();
    model[0].rows[7].values[0] = static_cast<float>(step);
    if (base == 0) {
      *manifest.add_files() = *WriteTestPart(fs_, PathOf(step) + "/rows-0", model, 4, 0, 1);
      *manifest.add_files() = *WriteTestPart(fs_, PathOf(step) + "/rows-1", {}, 4, 0, 1);
    } else {
      const uint32_t layer = manifest.files(manifest.files_size() - 1).layer() + 1;
      *manifest.add_files() =
          *WriteTestLayer(fs_, absl::StrCat(PathOf(step), "/rows-0-layer-", layer), model,
                          std::vector<std::set<uint64_t>>(model.size()), 4, layer);
    }
    ASSERT_TRUE(WriteManifest(fs_, PathOf(step), manifest).ok());
    PruneCheckpoints prune;
    prune.job_folder = "demo-1";
    prune.folder = Folder(step);
    prune.keep = keep;
    prune.damaged = damaged;
    checkpoints_.Prune(prune, {});
  }
  // The byte is in all folders that have the file.
  void Damage(const std::vector<uint64_t>& steps, const std::string& file) {
    std::string bytes = fs_.Content(PathOf(steps[0]) + file);
    bytes[bytes.size() / 2] ^= 1;
    for (const uint64_t step : steps) fs_.SetContent(PathOf(step) + file, bytes);
  }
  std::vector<uint64_t> Left() {
    std::vector<uint64_t> left;
    const std::vector<std::string> names = *fs_.List("root/demo-1");
    for (const std::string& name : names) {
      if (const auto folder = ParseCheckpointFolder(name)) left.push_back(folder->step);
    }
    return left;
  }

  FaultFileSystem fs_;
  CheckpointRoot root_{&fs_, "root"};
  const CheckpointFiles checkpoints_{&fs_, &root_};
};

TEST_F(PruneCheckpointsTest, OneDamagedByteLeavesTheLastCheckpointOfTheChainBefore) {
  Commit(10, 0, 2);
  for (const uint64_t step : {20, 30, 40}) Commit(step, step - 10, 2);
  EXPECT_THAT(Left(), ElementsAre(30, 40)) << "there is one chain";
  Commit(50, 0, 2);
  EXPECT_THAT(Left(), ElementsAre(40, 50)) << "each is of a chain of its own";
  for (const uint64_t step : {60, 70, 80}) Commit(step, step - 10, 2);
  EXPECT_THAT(Left(), ElementsAre(40, 70, 80));
  Damage({70, 80}, "/rows-0");
  FindCheckpoint find;
  find.job_folder = "demo-1";
  const ActionResult found = checkpoints_.Find(find, absl::OkStatus);
  ASSERT_TRUE(found.status.ok()) << found.status;
  EXPECT_EQ(found.folder, Folder(40));
  EXPECT_THAT(found.skipped, ElementsAre(HasSubstr(Folder(80)), HasSubstr(Folder(70))));
  EXPECT_THAT(found.damaged, ElementsAre(Folder(80), Folder(70)));
  // The job goes on from there.
  Commit(60, 0, 1, found.damaged);
  EXPECT_THAT(Left(), ElementsAre(40, 60));
  // A damaged one that is left for another reason does not take the place of a sound one.
  Commit(70, 0, 3);
  Commit(90, 0, 1, {Folder(70)});
  EXPECT_THAT(Left(), ElementsAre(60, 90));
}

TEST_F(PruneCheckpointsTest, OfWholeCheckpointsTheOneBeforeIsKept) {
  for (const uint64_t step : {10, 20, 30, 40}) Commit(step, 0, 1);
  EXPECT_THAT(Left(), ElementsAre(30, 40));
  Commit(50, 0, 3);
  EXPECT_THAT(Left(), ElementsAre(30, 40, 50));
}

TEST_F(PruneCheckpointsTest, ACheckpointWhoseManifestIsDamagedIsNoneToKeep) {
  for (const uint64_t step : {10, 20, 30}) Commit(step, 0, 3);
  Damage({20}, std::string("/") + kManifestName);
  Commit(40, 30, 1);
  EXPECT_THAT(Left(), ElementsAre(10, 40));
}

}  // namespace
}  // namespace tessera::master
