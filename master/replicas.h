#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "master/action.h"
#include "master/job_table.h"
#include "master/now.h"
#include "tessera/v1/cluster.pb.h"
#include "tessera/v1/master_state.pb.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::master {

// A second ps with each ps's rows (recovery.replicas): who has a copy of which part of a run, and
// may take its place.
//
// A pair is a part's ps and the one that follows it, under a number that grows. The ps says by its
// heartbeat when the follower has all that was acknowledged, and from then on acknowledges nothing
// that the follower lacks, until it is told of a later pair. So a follower that was said to be in
// sync may take the place of its ps, unless this master, or one before it, was about to tell of
// another pair. What the ps said is durable, for the next master, which may find that ps lost; so
// is another pair, before it is told; and so is who takes whose place.
//
// A pure core of calls and injected time. Not thread-safe.
class Replicas {
 public:
  struct Replica {
    RunNode node;
    uint64_t pair = 0;
  };
  struct Wait {
    uint32_t part = 0;
    const RunNode* follower = nullptr;  // until the next call
    absl::Duration awaited;             // by pushes
  };

  // All outlive this. `ps` has the run's ps by part, and may change; `is_lost` is asked of a part.
  Replicas(JobTable* jobs, v1::JobRecord* record, const std::vector<RunNode>* ps,
           std::function<bool(uint32_t part)> is_lost)
      : jobs_(jobs), record_(record), ps_(*ps), is_lost_(std::move(is_lost)) {}

  // Parts that nobody follows, and somebody may.
  std::vector<uint32_t> Vacant(absl::Duration now) const;
  // `node` lives, and the run does not use it: it is to have a copy of the part's rows.
  void LetFollow(uint32_t part, const RunNode& node, const Now& now);
  bool Follows(uint64_t incarnation) const;
  // Incarnations of ps, and of those that may take their places.
  std::vector<std::pair<uint64_t, uint64_t>> Copies() const;
  // All that were ever to follow, by incarnation: they may have copies.
  const std::map<uint64_t, RunNode>& copied_to() const { return copied_to_; }
  // That pushes wait for, for longer than `worth_saying`.
  std::vector<Wait> Waits(absl::Duration worth_saying) const;

  // It is lost, or is to stop; `why` goes on from its name.
  void GiveUp(uint64_t incarnation, absl::string_view why, const Now& now);
  // What a ps has last said of the job.
  void Hear(uint64_t incarnation, const v1::JobOnPs& job, const Now& now);
  // A ps of the run says that it is followed by a node that nobody here knows of: it waits for it
  // no more. That node was to take its place, and the master before this one, or the node, is gone.
  void EndUnknown(uint64_t incarnation, const Now& now);
  // The part's ps is lost: who has all that was acknowledged, and is no follower any more.
  std::optional<Replica> Take(uint32_t part, const Now& now);

  // For what time alone makes due.
  void Tick(const Now& now);
  // Whom to tell next; at most one is under way. `open` is how the part's own ps was asked to open
  // the job.
  std::optional<TellFollower> TakeTelling(
      absl::FunctionRef<v1::OpenJobRequest(uint32_t part)> open);
  void OnTold(const absl::Status& status, const Now& now);

  void Save(v1::RunState& state) const;
  // Who was to take the place of its ps follows it again, until that is said to be lost.
  void Restore(const v1::RunState& state, const Now& now);

 private:
  struct Follower {
    enum Stage {
      kNone,       // and not before `next`
      kToTell,     // the ps and the node, of each other
      kFollowing,  // both have been told
      kToEnd,      // the ps is to be told that nobody follows it
    };
    RunNode node;
    uint64_t pair = 0;
    Stage stage = kNone;
    bool in_sync = false;
    bool asks = false;    // an action is to be taken
    absl::Duration next;  // not before
    // For how long pushes have waited for it.
    absl::Duration awaited = absl::ZeroDuration();
  };
  struct Telling {
    uint32_t part = 0;
    uint64_t pair = 0;
  };

  uint64_t NextPair();
  void GiveUp(uint32_t part, Follower& follower, absl::string_view why, const Now& now);

  JobTable* const jobs_;
  v1::JobRecord* const record_;
  const std::vector<RunNode>& ps_;
  const std::function<bool(uint32_t part)> is_lost_;

  std::map<uint32_t, Follower> followers_;  // by part
  uint64_t last_pair_ = 0;
  std::optional<Telling> telling_;         // by the action under way
  std::map<uint64_t, RunNode> copied_to_;  // by incarnation
};

}  // namespace tessera::master
