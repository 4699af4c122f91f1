#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tessera::master {

// When a checkpoint that failed at its barrier is cut again: a ps was away, or the disk failed, and
// it is the job's last checkpoint or a push log has little room. Pure; `now` is a time of the
// monotonic clock. Not thread-safe.
class CutRetry {
 public:
  // It has failed, for `why`, and is to be cut again after a while. False: its cuts have failed for
  // longer than `patience`, by which kinds of failure are told apart (of a ps, of a disk), and it
  // waits no more. `ps_lost`: a ps is lost now, and others measure how long that is borne.
  bool Again(absl::string_view why, absl::Duration patience, bool ps_lost, absl::Duration now);
  // People are to be told why, by an event: a new cause, and not within a minute of the last event.
  // Counts as told.
  bool ToTell(absl::Duration now);
  void Reset() { waiting_.reset(); }

  bool waits() const { return waiting_.has_value(); }
  // It waits, and the time has come.
  bool Due(absl::Duration now) const { return waits() && now >= waiting_->at; }
  // Of one that waits: since its first failure, and why it has failed last.
  absl::Duration since() const { return waiting_->since; }
  const std::string& why() const { return waiting_->why; }

 private:
  struct Waiting {
    absl::Duration since;
    std::map<absl::Duration, absl::Duration> first = {};  // by patience: when such a failure came
    absl::Duration at = {};
    std::string why = {};
    std::string told = {};  // the last `why` in an event, and when
    absl::Duration told_at = -absl::InfiniteDuration();
  };
  std::optional<Waiting> waiting_;
};

}  // namespace tessera::master
