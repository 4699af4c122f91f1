#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera::ps {

// The bytes that rows of tables with a tier below may take in this process, over all jobs. Rows are
// counted as they come and go. What the tier itself takes (filters, indices) counts too, and so
// does what is beside both where that is measured (MemoryBeside); but rows have at least half of
// the budget.
//
// What is counted are rows, not pages: memory that rows have left serves new rows of their table's
// stripe and is not given back, so the resident size stays at the most that there was at a time.
// What calls have freed is given back (Evictor, main.cc).
//
// Between `high` and the budget lies the room for requests under way: whoever evicts starts at
// `high`, ends at `low`, and who adds rows waits above the budget. Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t bytes);
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  uint64_t bytes() const { return bytes_; }
  uint64_t rows() const {
    return static_cast<uint64_t>(std::max<int64_t>(0, rows_.load(std::memory_order_relaxed)));
  }
  // All that counts besides.
  uint64_t others() const { return others_.load(std::memory_order_relaxed); }
  uint64_t used() const { return rows() + others(); }
  // How far eviction has to go: rows' bytes above `low`, or 0.
  uint64_t Excess() const;

  // Of rows; negative when they go.
  void Charge(int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // What the tier takes now, and what is beside.
  void SetOthers(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits until rows may be added, as long as rows leave: false after no less than `limit`, and
  // less than two, in which none has left.
  bool WaitForRoom(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until the rows take more than `high` or Wake is called, at most `limit`. True: they do.
  bool WaitForPressure(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_);
  void Wake() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Of the budget, what is left for rows.
  uint64_t ForRows() const;
  uint64_t slack() const { return ForRows() / 32; }
  bool HasRoom() const { return rows() <= ForRows(); }
  bool Pressed() const { return rows() > ForRows() - slack(); }

  const uint64_t bytes_;
  std::atomic<int64_t> rows_ = 0;
  std::atomic<uint64_t> others_ = 0;
  std::atomic<uint64_t> left_ = 0;  // bytes, ever
  absl::Mutex mu_;  // let go when there may be room, or pressure: whoever waits looks again
  uint64_t woken_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tessera::ps
