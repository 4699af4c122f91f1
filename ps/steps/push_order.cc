#include "ps/steps/push_order.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/job_tables.h"
#include "common/status_macros.h"

namespace tessera::ps {

PushOrder::PushOrder(const v1::OpenJobRequest& request, absl::Duration now)
    : sync_(HasSync(request)),
      ranks_(request.workers()),
      max_lead_(request.max_lead()),
      reducer_(request.workers(), request.first_step(), now),
      applied_(request.workers(), request.first_step()),
      staleness_(request.workers(), static_cast<size_t>(request.tables_size())) {
  if (max_lead_ > 0) lead_.emplace(ranks_, max_lead_);
}

bool PushOrder::HasSync(const v1::OpenJobRequest& request) {
  return std::any_of(request.tables().begin(), request.tables().end(),
                     [](const v1::PsTable& table) { return IsSync(table.consistency()); });
}

absl::StatusOr<bool> PushOrder::ConfirmBy(const v1::PullRequest& pull) {
  if (!sync_ || pull.step() == 0) return false;
  const uint32_t rank = pull.header().rank();
  if (pull.read_only()) {
    TESSERA_RETURN_IF_ERROR(reducer_.CheckAllConfirmed(pull.step()));
  } else if (rank < ranks_) {
    TESSERA_RETURN_IF_ERROR(reducer_.CheckConfirmed(Rank(rank), pull.step()));
  }
  if (pull.read_only() || pull.all_confirmed()) {
    reducer_.ConfirmAll(pull.step());
  } else if (rank < ranks_) {
    reducer_.Confirm(Rank(rank), pull.step());
  }
  return reducer_.Complete();
}

bool PushOrder::Begin(const v1::PullRequest& pull, absl::Duration now) {
  if (sync_) return pull.step() <= reducer_.next_step();
  const uint32_t rank = pull.header().rank();
  if (!lead_.has_value() || pull.begins() == 0 || rank >= ranks_) return true;
  const uint64_t step = pull.begins() - 1;
  // A late message must not begin a step that has ended.
  if (applied_.Contains(Rank(rank), step)) return true;
  return lead_->Begin(Rank(rank), step, now);
}

bool PushOrder::MayAnswer(const v1::PullRequest& pull, absl::Duration now) {
  if (!Begin(pull, now)) return false;
  const uint32_t rank = pull.header().rank();
  if (pull.begins() > 0 && rank < ranks_) staleness_.Pulled(Rank(rank), pull.begins() - 1);
  return true;
}

uint64_t PushOrder::StepOf(const v1::PullRequest& pull) const {
  return lead_.has_value() ? pull.begins() - 1 : pull.step();
}

std::string PushOrder::WaitsFor(const v1::PullRequest& pull, absl::Duration now) const {
  if (!lead_.has_value()) {
    return absl::StrCat("the pushes of step ", reducer_.next_step(), " from ",
                        reducer_.Missing(now));
  }
  return absl::StrCat(lead_->Holder(Rank(pull.header().rank()), now),
                      ", while it has begun max_lead (", max_lead_, ") steps");
}

bool PushOrder::ConfirmBefore(Rank rank, uint64_t sequence) {
  if (!sync_) return false;
  reducer_.Confirm(rank, sequence);
  return reducer_.Complete();
}

absl::StatusOr<PushVerdict> PushOrder::Check(const v1::PushRequest& push) const {
  const Rank rank(push.header().rank());
  return sync_ ? reducer_.Check(rank, push.sequence(), push.learning_rate_scale())
               : applied_.Check(rank, push.sequence(), push.confirmed());
}

void PushOrder::Add(const v1::PushRequest& push, absl::Span<const uint32_t> changed,
                    GradientReducer::Push of_sync, absl::Duration now) {
  const Rank rank(push.header().rank());
  staleness_.Pushed(rank, push.sequence(), changed);
  if (sync_) {
    reducer_.Add(rank, push.sequence(), std::move(of_sync), now);
    return;
  }
  applied_.Add(rank, push.sequence());
  if (lead_.has_value()) lead_->End(rank, push.sequence());
}

absl::StatusOr<v1::ProgressResponse> PushOrder::TakeOver(Rank rank, uint64_t confirmed) {
  staleness_.Forget(rank);
  v1::ProgressResponse response;
  if (sync_) {
    reducer_.Confirm(rank, confirmed);
    response.set_next_push(reducer_.NextPush(rank));
    response.set_end_push(reducer_.EndPush(rank));
    return response;
  }
  TESSERA_RETURN_IF_ERROR(applied_.CheckConfirmed(rank, confirmed));
  response.set_next_push(applied_.NextPush(rank));
  response.set_end_push(applied_.EndPush(rank));
  // The rank begins anew the steps that it had begun before.
  if (lead_.has_value()) lead_->Forget(rank);
  return response;
}

void PushOrder::ConfirmAll(uint64_t step) {
  if (sync_) reducer_.ConfirmAll(step);
}

absl::Status PushOrder::CheckAllConfirmed(uint64_t step) const {
  return sync_ ? reducer_.CheckAllConfirmed(step) : absl::OkStatus();
}

absl::Status PushOrder::BeginAlone(absl::Span<const uint64_t> pushed) {
  if (!sync_) return applied_.BeginAlone(pushed);
  return absl::InvalidArgumentError(
      absl::StrCat("pushed has ", pushed.size(), " ranks, expected 0, since a table is sync"));
}

void PushOrder::Save(v1::PushLogHead& head) const {
  if (sync_) {
    head.set_next_step(reducer_.next_step());
  } else {
    applied_.Save(head);
  }
}

absl::Status PushOrder::Load(const v1::PushLogHead& head, uint64_t first_step) {
  if (!sync_) return applied_.Load(head);
  if (head.next_step() == first_step) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("begins at step ", head.next_step(), ", expected ", first_step));
}

}  // namespace tessera::ps
