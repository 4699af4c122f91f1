#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "ps/memory/memory_beside.h"

namespace tessera::ps {

class Table;

// Keeps what cannot leave memory within so many bytes: who is about to make rows takes room for
// them first, and makes none if there is not enough. What rows have is measured, and so is all else
// that the process has resident (MemoryBeside); in between it counts what was taken. Memory that
// rows have left goes back to the system when somebody lacks it. Sightings of keys without a row
// count as rows do. Of a table that spills, what stays in memory is what its tier has of rows on
// disk (TableTier::tier_bytes); the rows are a MemoryBudget's to bound, and here that is kept free
// for them. Thread-safe; outlives the tables.
class RowLimit {
 public:
  struct Options {
    uint64_t bytes = 0;
    // Resident bytes of the process, all of which the limit then covers. Null: it covers rows.
    std::function<uint64_t()> resident = nullptr;
    // Kept free for copies of rows that change while a checkpoint is written.
    uint64_t copy_bytes = 0;
    // Kept free for rows that may leave memory: as many as a MemoryBudget leaves them at least.
    uint64_t spilling_bytes = 0;
    // What it grants in all, whatever else there is.
    uint64_t least_bytes = 0;
    // How long rows may be refused, while no room comes, before the refusal says that it lasts.
    absl::Duration patience = absl::Minutes(5);
    absl::Duration look = absl::Milliseconds(200);  // time between measurements
    const Clock* clock = &SystemClock();            // borrowed, outlives the limit
  };
  explicit RowLimit(Options options);
  ~RowLimit();  // no table may be left
  RowLimit(const RowLimit&) = delete;
  RowLimit& operator=(const RowLimit&) = delete;

  // Room that a call has taken. What it did not use is given back when this goes.
  class Room {
   public:
    Room() = default;
    Room(Room&& other) noexcept
        : limit_(std::exchange(other.limit_, nullptr)),
          bytes_(other.bytes_),
          used_(std::exchange(other.used_, 0)) {}
    Room& operator=(Room&&) = delete;
    ~Room() {
      if (limit_ != nullptr) limit_->Return(bytes_, std::min(used_, bytes_));
    }
    // The rows are made, and take so many bytes.
    void Use(uint64_t bytes) { used_ = bytes; }

   private:
    friend class RowLimit;
    Room(RowLimit* limit, uint64_t bytes) : limit_(limit), bytes_(bytes) {}
    RowLimit* limit_ = nullptr;  // null: has taken none
    uint64_t bytes_ = 0;
    uint64_t used_ = 0;
  };

  // nullopt: there is no room for so many bytes of rows.
  std::optional<Room> Take(uint64_t bytes);
  // Whether Take would give some.
  bool HasRoom(uint64_t bytes) const { return rows() + bytes <= ForRows(); }
  // What a call of a job answers that lacks room: `what` could not be made. RESOURCE_EXHAUSTED: it
  // may come again; FAILED_PRECONDITION, only if `may_last`: the job has been lacking room for the
  // time of patience, and somebody must do something. Of several jobs that lack room the one with
  // the most rows is told so, and the others wait anew for what it leaves.
  absl::Status Refuse(const std::string& job, absl::string_view what, bool may_last)
      ABSL_LOCKS_EXCLUDED(mu_);

  // A table of the job's. Borrowed until Remove.
  void Add(const std::string& job, Table* table) ABSL_LOCKS_EXCLUDED(mu_);
  void Remove(Table* table) ABSL_LOCKS_EXCLUDED(mu_);
  // Measures now what is else measured after each `look`.
  void Weigh() ABSL_LOCKS_EXCLUDED(mu_);

  uint64_t bytes() const { return options_.bytes; }
  // Bytes of what stays in memory of tables, and of rows that are about to be made.
  uint64_t rows() const {
    return measured_.load(std::memory_order_relaxed) + taken_.load(std::memory_order_relaxed);
  }
  // Bytes that are kept for all else.
  uint64_t others() const { return others_.load(std::memory_order_relaxed); }

 private:
  uint64_t ForRows() const {
    return std::max(options_.bytes - std::min(others(), options_.bytes), options_.least_bytes);
  }
  void Return(uint64_t bytes, uint64_t used);
  void Work() ABSL_LOCKS_EXCLUDED(mu_);
  // Has tables give back what their rows have left.
  void GiveBack() ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t BytesOf(const std::string& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the job's refusals last, as Refuse says.
  bool Lasts(const std::string& job, absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  std::atomic<uint64_t> others_ = 0;
  std::atomic<uint64_t> measured_ = 0;  // of all tables, at the last look
  std::atomic<uint64_t> taken_ = 0;     // by calls under way, and used since the last look
  std::atomic<uint64_t> used_ = 0;      // of taken_: used since the last look

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  struct OfJob {
    std::string job;
    Table* table;
  };
  std::vector<OfJob> tables_ ABSL_GUARDED_BY(mu_);
  // Memory of closed tables, which is resident until their jobs are.
  struct Leaving {
    uint64_t bytes = 0;
    absl::Duration at;  // since when
  };
  std::vector<Leaving> leaving_ ABSL_GUARDED_BY(mu_);
  // At the last look, of measured_: of rows on disk, and of keys without a row.
  uint64_t below_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t sightings_ ABSL_GUARDED_BY(mu_) = 0;
  MemoryBeside beside_ ABSL_GUARDED_BY(mu_);
  bool lacks_ ABSL_GUARDED_BY(mu_) = false;  // somebody was refused since the last GiveBack
  // Of a job that lacks room.
  struct Refusals {
    absl::Duration since;
    absl::Duration at;      // the last one
    bool may_last = false;  // one that may
    bool told = false;      // that it lasts
  };
  // By job; empty once more room has come.
  std::map<std::string, Refusals> refused_ ABSL_GUARDED_BY(mu_);
  uint64_t least_room_ ABSL_GUARDED_BY(mu_) = 0;  // that there was meanwhile
  std::thread thread_;
};

}  // namespace tessera::ps
