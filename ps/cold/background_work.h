#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "rocksdb/listener.h"

// What RocksDB does in threads of its own, for who waits for it.
namespace tessera::ps {

// Tells when a compaction has ended. Thread-safe.
class Compactions final : public rocksdb::EventListener {
 public:
  void OnCompactionCompleted(rocksdb::DB*, const rocksdb::CompactionJobInfo&) override {
    absl::MutexLock lock(&mu_);
    ++ended_;
  }
  uint64_t ended() const {
    absl::MutexLock lock(&mu_);
    return ended_;
  }
  // False: no further one has ended after `seen`.
  bool WaitForMore(uint64_t seen, absl::Duration limit) {
    absl::MutexLock lock(&mu_);
    const auto more = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return ended_ != seen; };
    return mu_.AwaitWithTimeout(absl::Condition(&more), limit);
  }

 private:
  mutable absl::Mutex mu_;
  uint64_t ended_ ABSL_GUARDED_BY(mu_) = 0;
};

// Tells whether RocksDB, which has stopped at an error that may pass, tries to go on. Thread-safe.
class Recovery final : public rocksdb::EventListener {
 public:
  void OnBackgroundError(rocksdb::BackgroundErrorReason reason, rocksdb::Status* error) override {
    // A compaction is tried again without one.
    if (reason == rocksdb::BackgroundErrorReason::kCompaction) return;
    if (error->severity() >= rocksdb::Status::kFatalError) return;
    absl::MutexLock lock(&mu_);
    under_way_ = true;
  }
  // RocksDB 7.8 would look for room for a compaction by itself, and meanwhile not begin the
  // recovery that a record of its own needs (ScratchFiles). The compaction is tried again anyhow.
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status error,
                            bool* begin) override {
    if (error.severity() <= rocksdb::Status::kSoftError) *begin = false;
  }
  void OnErrorRecoveryEnd(const rocksdb::BackgroundErrorRecoveryInfo&) override {
    absl::MutexLock lock(&mu_);
    under_way_ = false;
  }
  // Returns after `limit` at the latest.
  void AwaitEnd(absl::Duration limit) {
    absl::MutexLock lock(&mu_);
    const auto ended = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !under_way_; };
    mu_.AwaitWithTimeout(absl::Condition(&ended), limit);
  }

 private:
  absl::Mutex mu_;
  bool under_way_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tessera::ps
