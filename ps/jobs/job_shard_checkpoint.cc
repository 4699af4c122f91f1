// JobShard: checkpoints, cut in a moment and written while training goes on.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "ps/jobs/job_shard.h"
#include "ps/jobs/writer_rest.h"
#include "ps/memory/or_exhausted.h"
#include "ps/push_log/folders.h"

namespace tessera::ps {
namespace {

v1::WriteCheckpointResponse ResponseOf(const WrittenPart& written, const Tables& tables) {
  v1::WriteCheckpointResponse response;
  *response.mutable_files() = {written.files.begin(), written.files.end()};
  if (written.sightings.has_value()) *response.mutable_sightings() = *written.sightings;
  for (const auto& table : tables) {
    response.add_slot_floats(table->store().layout().slot_floats());
  }
  *response.mutable_rows() = {written.rows.begin(), written.rows.end()};
  response.set_written_bytes(written.new_bytes);
  return response;
}

bool Cuts(v1::WriteCheckpointRequest::Phase phase) {
  return phase == v1::WriteCheckpointRequest::CUT ||
         phase == v1::WriteCheckpointRequest::CUT_AND_WRITE;
}

// INVALID_ARGUMENT: there is no such phase, or no such part.
absl::Status CheckPhase(const v1::WriteCheckpointRequest& request) {
  const auto phase = request.phase();
  if (!v1::WriteCheckpointRequest::Phase_IsValid(phase)) {
    return absl::InvalidArgumentError(
        absl::StrCat("phase ", static_cast<int>(phase), " of a checkpoint is unknown to this ps"));
  }
  if (Cuts(phase) && request.part() >= request.parts()) {
    return absl::InvalidArgumentError(
        absl::StrCat("part ", request.part(), " of ", request.parts(), " parts does not exist"));
  }
  return absl::OkStatus();
}

}  // namespace

class JobShard::Pace {
 public:
  // In the second half of its time the writer does not rest: its caller does not wait for ever.
  Pace(const JobShard& shard, absl::Duration deadline)
      : shard_(shard), since_(Now()), late_(since_ + (deadline - since_) / 2) {}

  void Rest() {
    const uint64_t ended = shard_.updates_ended_.load(std::memory_order_relaxed);
    const bool busy =
        ended != ended_ || shard_.updates_begun_.load(std::memory_order_relaxed) != ended;
    ended_ = ended;
    if (Now() > late_) return;
    const Options& options = shard_.options_;
    absl::SleepFor(WriterRest(Now() - since_, busy && !shard_.cut_room_->awaited(),
                              options.writer_share, shard_.cut_room_->copied(),
                              shard_.cut_room_->max_bytes()));
    since_ = Now();
  }

 private:
  absl::Duration Now() const { return shard_.options_.clock->Monotonic(); }

  const JobShard& shard_;
  absl::Duration since_;
  const absl::Duration late_;
  uint64_t ended_ = 0;
};

absl::Status JobShard::AwaitBarrier(uint64_t step, absl::Duration deadline) {
  {
    absl::MutexLock lock(&mu_);
    TESSERA_RETURN_IF_ERROR(closed_);
    TESSERA_RETURN_IF_ERROR(
        WithContext(order_.CheckAllConfirmed(step), absl::StrCat("job ", request_.job_id())));
  }
  ConfirmAll(step);
  return AwaitApplied(step, deadline);
}

absl::Status JobShard::AwaitApplied(uint64_t step, absl::Duration deadline) const {
  absl::MutexLock lock(&mu_);
  // The last pushes may have been answered but not applied yet.
  const auto applied = [this, step]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !has_sync_ || !closed_.ok() || order_.next_step() >= step;
  };
  mu_.AwaitWithTimeout(absl::Condition(&applied), deadline - options_.clock->Monotonic());
  TESSERA_RETURN_IF_ERROR(closed_);
  if (!has_sync_ || order_.next_step() == step) return absl::OkStatus();
  if (order_.next_step() < step) {
    return absl::DeadlineExceededError(absl::StrCat(
        "job ", request_.job_id(), ": step ", order_.next_step(), " is not applied yet, before ",
        step, "; it waits for ", order_.Missing(options_.clock->Monotonic())));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("job ", request_.job_id(), ": ", order_.next_step(),
                   " steps are applied already, expected ", step, " and no worker that pushes"));
}

absl::Status JobShard::AwaitCut(const v1::WriteCheckpointRequest& request,
                                absl::Duration deadline) {
  const std::string what = absl::StrCat("checkpoint of step ", request.step());
  TESSERA_RETURN_IF_ERROR(WithContext(AwaitBarrier(request.step(), deadline), what));
  if (has_sync_) return absl::OkStatus();
  absl::MutexLock lock(&mu_);
  for (size_t r = 0; r < std::min<size_t>(request.confirmed_size(), ranks_.size()); ++r) {
    const uint64_t confirmed = request.confirmed(static_cast<int>(r));
    TESSERA_RETURN_IF_ERROR(
        WithContext(order_.CheckConfirmed(Rank(static_cast<uint32_t>(r)), confirmed), what));
  }
  return absl::OkStatus();
}

void JobShard::ForgetLogBefore(const std::string& folder) {
  if (log_ == nullptr) return;
  feed_->Committed(folder, log_->FirstOf(folder));
  log_is_held_ = !log_->Forget(folder, feed_->needed_from());
  push_log::RemoveLogsBefore(*options_.files, options_.log_root, request_.job_id(),
                             request_.generation())
      .IgnoreError();  // the next commit tries again
}

absl::StatusOr<v1::WriteCheckpointResponse> JobShard::WriteCheckpoint(
    const v1::WriteCheckpointRequest& request, absl::Duration deadline, KeepGoing keep_going) {
  using Request = v1::WriteCheckpointRequest;
  const Request::Phase phase = request.phase();
  if (phase == Request::COMMITTED) {
    ForgetLogBefore(request.folder());
    return v1::WriteCheckpointResponse();
  }
  TESSERA_RETURN_IF_ERROR(CheckPhase(request));
  TESSERA_ASSIGN_OR_RETURN(const std::string folder,
                           PathBelow(options_.checkpoint_root, request.folder()));
  if (Cuts(phase)) TESSERA_RETURN_IF_ERROR(AwaitCut(request, deadline));
  CutTurn turn;
  {
    absl::MutexLock lock(&mu_);
    TESSERA_RETURN_IF_ERROR(closed_);
    const bool is_cut = cut_.has_value() && cut_->written.folder == folder;
    // One that comes late must not drop the next cut.
    if (phase == Request::DROP && (cut_busy_ || !is_cut)) return v1::WriteCheckpointResponse();
    TESSERA_ASSIGN_OR_RETURN(turn, BeginTurn(request, folder));
  }
  if (Cuts(phase)) takes_.End();
  if (phase != Request::WRITE && turn.cut.has_value()) {
    DropCut(tables_);
    cut_room_->Wake();
    turn.cut.reset();
  }
  Pace pace(*this, deadline);
  const auto open = [&]() -> absl::Status {
    cut_room_->Wake();
    if (!Cuts(phase)) pace.Rest();
    TESSERA_RETURN_IF_ERROR(keep_going());
    return Closed();
  };
  absl::Status status;
  v1::WriteCheckpointResponse response;
  if (Cuts(phase)) status = CutInTurn(request, folder, turn, open);
  if (status.ok() && Writes(phase)) status = WriteInTurn(turn, response, open);
  EndTurn(std::move(turn));
  // Of a folder that somebody has removed. To the caller NOT_FOUND says that the rows are lost.
  if (absl::IsNotFound(status)) return absl::UnavailableError(status.message());
  TESSERA_RETURN_IF_ERROR(status);
  return response;
}

absl::StatusOr<JobShard::CutTurn> JobShard::BeginTurn(const v1::WriteCheckpointRequest& request,
                                                      const std::string& folder) {
  if (cut_busy_) {
    return absl::UnavailableError(
        absl::StrCat("checkpoint of step ", request.step(), " in ", request.folder(),
                     ": another checkpoint is being written; wait until it is"));
  }
  if (request.phase() == v1::WriteCheckpointRequest::WRITE &&
      (!cut_.has_value() || cut_->written.folder != folder)) {
    // All rows are here: one that was made is gone, by a call that came late.
    return absl::UnavailableError(absl::StrCat(
        "checkpoint in ", request.folder(), ": there is no such cut to be written; cut it again"));
  }
  cut_busy_ = true;
  CutTurn turn;
  turn.cut = std::exchange(cut_, std::nullopt);
  if (Cuts(request.phase())) turn.last = std::exchange(written_, std::nullopt);
  return turn;
}

absl::Status JobShard::CutInTurn(const v1::WriteCheckpointRequest& request,
                                 const std::string& folder, CutTurn& turn, KeepGoing keep_going) {
  absl::StatusOr<PartCut> cut = OrExhausted(
      "a checkpoint", [&] { return Cut(request, folder, std::move(turn.last), keep_going); });
  if (!cut.ok()) {
    DropCut(tables_);  // drops whatever part of it was begun
    cut_room_->Wake();
    return cut.status();
  }
  turn.cut = *std::move(cut);
  return absl::OkStatus();
}

absl::Status JobShard::WriteInTurn(CutTurn& turn, v1::WriteCheckpointResponse& response,
                                   KeepGoing keep_going) {
  const auto write = [&]() -> absl::StatusOr<WrittenPart> {
    TESSERA_ASSIGN_OR_RETURN(WrittenPart part, WriteCut(*options_.files, *std::move(turn.cut),
                                                        partitions_, tables_, keep_going));
    response = ResponseOf(part, tables_);
    return part;
  };
  absl::StatusOr<WrittenPart> part = OrExhausted("a checkpoint", write);
  if (!part.ok()) DropCut(tables_);
  cut_room_->Wake();
  turn.cut.reset();
  if (!part.ok()) return part.status();
  turn.written = *std::move(part);
  return absl::OkStatus();
}

void JobShard::EndTurn(CutTurn turn) {
  absl::MutexLock lock(&mu_);
  cut_busy_ = false;
  cut_ = std::move(turn.cut);
  if (turn.written.has_value()) written_ = std::move(turn.written);
}

absl::Status JobShard::EndCut(absl::Duration limit) {
  std::optional<PartCut> cut;
  {
    absl::MutexLock lock(&mu_);
    const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !cut_busy_; };
    if (!mu_.AwaitWithTimeout(absl::Condition(&idle), limit)) {
      return absl::DeadlineExceededError(absl::StrCat(
          "job ", request_.job_id(), ": a checkpoint is being written for more than ",
          absl::FormatDuration(limit), " after the end of generation ", request_.generation()));
    }
    cut = std::exchange(cut_, std::nullopt);
  }
  if (cut.has_value()) DropCut(tables_);
  cut_room_->Wake();
  return absl::OkStatus();
}

bool JobShard::IsReplicated(const v1::WriteCheckpointRequest& request) const {
  if (Writes(request.phase())) return true;
  return request.phase() == v1::WriteCheckpointRequest::CUT && !request.early() &&
         std::any_of(tables_.begin(), tables_.end(),
                     [](const auto& table) { return table->expires(); });
}

absl::Status JobShard::ExpireRows(uint64_t applied_steps) {
  v1::LoggedExpiry expiry;
  expiry.set_applied_steps(applied_steps);
  TESSERA_RETURN_IF_ERROR(LogMessage(push_log::Kind::kExpiry, expiry));
  // Locks one stripe at a time. In sync mode nobody pushes now; in async mode the age of a row is
  // about right at any moment.
  for (const auto& table : tables_) {
    const absl::Status status =
        OrExhausted("the expiry of rows", [&] { return table->Expire(applied_steps); });
    if (!status.ok()) return Fail(status);
  }
  return absl::OkStatus();
}

absl::StatusOr<PartCut> JobShard::Cut(const v1::WriteCheckpointRequest& request,
                                      const std::string& folder, std::optional<WrittenPart> last,
                                      KeepGoing keep_going) {
  TESSERA_RETURN_IF_ERROR(keep_going());
  if (request.base().empty() || !last.has_value() ||
      last->folder != PathBelow(options_.checkpoint_root, request.base()).value_or("") ||
      last->folder == folder || !IsIncrementWorth(*last, tables_)) {
    last.reset();
  }
  uint64_t applied_steps = 0;
  {
    absl::MutexLock lock(&mu_);
    applied_steps = order_.applied_steps();
  }
  // Before a disk may refuse the cut: the other ps have dropped their rows, and training goes on.
  if (!request.early()) TESSERA_RETURN_IF_ERROR(ExpireRows(applied_steps));
  const CheckpointPart part = {
      .generation = request_.generation(), .part = request.part(), .parts = request.parts()};
  TESSERA_ASSIGN_OR_RETURN(
      PartCut cut, PrepareCut(*options_.files, folder, part, last.has_value() ? &*last : nullptr));
  // Held exclusively, so that the rows of all tables and the step are those of one moment.
  absl::MutexLock alone(&cut_mu_);
  // A push may have come since the first look.
  TESSERA_RETURN_IF_ERROR(WithContext(AwaitApplied(request.step(), options_.clock->Monotonic()),
                                      absl::StrCat("checkpoint of step ", request.step())));
  if (log_ != nullptr) {
    // A ps that restores this checkpoint goes on with what is logged from here on.
    v1::PushLogHead head = LogHead();
    head.set_cut(request.folder());
    TESSERA_RETURN_IF_ERROR(LogError(log_->Cut(head)));
  }
  CutTables(tables_, cut);
  return cut;
}

CutRoom::Copies JobShard::CopiesOfCut() const {
  CutRoom::Copies copies;
  for (const auto& table : tables_) {
    const RowStore& store = table->store();
    if (!store.copies_rows()) continue;
    copies.copied += store.copied_bytes();
    copies.unread += store.unread_bytes();
  }
  return copies;
}

void JobShard::GiveUpCut() {
  SPDLOG_WARN(
      "job {}: rows that changed before the checkpoint has them take {} of {} bytes, and the "
      "writer has read none for {}: the checkpoint is given up",
      request_.job_id(), CopiesOfCut().copied, cut_room_->max_bytes(),
      absl::FormatDuration(options_.copy_room_limit));
  for (const auto& table : tables_) table->store().StopCopies();
}

uint64_t JobShard::ReserveCopies(bool sync, absl::Span<const std::vector<Table::Gradients>> parts) {
  const auto needed = [&] {
    uint64_t bytes = 0;
    for (size_t t = 0; t < tables_.size(); ++t) {
      const Table& table = *tables_[t];
      const RowStore& store = table.store();
      if (!store.copies_rows() || table.sync() != sync) continue;
      uint64_t rows = 0;
      for (const Table::Gradients& gradients : parts[t]) rows += gradients.keys.size();
      // A row is copied once.
      const uint64_t unread = store.unread_bytes();
      const uint64_t left = unread - std::min(store.copied_bytes(), unread);
      bytes += table.every_row() ? left : std::min(rows * store.layout().block_bytes(), left);
    }
    return bytes;
  };
  if (const auto bytes = cut_room_->Reserve(needed, options_.copy_room_limit)) return *bytes;
  GiveUpCut();
  cut_room_->Wake();
  return 0;
}

}  // namespace tessera::ps
