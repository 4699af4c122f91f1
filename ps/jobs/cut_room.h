#pragma once

#include <cstdint>
#include <optional>

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
  // Bytes as they are now.
  struct Now {
    uint64_t needed = 0;  // what the copies of one who reserves may take
    uint64_t copied = 0;  // what copies take in all tables; never more than was reserved for them
    uint64_t unread = 0;  // what the writer still has to read
  };
  using Look = absl::FunctionRef<Now()>;

  explicit CutRoom(uint64_t max_bytes) : max_bytes_(max_bytes) {}
  CutRoom(const CutRoom&) = delete;
  CutRoom& operator=(const CutRoom&) = delete;

  // Waits until there is room for what is needed, which becomes less while the writer reads, and
  // returns it. nullopt: there was none, and the writer has read nothing for at least `limit` and
  // less than twice that.
  std::optional<uint64_t> Reserve(Look look, absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_);
  void Return(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Tells those that wait that copies were freed.
  void Wake() ABSL_LOCKS_EXCLUDED(mu_);
  // Whether somebody waits.
  bool awaited() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const uint64_t max_bytes_;
  mutable absl::Mutex mu_;
  uint64_t reserved_ ABSL_GUARDED_BY(mu_) = 0;
  int waiting_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tessera::ps
