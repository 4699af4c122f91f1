#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/file_system.h"
#include "ps/push_log/push_log.h"
#include "ps/push_log/push_log_reader.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::ps {

// Feeds a push log, while it is written, to the one ps that follows it, and knows what that one
// has. A follower that has all that is in the log is in sync: from then on whoever waits here has
// its OK when the follower has what the log had by then, whatever becomes of the follower, until
// another pair is told. So all that was acknowledged is with a follower that is in sync. Who has
// waited for kLongestWait is told whom for, and is to come again: a push that is repeated is in the
// log already, and waits anew.
//
// Thread-safe. Callbacks run once each, without a lock, in the thread that came with the cause, or
// in `run`. A call that throws std::bad_alloc has not taken its callback.
class LogFeed {
 public:
  using ReadDone = std::function<void(absl::StatusOr<v1::ReadLogResponse>)>;
  using Done = std::function<void(absl::Status)>;
  // A master gives up a follower before (master/replicas.cc).
  static constexpr absl::Duration kLongestWait = absl::Seconds(5);
  struct Options {
    FileSystem* files = nullptr;   // borrowed
    const PushLog* log = nullptr;  // borrowed, outlives the feed
    const Clock* clock = nullptr;  // borrowed
    // Where the log is read for calls that have waited; null: in the thread that appended.
    std::function<void(absl::AnyInvocable<void() &&>)> run = nullptr;
  };
  explicit LogFeed(Options options) : options_(std::move(options)) {}

  // See v1::ParameterService.SetFollower; without a name nobody follows. ABORTED: a later one has
  // been told.
  absl::Status SetPair(uint64_t pair, std::string follower) ABSL_LOCKS_EXCLUDED(mu_);
  // See v1::ParameterService.ReadLog; at the deadline (of Clock::Monotonic) it is answered without
  // records.
  void Read(const v1::ReadLogRequest& request, absl::Duration deadline, ReadDone done)
      ABSL_LOCKS_EXCLUDED(mu_);
  // The log has grown.
  void Appended() ABSL_LOCKS_EXCLUDED(mu_);
  // The checkpoint of this cut is committed.
  void Committed(const std::string& cut) ABSL_LOCKS_EXCLUDED(mu_);
  // Answers OK when the follower has all that is in the log now; at once where none is in sync.
  // UNAVAILABLE: it has not come to have that within kLongestWait.
  void Await(Done done) ABSL_LOCKS_EXCLUDED(mu_);
  // Answers reads whose deadline has passed, and those that have waited for too long.
  void Expire() ABSL_LOCKS_EXCLUDED(mu_);
  // Whoever waits, and whoever comes, is answered with `reason`.
  void Close(absl::Status reason) ABSL_LOCKS_EXCLUDED(mu_);

  // Records from there on are still to be read, or may be.
  uint64_t needed_from() const ABSL_LOCKS_EXCLUDED(mu_);
  // The pair whose follower is in sync; 0: none is.
  uint64_t in_sync() const ABSL_LOCKS_EXCLUDED(mu_);
  // For how long the follower lacks what somebody waits for, or was told to come again for; zero:
  // it lacks nothing.
  absl::Duration oldest_wait() const ABSL_LOCKS_EXCLUDED(mu_);
  // The same in words: for whom, for what, since when.
  std::string DescribeWait() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Poll {
    v1::ReadLogRequest request;
    absl::Duration deadline;
    ReadDone done;
  };
  struct Wait {
    uint64_t below = 0;  // until the follower has the records below it
    absl::Duration since;
  };
  struct Waiting {
    Wait wait;
    Done done;
  };

  absl::Status CheckPair(uint64_t pair) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What the follower's position says; those that need wait no more.
  std::list<Waiting> Confirm(uint64_t below) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Those that have waited for too long.
  std::list<Waiting> TakeLate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  const Wait* Oldest() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // null: none
  std::string Describe(const Wait& wait) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The poll, if it can be answered and nobody is about to.
  std::optional<Poll> TakePoll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Answer(Poll poll) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<v1::ReadLogResponse> ReadFor(const v1::ReadLogRequest& request)
      ABSL_LOCKS_EXCLUDED(mu_, reader_mu_);

  const Options options_;

  absl::Mutex reader_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  std::unique_ptr<PushLogReader> reader_ ABSL_GUARDED_BY(reader_mu_);
  std::string reader_cut_ ABSL_GUARDED_BY(reader_mu_);

  mutable absl::Mutex mu_;
  absl::Status closed_ ABSL_GUARDED_BY(mu_);
  uint64_t pair_ ABSL_GUARDED_BY(mu_) = 0;
  std::string follower_ ABSL_GUARDED_BY(mu_);    // its name; empty: nobody follows
  uint64_t has_below_ ABSL_GUARDED_BY(mu_) = 0;  // the follower
  bool in_sync_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<Poll> poll_ ABSL_GUARDED_BY(mu_);
  std::list<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  // The first that was told to come again, until the follower has what it waited for.
  std::optional<Wait> late_ ABSL_GUARDED_BY(mu_);
  std::optional<std::string> committed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::ps
