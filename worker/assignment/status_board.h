#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"

namespace tessera::worker {

// What the worker is doing, whom it waits for and how long its calls take. Heartbeats carry it, for
// `tessera describe`. Thread-safe.
class StatusBoard {
 public:
  // `clock` is borrowed and outlives the board.
  explicit StatusBoard(const Clock& clock) : clock_(clock) {}

  void SetDoing(std::string doing) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    doing_ = std::move(doing);
  }
  std::string doing() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return doing_;
  }

  // One wait, which lasts from construction to destruction. `what` reads like "ps-1
  // (127.0.0.1:4711): push of step 7".
  class Wait {
   public:
    Wait(StatusBoard* board, std::string what) : board_(board) {
      absl::MutexLock lock(&board_->mu_);
      board_->waits_[this] = {std::move(what), board_->clock_.Monotonic()};
    }
    ~Wait() {
      absl::MutexLock lock(&board_->mu_);
      board_->waits_.erase(this);
    }
    // Changes the words; the wait keeps its beginning.
    void Reword(std::string what) {
      absl::MutexLock lock(&board_->mu_);
      board_->waits_[this].what = std::move(what);
    }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    StatusBoard* const board_;
  };

  // Waits that are older than a second.
  std::vector<std::string> waits() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    std::vector<std::string> lines;
    for (const auto& [wait, entry] : waits_) {
      const absl::Duration age = clock_.Monotonic() - entry.since;
      if (age < absl::Seconds(1)) continue;
      lines.push_back(
          absl::StrCat("waits for ", entry.what, ", since ", absl::ToInt64Seconds(age), " s"));
    }
    return lines;
  }

  struct Calls {
    uint64_t calls = 0;
    absl::Duration time;
  };
  void AddCall(const std::string& ps, absl::Duration time) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    Calls& calls = calls_[ps];
    calls.calls += 1;
    calls.time += time;
  }
  // The calls since the last TakeCalls, by ps.
  std::map<std::string, Calls> TakeCalls() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return std::exchange(calls_, {});
  }

 private:
  struct Entry {
    std::string what;
    absl::Duration since;
  };

  const Clock& clock_;

  mutable absl::Mutex mu_;
  std::string doing_ ABSL_GUARDED_BY(mu_) = "idle";
  std::map<const Wait*, Entry> waits_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Calls> calls_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::worker
