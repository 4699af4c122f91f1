// JobRun: tells people who waits for whom.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "master/run/job_run.h"

namespace tessera::master {
namespace {

constexpr absl::Duration kWorthSaying = absl::Seconds(1);
// For waits that hold up nothing but a move.
constexpr absl::Duration kBehindWorthSaying = absl::Seconds(5);
// A worker without work asks again within this (the service holds a call for 10 s at most).
constexpr absl::Duration kAsksWithin = absl::Seconds(15);

std::string For(absl::Duration wait) {
  return absl::StrFormat("for %.0f s", absl::ToDoubleSeconds(wait));
}

const char* WorkName(const v1::NextWorkResponse& unit) {
  switch (unit.work_case()) {
    case v1::NextWorkResponse::kCount:
      return "count records";
    case v1::NextWorkResponse::kTrain:
      return "train";
    case v1::NextWorkResponse::kEvaluate:
      return "evaluate";
    default:
      return "predict";
  }
}

}  // namespace

std::string JobRun::Unanswered(Lane lane, absl::string_view otherwise) const {
  const absl::Span<const std::string> ps = actions_.unanswered(lane);
  return ps.empty() ? std::string(otherwise) : absl::StrJoin(ps, ", ");
}

std::vector<std::string> JobRun::Waits(const Now& now) const {
  std::vector<std::string> waits;
  if (end_.has_value()) return waits;
  AddWaitsForLost(now.monotonic, waits);
  AddWaitsForActions(now.monotonic, waits);
  AddWaitsForWishes(now, waits);
  AddSlowOnes(now.monotonic, waits);
  AddWaitsForWorkers(now.monotonic, waits);
  return waits;
}

void JobRun::AddWaitsForLost(absl::Duration now, std::vector<std::string>& waits) const {
  for (const auto& [part, lost] : lost_.places()) {
    const bool back = lost.back.incarnation != 0;
    waits.push_back(absl::StrCat(
        "the job waits for ", options_.ps[part].name,
        back       ? " to take up its rows from its checkpoint and its push log "
        : Logged() ? " to come back with its push log (start tessera-ps with the same --name and "
                     "--data-dir) "
                   : " to come back (start tessera-ps with the same --name) ",
        For(now - lost.since), lost.why.empty() ? "" : absl::StrCat(": ", lost.why)));
  }
  for (const auto& [rank, vacant] : watch_.vacant()) {
    waits.push_back(absl::StrCat("the job waits for a worker to take over rank ", rank, ", which ",
                                 options_.workers[rank].name,
                                 " had (start tessera-worker, under any --name) ",
                                 For(now - vacant.since)));
  }
}

void JobRun::AddWaitsForActions(absl::Duration now, std::vector<std::string>& waits) const {
  const absl::Duration here = now - phase_since_;
  if (cut_retry_.waits() && now - cut_retry_.since() > kWorthSaying) {
    waits.push_back(absl::StrCat("the job tries its checkpoint again ",
                                 For(now - cut_retry_.since()), ": ", cut_retry_.why()));
  }
  const bool acting = phase_ == Phase::kFinding || phase_ == Phase::kLoading ||
                      phase_ == Phase::kMeasuring || phase_ == Phase::kCheckpointing ||
                      phase_ == Phase::kMoving || AwaitsPruning();
  if (acting && here > kWorthSaying) {
    const bool of_ps =
        phase_ == Phase::kLoading || phase_ == Phase::kCheckpointing || phase_ == Phase::kMoving;
    // The last round before the move's barrier may still be under way there.
    const bool behind = phase_ == Phase::kMoving && actions_.Copies(Lane::kBackground) &&
                        !actions_.Copies(Lane::kForeground);
    const std::string whom =
        of_ps ? Unanswered(behind ? Lane::kBackground : Lane::kForeground, "the master itself")
              : "the master itself";
    waits.push_back(
        absl::StrCat("workers wait for ", whom, " (", record_->status().phase(), ") ", For(here)));
  }
  if (writing_.has_value() && phase_ != Phase::kCheckpointing) {
    const bool awaited = phase_ == Phase::kAwaitingWrite;
    const absl::Duration written_for = now - (awaited ? phase_since_ : writing_->since);
    if (written_for > (awaited ? kWorthSaying : absl::Seconds(10))) {
      waits.push_back(absl::StrCat(
          awaited ? "workers wait for " : "training goes on; ", "the checkpoint of step ",
          writing_->step, awaited ? " to be written by " : " is being written by ",
          Unanswered(Lane::kBackground, "the master itself"), " ", For(written_for)));
      const auto log = awaited && log_room_.Scarce(now) ? FullestLog(now) : std::nullopt;
      if (log.has_value()) absl::StrAppend(&waits.back(), "; ", *log);
    }
  }
}

void JobRun::AddWaitsForWishes(const Now& at, std::vector<std::string>& waits) const {
  const absl::Duration now = at.monotonic;
  // Wall time, since an earlier run or another master may have begun the wait.
  const auto for_since = [&at](int64_t unix_ms) {
    return For(at.wall - absl::FromUnixMillis(unix_ms));
  };
  const char* const goes_on = phase_ == Phase::kTraining ? "training goes on; " : "";
  if (record_->status().has_scaling() && !move_.has_value() && plan_ != nullptr) {
    const v1::Scaling& scaling = record_->status().scaling();
    waits.push_back(absl::StrCat(
        goes_on, "the move to ", scaling.to(), " ps waits ",
        AwaitsScaling() ? "until so many are here (start tessera-ps) " : "until the job trains on ",
        for_since(scaling.since_unix_ms())));
  }
  const bool moves = move_.has_value() && phase_ != Phase::kMoving;  // else workers wait
  if (moves && now - move_->stage_since() > kBehindWorthSaying) {
    if (const std::string awaits = MoveAwaits(); !awaits.empty()) {
      waits.push_back(absl::StrCat(goes_on, "the move to ", move_->to().size(), " ps waits for ",
                                   awaits, " ", For(now - move_->stage_since())));
    }
  }
  if (record_->status().has_worker_scaling() && plan_ != nullptr) {
    const v1::WorkerScaling& scaling = record_->status().worker_scaling();
    waits.push_back(absl::StrCat(
        goes_on, "the change to ", scaling.to(), " workers waits ",
        workers_are_here_      ? "for the next barrier between shuffle windows "
        : above_quota_.empty() ? "until so many are here (start tessera-worker, under any --name) "
                               : "",
        for_since(scaling.since_unix_ms()),
        above_quota_.empty() ? "" : absl::StrCat(", since ", above_quota_)));
  }
  if (Suspending() && phase_ == Phase::kTraining) {
    waits.push_back(absl::StrCat("the job is to be suspended, and goes to its next barrier ",
                                 for_since(record_->status().suspending().since_unix_ms())));
  }
  if (leaving_.has_value() && now - leaving_->since > kWorthSaying) {
    waits.push_back(absl::StrCat(leaving_->ps, " is to stop, and waits for the job's checkpoint ",
                                 For(now - leaving_->since)));
  }
}

void JobRun::AddSlowOnes(absl::Duration now, std::vector<std::string>& waits) const {
  for (const Replicas::Wait& wait : replicas_.Waits(kWorthSaying)) {
    waits.push_back(absl::StrCat("pushes to ", options_.ps[wait.part].name, " wait for ",
                                 wait.follower->name, ", which has a copy of its rows, ",
                                 For(wait.awaited)));
  }
  if (phase_ != Phase::kTraining) return;
  for (std::string& line : slow_.Lines(now)) waits.push_back(std::move(line));
  for (uint32_t r = 0; r < options_.workers.size(); ++r) {
    const absl::Duration rests = watch_.Rests(Rank(r), now);
    if (rests == absl::ZeroDuration()) continue;
    waits.push_back(absl::StrCat(
        options_.workers[r].name, " rests, since the others are faster without it; it is tried ",
        "again in ", absl::FormatDuration(absl::Trunc(rests, absl::Seconds(1)))));
  }
}

void JobRun::AddWaitsForWorkers(absl::Duration now, std::vector<std::string>& waits) const {
  const bool barrier = phase_ != Phase::kTraining || plan_->BarrierDue();
  const bool hands_out = phase_ == Phase::kTraining || phase_ == Phase::kEvaluating;
  for (uint32_t r = 0; r < options_.workers.size() && opened_; ++r) {
    const std::string& name = options_.workers[r].name;
    if (watch_.Vacant(Rank(r))) continue;  // said above
    if (desk_.Busy(Rank(r))) {
      const absl::Duration held = now - desk_.since(Rank(r));
      const bool stuck = IsStuck(Rank(r), options_.stuck_after, now);
      const bool others_wait = barrier && options_.workers.size() > 1;
      if (held > (others_wait ? kWorthSaying : absl::Seconds(10))) {
        waits.push_back(absl::StrCat("the job waits for ", name, " to ",
                                     WorkName(desk_.held(Rank(r))), " (unit ",
                                     desk_.held(Rank(r)).unit_id(), ") ", For(held),
                                     stuck ? "; it makes no step, and waits for nobody: start "
                                             "tessera-worker, under any --name, to take its place"
                                           : ""));
      }
    } else if (const absl::Duration asked = watch_.SinceAsked(Rank(r), now);
               asked > kAsksWithin && (!desk_.AtDropped(Rank(r)) || hands_out)) {
      waits.push_back(absl::StrCat("the job waits for ", name, " to ask for work ", For(asked)));
    }
  }
}

}  // namespace tessera::master
