#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/file_system.h"
#include "ps/gradient_reducer.h"
#include "ps/job_checkpoint.h"
#include "ps/partition_set.h"
#include "ps/request_check.h"
#include "ps/sequence_set.h"
#include "ps/table.h"
#include "ps/waiting_pulls.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::ps {

// All tables of one job at one generation on this ps: the core behind ParameterService, without a
// network. Thread-safe. Whoever calls it keeps it alive until the call is answered.
//
// Locks, in the order in which they may be taken: a rank's, cut_mu_, mu_, those of the tables.
class JobShard {
 public:
  struct Options {
    const Clock* clock = nullptr;        // borrowed, outlives the shard
    FileSystem* files = nullptr;         // borrowed, outlives the shard
    std::string checkpoint_root;         // of OpenJobRequest.checkpoint and WriteCheckpointRequest
    uint64_t max_pull_bytes = 60 << 20;  // of an answer
    uint64_t max_held_push_bytes = 256 << 20;  // of pushes one step ahead
    uint64_t max_waiting_bytes = 64 << 20;     // of requests of waiting pulls
    // Where pulls that have waited are answered; null: in the thread that woke them.
    std::function<void(absl::AnyInvocable<void() &&>)> run = nullptr;
  };
  using Done = absl::AnyInvocable<void(absl::Status) &&>;

  // Empty tables, or those of the checkpoint that the request names. INVALID_ARGUMENT names the
  // field; DATA_LOSS a damaged file; FAILED_PRECONDITION a checkpoint of other tables;
  // RESOURCE_EXHAUSTED: no memory. An error of `keep_going` ends the load.
  static absl::StatusOr<std::shared_ptr<JobShard>> Open(const v1::OpenJobRequest& request,
                                                        const Options& options,
                                                        KeepGoing keep_going = absl::OkStatus);
  ~JobShard();

  const v1::OpenJobRequest& request() const { return request_; }

  // Answers by `done`, once: at once, or when the steps below the request's are applied, or when
  // Expire finds the deadline (of Clock::Monotonic) passed. `request` and `response` stay valid
  // until then.
  void Pull(const v1::PullRequest* request, v1::PullResponse* response, absl::Duration deadline,
            Done done) ABSL_LOCKS_EXCLUDED(mu_);
  // All of it or, with an error, nothing of it.
  absl::Status Push(const v1::PushRequest& request) ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  absl::Status Assign(const v1::AssignRequest& request) ABSL_LOCKS_EXCLUDED(cut_mu_);

  // sync: waits until `step` is applied, at most until the deadline (of Clock::Monotonic). Ends
  // with an error of `keep_going`, or when the shard is closed.
  absl::StatusOr<v1::WriteCheckpointResponse> WriteCheckpoint(
      const v1::WriteCheckpointRequest& request, absl::Duration deadline,
      KeepGoing keep_going = absl::OkStatus) ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);

  // `expiry_dry_run` fills TableStats.would_expire.
  v1::StatsResponse Stats(bool expiry_dry_run = false) const ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t rows() const;
  // Waits of more than a second: who waits for whom, for what, since when.
  std::vector<std::string> Waits() const ABSL_LOCKS_EXCLUDED(mu_);
  // Answers pulls whose deadline has passed with DEADLINE_EXCEEDED, naming the ranks.
  void Expire() ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the shard: waiting pulls and all calls from now on are answered with `reason`.
  void Close(absl::Status reason) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct RankState {
    // Held for a whole push, so that a repeat waits for the first one's end.
    absl::Mutex mu;
    SequenceSet applied ABSL_GUARDED_BY(mu);  // jobs without sync tables
    // The highest that has called.
    std::atomic<uint64_t> incarnation = 0;
  };

  JobShard(const v1::OpenJobRequest& request, const Options& options, PartitionSet partitions);

  // ABORTED: another partition map, or an incarnation that a later one has replaced.
  absl::Status CheckHeader(const v1::CallHeader& header) const;
  absl::Status CheckIncarnation(const v1::CallHeader& header) const;
  absl::Status Closed() const ABSL_LOCKS_EXCLUDED(mu_);
  static absl::StatusOr<std::shared_ptr<JobShard>> TryOpen(const v1::OpenJobRequest& request,
                                                           const Options& options,
                                                           KeepGoing keep_going);
  // RESOURCE_EXHAUSTED: no memory.
  absl::Status PullNow(const v1::PullRequest& request, const PullKeys& keys,
                       v1::PullResponse& response);
  absl::Status PullTable(const v1::PullRequest& request, uint32_t index,
                         absl::Span<const uint64_t> keys, v1::RowBlock& rows);
  absl::Status PushLocked(const v1::PushRequest& request, RankState& rank)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(rank.mu) ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  // Applies steps for as long as they are complete, and wakes the pulls that waited for them.
  void ApplyCompleteSteps() ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  void ApplyStep(const std::vector<GradientReducer::Push>& pushes, uint64_t step);
  void Answer(std::list<WaitingPull> pulls);
  // Steps whose updates the rows have: what the age of a row is counted from.
  uint64_t AppliedSteps() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string DescribeWait(const WaitingPull& pull, absl::Duration now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Constant after Open.
  const v1::OpenJobRequest request_;
  const Options options_;
  const PartitionSet partitions_;
  Tables tables_;
  bool has_sync_ = false;
  std::vector<std::unique_ptr<RankState>> ranks_;  // [workers]

  // Held shared while rows change, alone while a checkpoint is cut.
  mutable absl::Mutex cut_mu_;
  // What the last checkpoint of this shard wrote; nullopt: none yet, or the last try failed.
  std::optional<WrittenPart> written_ ABSL_GUARDED_BY(cut_mu_);

  mutable absl::Mutex mu_ ABSL_ACQUIRED_AFTER(cut_mu_);
  GradientReducer reducer_ ABSL_GUARDED_BY(mu_);
  bool applying_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t async_pushes_ ABSL_GUARDED_BY(mu_) = 0;
  // Jobs without sync tables: one more than the highest number of a push.
  uint64_t async_steps_ ABSL_GUARDED_BY(mu_);
  WaitingPulls waiting_ ABSL_GUARDED_BY(mu_);
  absl::Status closed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::ps
