#pragma once

#include <cstdint>
#include <string>

namespace tessera::bench {

// A file of random bytes that is read in pages, past the page cache: what the device can do.
class RawFile {
 public:
  static constexpr size_t kPageBytes = 4096;

  // Written and synced now, removed by the destructor. Ends the program where the disk refuses.
  RawFile(std::string path, uint64_t bytes);
  ~RawFile();
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  // Pages a second, with one read in flight a thread.
  double RandomReads(int threads, int reads, uint64_t seed) const;

 private:
  const std::string path_;
  const uint64_t pages_;
  int fd_ = -1;
};

}  // namespace tessera::bench
