#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tessera::ps {

// Memory for the buckets of a store's maps: blocks of any size on pages of 2 MiB, where a search
// finds its bucket without a walk through the tables of pages. Small blocks come from the heap:
// maps that are small stay in the caches, and many small tables shall not hold 2 MiB each. Blocks
// begin at a cache line. What is freed serves later blocks, whole with what lies free beside it;
// pages live as long as this does.
//
// Thread-safe; takes microseconds, so it is for what grows rarely.
class MapMemory {
 public:
  static constexpr size_t kSmall = 4 << 10;

  MapMemory() = default;
  ~MapMemory();
  MapMemory(const MapMemory&) = delete;
  MapMemory& operator=(const MapMemory&) = delete;

  // Zeros. `bytes`: a multiple of 64.
  void* Allocate(size_t bytes);
  void Free(void* block, size_t bytes);  // as allocated

  // Free ranges of the pages, which no map has.
  size_t free_bytes() const;

 private:
  void* Take(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Put(char* begin, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  std::vector<void*> chunks_ ABSL_GUARDED_BY(mu_);
  // Free ranges, which never touch one another.
  std::map<char*, size_t> by_address_ ABSL_GUARDED_BY(mu_);
  std::set<std::pair<size_t, char*>> by_size_ ABSL_GUARDED_BY(mu_);
  size_t free_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tessera::ps
