// Other ps for a running job. The rows of the partitions that move are copied while training goes
// on, then what has changed since, and the rest at a barrier, where no push is under way: there the
// run ends, and the next one takes up with the new ps what they have. Where the ps cannot copy
// (marks that checkpoints took again and again), the rows travel by a checkpoint of that barrier.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/log.h"
#include "master/job_run.h"
#include "master/partition_moves.h"

namespace tessera::master {
namespace {

// After a round of copies that was small, or not smaller than half of the one before, a barrier is
// asked for. Rounds go on until it is reached; the last one is made there.
constexpr uint64_t kSmallRoundBytes = 8 << 20;
// Of copying, where checkpoints come in between.
constexpr uint32_t kMaxTries = 3;

}  // namespace

bool JobRun::AwaitsScaling() const {
  return !end_.has_value() && phase_ == Phase::kTraining && !stopping_ && !move_.has_value() &&
         lost_.empty() && record_->status().has_scaling() && !Suspending() &&
         !leaving_.has_value() && !workers_are_here_;
}

bool JobRun::MovesTo(uint64_t incarnation) const {
  return move_.has_value() && !Uses(incarnation) && Among(move_->ps, incarnation);
}

void JobRun::Scale(std::vector<RunNode> ps, const Now& now) {
  std::vector<std::optional<uint32_t>> stays(options_.ps.size());
  for (uint32_t to = 0; to < ps.size(); ++to) {
    for (uint32_t from = 0; from < options_.ps.size(); ++from) {
      if (options_.ps[from].incarnation == ps[to].incarnation) stays[from] = to;
    }
  }
  move_ = {.ps = std::move(ps),
           .stays = std::move(stays),
           .owner = {},
           .since = now.monotonic,
           .stage_since = now.monotonic};
  status().mutable_scaling()->set_phase("planning");
}

std::optional<Work> JobRun::TakeWeighing() {
  if (!move_.has_value() || move_->stage != Move::kToWeigh || move_->asked) return std::nullopt;
  if (!lost_.empty()) return std::nullopt;
  move_->asked = weighing_ = true;
  WeighPartitions weigh;
  for (const RunNode& ps : options_.ps) {
    v1::WeighPartitionsRequest request;
    request.set_job_id(record_->status().job_id());
    request.set_generation(generation());
    weigh.calls.emplace_back(ps, std::move(request));
  }
  return weigh;
}

void JobRun::OnWeighed(const ActionResult& result, const Now& now) {
  // Of a move that was given up; the next one asks anew.
  if (!move_.has_value() || !move_->asked) return;
  std::vector<PartitionWeight> weights(partition_count_);
  std::vector<int> next(options_.ps.size());
  bool sound = result.status.ok() && result.weights.size() == options_.ps.size();
  for (uint32_t p = 0; p < partition_count_ && sound; ++p) {
    const v1::WeighPartitionsResponse& of = result.weights[owner_[p]];
    const int i = next[owner_[p]]++;
    sound = i < of.bytes_size() && i < of.updates_size();
    if (sound) weights[p] = {.bytes = of.bytes(i), .updates = of.updates(i)};
  }
  // A ps that cannot be asked leaves them alike.
  if (!sound) {
    SPDLOG_WARN("job {}: partitions are shared out by their number: {}", status().job_id(),
                result.status.ToString());
    weights.clear();
  }
  PartitionMoves moves =
      PlanMoves(owner_, move_->stays, static_cast<uint32_t>(move_->ps.size()), weights);
  v1::Scaling& scaling = *status().mutable_scaling();
  scaling.set_partitions(moves.moved);
  const std::string parts =
      sound ? absl::StrFormat(" with %.0f%% of the rows' bytes and %.0f%% of their updates",
                              100 * moves.bytes_share, 100 * moves.updates_share)
            : "";
  if (moves.moved == 0 && move_->ps.size() == options_.ps.size()) {
    jobs_->AddEvent(record_, "is balanced: no partition moves", now.wall);
    status().clear_scaling();
    return ForgetMove();
  }
  jobs_->AddEvent(record_,
                  absl::StrCat("moves from ", options_.ps.size(), " ps to ", move_->ps.size(), ": ",
                               moves.moved, " of ", partition_count_, " partitions", parts),
                  now.wall);
  move_->owner = std::move(moves.owner);
  move_->stage = Move::kToCopy;
  move_->stage_since = now.monotonic;
  scaling.set_phase("copying");
  TickMove(now);
}

CopyPartitions JobRun::CopyWork(bool changed, uint64_t steps) const {
  CopyPartitions copy;
  for (uint32_t to = 0; to < move_->ps.size(); ++to) {
    v1::FetchPartitionsRequest request;
    std::vector<v1::FetchPartitionsRequest::Source> sources(options_.ps.size());
    for (uint32_t p = 0; p < partition_count_; ++p) {
      const RunNode& from = options_.ps[owner_[p]];
      if (move_->owner[p] == to && from.incarnation != move_->ps[to].incarnation) {
        sources[owner_[p]].add_partitions(p);
      }
    }
    for (uint32_t from = 0; from < sources.size(); ++from) {
      if (sources[from].partitions_size() == 0) continue;
      sources[from].set_name(options_.ps[from].name);
      sources[from].set_address(options_.ps[from].address);
      sources[from].set_ps_process(options_.ps[from].process);
      *request.add_sources() = std::move(sources[from]);
    }
    if (request.sources_size() == 0) continue;
    request.set_changed(changed);
    request.set_steps(steps);
    v1::OpenJobRequest& open = *request.mutable_open();
    open = OpenRequest(0);
    open.set_generation(generation() + 1);
    open.set_map_version(generation() + 1);
    open.set_take_over(generation());
    open.set_move(copies_begun_);
    open.clear_checkpoint();
    open.clear_warm();
    // Not what stays there: a ps that was lost meanwhile, and is back without, must not take it for
    // brought over.
    open.clear_partitions();
    for (uint32_t p = 0; p < partition_count_; ++p) {
      if (move_->owner[p] == to &&
          options_.ps[owner_[p]].incarnation != move_->ps[to].incarnation) {
        open.add_partitions(p);
      }
    }
    copy.calls.emplace_back(move_->ps[to], std::move(request));
  }
  return copy;
}

void JobRun::BeginCopy(const Now& now) {
  move_->stage = Move::kCopying;
  move_->stage_since = now.monotonic;
  if (move_->rounds == 0) ++copies_begun_;
  CopyPartitions work = CopyWork(/*changed=*/move_->rounds > 0);
  move_->copied = true;
  for (const auto& [ps, request] : work.calls) moved_to_.emplace(ps.incarnation, ps);
  if (!work.calls.empty()) {
    wanted_behind_ = std::move(work);
    return;
  }
  // No partition changes its owner: only the barrier is awaited.
  move_->stage = Move::kCopied;
  move_->closing = true;
  RequestMoveBarrier();
}

void JobRun::RequestMoveBarrier() {
  barrier_for_move_ = barrier_for_move_ || !plan_->BarrierDue();
  plan_->RequestBarrier();
}

void JobRun::TickMove(const Now& now) {
  if (!move_.has_value()) return;
  const bool checkpoint = writing_.has_value() || cut_again_.has_value();
  const bool copies = copies_behind_ || wanted_drop_.has_value();
  if (move_->stage == Move::kToCopy && !checkpoint && !copies && lost_.empty()) {
    BeginCopy(now);
  }
  // One that was asked for while another was held has passed with that.
  const bool ready = move_->closing || move_->stage == Move::kByCheckpoint;
  if (ready && !plan_->BarrierDue()) RequestMoveBarrier();
}

void JobRun::OnCopied(Lane lane, const ActionResult& result, const Now& now) {
  (lane == Lane::kBackground ? copies_behind_ : copies_ahead_) = false;
  // It was given up meanwhile, or it was the end of one that was. Nothing goes on, and no other
  // move begins, before the last copy of it has ended.
  if (!move_.has_value()) {
    const bool one_more =
        copies_ahead_ || (wanted_.has_value() && std::holds_alternative<CopyPartitions>(*wanted_));
    if (phase_ == Phase::kMoving && !one_more) CheckpointIfDue(now);
    return;
  }
  const bool at_barrier = phase_ == Phase::kMoving;
  // It was cut short.
  if (!at_barrier && move_->stage != Move::kCopying) return;
  if (absl::IsFailedPrecondition(result.status) || absl::IsUnimplemented(result.status)) {
    jobs_->AddEvent(record_,
                    absl::StrCat("the rows travel by a checkpoint: ", result.status.message()),
                    now.wall);
    move_->stage = Move::kByCheckpoint;
    status().mutable_scaling()->set_phase("switching");
    if (at_barrier) return CheckpointIfDue(now);
    return RequestMoveBarrier();
  }
  if (!result.status.ok()) {
    if (Logged()) {
      CopyAnew(now);  // the ps that failed may come back with its rows
    } else {
      GiveUpScaling(result.status.message(), now);
    }
    if (at_barrier) CheckpointIfDue(now);
    return;
  }
  v1::Scaling& scaling = *status().mutable_scaling();
  scaling.set_rows(scaling.rows() + result.rows);
  scaling.set_bytes(scaling.bytes() + result.bytes);
  if (lane == Lane::kForeground && !lost_.empty()) {
    CopyAnew(now);
    return CheckpointIfDue(now);
  }
  if (lane == Lane::kForeground) {
    const bool best = improved_ && spec().checkpoint().keep_best();
    return SwitchPs((due_.checkpoint || best) && last_checkpoint_step_ != position_.step(), now);
  }
  const uint64_t before = std::exchange(move_->round_bytes, result.bytes);
  ++move_->rounds;
  if (at_barrier) {
    move_->stage = Move::kCopied;
    return CheckpointIfDue(now);
  }
  // One that was cut again has taken the marks, and is written in the lane of the copies.
  if (writing_.has_value()) return CopyAnew(now);
  const bool shrinks = move_->rounds == 1 || result.bytes < before / 2;
  if (result.bytes <= kSmallRoundBytes || !shrinks) move_->closing = true;
  // Until the barrier is reached, so that little has changed by then.
  BeginCopy(now);
  if (!move_->closing) return;
  scaling.set_phase("switching");
  RequestMoveBarrier();
  Advance(now);
}

void JobRun::CopyAnew(const Now& now) {
  move_->rounds = 0;
  move_->stage_since = now.monotonic;
  move_->closing = false;
  move_->stage = ++move_->tries < kMaxTries ? Move::kToCopy : Move::kByCheckpoint;
  status().mutable_scaling()->set_phase(move_->stage == Move::kToCopy ? "copying" : "switching");
}

// True: the barrier is held for the move.
bool JobRun::MoveAtBarrier(bool checkpoint_due, const Now& now) {
  if (!move_.has_value()) return false;
  if (stopping_) {
    GiveUpScaling("the job is at its end", now);
    return false;
  }
  switch (move_->stage) {
    case Move::kToWeigh:
    case Move::kToCopy:
      return false;
    case Move::kCopying:
      // A cut takes the marks of what has changed since it was copied: the move ends first where
      // that is soon, else it begins again after the checkpoint; in the end it goes by one.
      if (move_->closing) {
        Enter(Phase::kMoving, now);
        return true;
      }
      if (!checkpoint_due) return false;
      wanted_behind_.reset();
      CopyAnew(now);
      return false;
    case Move::kCopied:
      // The last of it, while nobody pushes.
      Enter(Phase::kMoving, now);
      wanted_ = CopyWork(/*changed=*/true, position_.step());
      return true;
    case Move::kByCheckpoint:
      if (last_checkpoint_step_ != position_.step() || writing_.has_value()) return false;
      if (!lost_.empty()) {
        PutMoveOff();  // until all are back: nobody else opens the job in the place of one
        return false;
      }
      SwitchPs(/*checkpoint_due=*/false, now);
      return true;
  }
  return false;
}

void JobRun::SwitchPs(bool checkpoint_due, const Now& now) {
  const bool by_checkpoint = move_->stage == Move::kByCheckpoint;
  TakeUp take_up = {.position = position_,
                    .evaluations = evaluations_,
                    .generation = by_checkpoint ? 0 : generation(),
                    .move = by_checkpoint ? 0 : copies_begun_,
                    .folder = by_checkpoint ? last_checkpoint_ : "",
                    .last_checkpoint = last_checkpoint_,
                    .last_checkpoint_step = last_checkpoint_step_,
                    .last_checkpoint_at = last_checkpoint_at_,
                    // Else a ps that is lost would have to read the logs of two generations.
                    .cut = checkpoint_due || (!by_checkpoint && Logged()),
                    .improved = improved_,
                    .since = barrier_since_};
  if (!by_checkpoint && ComesBackByLog()) {
    take_up.log_origin = Unsaved() ? log_origin_ : std::optional(origin_.folder);
  }
  const v1::Scaling& scaling = status().scaling();
  const std::string how =
      by_checkpoint ? absl::StrCat("by the checkpoint of step ", position_.step())
                    : absl::StrCat(scaling.rows(), " rows, ", scaling.bytes(), " bytes, in ",
                                   absl::FormatDuration(absl::Trunc(now.monotonic - move_->since,
                                                                    absl::Milliseconds(1))));
  SPDLOG_INFO("job {}: what was left to move took {} at the barrier", status().job_id(),
              absl::FormatDuration(now.monotonic - barrier_since_));
  RunOptions next = options_;
  next.ps = move_->ps;
  next.owner = move_->owner;
  next.take_up = std::move(take_up);
  End({.kind = RunEnd::kRescale,
       .reason = "",
       .message = absl::StrCat(scaling.partitions(), " partitions have moved (", how, ")"),
       .checkpoint = "",
       .fallback_checkpoint = "",
       .next = std::move(next)},
      now);
}

void JobRun::GiveUpScaling(absl::string_view why, const Now& now) {
  if (!status().has_scaling()) return;
  jobs_->AddEvent(
      record_,
      absl::StrCat("the job keeps its ", options_.ps.size(), " ps, the move is given up: ", why),
      now.wall);
  status().clear_scaling();
  jobs_->Touch(record_);
  ForgetMove();
}

void JobRun::ForgetMove() {
  if (!move_.has_value()) return;
  if (move_->copied) {
    wanted_drop_ = CopyWork(/*changed=*/false);
    for (auto& [ps, request] : wanted_drop_->calls) request.set_drop(true);
    if (wanted_behind_.has_value() && std::holds_alternative<CopyPartitions>(*wanted_behind_)) {
      wanted_behind_.reset();
    }
  }
  move_.reset();
}

std::string JobRun::MoveAwaits() const {
  switch (move_->stage) {
    case Move::kToWeigh:
      if (!lost_.empty()) return "";
      return absl::StrCat(
          Unanswered(Lane::kAside, "its ps"),
          weighing_ ? " to weigh their partitions" : " to be told whose rows they copy");
    case Move::kToCopy:
      if (!lost_.empty() || cut_again_.has_value()) return "";
      if (writing_.has_value()) {
        return absl::StrCat(Unanswered(Lane::kBackground, "the master itself"),
                            " to write the checkpoint of step ", writing_->step);
      }
      if (!copies_behind_) return "";
      return absl::StrCat(Unanswered(Lane::kBackground, "its ps"),
                          " to end a copy that is given up");
    case Move::kCopying:
      return absl::StrCat(Unanswered(Lane::kBackground, "its ps"), " to copy rows, in round ",
                          move_->rounds + 1);
    case Move::kCopied:
    case Move::kByCheckpoint:
      return "";  // the barrier
  }
  return "";
}

void JobRun::ShowShares() {
  std::vector<uint32_t> counts(options_.ps.size(), 0);
  for (const uint32_t part : owner_) ++counts[part];
  status().clear_shares();
  for (uint32_t i = 0; i < counts.size(); ++i) {
    v1::PsShare* share = status().add_shares();
    share->set_name(options_.ps[i].name);
    share->set_partitions(counts[i]);
  }
}

}  // namespace tessera::master
