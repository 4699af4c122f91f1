#include "ps/cold/uring_reads.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

constexpr size_t kPage = 4096;

// A file of whole pages and a rest, and buffers to read it into.
class UringReadsTest : public testing::Test {
 protected:
  UringReadsTest() : path_(testing::TempDir() + "/uring-" + std::to_string(::getpid())) {
    std::mt19937_64 random(1);
    for (size_t i = 0; i < 200 * kPage + 100; ++i) bytes_.push_back(static_cast<char>(random()));
    std::ofstream(path_, std::ios::binary) << bytes_;
  }
  ~UringReadsTest() override { std::filesystem::remove(path_); }

  std::unique_ptr<rocksdb::FSRandomAccessFile> Open(bool direct) {
    rocksdb::FileOptions options;
    options.use_direct_reads = direct;
    std::unique_ptr<rocksdb::FSRandomAccessFile> file;
    const rocksdb::IOStatus status = files_->NewRandomAccessFile(path_, options, &file, nullptr);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return file;
  }
  // Of pages [first, first + pages) each; what lies past the end is not in the result.
  void ExpectReads(rocksdb::FSRandomAccessFile& file, size_t count, size_t pages, uint64_t seed) {
    const std::unique_ptr<char, decltype(&std::free)> room(
        static_cast<char*>(std::aligned_alloc(kPage, count * pages * kPage)), &std::free);
    std::mt19937_64 random(seed);
    std::vector<rocksdb::FSReadRequest> requests(count);
    for (size_t i = 0; i < count; ++i) {
      requests[i].offset = random() % 202 * kPage;
      requests[i].len = pages * kPage;
      requests[i].scratch = room.get() + i * pages * kPage;
    }
    const rocksdb::IOStatus status = file.MultiRead(requests.data(), count, {}, nullptr);
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (const rocksdb::FSReadRequest& request : requests) {
      ASSERT_TRUE(request.status.ok()) << request.status.ToString();
      const std::string expected =
          request.offset < bytes_.size() ? bytes_.substr(request.offset, request.len) : "";
      ASSERT_TRUE(request.result == expected) << "at " << request.offset;
    }
  }

  const std::string path_;
  std::string bytes_;
  const std::shared_ptr<rocksdb::FileSystem> files_ = UringReads(rocksdb::FileSystem::Default());
};

TEST_F(UringReadsTest, EveryReadOfABatchHasItsBytesUpToTheEndOfTheFile) {
  for (const bool direct : {true, false}) {
    const auto file = Open(direct);
    for (const size_t count : {1, 2, 63, 64, 65, 300}) {
      for (const size_t pages : {1, 3}) ExpectReads(*file, count, pages, count);
    }
  }
}

TEST_F(UringReadsTest, ThreadsReadOneFileAtOnce) {
  const auto file = Open(/*direct=*/true);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t n = 0; n < 50; ++n) ExpectReads(*file, 40, 1, 100 * t + n);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(UringReadsTest, AnErrorIsThatOfItsRead) {
  const auto file = Open(/*direct=*/true);
  const std::unique_ptr<char, decltype(&std::free)> room(
      static_cast<char*>(std::aligned_alloc(kPage, 2 * kPage)), &std::free);
  rocksdb::FSReadRequest requests[2];
  requests[0] = {.offset = 0, .len = kPage, .scratch = room.get(), .result = {}, .status = {}};
  // No memory that could be written to.
  requests[1] = {.offset = kPage, .len = kPage, .scratch = nullptr, .result = {}, .status = {}};
  file->MultiRead(requests, 2, {}, nullptr).PermitUncheckedError();
  EXPECT_TRUE(requests[0].status.ok()) << requests[0].status.ToString();
  EXPECT_TRUE(requests[0].result == bytes_.substr(0, kPage));
  EXPECT_FALSE(requests[1].status.ok());
}

}  // namespace
}  // namespace tessera::ps
