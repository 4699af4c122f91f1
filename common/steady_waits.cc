// Linked into every program. Waits of abseil as Debian has it (20220623) end at a wall-clock time,
// even if the caller gives a duration: setting the clock back by an hour makes them an hour longer.
// gRPC's timers wait in the same way, so no deadline of a call would pass for an hour
// (github.com/grpc/grpc/issues/32176). Later versions of both use the steady clock.
//
// This file replaces the function in which a thread waits, as abseil lets programs do
// (absl/synchronization/internal/per_thread_sem.h): it computes the length of a wait when the wait
// begins and then counts by the steady clock. Unlike abseil's own it does not count blocked threads
// for thread pools that ask for that: none does.
#include <linux/futex.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <type_traits>

#include "absl/base/config.h"
#include "absl/synchronization/internal/create_thread_identity.h"
#include "absl/synchronization/internal/futex.h"
#include "absl/synchronization/internal/kernel_timeout.h"
#include "absl/synchronization/internal/per_thread_sem.h"
#include "absl/synchronization/internal/waiter.h"
#include "absl/time/clock.h"

namespace tessera {
namespace {

using absl::synchronization_internal::Futex;
using absl::synchronization_internal::GetOrCreateCurrentThreadIdentity;
using absl::synchronization_internal::KernelTimeout;
using absl::synchronization_internal::Waiter;

static_assert(ABSL_LTS_RELEASE_VERSION == 20220623,
              "see by which clock this abseil waits, and whether the following still holds");
// The number of posts to a thread, which waits until it is not 0.
using Posts = std::atomic<int32_t>;
static_assert(ABSL_WAITER_MODE == ABSL_WAITER_MODE_FUTEX && std::is_standard_layout_v<Waiter> &&
              sizeof(Waiter) == sizeof(Posts));

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kLongest = kSecond * 86'400 * 365 * 100;

int64_t ToNanoseconds(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

int64_t NowBy(clockid_t clock) {
  timespec now = {};
  ::clock_gettime(clock, &now);
  return ToNanoseconds(now);
}

// The steady clock's time for a wait that is to end at `wall_end` of the wall clock.
timespec SteadyEnd(int64_t wall_end) {
  // A thread that was woken in vain waits on to the same end, wherever the wall clock is by then.
  thread_local int64_t last_wall_end = 0;
  thread_local int64_t steady_end = 0;
  if (wall_end != last_wall_end) {
    last_wall_end = wall_end;
    const int64_t left = std::clamp(wall_end - NowBy(CLOCK_REALTIME), int64_t{0}, kLongest);
    steady_end = NowBy(CLOCK_MONOTONIC) + left;
  }
  return {.tv_sec = steady_end / kSecond, .tv_nsec = steady_end % kSecond};
}

// Waits for a post; false: none came until `end`.
bool Wait(KernelTimeout end) {
  Waiter* const waiter = Waiter::GetWaiter(GetOrCreateCurrentThreadIdentity());
  if (!end.has_timeout()) return waiter->Wait(end);
  auto& posts = *reinterpret_cast<Posts*>(waiter);
  const timespec steady_end = SteadyEnd(ToNanoseconds(end.MakeAbsTimespec()));
  while (true) {
    int32_t count = posts.load(std::memory_order_relaxed);
    while (count != 0) {
      if (posts.compare_exchange_weak(count, count - 1, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
        return true;
      }
    }
    // This call uses the steady clock, though its name does not say so.
    const int error =
        Futex::WaitBitsetAbsoluteTimeout(&posts, 0, FUTEX_BITSET_MATCH_ANY, &steady_end);
    if (error == -ETIMEDOUT) return false;
  }
}

}  // namespace
}  // namespace tessera

extern "C" bool ABSL_INTERNAL_C_SYMBOL(AbslInternalPerThreadSemWait)(
    absl::synchronization_internal::KernelTimeout end) {
  return tessera::Wait(end);
}

namespace absl {
ABSL_NAMESPACE_BEGIN

// Abseil's own version asks the clock every two seconds and counts cycles in between: for that long
// after the clock was set, ends of waits and calls would be computed from a wrong time.
int64_t GetCurrentTimeNanos() { return tessera::NowBy(CLOCK_REALTIME); }

ABSL_NAMESPACE_END
}  // namespace absl
