// Linked into every program of the tsan preset. Debian's abseil is built without ThreadSanitizer,
// which therefore sees nothing of what absl::Mutex orders and takes all guarded data for raced.
// These definitions stand before the library's (also for the library itself and for gRPC): each
// calls the library's and tells ThreadSanitizer.
//
// Who lets a mutex go evaluates, inside the library and still under the lock, the conditions that
// others await, which often lie on their stacks. It is after what is told of the release, so those
// reads would look unordered: they are left out (UnwatchedReads).
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstdio>
#include <cstdlib>

#include "absl/synchronization/mutex.h"

// Of ThreadSanitizer's runtime; its header does not declare them.
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);

namespace {

// The library's own function of that (mangled) name.
template <typename Function>
Function Real(const char* name) {
  void* const symbol = dlsym(RTLD_NEXT, name);
  if (symbol == nullptr) {
    std::fprintf(stderr, "tsan_mutex: %s is not in abseil's library; its version has changed\n",
                 name);
    std::abort();
  }
  return reinterpret_cast<Function>(symbol);
}

#define TESSERA_MUTEX(suffix) "_ZN4absl7debian35Mutex" suffix
#define TESSERA_COND_VAR(suffix) "_ZN4absl7debian37CondVar" suffix

// While it lives, ThreadSanitizer does not look at what this thread reads or writes. May nest.
class UnwatchedReads {
 public:
  UnwatchedReads() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
  ~UnwatchedReads() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
  UnwatchedReads(const UnwatchedReads&) = delete;
  UnwatchedReads& operator=(const UnwatchedReads&) = delete;
};

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static const auto real = Real<void (*)(Mutex*)>(TESSERA_MUTEX("4LockEv"));
  real(this);
  __tsan_acquire(this);
}

void Mutex::Unlock() {
  static const auto real = Real<void (*)(Mutex*)>(TESSERA_MUTEX("6UnlockEv"));
  __tsan_release(this);
  const UnwatchedReads unwatched;
  real(this);
}

bool Mutex::TryLock() {
  static const auto real = Real<bool (*)(Mutex*)>(TESSERA_MUTEX("7TryLockEv"));
  const bool locked = real(this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::ReaderLock() {
  static const auto real = Real<void (*)(Mutex*)>(TESSERA_MUTEX("10ReaderLockEv"));
  real(this);
  __tsan_acquire(this);
}

void Mutex::ReaderUnlock() {
  static const auto real = Real<void (*)(Mutex*)>(TESSERA_MUTEX("12ReaderUnlockEv"));
  __tsan_release(this);
  const UnwatchedReads unwatched;
  real(this);
}

void Mutex::Await(const Condition& condition) {
  static const auto real =
      Real<void (*)(Mutex*, const Condition&)>(TESSERA_MUTEX("5AwaitERKNS0_9ConditionE"));
  __tsan_release(this);
  const UnwatchedReads unwatched;
  real(this, condition);
  __tsan_acquire(this);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  static const auto real = Real<bool (*)(Mutex*, const Condition&, Duration)>(
      TESSERA_MUTEX("16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE"));
  __tsan_release(this);
  const UnwatchedReads unwatched;
  const bool met = real(this, condition, timeout);
  __tsan_acquire(this);
  return met;
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  static const auto real = Real<bool (*)(Mutex*, const Condition&, Time)>(
      TESSERA_MUTEX("17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE"));
  __tsan_release(this);
  const UnwatchedReads unwatched;
  const bool met = real(this, condition, deadline);
  __tsan_acquire(this);
  return met;
}

void CondVar::Wait(Mutex* mu) {
  static const auto real = Real<void (*)(CondVar*, Mutex*)>(TESSERA_COND_VAR("4WaitEPNS0_5MutexE"));
  __tsan_release(mu);
  const UnwatchedReads unwatched;
  real(this, mu);
  __tsan_acquire(mu);
}

bool CondVar::WaitWithTimeout(Mutex* mu, Duration timeout) {
  static const auto real = Real<bool (*)(CondVar*, Mutex*, Duration)>(
      TESSERA_COND_VAR("15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE"));
  __tsan_release(mu);
  const UnwatchedReads unwatched;
  const bool timed_out = real(this, mu, timeout);
  __tsan_acquire(mu);
  return timed_out;
}

bool CondVar::WaitWithDeadline(Mutex* mu, Time deadline) {
  static const auto real = Real<bool (*)(CondVar*, Mutex*, Time)>(
      TESSERA_COND_VAR("16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE"));
  __tsan_release(mu);
  const UnwatchedReads unwatched;
  const bool timed_out = real(this, mu, deadline);
  __tsan_acquire(mu);
  return timed_out;
}

ABSL_NAMESPACE_END
}  // namespace absl
