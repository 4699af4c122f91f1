#include "common/file_system.h"

#include <unistd.h>

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

using absl::StatusCode;

// The machine's own disk, in a folder of the test's.
class PosixFileSystemTest : public testing::Test {
 protected:
  PosixFileSystemTest() {
    EXPECT_TRUE(fs_.Remove(folder_).ok());
    EXPECT_TRUE(fs_.CreateFolder(folder_ + "/inner").ok());
    EXPECT_TRUE(WriteFileAtomically(fs_, folder_ + "/file", "content").ok());
  }
  ~PosixFileSystemTest() override { fs_.Remove(folder_).IgnoreError(); }

  FileSystem& fs_ = PosixFileSystem();
  const std::string folder_ = (std::filesystem::path(testing::TempDir()) /
                               ("tessera-file-system-test-" + std::to_string(::getpid())))
                                  .string();
};

TEST_F(PosixFileSystemTest, ListsWhatIsThereSorted) {
  const auto names = fs_.List(folder_);
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_THAT(*names, testing::ElementsAre("file", "inner"));
  EXPECT_EQ(fs_.List(folder_ + "/absent").status().code(), StatusCode::kNotFound);
}

TEST_F(PosixFileSystemTest, ErrorsSayWhetherToTryAgain) {
  // A file where a folder should be: what is asked for does not exist.
  EXPECT_EQ(fs_.List(folder_ + "/file").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(fs_.Open(folder_ + "/file/below").status().code(), StatusCode::kNotFound);
  // Trying again does not help.
  EXPECT_EQ(fs_.Create(folder_ + "/inner").status().code(), StatusCode::kInvalidArgument);
  const std::string long_name(300, 'n');
  EXPECT_EQ(fs_.Create(folder_ + "/" + long_name).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(fs_.Open(folder_ + "/inner").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tessera
