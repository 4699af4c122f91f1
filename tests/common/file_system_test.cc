#include "common/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
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

TEST_F(PosixFileSystemTest, AFolderThatIsRemovedIfEmptyStaysWithWhatIsInIt) {
  FileSystem& fs = PosixFileSystem();
  EXPECT_TRUE(fs.RemoveIfEmpty(folder_ + "/none").ok());
  ASSERT_TRUE(fs.CreateFolder(folder_ + "/a/b").ok());
  EXPECT_TRUE(fs.RemoveIfEmpty(folder_ + "/a").ok());
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/a/b"));
  EXPECT_TRUE(fs.RemoveIfEmpty(folder_ + "/a/b").ok());
  EXPECT_TRUE(fs.RemoveIfEmpty(folder_ + "/a").ok());
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/a"));
}

TEST_F(PosixFileSystemTest, WritesWholeFilesWhereItIs) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  const absl::Status written = WriteFileAtomically(fs_, "here", "content");
  std::filesystem::current_path(before);
  EXPECT_TRUE(written.ok()) << written;
  EXPECT_EQ(*ReadWholeFile(fs_, folder_ + "/here"), "content");
}

TEST_F(PosixFileSystemTest, WritesWhatSymbolicLinksNameAndTheLinksStay) {
  namespace stdfs = std::filesystem;
  stdfs::create_symlink("../file", folder_ + "/inner/link");
  stdfs::create_symlink("inner/link", folder_ + "/link");
  ASSERT_TRUE(WriteOutput(folder_ + "/link", "anew").ok());
  EXPECT_TRUE(stdfs::is_symlink(folder_ + "/link") && stdfs::is_symlink(folder_ + "/inner/link"));
  EXPECT_EQ(*ReadWholeFile(fs_, folder_ + "/file"), "anew");
  stdfs::create_symlink("later", folder_ + "/to-nothing");
  ASSERT_TRUE(WriteOutput(folder_ + "/to-nothing", "made").ok());
  EXPECT_TRUE(stdfs::is_symlink(folder_ + "/to-nothing"));
  EXPECT_EQ(*ReadWholeFile(fs_, folder_ + "/later"), "made");
  stdfs::create_symlink("circle", folder_ + "/circle");
  EXPECT_EQ(WriteOutput(folder_ + "/circle", "").code(), StatusCode::kInvalidArgument);
}

TEST_F(PosixFileSystemTest, WritesIntoAPipeAndLeavesItThere) {
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink("pipe", folder_ + "/link");
  for (const char* name : {"/pipe", "/link"}) {
    std::string read;
    std::thread reader([&] { read = ReadStream(pipe, 100).value_or(""); });
    const absl::Status written = WriteOutput(folder_ + name, "content");
    if (!written.ok()) std::ofstream(pipe) << "";  // or the reader waits for ever
    reader.join();
    EXPECT_TRUE(written.ok()) << written;
    EXPECT_EQ(read, "content");
  }
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST_F(PosixFileSystemTest, WritesToADescriptorAfterWhatItsFileHasAlready) {
  const std::string log = folder_ + "/log";
  const int fd = ::open(log.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::write(fd, "earlier ", 8), 8);
  // As /dev/stdout does.
  std::filesystem::create_symlink(absl::StrCat("/proc/self/fd/", fd), folder_ + "/link");
  EXPECT_STREQ(DestinationOf(folder_ + "/link")->special, "descriptor");
  for (const std::string& name :
       {absl::StrCat("/dev/fd/", fd), absl::StrCat("/proc/self/fd/", fd), folder_ + "/link"}) {
    const absl::Status written = WriteOutput(name, "content ");
    EXPECT_TRUE(written.ok()) << name << ": " << written;
  }
  // Whoever shares it goes on behind that.
  EXPECT_EQ(::write(fd, "later", 5), 5);
  ::close(fd);
  EXPECT_EQ(*ReadWholeFile(fs_, log), "earlier content content content later");
}

TEST_F(PosixFileSystemTest, OverwritesAFileFromItsStart) {
  constexpr size_t kBlock = 4096;
  const std::string path = folder_ + "/overwritten", old(3 * kBlock, 'o');
  EXPECT_EQ(fs_.Overwrite(path).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(WriteFileAtomically(fs_, path, old).ok());
  const auto file = *fs_.Overwrite(path);
  std::string begin;
  for (const size_t bytes : {size_t{1}, kBlock - 1, size_t{10}, kBlock, kBlock, kBlock}) {
    begin.append(bytes, static_cast<char>('a' + begin.size() % 7));
    ASSERT_TRUE(file->Append(begin.substr(begin.size() - bytes)).ok());
    const std::string content = *ReadWholeFile(fs_, path);
    ASSERT_EQ(content.size(), std::max(begin.size(), old.size()));
    EXPECT_EQ(content.substr(0, begin.size()), begin);
    const size_t block_end =
        std::min(content.size(), (begin.size() + kBlock - 1) / kBlock * kBlock);
    EXPECT_EQ(content.substr(begin.size(), block_end - begin.size()),
              std::string(block_end - begin.size(), '\0'));
    EXPECT_EQ(content.substr(block_end), std::string(content.size() - block_end, 'o'));
  }
}

TEST_F(PosixFileSystemTest, DrainingChangesNoByte) {
  const std::string path = folder_ + "/drained";
  std::string expected;
  const auto file = *fs_.Create(path);
  for (const size_t behind : {0, 100'000, 5'000, 0}) {
    const std::string bytes(30'000, static_cast<char>('a' + expected.size() % 7));
    ASSERT_TRUE(file->Append(bytes).ok());
    expected += bytes;
    const absl::Status drained = file->Drain(behind);
    EXPECT_TRUE(drained.ok()) << drained;
    EXPECT_TRUE(file->Drain(behind).ok()) << "there is nothing more to drain";
  }
  ASSERT_TRUE(file->Sync().ok());
  ASSERT_TRUE(file->Close().ok());
  std::string found(expected.size(), '\0');
  const auto read = *fs_.Open(path);
  EXPECT_EQ(read->Size(), expected.size());
  ASSERT_TRUE(read->Read(0, absl::MakeSpan(found)).ok());
  EXPECT_EQ(found, expected);
  // What is no file of a disk has nothing to drain.
  const auto null = *fs_.Create("/dev/null");
  ASSERT_TRUE(null->Append("bytes").ok());
  EXPECT_TRUE(null->Drain(0).ok());
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

TEST_F(PosixFileSystemTest, OpensRegularFilesAloneAndWaitsForNobody) {
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(fs_.Open(pipe).status().message(), pipe + ": is a pipe, expected a regular file");
  EXPECT_EQ(fs_.Open("/dev/null").status().message(),
            "/dev/null: is a device, expected a regular file");
  EXPECT_EQ(fs_.SyncFile(pipe).code(), StatusCode::kInvalidArgument);
}

TEST_F(PosixFileSystemTest, ReadsAStreamToItsEnd) {
  const std::string pipe = folder_ + "/pipe", content(200'000, 'c');
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe) << content; });
  EXPECT_EQ(ReadStream(pipe, content.size()).value_or(""), content);
  writer.join();
  EXPECT_EQ(ReadStream(folder_ + "/file", 7).value_or(""), "content");
  EXPECT_EQ(ReadStream(folder_ + "/file", 6).status().message(),
            folder_ + "/file: has more than 6 bytes");
  EXPECT_EQ(ReadStream("/dev/zero", 1 << 20).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadStream(folder_, 7).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tessera
