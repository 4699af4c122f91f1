#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "absl/time/time.h"

namespace tessera::master {

// How much of their room the push logs of a run's ps take, by their heartbeats.
//
// Only a checkpoint makes a log short again, and a checkpoint needs a barrier, which a job that
// waits for room in its log does not reach. So a checkpoint is cut early where a log fills its room
// to a half, and from three quarters on training does not leave its barrier before one is written:
// the rest is for the units that are under way. Pure; `now` is a time of the monotonic clock. Not
// thread-safe.
class LogRoom {
 public:
  struct Fullest {
    uint64_t incarnation = 0;
    double share = 0;  // of its room that the log takes, above 0, at most 1
  };

  // What the ps, or the follower of one, says of its log; 0: it has none.
  void Hear(uint64_t incarnation, double share, absl::Duration now);
  // The process is gone.
  void Lose(uint64_t incarnation) { logs_.erase(incarnation); }
  // A checkpoint is committed, and the ps are being told so. What they have said is out of date.
  void OnCommitted();
  // They have been told. What takes its time to make a log short, such as one of a follower, may
  // say what it said before for another moment.
  void OnTold(absl::Duration now);
  // A checkpoint has failed: the next one that logs alone ask for is not cut at once, unless
  // training has to wait for it.
  void OnFailed();

  // The log that has the least room left; nullopt: nobody has said anything in the last seconds.
  std::optional<Fullest> fullest(absl::Duration now) const;
  // Training is not to go on before a checkpoint is written.
  bool Scarce(absl::Duration now) const;
  // A checkpoint is to be cut, where the last one was begun at `last`, or, if one is being written,
  // training is to stand at the next barrier.
  bool WantsBarrier(bool writing, absl::Duration last, absl::Duration now) const;

 private:
  struct Heard {
    double share = 0;
    double least = 0;  // that was heard since the last checkpoint was told of, or failed
    absl::Duration at;
  };
  // Of those that have said something in the last seconds.
  static bool Says(const Heard& log, absl::Duration now);
  std::map<uint64_t, Heard> logs_;     // by incarnation
  std::map<uint64_t, double> before_;  // of a half or more, when the last checkpoint was committed
  bool outdated_ = false;
  absl::Duration told_at_ = -absl::InfiniteDuration();
  int failures_ = 0;  // of checkpoints, one after another
};

}  // namespace tessera::master
