#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera::ps {

// Bounds the bytes that rows take which were copied for a cut (RowStore::BeginCut) and are not
// written yet. Whoever is about to change rows asks for as much as that may copy, and returns it
// when the copies, if there were any, are made and counted by the tables. Thread-safe.
class CutRoom {
 public:
  // What the copies take now, of all tables; never more than what was reserved for them.
  using Copied = absl::FunctionRef<uint64_t()>;

  explicit CutRoom(uint64_t max_bytes) : max_bytes_(max_bytes) {}
  CutRoom(const CutRoom&) = delete;
  CutRoom& operator=(const CutRoom&) = delete;

  // Waits until there is room for `bytes` more, at most `limit`. False: there was none. What is
  // larger than all the room there is gets it when nothing else is in it.
  bool Reserve(uint64_t bytes, Copied copied, absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_);
  void Return(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Copies went.
  void Wake() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const uint64_t max_bytes_;
  absl::Mutex mu_;
  uint64_t reserved_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tessera::ps
