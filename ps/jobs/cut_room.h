#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera::ps {

// Bounds the bytes of rows that were copied for a cut (RowStore::BeginCut) and are not written yet.
// Whoever is about to change rows reserves as much as the copies may take, and returns it when the
// tables have made and counted the copies. Thread-safe.
class CutRoom {
 public:
  // Bytes that copies take now in all tables; never more than was reserved for them.
  using Copied = absl::FunctionRef<uint64_t()>;

  explicit CutRoom(uint64_t max_bytes) : max_bytes_(max_bytes) {}
  CutRoom(const CutRoom&) = delete;
  CutRoom& operator=(const CutRoom&) = delete;

  // Waits, at most `limit`, until there is room for `bytes` more. False: there was none. A request
  // larger than the whole room is granted when nothing else is in it.
  bool Reserve(uint64_t bytes, Copied copied, absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_);
  void Return(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Tells those that wait that copies were freed.
  void Wake() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const uint64_t max_bytes_;
  absl::Mutex mu_;
  uint64_t reserved_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tessera::ps
