// Processes: they join, are heard, and are gone. And what they get: assignments, copies of rows.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/job_state.h"
#include "common/status_macros.h"
#include "master/core/core.h"
#include "master/run/run_state.h"

namespace tessera::master {
namespace {

// Incarnations are made durable in blocks, so that joining costs no write each time.
constexpr uint64_t kIncarnationBlock = 1000;
// A process that lives finds a restarted master within this: the process tries every two seconds,
// and so does its channel.
constexpr absl::Duration kFindsMaster = absl::Seconds(5);

}  // namespace

void MasterCore::ReserveIncarnations() {
  if (membership_.next_incarnation() + kIncarnationBlock / 2 < incarnation_limit_) return;
  incarnation_limit_ = membership_.next_incarnation() + kIncarnationBlock;
  writes_.push_back({"incarnation_limit", absl::StrCat(incarnation_limit_)});
}

absl::StatusOr<v1::Welcome> MasterCore::Join(const v1::Hello& hello, const Now& now) {
  NoticeStandstill(now);
  TESSERA_ASSIGN_OR_RETURN(Membership::Joined joined,
                           membership_.Join(hello, now.monotonic, now.wall));
  ReserveIncarnations();
  for (const std::string& id : hello.logged_jobs()) {
    const v1::JobRecord* const record = jobs_.Find(id);
    // The log of an unknown job stays: the job may be another cluster's, which goes on with it.
    if (record == nullptr || !HasEnded(record->status().state())) continue;
    joined.welcome.add_ended_jobs(id);
    membership_.ForgetLog(joined.welcome.incarnation(), id);
  }
  joined.welcome.set_cluster(options_.cluster);
  joined.welcome.set_forgotten_below(jobs_.ForgottenBelow());
  if (joined.replaced.has_value()) OnDeath(*joined.replaced, now);
  for (JobRun* run : Runs()) {
    if (hello.kind() != v1::PS) break;
    run->PsJoined(NodeOf(*membership_.Find(joined.welcome.incarnation())), now);
  }
  for (v1::JobRecord* record : jobs_.Queue()) {
    if (!Concerns(*record, hello.kind(), joined.welcome.name(), now)) continue;
    jobs_.AddEvent(record, absl::StrCat(joined.welcome.name(), " joined"), now.wall);
  }
  Schedule(now);
  return joined.welcome;
}

bool MasterCore::Concerns(const v1::JobRecord& record, v1::NodeKind kind, const std::string& name,
                          const Now& now) const {
  const v1::JobStatus& job = record.status();
  if (job.state() != v1::RUNNING && job.state() != v1::RESTARTING) return false;
  const bool has_it = std::any_of(job.nodes().begin(), job.nodes().end(), [&](const auto& node) {
    return node.kind() == kind && node.name() == name;
  });
  if (has_it) return true;
  const bool is_ps = kind == v1::PS;
  const JobRun* const run = RunOf(&record);
  if (run == nullptr) return job.reason() == (is_ps ? kWaitsForPs : kWaitsForWorkers);
  return is_ps ? job.has_scaling() || !run->PartsToFollow(now.monotonic).empty()
               : job.has_worker_scaling() || !run->VacantRanks().empty();
}

bool MasterCore::BeginLease(uint64_t incarnation, const Now& now) {
  NoticeStandstill(now);
  return membership_.Heartbeat(incarnation, v1::Heartbeat(), now.monotonic, now.wall);
}

bool MasterCore::Heartbeat(uint64_t incarnation, const v1::Heartbeat& heartbeat, const Now& now) {
  NoticeStandstill(now);
  if (!membership_.Heartbeat(incarnation, heartbeat, now.monotonic, now.wall)) return false;
  for (JobRun* run : Runs()) run->Heard(incarnation, heartbeat, now);
  if (const Node* ps = membership_.Find(incarnation)) {
    HearLogs(*ps, heartbeat, now);
    CloseUnused(*ps, heartbeat);
  }
  return true;
}

void MasterCore::HearLogs(const Node& ps, const v1::Heartbeat& heartbeat, const Now& now) {
  for (const v1::JobOnPs& job : heartbeat.jobs()) {
    if (job.log_share() <= 0) continue;
    v1::JobRecord* const record = jobs_.Find(job.job_id());
    JobRun* const run = record != nullptr ? RunOf(record) : nullptr;
    if (run == nullptr || run->generation() != job.generation()) continue;
    run->HearLog(ps.incarnation, job.log_share(), now);
  }
}

void MasterCore::CloseUnused(const Node& ps, const v1::Heartbeat& heartbeat) {
  for (const v1::JobOnPs& job : heartbeat.jobs()) {
    v1::JobRecord* const record = jobs_.Find(job.job_id());
    if (record == nullptr) continue;
    const auto slot = slots_.try_emplace(record->number(), record).first;
    if (!slot->second.IsDoneWith(ps.incarnation, job.generation())) continue;
    ClosePs close = CloseOf(job.job_id(), job.generation());
    close.ps.push_back(NodeOf(ps));
    slot->second.Close(std::move(close));
  }
  for (const std::string& id : ps.logged_jobs) {
    v1::JobRecord* const record = jobs_.Find(id);
    if (record == nullptr || !HasEnded(record->status().state())) continue;
    JobSlot& slot = slots_.try_emplace(record->number(), record).first->second;
    if (!slot.IsIdle()) continue;  // what closes it now may do so there
    ClosePs close = CloseOf(id, record->status().generation());
    close.ps.push_back(NodeOf(ps));
    slot.Close(std::move(close));
  }
}

void MasterCore::ForgetLog(uint64_t ps, uint64_t number) {
  // By number, since the job itself may be forgotten by now.
  for (const v1::JobRecord* record : jobs_.NewestFirst()) {
    if (record->number() != number || !HasEnded(record->status().state())) continue;
    membership_.ForgetLog(ps, record->status().job_id());
  }
}

void MasterCore::StreamEnded(uint64_t incarnation, absl::Duration joined_at, bool broke,
                             const std::string& reason, const Now& now) {
  NoticeStandstill(now);
  if (membership_.Outlives(incarnation, joined_at, broke, now.monotonic)) return;
  Leave(incarnation, reason, now);
}

void MasterCore::Leave(uint64_t incarnation, const std::string& reason, const Now& now) {
  if (auto death = membership_.Leave(incarnation, reason, now.monotonic)) {
    OnDeath(*death, now);
    Schedule(now);
  }
}

void MasterCore::OnDeath(const Membership::Death& death, const Now& now) {
  for (JobRun* run : Runs()) {
    if (run->end().has_value()) continue;
    run->GiveUpFollower(death.incarnation, absl::StrCat("is lost (", death.reason, ")"), now);
    if (run->MovesTo(death.incarnation)) {
      run->GiveUpScaling(absl::StrCat(death.name, " is lost (", death.reason, ")"), now);
    }
    if (run->end().has_value() || !run->Uses(death.incarnation)) continue;
    const std::string message = absl::StrCat(death.name, " lost (", death.reason, ")");
    jobs_.AddEvent(run->record(), message, now.wall);
    if (run->AwaitPs(death.incarnation, now) || run->WorkerLost(death.incarnation, now)) continue;
    run->End(RunEnd::Restart("ProcessLost", message), now);
  }
}

std::string MasterCore::AssignmentKey(uint64_t incarnation) const {
  const std::optional<Seat> seat = SeatOf(incarnation);
  if (!seat.has_value() || !seat->run->opened()) return "";
  std::string key = absl::StrCat(seat->run->record()->status().job_id(), ":",
                                 seat->run->generation(), ":", seat->rank.value());
  // A ps that comes back may have another address.
  for (const RunNode& ps : seat->run->options().ps) absl::StrAppend(&key, ":", ps.incarnation);
  if (!seat->run->WorkersCall()) return key;
  for (const RunNode& worker : seat->run->options().workers) {
    absl::StrAppend(&key, ":", worker.incarnation);
  }
  return key;
}

v1::Assignment MasterCore::AssignmentFor(uint64_t incarnation) const {
  const std::optional<Seat> seat = SeatOf(incarnation);
  if (!seat.has_value()) return v1::Assignment();
  return seat->run->AssignmentOf(seat->rank).value_or(v1::Assignment());
}

bool MasterCore::MayLeave(uint64_t incarnation) const {
  const Node* const node = membership_.Find(incarnation);
  return node != nullptr && node->released;
}

void MasterCore::TickFollowers(const Now& now) {
  const std::vector<const Node*> ps = membership_.Alive(v1::PS);
  for (JobRun* run : Runs()) {
    if (run->record()->status().spec().recovery().replicas() == 0) continue;
    const std::string& job_id = run->record()->status().job_id();
    for (const Node* node : ps) {
      for (const v1::JobOnPs& job : node->heartbeat.jobs()) {
        if (job.job_id() == job_id) run->HearPs(node->incarnation, job, now);
      }
    }
    for (const uint32_t part : run->PartsToFollow(now.monotonic)) {
      for (const Node* node : PsByUse()) {
        if (run->Uses(node->incarnation) || run->Follows(node->incarnation)) continue;
        run->LetFollow(part, NodeOf(*node), now);
        break;
      }
    }
  }
}

void MasterCore::ReplaceMissing(const Now& now) {
  for (JobRun* run : Runs()) {
    for (const auto& [ps, copy] : run->Copies()) {
      const Node* const missing = membership_.Find(ps);
      const Node* const has = membership_.Find(copy);
      if (missing == nullptr || !missing->alive || !missing->expected) continue;
      if (has == nullptr || !has->alive || has->expected) continue;
      if (now.monotonic - missing->last_seen < kFindsMaster) continue;
      const auto death = membership_.Leave(
          ps, absl::StrCat("it has not joined in ", absl::FormatDuration(kFindsMaster)),
          now.monotonic);
      if (death.has_value()) OnDeath(*death, now);
    }
  }
}

}  // namespace tessera::master
