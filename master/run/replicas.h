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
#include "master/actions/action.h"
#include "master/state/job_table.h"
#include "master/state/now.h"
#include "tessera/v1/cluster.pb.h"
#include "tessera/v1/master_state.pb.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::master {

// Copies of rows (recovery.replicas): for each part of a run, a second ps, the follower, that has a
// copy of the rows of the part's ps and may take its place.
//
// A pair is a part's ps and its follower, under a number that grows. The ps says in its heartbeat
// when the follower has all acknowledged pushes; from then on it acknowledges no push that the
// follower lacks, until it is told of a later pair. So a follower that is in sync may take the
// place of its ps, unless this master, or an earlier one, was about to tell the ps of another pair.
// Three things are durable for the next master, which may find the ps lost: that the follower is in
// sync, a new pair before anyone is told of it, and which follower takes which ps's place.
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
    absl::Duration awaited;             // for so long pushes have waited
  };

  // All are borrowed and outlive this. `ps`: the run's ps by part, which may change. `is_lost`:
  // whether a part's ps is lost.
  Replicas(JobTable* jobs, v1::JobRecord* record, const std::vector<RunNode>* ps,
           std::function<bool(uint32_t part)> is_lost)
      : jobs_(jobs), record_(record), ps_(*ps), is_lost_(std::move(is_lost)) {}

  // Parts that have no follower and may get one.
  std::vector<uint32_t> Vacant(absl::Duration now) const;
  // Lets `node`, which lives and which the run does not use, have a copy of the part's rows.
  void LetFollow(uint32_t part, const RunNode& node, const Now& now);
  bool Follows(uint64_t incarnation) const;
  // Pairs of incarnations: a ps, and its follower that may take its place.
  std::vector<std::pair<uint64_t, uint64_t>> Copies() const;
  // All nodes that were ever to follow, by incarnation: they may have copies.
  const std::map<uint64_t, RunNode>& copied_to() const { return copied_to_; }
  // Followers that pushes have waited for longer than `worth_saying`.
  std::vector<Wait> Waits(absl::Duration worth_saying) const;

  // The follower is lost, or is to stop; `why` goes on from its name.
  void GiveUp(uint64_t incarnation, absl::string_view why, const Now& now);
  // `job` is what a ps has last said of the job.
  void Hear(uint64_t incarnation, const v1::JobOnPs& job, const Now& now);
  // A ps of the run says that a node follows it that this object does not know: the ps is to wait
  // for that node no more. The node was to take the ps's place, and the node, or the master that
  // knew of it, is gone.
  void EndUnknown(uint64_t incarnation, const Now& now);
  // The part's ps is lost. Returns the follower if it has all acknowledged pushes; it is no
  // follower any more.
  std::optional<Replica> Take(uint32_t part, const Now& now);

  // Does what is due by time alone.
  void Tick(const Now& now);
  // The next ps to tell; at most one call is under way. `open`: how the part's own ps was asked to
  // open the job.
  std::optional<TellFollower> TakeTelling(
      absl::FunctionRef<v1::OpenJobRequest(uint32_t part)> open);
  void OnTold(const absl::Status& status, const Now& now);

  void Save(v1::RunState& state) const;
  // A follower that was about to take the place of its ps follows it again, until the ps is said to
  // be lost.
  void Restore(const v1::RunState& state, const Now& now);

 private:
  struct Follower {
    enum Stage {
      kNone,       // no follower, and none before `next`
      kToTell,     // the ps and the node, of each other
      kFollowing,  // both have been told
      kToEnd,      // the ps is to be told that nobody follows it
    };
    RunNode node;
    uint64_t pair = 0;
    Stage stage = kNone;
    bool in_sync = false;
    bool asks = false;    // TakeTelling is to give its action
    absl::Duration next;  // no telling, and for kNone no follower, before this
    // For how long pushes have waited for the follower.
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
  std::optional<Telling> telling_;         // the action under way
  std::map<uint64_t, RunNode> copied_to_;  // by incarnation
};

}  // namespace tessera::master
