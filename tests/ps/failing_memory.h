#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <utility>

#include "absl/functional/function_ref.h"

// A machine without memory, for tests: operator new fails when it is told to. Not under sanitizers,
// which have their own: there a test that needs this is skipped.
namespace tessera::ps::failing_memory {

inline bool is_there = false;
// Of this thread, of at least `least_bytes`, before one fails; negative: none does.
inline thread_local int64_t allocations_left = -1;
inline thread_local size_t least_bytes = 0;
// Of all threads.
inline std::atomic<size_t> most_bytes = std::numeric_limits<size_t>::max();

// Runs `work`, of whose allocations of at least `bytes` the one with that number, from 0, fails;
// none of other threads does. False: it has fewer.
inline bool FailsAt(int64_t number, size_t bytes, absl::FunctionRef<void()> work) {
  allocations_left = number;
  least_bytes = bytes;
  try {
    work();
  } catch (const std::bad_alloc&) {
  }
  return std::exchange(allocations_left, -1) < 0;
}

// While it lives, whatever needs so many bytes at once fails.
class Bound {
 public:
  explicit Bound(size_t bytes) { most_bytes = bytes - 1; }
  ~Bound() { most_bytes = std::numeric_limits<size_t>::max(); }
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;
};

}  // namespace tessera::ps::failing_memory

#define SKIP_WITHOUT_FAILING_MEMORY() \
  if (!::tessera::ps::failing_memory::is_there) GTEST_SKIP() << "a sanitizer has its own new"
