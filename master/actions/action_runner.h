#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/file_system.h"
#include "common/rpc/channels.h"
#include "master/actions/action.h"
#include "master/actions/checkpoint_files.h"

namespace grpc {
class ClientContext;
}

namespace tessera::master {

// How long a call may take that reads or writes a ps's rows: half an hour, and as long as a ps
// alone would have for `row_bytes`, those of the whole job, at 20 MB a second.
absl::Duration LongestCall(uint64_t row_bytes);

// Does one action of the core: calls ps, all at once, and commits checkpoints. Run is called once;
// any thread may call the other methods.
class ActionRunner {
 public:
  // Called when checkpoints are removed: the ones that jobs are to start from
  // (MasterCore::Starts).
  using Starts = std::function<std::vector<std::string>()>;

  // Borrowed, outliving the runner. `checkpoint_root` is the same folder for the master and all ps.
  ActionRunner(Channels* channels, FileSystem* files, CheckpointRoot* checkpoint_root,
               Starts starts)
      : channels_(channels), disk_(files, checkpoint_root), starts_(std::move(starts)) {}

  // Waits until the work is done, for LongestCall of each call at most; heartbeats show whether a
  // ps lives. The status's message names the ps that failed.
  ActionResult Run(const Action& action) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends all calls; Run returns soon.
  void Cancel() ABSL_LOCKS_EXCLUDED(mu_);
  // The ps that have been called and have not answered.
  std::vector<std::string> Unanswered() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  ActionResult Do(const FindCheckpoint& find);
  ActionResult Do(const OpenPs& open);
  ActionResult Do(const ClosePs& close);
  ActionResult Do(const CutCheckpoint& cut);
  ActionResult Do(const WriteCheckpoint& write);
  ActionResult Do(const TellCommitted& tell);
  ActionResult Do(const PruneCheckpoints& prune);
  ActionResult Do(const CopyPartitions& copy);
  ActionResult Do(const TellFollower& tell);
  ActionResult Do(const WeighPartitions& weigh);
  ActionResult Do(const ComputeMetrics& compute);
  using WriteCalls = std::vector<std::pair<RunNode, v1::WriteCheckpointRequest>>;
  absl::StatusOr<std::vector<v1::WriteCheckpointResponse>> CallWriteCheckpoint(
      const WriteCalls& calls, absl::Duration limit, const char* what);
  bool Cancelled() const ABSL_LOCKS_EXCLUDED(mu_);

  // After one call has failed, the others are cancelled, or (kWait) end by themselves, so that no
  // ps is still at work on files that the caller is about to remove.
  enum class AfterError { kCancel, kWait };
  // Sends all calls and waits for all answers, which are in the order of the calls. Into `failed`,
  // unless null: the incarnation of the ps that the error is of.
  template <typename Request, typename Response, typename Prepare>
  absl::StatusOr<std::vector<Response>> CallAll(
      const std::vector<std::pair<RunNode, Request>>& calls, absl::Duration limit, const char* what,
      AfterError after_error, Prepare prepare, uint64_t* failed = nullptr) ABSL_LOCKS_EXCLUDED(mu_);

  Channels* const channels_;
  const CheckpointFiles disk_;
  const Starts starts_;
  absl::Duration longest_call_;  // set by Run

  mutable absl::Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  std::set<std::string> unanswered_ ABSL_GUARDED_BY(mu_);
  std::vector<grpc::ClientContext*> live_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::master
