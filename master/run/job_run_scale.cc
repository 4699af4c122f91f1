// Other ps for a running job. The rows of the partitions that move are copied while training goes
// on, then those changed since, and the rest at a barrier, where no push is under way. There the
// run ends, and the next one goes on with the new ps and the rows that they have. If the ps cannot
// copy (checkpoints took the marks of changed rows again and again), a checkpoint of the barrier
// brings the rows.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/log.h"
#include "master/run/job_run.h"
#include "master/run/partition_moves.h"

namespace tessera::master {
namespace {

using Stage = PsMove::Stage;

}  // namespace

bool JobRun::AwaitsScaling() const {
  return !end_.has_value() && phase_ == Phase::kTraining && !stopping_ && !move_.has_value() &&
         lost_.empty() && record_->status().has_scaling() && !Suspending() &&
         !leaving_.has_value() && !workers_are_here_;
}

bool JobRun::MovesTo(uint64_t incarnation) const {
  return move_.has_value() && !Uses(incarnation) && Among(move_->to(), incarnation);
}

void JobRun::Scale(std::vector<RunNode> ps, const Now& now) {
  move_.emplace(options_.ps, owner_, std::move(ps), now.monotonic);
  status().mutable_scaling()->set_phase("planning");
}

std::optional<Work> JobRun::TakeWeighing() {
  if (!move_.has_value() || move_->stage() != Stage::kToWeigh) return std::nullopt;
  if (!lost_.empty()) return std::nullopt;
  move_->BeginWeighing();
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
  // The weights are those of a move that was given up; the next move asks anew.
  if (!move_.has_value() || move_->stage() != Stage::kWeighing) return;
  std::vector<PartitionWeight> weights(partition_count_);
  std::vector<int> next(options_.ps.size());
  bool sound = result.status.ok() && result.weights.size() == options_.ps.size();
  for (uint32_t p = 0; p < partition_count_ && sound; ++p) {
    const v1::WeighPartitionsResponse& of = result.weights[owner_[p]];
    const int i = next[owner_[p]]++;
    sound = i < of.bytes_size() && i < of.updates_size();
    if (sound) weights[p] = {.bytes = of.bytes(i), .updates = of.updates(i)};
  }
  // Without the weights of all ps, all partitions count as equal.
  if (!sound) {
    SPDLOG_WARN("job {}: partitions are shared out by their number: {}", status().job_id(),
                result.status.ToString());
    weights.clear();
  }
  const PartitionMoves moves = move_->Plan(weights, now.monotonic);
  v1::Scaling& scaling = *status().mutable_scaling();
  scaling.set_partitions(moves.moved);
  const std::string parts =
      sound ? absl::StrFormat(" with %.0f%% of the rows' bytes and %.0f%% of their updates",
                              100 * moves.bytes_share, 100 * moves.updates_share)
            : "";
  if (moves.moved == 0 && move_->to().size() == options_.ps.size()) {
    jobs_->AddEvent(record_, "is balanced: no partition moves", now.wall);
    status().clear_scaling();
    return ForgetMove();
  }
  jobs_->AddEvent(record_,
                  absl::StrCat("moves from ", options_.ps.size(), " ps to ", move_->to().size(),
                               ": ", moves.moved, " of ", partition_count_, " partitions", parts),
                  now.wall);
  scaling.set_phase("copying");
  TickMove(now);
}

CopyPartitions JobRun::CopyWork(bool changed, uint64_t steps) const {
  v1::OpenJobRequest open = OpenRequest(0);
  open.set_generation(generation() + 1);
  open.set_map_version(generation() + 1);
  open.set_take_over(generation());
  open.set_move(copies_begun_);
  open.clear_checkpoint();
  open.clear_warm();
  return move_->Copies(std::move(open), changed, steps);
}

void JobRun::BeginCopy(const Now& now) {
  move_->BeginRound(now.monotonic);
  if (move_->rounds() == 0) ++copies_begun_;
  CopyPartitions work = CopyWork(/*changed=*/move_->rounds() > 0);
  for (const auto& [ps, request] : work.calls) moved_to_.emplace(ps.incarnation, ps);
  if (!work.calls.empty()) {
    actions_.Want(Lane::kBackground, std::move(work));
    return;
  }
  // No partition changes its owner: only the barrier is awaited.
  move_->EndRounds();
  RequestMoveBarrier();
}

void JobRun::RequestMoveBarrier() {
  barrier_for_move_ = barrier_for_move_ || !plan_->BarrierDue();
  plan_->RequestBarrier();
}

bool JobRun::CopyRests() const {
  return move_.has_value() && move_->rests() && phase_ != Phase::kMoving;
}

void JobRun::TickMove(const Now& now) {
  if (!move_.has_value()) return;
  const bool checkpoint = writing_.has_value() || cut_retry_.waits();
  const bool copies = actions_.CopiesBehind();
  if (move_->stage() == Stage::kToCopy && !checkpoint && !copies && lost_.empty()) {
    BeginCopy(now);
  }
  // A barrier that was asked for while another one was held has passed with it: asks again.
  if (move_->WantsBarrier() && !plan_->BarrierDue()) RequestMoveBarrier();
}

void JobRun::OnCopied(Lane lane, const ActionResult& result, const Now& now) {
  // The move was given up meanwhile, and this was one of its copies, or the drop of its rows. A
  // barrier held for the move goes on only after the last of them.
  if (!move_.has_value()) {
    const bool one_more =
        actions_.Copies(Lane::kForeground) || actions_.Wants<CopyPartitions>(Lane::kForeground);
    if (phase_ == Phase::kMoving && !one_more) ContinueBarrier(now);
    return;
  }
  const bool at_barrier = phase_ == Phase::kMoving;
  // The round was cut short.
  if (!at_barrier && move_->stage() != Stage::kCopying) return;
  if (absl::IsFailedPrecondition(result.status) || absl::IsUnimplemented(result.status)) {
    jobs_->AddEvent(record_,
                    absl::StrCat("the rows travel by a checkpoint: ", result.status.message()),
                    now.wall);
    move_->GoByCheckpoint();
    status().mutable_scaling()->set_phase("switching");
    if (at_barrier) return ContinueBarrier(now);
    return RequestMoveBarrier();
  }
  if (!result.status.ok()) {
    // A ps that failed may come back with its rows; one that lacks memory goes on lacking it.
    if (Logged() && !absl::IsResourceExhausted(result.status)) {
      CopyAnew(now);
    } else {
      GiveUpScaling(result.status.message(), now);
    }
    if (at_barrier) ContinueBarrier(now);
    return;
  }
  v1::Scaling& scaling = *status().mutable_scaling();
  scaling.set_rows(scaling.rows() + result.rows);
  scaling.set_bytes(scaling.bytes() + result.bytes);
  if (lane == Lane::kForeground && !lost_.empty()) {
    CopyAnew(now);
    return ContinueBarrier(now);
  }
  if (lane == Lane::kForeground) {
    const bool best = improved_ && spec().checkpoint().keep_best();
    return SwitchPs((due_.checkpoint || best) && !HasCheckpointHere(), now);
  }
  move_->RoundDone(result.rows, result.bytes);
  if (at_barrier) {
    move_->EndRounds();
    return ContinueBarrier(now);
  }
  // A checkpoint that was cut again has taken the marks, and is written in the copies' lane.
  if (writing_.has_value()) return CopyAnew(now);
  // Goes on with rounds until the barrier is reached, so that little has changed by then.
  BeginCopy(now);
  if (!move_->WantsBarrier()) return;
  scaling.set_phase("switching");
  RequestMoveBarrier();
  Advance(now);
}

void JobRun::CopyAnew(const Now& now) {
  move_->CopyAnew(now.monotonic);
  status().mutable_scaling()->set_phase(MovesByCheckpoint() ? "switching" : "copying");
}

// True: the barrier is held for the move.
bool JobRun::MoveAtBarrier(bool checkpoint_due, const Now& now) {
  if (!move_.has_value()) return false;
  if (stopping_) {
    GiveUpScaling("the job is at its end", now);
    return false;
  }
  switch (move_->stage()) {
    case Stage::kToWeigh:
    case Stage::kWeighing:
    case Stage::kToCopy:
      return false;
    case Stage::kCopying:
      // A cut takes the marks of rows changed since they were copied. So the move ends first if its
      // end is near; else it copies again after the checkpoint, or after kMaxTries goes by one.
      if (move_->WantsBarrier()) {
        Enter(Phase::kMoving, now);
        return true;
      }
      if (!checkpoint_due) return false;
      actions_.TakeBack(Lane::kBackground);
      CopyAnew(now);
      return false;
    case Stage::kCopied:
      // The last round, while nobody pushes.
      Enter(Phase::kMoving, now);
      actions_.Want(Lane::kForeground, CopyWork(/*changed=*/true, position_.step()));
      return true;
    case Stage::kByCheckpoint:
      // One that was cut early brings the rows as well.
      if (last_checkpoint_.step != position_.step() || writing_.has_value()) return false;
      if (!lost_.empty()) {
        PutMoveOff();  // until all ps are back, since only they can open the job
        return false;
      }
      SwitchPs(/*checkpoint_due=*/false, now);
      return true;
  }
  return false;
}

void JobRun::SwitchPs(bool checkpoint_due, const Now& now) {
  const bool by_checkpoint = MovesByCheckpoint();
  TakeUp take_up = {.position = position_,
                    .evaluations = evaluations_.all(),
                    .generation = by_checkpoint ? 0 : generation(),
                    .move = by_checkpoint ? 0 : copies_begun_,
                    .folder = by_checkpoint ? last_checkpoint_.folder : "",
                    .last_checkpoint = last_checkpoint_,
                    // Else a lost ps would have to read the logs of two generations.
                    .cut = checkpoint_due || (!by_checkpoint && Logged()),
                    .early = CutsEarly(),
                    .improved = improved_,
                    .since = barrier_since_};
  if (!by_checkpoint && ComesBackByLog()) {
    take_up.log_origin = Unsaved() ? log_origin_ : std::optional(origin_.folder);
  }
  const v1::Scaling& scaling = status().scaling();
  const std::string how =
      by_checkpoint ? absl::StrCat("by the checkpoint of step ", position_.step())
                    : absl::StrCat(scaling.rows(), " rows, ", scaling.bytes(), " bytes, in ",
                                   absl::FormatDuration(absl::Trunc(now.monotonic - move_->since(),
                                                                    absl::Milliseconds(1))));
  SPDLOG_INFO("job {}: what was left to move took {} at the barrier", status().job_id(),
              absl::FormatDuration(now.monotonic - barrier_since_));
  RunOptions next = options_;
  next.ps = move_->to();
  next.owner = move_->owner();
  next.take_up = std::move(take_up);
  End(RunEnd::Rescale(absl::StrCat(scaling.partitions(), " partitions have moved (", how, ")"),
                      std::move(next)),
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
  if (move_->begun()) {
    CopyPartitions drop = CopyWork(/*changed=*/false);
    for (auto& [ps, request] : drop.calls) request.set_drop(true);
    actions_.WantDrop(std::move(drop));
    if (actions_.Wants<CopyPartitions>(Lane::kBackground)) actions_.TakeBack(Lane::kBackground);
  }
  move_.reset();
}

std::string JobRun::MoveAwaits() const {
  switch (move_->stage()) {
    case Stage::kToWeigh:
    case Stage::kWeighing:
      if (!lost_.empty()) return "";
      return absl::StrCat(Unanswered(Lane::kAside, "its ps"),
                          actions_.purpose(Lane::kAside) == ActionQueue::Purpose::kWeigh
                              ? " to weigh their partitions"
                              : " to be told whose rows they copy");
    case Stage::kToCopy:
      if (!lost_.empty() || cut_retry_.waits()) return "";
      if (writing_.has_value()) {
        return absl::StrCat(Unanswered(Lane::kBackground, "the master itself"),
                            " to write the checkpoint of step ", writing_->step);
      }
      if (!actions_.Copies(Lane::kBackground)) return "";
      return absl::StrCat(Unanswered(Lane::kBackground, "its ps"),
                          " to end a copy that is given up");
    case Stage::kCopying:
      return absl::StrCat(Unanswered(Lane::kBackground, "its ps"), " to copy rows, in round ",
                          move_->rounds() + 1);
    case Stage::kCopied:
    case Stage::kByCheckpoint:
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
