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

// Feeds a push log, while it is written, to the one ps that follows it, and knows what that ps has.
// A follower that has all of the log is in sync. From then on a call that waits here gets OK only
// when the follower has what the log had when the call came, whatever becomes of the follower,
// until the master names another pair. So a follower in sync has all that was acknowledged. A call
// that has waited for kLongestWait is told for whom, and must come again: a repeated push is in the
// log already, and waits anew.
//
// Thread-safe. Each callback runs once, without a lock, in the thread that came with the cause, or
// in `run`. A call that throws std::bad_alloc has not taken its callback.
class LogFeed {
 public:
  using ReadDone = std::function<void(absl::StatusOr<v1::ReadLogResponse>)>;
  using Done = std::function<void(absl::Status)>;
  // Longer than the master takes to give up a follower (master/run/replicas.cc).
  static constexpr absl::Duration kLongestWait = absl::Seconds(5);
  struct Options {
    FileSystem* files = nullptr;   // borrowed
    const PushLog* log = nullptr;  // borrowed, outlives the feed
    const Clock* clock = nullptr;  // borrowed
    // Runs the reads of the log for calls that have waited; null: the thread that appended does.
    std::function<void(absl::AnyInvocable<void() &&>)> run = nullptr;
  };
  explicit LogFeed(Options options) : options_(std::move(options)) {}

  // See v1::ParameterService.SetFollower; an empty name: nobody follows. ABORTED: a later pair has
  // been named.
  absl::Status SetPair(uint64_t pair, std::string follower) ABSL_LOCKS_EXCLUDED(mu_);
  // See v1::ParameterService.ReadLog; at the deadline (of Clock::Monotonic) the answer has no
  // records.
  void Read(const v1::ReadLogRequest& request, absl::Duration deadline, ReadDone done)
      ABSL_LOCKS_EXCLUDED(mu_);
  // The log has grown.
  void Appended() ABSL_LOCKS_EXCLUDED(mu_);
  // The checkpoint of this cut is committed, whose segment begins with record `first`. From then on
  // followers are opened from it, or a later one.
  void Committed(const std::string& cut, uint64_t first) ABSL_LOCKS_EXCLUDED(mu_);
  // The last one that is; nullopt: none yet.
  std::optional<std::string> committed() const ABSL_LOCKS_EXCLUDED(mu_);
  // Answers OK when the follower has all that is in the log now; at once if no follower is in sync.
  // UNAVAILABLE: the follower did not have it within kLongestWait.
  void Await(Done done) ABSL_LOCKS_EXCLUDED(mu_);
  // Answers reads whose deadline has passed, and calls that have waited too long.
  void Expire() ABSL_LOCKS_EXCLUDED(mu_);
  // Answers all calls that wait, and all later ones, with `reason`.
  void Close(absl::Status reason) ABSL_LOCKS_EXCLUDED(mu_);

  // The first record that the follower still needs, or may need.
  uint64_t needed_from() const ABSL_LOCKS_EXCLUDED(mu_);
  // The pair whose follower is in sync; 0: none is.
  uint64_t in_sync() const ABSL_LOCKS_EXCLUDED(mu_);
  // How long the follower has lacked what a call waits for, or was told to come again for; zero: it
  // lacks nothing.
  absl::Duration oldest_wait() const ABSL_LOCKS_EXCLUDED(mu_);
  // The same in words: who is waited for, for what, since when.
  std::string DescribeWait() const ABSL_LOCKS_EXCLUDED(mu_);
  // The follower's name; empty: nobody follows.
  std::string follower() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Poll {
    v1::ReadLogRequest request;
    absl::Duration deadline;
    ReadDone done;
  };
  struct Wait {
    uint64_t below = 0;  // ends when the follower has the records below this
    absl::Duration since;
  };
  struct Waiting {
    Wait wait;
    Done done;
  };

  absl::Status CheckPair(uint64_t pair) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Notes that the follower has the records below `below`; returns the calls that need wait no
  // more.
  std::list<Waiting> Confirm(uint64_t below) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes out the calls that have waited too long.
  std::list<Waiting> TakeLate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  const Wait* Oldest() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // null: none
  std::string Describe(const Wait& wait) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes the poll, if it can be answered and nobody is about to.
  std::optional<Poll> TakePoll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Answer(Poll poll) ABSL_LOCKS_EXCLUDED(mu_);
  // By Options::run, if there is one.
  void AnswerElsewhere(Poll poll) ABSL_LOCKS_EXCLUDED(mu_);
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
  uint64_t has_below_ ABSL_GUARDED_BY(mu_) = 0;  // the follower has the records below
  // Until it has some: where the last committed cut began when it was named.
  uint64_t begins_at_ ABSL_GUARDED_BY(mu_) = 0;
  bool in_sync_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<Poll> poll_ ABSL_GUARDED_BY(mu_);
  std::list<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  // The first wait that ended with "come again", until the follower has what it waited for.
  std::optional<Wait> late_ ABSL_GUARDED_BY(mu_);
  std::optional<std::string> committed_ ABSL_GUARDED_BY(mu_);
  uint64_t committed_first_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tessera::ps
