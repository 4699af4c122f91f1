#include "common/checkpoint/background_file.h"

#include <algorithm>
#include <string>

#include "gtest/gtest.h"
#include "tests/common/fault_file_system.h"
#include "tests/common/thread_limit.h"

namespace tessera {
namespace {

// A letter, which depends on `seed`, again and again.
std::string Bytes(size_t count, size_t seed) {
  return std::string(count, static_cast<char>('a' + seed % 26));
}

TEST(BackgroundFile, HasAllBytesInTheirOrder) {
  FaultFileSystem files;
  BackgroundFile file(*files.Create("file"));
  std::string expected;
  for (size_t i = 0; i < 50; ++i) {
    std::string bytes = Bytes(1'000'000, i);
    expected += bytes;
    ASSERT_TRUE(file.Append(bytes).ok());
    EXPECT_EQ(bytes, "");
  }
  ASSERT_TRUE(file.Finish().ok());
  const auto read = *files.Open("file");
  std::string found(read->Size(), '\0');
  ASSERT_TRUE(read->Read(0, absl::MakeSpan(found)).ok());
  EXPECT_TRUE(found == expected);
  Checksum64 checksum;
  checksum.Add(expected);
  EXPECT_EQ(file.checksum(), checksum.Value());
}

TEST(BackgroundFile, ADiskThatFailsOnTheWayEndsIt) {
  FaultFileSystem files;
  BackgroundFile file(*files.Create("file"));
  files.FailSyncsAfter(2);
  constexpr uint64_t kPiece = 1 << 20;
  // The third time that the disk is waited for; then the queue is no longer worked off.
  constexpr uint64_t kWritten = 3 * BackgroundFile::kDrainEveryBytes;
  uint64_t taken = 0;
  absl::Status status;
  while (status.ok() && taken < 2 * kWritten) {
    std::string bytes = Bytes(kPiece, taken);
    taken += bytes.size();
    status = file.Append(bytes);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_GT(taken, kWritten);
  EXPECT_LE(taken, kWritten + BackgroundFile::kMaxQueuedBytes + kPiece);
  EXPECT_EQ(file.Finish(), status);
}

TEST(BackgroundFileDeathTest, WithoutAThreadForItItFails) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto write = [] {
    LimitThreads(0);
    FaultFileSystem files;
    BackgroundFile file(*files.Create("file"));
    std::string bytes = Bytes(1, 0);
    const absl::Status status = file.Append(bytes);
    if (file.Finish() != status) _exit(1);
    std::fprintf(stderr, "%s", status.ToString().c_str());
    _exit(0);
  };
  EXPECT_EXIT(write(), testing::ExitedWithCode(0),
              "RESOURCE_EXHAUSTED: no thread for a file to be written; allow more");
}

}  // namespace
}  // namespace tessera
