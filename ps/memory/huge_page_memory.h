#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tessera::ps {

// Memory for the rows of a store and the buckets of its maps: blocks of any size on pages of 2 MiB,
// where the processor finds either without a walk through the page tables. Small blocks come from
// the heap: they stay in the caches, and many small tables shall not hold 2 MiB each. Blocks begin
// at a cache line. Freed blocks are joined with free neighbours and serve later blocks; pages stay
// until this object goes or GiveBack finds them free.
//
// Pages come in chunks of whole ones: 2 MiB or, for larger blocks, more. Who wants to give a chunk
// back closes it, moves its blocks elsewhere, frees them, and calls GiveBack.
//
// Thread-safe; takes microseconds, so it is for what grows rarely.
class HugePageMemory {
 public:
  static constexpr size_t kSmall = 4 << 10;

  HugePageMemory() = default;
  ~HugePageMemory();
  HugePageMemory(const HugePageMemory&) = delete;
  HugePageMemory& operator=(const HugePageMemory&) = delete;

  // Uninitialised. `bytes`: a multiple of 64.
  void* Allocate(size_t bytes);
  void Free(void* block, size_t bytes);  // as allocated

  // Bytes of the pages, and of those that no block uses.
  size_t bytes() const;
  size_t free_bytes() const;

  struct Chunk {
    const char* begin = nullptr;
    size_t bytes = 0;
    size_t free_bytes = 0;
  };
  // Those that have pages, ascending by address.
  std::vector<Chunk> chunks() const;
  // No block comes from the chunk that begins at `begin` from here on. One chunk at a time, until
  // GiveBack.
  void Close(const char* begin);
  // If all of the closed chunk is free by now, gives its pages back to the system, where they no
  // longer count as resident; only their addresses are kept, for another chunk. Else opens it
  // again. Returns the bytes given back.
  size_t GiveBack();

 private:
  void* Take(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Put(char* begin, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddChunk(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Forget(std::map<char*, size_t>::iterator range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  std::map<char*, size_t> chunks_ ABSL_GUARDED_BY(mu_);  // with pages
  std::set<std::pair<size_t, char*>> given_back_ ABSL_GUARDED_BY(mu_);
  char* closed_ ABSL_GUARDED_BY(mu_) = nullptr;  // a chunk; null: none
  size_t closed_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::pair<char*, size_t>> closed_free_ ABSL_GUARDED_BY(mu_);  // its free ranges
  // Free ranges of the other chunks, which never touch one another within a chunk.
  std::map<char*, size_t> by_address_ ABSL_GUARDED_BY(mu_);
  std::set<std::pair<size_t, char*>> by_size_ ABSL_GUARDED_BY(mu_);
  size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  size_t free_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tessera::ps
