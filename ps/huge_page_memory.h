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
// at a cache line. Freed blocks are joined with free neighbours and serve later blocks; pages live
// as long as this object.
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

  // Bytes of the pages that no block uses.
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
