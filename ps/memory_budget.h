#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera::ps {

// Bounds the bytes that rows of tables with a tier below take in this process, over all jobs. Rows
// are counted as they come and go. What the tier itself takes (filters, indices) counts too, and so
// does the rest of the process where it is measured (MemoryBeside); but rows have at least half of
// the budget.
//
// Rows are counted, not pages: memory that rows have left serves new rows of their table's stripe
// and is not given back, so the resident size stays at its maximum. The heap's freed memory is
// given back (Evictor, main.cc).
//
// The room between `high` and the budget is for requests under way: the evictor starts at `high`
// and ends at `low`, and a call that adds rows waits above the budget. Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t bytes);
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  uint64_t bytes() const { return bytes_; }
  uint64_t rows() const {
    return static_cast<uint64_t>(std::max<int64_t>(0, rows_.load(std::memory_order_relaxed)));
  }
  // All other bytes that count.
  uint64_t others() const { return others_.load(std::memory_order_relaxed); }
  uint64_t used() const { return rows() + others(); }
  // How far eviction has to go: rows' bytes above `low`, or 0.
  uint64_t Excess() const;

  // Counts bytes of rows; negative when rows go.
  void Charge(int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Sets what the tier and the rest of the process take now.
  void SetOthers(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits until rows may be added, as long as rows leave. False: none has left for at least `limit`
  // and less than twice that.
  bool WaitForRoom(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits, at most `limit`, until the rows take more than `high` or Wake is called. True: they take
  // more.
  bool WaitForPressure(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_);
  void Wake() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // The part of the budget that is left for rows.
  uint64_t ForRows() const;
  uint64_t slack() const { return ForRows() / 32; }
  bool HasRoom() const { return rows() <= ForRows(); }
  bool Pressed() const { return rows() > ForRows() - slack(); }

  const uint64_t bytes_;
  std::atomic<int64_t> rows_ = 0;
  std::atomic<uint64_t> others_ = 0;
  std::atomic<uint64_t> left_ = 0;  // bytes of rows that have left, ever
  // Locked by who makes room or pressure, so that those that wait look again.
  absl::Mutex mu_;
  uint64_t woken_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tessera::ps
