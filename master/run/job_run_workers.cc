// Lost workers: another process takes over the rank, and the run goes on where it was. The new
// worker asks the ps what the lost one pushed and did not report (ParameterService.GetProgress).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/job/defaults.h"
#include "master/run/job_run.h"

namespace tessera::master {
namespace {

// A worker that holds no unit and does not ask for one is given up after this, even if its
// heartbeats come.
constexpr absl::Duration kGivenUpAfter = absl::Minutes(1);

}  // namespace

bool JobRun::WorkerLost(uint64_t incarnation, const Now& now) {
  if (end_.has_value()) return false;
  for (uint32_t r = 0; r < options_.workers.size(); ++r) {
    if (options_.workers[r].incarnation != incarnation) continue;
    watch_.Lost(Rank(r), Vacate(Rank(r)), now.monotonic);
    return true;
  }
  return false;
}

uint64_t JobRun::Vacate(Rank rank) {
  if (plan_ != nullptr) plan_->Yield(rank);
  return std::exchange(options_.workers[rank.value()].incarnation, 0);
}

void JobRun::RestIfTooSlow(Rank rank, const Now& now) {
  const RunNode& worker = options_.workers[rank.value()];
  const double times = slow_.TimesTheOthers(worker.name);
  if (times == 0 || !watch_.Measured(rank, times, now.monotonic)) return;
  plan_->Yield(rank);
  jobs_->AddEvent(
      record_,
      absl::StrFormat("%s rests for %s: its own part of a step takes %.1f times as long as that of "
                      "the others, who with max_lead %d are faster without it",
                      worker.name, absl::FormatDuration(watch_.Rests(rank, now.monotonic)), times,
                      MaxLeadOf(spec().consistency())),
      now.wall);
}

bool JobRun::IsStuck(Rank rank, absl::Duration patience, absl::Duration now) const {
  if (!opened_ || watch_.Vacant(rank)) return false;
  // Workers report steps only for units of training.
  const bool trains = desk_.Busy(rank) && desk_.held(rank).has_train();
  if (!trains && !desk_.AtDropped(rank)) return false;
  return watch_.SinceHeard(rank, now) >= patience;
}

std::vector<Rank> JobRun::StuckRanks(absl::Duration now) const {
  std::vector<Rank> ranks;
  for (uint32_t r = 0; r < options_.workers.size() && !end_.has_value(); ++r) {
    if (IsStuck(Rank(r), options_.stuck_after, now)) ranks.push_back(Rank(r));
  }
  return ranks;
}

void JobRun::GiveUpStuck(Rank rank, bool another_is_free, const Now& now) {
  jobs_->AddEvent(
      record_,
      absl::StrFormat("%s has made no step for %.0f s, and waits for nobody: it is taken for lost",
                      options_.workers[rank.value()].name,
                      absl::ToDoubleSeconds(watch_.SinceHeard(rank, now.monotonic))),
      now.wall);
  watch_.GiveUp(rank, Vacate(rank), another_is_free ? "" : "makes no step", now.monotonic);
}

std::vector<Rank> JobRun::VacantRanks() const {
  std::vector<Rank> ranks;
  if (end_.has_value()) return ranks;
  for (const auto& [rank, vacancy] : watch_.vacant()) ranks.push_back(Rank(rank));
  return ranks;
}

void JobRun::TakeOver(Rank rank, const RunNode& worker, const Now& now) {
  const uint32_t r = rank.value();
  UpdateStatus(now);
  const absl::Duration vacant_for = watch_.Fill(rank, now.monotonic);
  jobs_->AddEvent(record_,
                  absl::StrFormat("%s takes over rank %d at step %d after %.1f s", worker.name, r,
                                  status().step(), absl::ToDoubleSeconds(vacant_for)),
                  now.wall);
  ++options_.counts->worker_takeovers;
  options_.workers[r] = worker;
  // The unit gets another number, so that late calls of the lost worker do not count as this one's.
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

void JobRun::StoodStill(absl::Duration gap, const Now& now) {
  watch_.StoodStill(gap, now.monotonic);
  lost_.StoodStill(gap, now.monotonic);
}

void JobRun::TickWorkers(const Now& now) {
  for (uint32_t r = 0; r < options_.workers.size() && opened_; ++r) {
    const Rank rank(r);
    if (IsStuck(rank, options_.stuck_after + options_.worker_patience, now.monotonic)) {
      GiveUpStuck(rank, /*another_is_free=*/false, now);
      continue;
    }
    if (watch_.Vacant(rank) || desk_.Busy(rank) || desk_.AtDropped(rank)) continue;
    if (watch_.SinceAsked(rank, now.monotonic) < kGivenUpAfter) continue;
    jobs_->AddEvent(record_,
                    absl::StrCat(options_.workers[r].name, " has not asked for work for ",
                                 absl::FormatDuration(kGivenUpAfter)),
                    now.wall);
    watch_.GiveUp(rank, Vacate(rank), "does not ask for work", now.monotonic);
  }
  const std::optional<Rank> rank = watch_.Overdue(options_.worker_patience, now.monotonic);
  if (!rank.has_value()) return;
  const std::string& does_not = watch_.vacant().at(rank->value()).does_not;
  const std::string why =
      does_not.empty()
          ? absl::StrCat("has found no worker in ", absl::FormatDuration(options_.worker_patience))
          : absl::StrCat(does_not, ", and no other worker is free");
  Restart(does_not.empty() ? "ProcessLost" : "WorkerSilent",
          absl::StrCat("rank ", rank->value(), ", which ", options_.workers[rank->value()].name,
                       " had, ", why),
          now);
}

}  // namespace tessera::master
