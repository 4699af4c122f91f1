#include "master/actions/checkpoint_files.h"

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/status_macros.h"
#include "gtest/gtest.h"
#include "tests/common/checkpoint_testing.h"
#include "tests/common/fault_file_system.h"

namespace tessera::master {
namespace {

constexpr char kFirst[] = "job-1/step-000000000010";
constexpr char kSecond[] = "job-1/step-000000000020";

class CheckpointFilesTest : public testing::Test {
 protected:
  CheckpointFilesTest() {
    EXPECT_TRUE(files_.CreateFolder("root").ok());
    EXPECT_TRUE(files_.SyncFolder(".").ok());
  }
  static std::string Path(const std::string& folder) { return absl::StrCat("root/", folder); }
  static WriteCheckpoint To(const std::string& folder) {
    WriteCheckpoint write;
    write.folder = folder;
    return write;
  }
  // With the one file of one ps.
  absl::Status Write(const std::string& folder) {
    TESSERA_RETURN_IF_ERROR(checkpoints_.Begin(folder));
    v1::WriteCheckpointResponse part;
    TESSERA_ASSIGN_OR_RETURN(
        *part.add_files(), WriteTestPart(files_, Path(folder) + "/rows-0", SmallModel(), 4, 0, 1));
    return checkpoints_.Commit(To(folder), {part});
  }
  // After a power cut.
  absl::StatusCode Left(const std::string& folder) {
    files_.Crash();
    return VerifyCheckpoint(files_, Path(folder)).status().code();
  }

  FaultFileSystem files_;
  CheckpointRoot root_{&files_, "root"};
  CheckpointFiles checkpoints_{&files_, &root_};
};

TEST_F(CheckpointFilesTest, TheFirstOfAJobOutlivesAPowerCut) {
  ASSERT_TRUE(Write(kFirst).ok());
  EXPECT_EQ(Left(kFirst), absl::StatusCode::kOk);
}

TEST_F(CheckpointFilesTest, OneOfAMasterThatDiedWhileItCommittedOutlivesAPowerCutOnceItIsFound) {
  // Its folder, its file and its manifest are synced, and its name is not.
  FindCheckpoint find;
  find.job_folder = "job-1";
  uint64_t syncs = 0;
  for (; !checkpoints_.Find(find, absl::OkStatus).status.ok(); ++syncs) {
    ASSERT_TRUE(files_.Remove("root/job-1").ok());
    files_.FailSyncsAfter(syncs);
    EXPECT_FALSE(Write(kFirst).ok());
    files_.Repair();
  }
  EXPECT_GT(syncs, 3u);
  EXPECT_EQ(Left(kFirst), absl::StatusCode::kOk);
}

TEST_F(CheckpointFilesTest, OneThatIsPrunedIsNoneAfterAPowerCutEither) {
  ASSERT_TRUE(Write(kFirst).ok());
  ASSERT_TRUE(Write(kSecond).ok());
  checkpoints_.Prune({.job_folder = "job-1", .folder = kSecond, .keep_besides = {}, .damaged = {}},
                     {});
  EXPECT_EQ(Left(kSecond), absl::StatusCode::kOk);
  EXPECT_EQ(Left(kFirst), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tessera::master
