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
// Memory that rows have left serves new rows of their table, and it is still resident. So the pages
// of a table are counted, too (TableTier::page_bytes): of as many rows as it has had at once since
// it gave memory back. Rows and pages both stay within the part of the budget that is left for
// rows.
//
// The room between `high`, a thirty-second below the part for rows, and that part is for requests
// under way: the evictor starts at `high` and ends at `low`, as far below it again, and a call that
// adds rows waits above that part. Pages may be above it for a
// moment, by a little; that is the margin of MemoryBeside. Thread-safe.
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
  uint64_t pages() const {
    return static_cast<uint64_t>(std::max<int64_t>(0, pages_.load(std::memory_order_relaxed)));
  }
  // How far eviction has to go: rows' bytes above `low`, or 0.
  uint64_t Excess() const;
  // How many bytes of pages are to be given back: those above what is left for rows, or 0 if they
  // are few.
  uint64_t ExcessPages() const;

  // Counts bytes of rows; negative when rows go.
  void Charge(int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Counts bytes of pages of rows; negative when they are given back or go with their table.
  void ChargePages(int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Sets what the tier and the rest of the process take now.
  void SetOthers(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits until rows may be added, as long as rows leave or pages are given back. False: none has
  // been for at least `limit` and less than twice that.
  bool WaitForRoom(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits, at most `limit`, until the rows take more than `high`, there are ExcessPages, or Wake is
  // called. False: only Wake was.
  bool WaitForPressure(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_);
  void Wake() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // The part of the budget that is left for rows.
  uint64_t ForRows() const;
  uint64_t slack() const { return ForRows() / 32; }
  // By so much pages may exceed the part for rows; twice that before calls wait for it.
  uint64_t page_slack() const { return std::min<uint64_t>(slack(), 32 << 20); }
  bool HasRoom() const { return rows() <= ForRows() && pages() <= ForRows() + 2 * page_slack(); }
  bool Pressed() const { return rows() > ForRows() - slack() || ExcessPages() > 0; }
  // Adds to a counter of bytes, and wakes those for whom that changes something.
  void Add(int64_t bytes, std::atomic<int64_t>& counter) ABSL_LOCKS_EXCLUDED(mu_);

  const uint64_t bytes_;
  std::atomic<int64_t> rows_ = 0;
  std::atomic<uint64_t> others_ = 0;
  std::atomic<int64_t> pages_ = 0;
  std::atomic<uint64_t> left_ = 0;  // bytes of rows that have left and pages given back, ever
  // Locked by who makes room or pressure, so that those that wait look again.
  absl::Mutex mu_;
  uint64_t woken_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tessera::ps
