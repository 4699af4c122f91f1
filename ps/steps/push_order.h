#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "ps/steps/applied_pushes.h"
#include "ps/steps/gradient_reducer.h"
#include "ps/steps/lead_gate.h"
#include "ps/steps/push_verdict.h"
#include "ps/steps/staleness.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::ps {

// What the modes of a job's tables say of its pushes and pulls: which push is new, when a step of
// sync tables is whole, which pull has to wait and for whom, and how stale gradients are. Pure: no
// locks, no clock of its own. Not thread-safe.
class PushOrder {
 public:
  PushOrder(const v1::OpenJobRequest& request, absl::Duration now);

  // Whether one of the tables is in sync mode.
  static bool HasSync(const v1::OpenJobRequest& request);

  // ---- pulls

  // Notes what a pull with a step confirms about pushes; true: a step may be whole now. ABORTED:
  // this ps or another one has lost some of them.
  absl::StatusOr<bool> ConfirmBy(const v1::PullRequest& pull);
  // Whether a pull may be answered: its step has come, or its rank may begin it (LeadGate), and
  // then this begins it. The caller answers it then.
  bool MayAnswer(const v1::PullRequest& pull, absl::Duration now);
  // The step that a pull is for.
  uint64_t StepOf(const v1::PullRequest& pull) const;
  // Whom a pull that may not be answered waits for: "the pushes of step 7 from rank 2 (last push:
  // step 6, 3.2s ago)".
  std::string WaitsFor(const v1::PullRequest& pull, absl::Duration now) const;

  // ---- pushes

  // All ps have acknowledged the rank's pushes before this one. True: a step may be whole now.
  bool ConfirmBefore(Rank rank, uint64_t sequence);
  // Whether a push is new or a repeat; an error refuses it. Changes nothing.
  absl::StatusOr<PushVerdict> Check(const v1::PushRequest& push) const;
  // Whether all wait for the pushes of this number: they are of the step that is being collected.
  bool Awaits(uint64_t sequence) const { return sync_ && sequence == reducer_.next_step(); }
  // Only after Check has returned kNew. `changed`: the tables, not in sync mode, that the push has
  // changed. `of_sync` is kept for the push's step; empty in a job without sync tables.
  void Add(const v1::PushRequest& push, absl::Span<const uint32_t> changed,
           GradientReducer::Push of_sync, absl::Duration now);
  // Another worker takes over the rank, and all ps have acknowledged its pushes below `confirmed`.
  // Returns which of them come next. ABORTED: some of them are not here.
  absl::StatusOr<v1::ProgressResponse> TakeOver(Rank rank, uint64_t confirmed);

  // ---- steps of sync tables; a job without any has none that is whole

  // See GradientReducer.
  bool Complete() const { return sync_ && reducer_.Complete(); }
  std::vector<GradientReducer::Push> Take() { return reducer_.Take(); }
  void Applied() { reducer_.Applied(); }
  // The step that is being collected; all below it have been applied.
  uint64_t next_step() const { return reducer_.next_step(); }
  std::string Missing(absl::Duration now) const { return reducer_.Missing(now); }
  // All ranks have done the steps below `step`, and all ps have their pushes.
  void ConfirmAll(uint64_t step);
  absl::Status CheckAllConfirmed(uint64_t step) const;

  // ---- the whole job

  // All ps have acknowledged the rank's pushes below `confirmed`, in a job without sync tables.
  // ABORTED: one of them is not here.
  absl::Status CheckConfirmed(Rank rank, uint64_t confirmed) const {
    return applied_.CheckConfirmed(rank, confirmed);
  }
  // Steps whose updates the rows have; the age of a row is counted from this.
  uint64_t applied_steps() const { return sync_ ? reducer_.next_step() : applied_.end(); }
  // Steps of sync tables that are applied, else pushes of all ranks.
  uint64_t applied() const { return sync_ ? reducer_.next_step() : applied_.count(); }
  const Staleness& staleness() const { return staleness_; }
  // v1::OpenJobRequest.pushed. INVALID_ARGUMENT: not one number a rank, or a table is sync.
  absl::Status BeginAlone(absl::Span<const uint64_t> pushed);
  // The head of a push log's segment. FAILED_PRECONDITION: the head is not of such a job, or begins
  // at another step than `first_step`.
  void Save(v1::PushLogHead& head) const;
  absl::Status Load(const v1::PushLogHead& head, uint64_t first_step);

 private:
  // As MayAnswer, but the pull is not noted for the staleness of its push.
  bool Begin(const v1::PullRequest& pull, absl::Duration now);

  const bool sync_;
  const uint32_t ranks_;
  const uint32_t max_lead_;
  GradientReducer reducer_;       // of sync tables
  AppliedPushes applied_;         // of jobs without sync tables
  std::optional<LeadGate> lead_;  // of jobs with max_lead
  Staleness staleness_;
};

}  // namespace tessera::ps
