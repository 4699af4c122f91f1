#include "tests/bench/raw_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/bench/bench.h"

namespace tessera::bench {
namespace {

[[noreturn]] void Refuse(const std::string& path) {
  std::fprintf(stderr, "%s: cannot be written, or not be read past the page cache\n", path.c_str());
  std::exit(1);
}

}  // namespace

RawFile::RawFile(std::string path, uint64_t bytes)
    : path_(std::move(path)), pages_(bytes / kPageBytes) {
  std::vector<uint64_t> block(1 << 17);
  std::mt19937_64 random(1);
  std::FILE* const file = std::fopen(path_.c_str(), "wb");
  if (file == nullptr) Refuse(path_);
  for (uint64_t written = 0; written < bytes; written += block.size() * sizeof(uint64_t)) {
    for (uint64_t& word : block) word = random();
    if (std::fwrite(block.data(), sizeof(uint64_t), block.size(), file) != block.size()) {
      Refuse(path_);
    }
  }
  std::fflush(file);
  ::fsync(::fileno(file));
  std::fclose(file);
  fd_ = ::open(path_.c_str(), O_RDONLY | O_DIRECT);
  if (fd_ < 0) Refuse(path_);
}

RawFile::~RawFile() {
  ::close(fd_);
  std::filesystem::remove(path_);
}

double RawFile::RandomReads(int threads, int reads, uint64_t seed) const {
  std::atomic<int> left = reads;
  return reads / Seconds([&] {
           std::vector<std::thread> running;
           for (int t = 0; t < threads; ++t) {
             running.emplace_back([&, t] {
               void* const page = std::aligned_alloc(kPageBytes, kPageBytes);
               std::mt19937_64 random(seed * 1000 + t);
               while (left.fetch_sub(1) > 0) {
                 const off_t at = static_cast<off_t>((random() % pages_) * kPageBytes);
                 if (::pread(fd_, page, kPageBytes, at) != ssize_t{kPageBytes}) Refuse(path_);
               }
               std::free(page);
             });
           }
           for (std::thread& thread : running) thread.join();
         });
}

}  // namespace tessera::bench
