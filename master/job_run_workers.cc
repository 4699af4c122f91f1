// Workers that are lost: another process takes over the rank, and the run goes on where it was.
// What the one before pushed, and did not report, the ps know (ParameterService.GetProgress).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/job/defaults.h"
#include "master/job_run.h"

namespace tessera::master {
namespace {

// For a worker that lives and does not do its work, somebody must be here: else the next generation
// gives it a new start.
constexpr absl::Duration kPatienceWithSilence = absl::Seconds(1);

}  // namespace

bool JobRun::WorkerLost(uint64_t incarnation, const Now& now) {
  if (end_.has_value()) return false;
  for (uint32_t r = 0; r < options_.workers.size(); ++r) {
    if (options_.workers[r].incarnation != incarnation) continue;
    Vacate(Rank(r), "", now);
    return true;
  }
  return false;
}

void JobRun::Vacate(Rank rank, absl::string_view does_not, const Now& now) {
  const uint64_t lost = std::exchange(options_.workers[rank.value()].incarnation, 0);
  vacant_[rank.value()] = {.since = now.monotonic, .does_not = std::string(does_not), .lost = lost};
  rest_.Forget(rank);
  if (plan_ != nullptr) plan_->Yield(rank);
}

void JobRun::RestIfTooSlow(Rank rank, const Now& now) {
  const RunNode& worker = options_.workers[rank.value()];
  const double times = slow_.TimesTheOthers(worker.name);
  if (times == 0 || !rest_.Measured(rank, times, now.monotonic) || !Rests(rank, now.monotonic)) {
    return;
  }
  plan_->Yield(rank);
  jobs_->AddEvent(
      record_,
      absl::StrFormat("%s rests for %s: its own part of a step takes %.1f times as long as that of "
                      "the others, who with max_lead %d are faster without it",
                      worker.name, absl::FormatDuration(rest_.Left(rank, now.monotonic)), times,
                      MaxLeadOf(spec().consistency())),
      now.wall);
}

bool JobRun::Rests(Rank rank, absl::Duration now) const {
  if (rest_.Left(rank, now) == absl::ZeroDuration()) return false;
  for (uint32_t r = 0; r < options_.workers.size(); ++r) {
    const bool works =
        options_.workers[r].incarnation != 0 && rest_.Left(Rank(r), now) == absl::ZeroDuration();
    if (r != rank.value() && works) return true;
  }
  return false;  // somebody must work
}

bool JobRun::IsStuck(Rank rank, absl::Duration patience, absl::Duration now) const {
  const uint32_t r = rank.value();
  if (!opened_ || options_.workers[r].incarnation == 0) return false;
  // Of other units nobody says how far they are.
  const bool trains = desk_.Busy(rank) && desk_.held(rank).has_train();
  if (!trains && !desk_.AtDropped(rank)) return false;
  return now - std::max(asked_at_[r], moved_at_[r]) >= patience;
}

std::vector<Rank> JobRun::StuckRanks(absl::Duration now) const {
  std::vector<Rank> ranks;
  for (uint32_t r = 0; r < options_.workers.size() && !end_.has_value(); ++r) {
    if (IsStuck(Rank(r), options_.stuck_after, now)) ranks.push_back(Rank(r));
  }
  return ranks;
}

void JobRun::GiveUpStuck(Rank rank, bool another_is_free, const Now& now) {
  const RunNode& worker = options_.workers[rank.value()];
  const absl::Duration since = std::max(asked_at_[rank.value()], moved_at_[rank.value()]);
  jobs_->AddEvent(record_,
                  absl::StrFormat("%s has made no step for %.0f s, and waits for nobody: it is "
                                  "taken for lost",
                                  worker.name, absl::ToDoubleSeconds(now.monotonic - since)),
                  now.wall);
  silent_.insert(worker.incarnation);
  Vacate(rank, another_is_free ? "" : "makes no step", now);
}

std::vector<Rank> JobRun::VacantRanks() const {
  std::vector<Rank> ranks;
  if (end_.has_value()) return ranks;
  for (const auto& [rank, vacant] : vacant_) ranks.push_back(Rank(rank));
  return ranks;
}

void JobRun::TakeOver(Rank rank, const RunNode& worker, const Now& now) {
  const uint32_t r = rank.value();
  UpdateStatus(now);
  jobs_->AddEvent(
      record_,
      absl::StrFormat("%s takes over rank %d at step %d after %.1f s", worker.name, r,
                      status().step(), absl::ToDoubleSeconds(now.monotonic - vacant_.at(r).since)),
      now.wall);
  vacant_.erase(r);
  ++options_.counts->worker_takeovers;
  options_.workers[r] = worker;
  asked_at_[r] = moved_at_[r] = now.monotonic;
  // Under another number, so that nothing which the one before still sends is taken for this one's.
  const uint64_t before = desk_.TakeOver(rank, now.monotonic);
  if (before != 0 && desk_.held(rank).has_evaluate()) {
    round_->HandedOutAgain(before, desk_.held(rank).unit_id());
  }
  auto& nodes = *status().mutable_nodes();
  const auto found = std::find_if(nodes.begin(), nodes.end(), [r](const v1::NodeStatus& node) {
    return node.kind() == v1::WORKER && node.rank() == r;
  });
  v1::NodeStatus& node = found == nodes.end() ? *nodes.Add() : *found;
  node.Clear();
  node.set_kind(v1::WORKER);
  node.set_name(worker.name);
  node.set_address(worker.address);
  node.set_incarnation(worker.incarnation);
  node.set_alive(true);
  node.set_rank(r);
  node.set_job_id(status().job_id());
  jobs_->Touch(record_);
}

void JobRun::StoodStill(absl::Duration gap) {
  for (absl::Duration& asked : asked_at_) asked += gap;
  for (absl::Duration& moved : moved_at_) moved += gap;
}

void JobRun::TickWorkers(const Now& now) {
  for (uint32_t r = 0; r < options_.workers.size() && opened_; ++r) {
    const RunNode& worker = options_.workers[r];
    if (IsStuck(Rank(r), options_.stuck_after + options_.worker_patience, now.monotonic)) {
      GiveUpStuck(Rank(r), /*another_is_free=*/false, now);
      continue;
    }
    if (worker.incarnation == 0 || desk_.Busy(Rank(r)) || desk_.AtDropped(Rank(r))) continue;
    if (now.monotonic - asked_at_[r] < kGivenUpAfter) continue;
    jobs_->AddEvent(record_,
                    absl::StrCat(worker.name, " has not asked for work for ",
                                 absl::FormatDuration(kGivenUpAfter)),
                    now.wall);
    silent_.insert(worker.incarnation);
    Vacate(Rank(r), "does not ask for work", now);
  }
  for (const auto& [rank, vacant] : vacant_) {
    const bool lives = !vacant.does_not.empty();
    const absl::Duration patience = lives ? kPatienceWithSilence : options_.worker_patience;
    if (now.monotonic - vacant.since <= patience) continue;
    return Restart(
        lives ? "WorkerSilent" : "ProcessLost",
        absl::StrCat("rank ", rank, ", which ", options_.workers[rank].name, " had, ",
                     lives
                         ? absl::StrCat(vacant.does_not, ", and no other worker is free")
                         : absl::StrCat("has found no worker in ", absl::FormatDuration(patience))),
        now);
  }
}

}  // namespace tessera::master
