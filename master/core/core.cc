#include "master/core/core.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/job/defaults.h"
#include "common/job/job_state.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/version.h"
#include "master/run/run_state.h"

namespace tessera::master {
namespace {

// Incarnations are made durable in blocks, so that joining costs no write each time.
constexpr uint64_t kIncarnationBlock = 1000;
constexpr size_t kMaxQueue = 1000;
// The master stood still if no tick came for so long, or for a third of a lease if that is longer;
// ticks come many times a second.
constexpr absl::Duration kStandstill = absl::Seconds(3);

absl::StatusOr<uint64_t> Number(const std::map<std::string, std::string>& state,
                                const std::string& key, uint64_t missing) {
  auto it = state.find(key);
  if (it == state.end()) return missing;
  uint64_t value = 0;
  if (!absl::SimpleAtoi(it->second, &value)) {
    return absl::DataLossError(
        absl::StrCat("state log: ", key, " is \"", it->second, "\", a number was expected"));
  }
  return value;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MasterCore>> MasterCore::New(
    const Options& options, const std::map<std::string, std::string>& state, const Now& now) {
  TESSERA_ASSIGN_OR_RETURN(const uint64_t first, Number(state, "incarnation_limit", 1));
  TESSERA_ASSIGN_OR_RETURN(const uint64_t next_job, Number(state, "next_job", 1));
  std::unique_ptr<MasterCore> core(new MasterCore(options, first));
  core->incarnation_limit_ = first;
  core->ReserveIncarnations();
  for (const auto& [key, value] : state) {
    if (!absl::StartsWith(key, "job/")) continue;
    v1::JobRecord record;
    if (!record.ParseFromString(value)) {
      return absl::DataLossError(absl::StrCat("state log: ", key, " is not a job"));
    }
    core->jobs_.Load(std::move(record));
  }
  core->jobs_.SetNextNumber(std::max(next_job, options.next_job));
  core->FailUnknown(now);
  TESSERA_RETURN_IF_ERROR(core->ResumeRuns(state, now));
  for (v1::JobRecord* record : core->jobs_.Queue()) {
    if (record->cancel()) {
      core->jobs_.Move(record, v1::FAILED, kCancelled, "cancelled by a user", now.wall);
    } else if (core->RunOf(record) != nullptr) {
      continue;
    } else if (record->status().state() == v1::RUNNING) {
      record->mutable_status()->set_restarts(record->status().restarts() + 1);
      ++core->counts_.restarts;
      core->jobs_.AddEvent(record, "the master restarted", now.wall);
      core->jobs_.Move(record, v1::RESTARTING, "MasterRestarted",
                       "waits for its processes to join again", now.wall);
    }
  }
  return core;
}

void MasterCore::ReserveIncarnations() {
  if (membership_.next_incarnation() + kIncarnationBlock / 2 < incarnation_limit_) return;
  incarnation_limit_ = membership_.next_incarnation() + kIncarnationBlock;
  writes_.push_back({"incarnation_limit", absl::StrCat(incarnation_limit_)});
}

void MasterCore::NoticeStandstill(const Now& now) {
  const absl::Duration gap = now.monotonic - ticked_at_.value_or(now.monotonic);
  // Every call shows that the master works.
  ticked_at_ = now.monotonic;
  if (gap <= std::max(options_.membership.lease / 3, kStandstill)) return;
  SPDLOG_WARN("this master stood still for {}: its processes are not to blame for that time",
              absl::FormatDuration(absl::Trunc(gap, absl::Milliseconds(100))));
  membership_.StoodStill(gap, now.monotonic);
  for (JobRun* run : Runs()) run->StoodStill(gap, now);
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

std::vector<v1::JobStatus> MasterCore::RunningJobs(const Now& now) {
  std::vector<v1::JobStatus> running;
  for (JobRun* run : Runs()) running.push_back(StatusOf(run->record(), now));
  return running;
}

std::map<std::string, std::vector<SlowProcesses::Process>> MasterCore::Paces(const Now& now) const {
  std::map<std::string, std::vector<SlowProcesses::Process>> paces;
  for (const JobRun* run : Runs()) {
    paces[run->record()->status().job_id()] = run->Paces(now.monotonic);
  }
  return paces;
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

std::vector<JobRun*> MasterCore::Runs() {
  std::vector<JobRun*> runs;
  for (auto& [number, slot] : slots_) {
    if (slot.run() != nullptr) runs.push_back(slot.run());
  }
  return runs;
}

std::vector<const JobRun*> MasterCore::Runs() const {
  std::vector<const JobRun*> runs;
  for (const auto& [number, slot] : slots_) {
    if (slot.run() != nullptr) runs.push_back(slot.run());
  }
  return runs;
}

const JobRun* MasterCore::RunOf(const v1::JobRecord* record) const {
  const auto slot = slots_.find(record->number());
  return slot == slots_.end() ? nullptr : slot->second.run();
}

JobRun* MasterCore::RunOf(const v1::JobRecord* record) {
  const auto slot = slots_.find(record->number());
  return slot == slots_.end() ? nullptr : slot->second.run();
}

std::optional<MasterCore::Seat> MasterCore::SeatOf(uint64_t incarnation) const {
  for (const JobRun* run : Runs()) {
    const std::vector<RunNode>& workers = run->options().workers;
    for (uint32_t r = 0; r < workers.size(); ++r) {
      if (workers[r].incarnation == incarnation) return Seat{run, Rank(r)};
    }
  }
  return std::nullopt;
}

std::vector<const Node*> MasterCore::FreeWorkers() const {
  std::vector<const Node*> free;
  for (const Node* node : membership_.Alive(v1::WORKER)) {
    if (!SeatOf(node->incarnation).has_value()) free.push_back(node);
  }
  return free;
}

bool MasterCore::MayServe(const v1::JobRecord& record, bool has_address) {
  return has_address || !WorkersCallEachOther(record.status().spec(), record.status().task());
}

std::vector<const Node*> MasterCore::Serving(const v1::JobRecord& record,
                                             std::vector<const Node*> workers) {
  std::erase_if(workers,
                [&](const Node* node) { return !MayServe(record, !node->address.empty()); });
  return workers;
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

absl::Status MasterCore::CheckOutput(const std::string& output) const {
  const auto path = [](const std::string& file) {
    return std::filesystem::path(file).lexically_normal();
  };
  for (const v1::JobRecord* record : jobs_.Unfinished()) {
    const v1::JobStatus& job = record->status();
    if (job.task() != v1::PREDICT || path(job.output()) != path(output)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job.job_id(), " writes its predictions to ", job.output(),
                     ", and has not ended; wait for its end, cancel it, or have these written to "
                     "another file"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> MasterCore::Submit(const v1::SubmitRequest& request, const Now& now) {
  TESSERA_RETURN_IF_ERROR(CheckQuota(request.spec(), request.workers()));
  if (const size_t waiting = jobs_.Unfinished().size(); waiting >= kMaxQueue) {
    return absl::ResourceExhaustedError(
        absl::StrCat(waiting,
                     " jobs have not ended, and the queue holds no more; submit again "
                     "when some have, or cancel some"));
  }
  if (request.task() == v1::PREDICT) TESSERA_RETURN_IF_ERROR(CheckOutput(request.output()));
  v1::JobRecord* record = jobs_.Add(request, now.wall);
  Schedule(now);
  return record->status().job_id();
}

absl::Status MasterCore::UnknownJob(const std::string& job_id) const {
  return absl::NotFoundError(
      absl::StrCat("no job ", job_id, "; the newest jobs: ", jobs_.KnownIds()));
}

absl::Status MasterCore::Cancel(const std::string& job_id, const Now& now) {
  v1::JobRecord* record = jobs_.Find(job_id);
  if (record == nullptr) return UnknownJob(job_id);
  if (HasEnded(record->status().state())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", job_id, " has ended already: ", v1::JobState_Name(record->status().state())));
  }
  record->set_cancel(true);
  jobs_.AddEvent(record, "cancelled by a user", now.wall);
  if (JobRun* const run = RunOf(record)) {
    run->End(RunEnd::Failed(kCancelled, "cancelled by a user"), now);
  } else {
    jobs_.Move(record, v1::FAILED, kCancelled, "cancelled by a user", now.wall);
  }
  Schedule(now);
  return absl::OkStatus();
}

v1::NodeStatus MasterCore::StatusOf(const Node& node) const {
  v1::NodeStatus status;
  status.set_kind(node.kind);
  status.set_name(node.name);
  status.set_address(node.address);
  status.set_incarnation(node.incarnation);
  status.set_alive(node.alive);
  status.set_last_seen_unix_ms(absl::ToUnixMillis(node.last_seen_wall));
  status.set_doing(node.heartbeat.doing());
  status.set_resident_bytes(node.heartbeat.resident_bytes());
  status.set_rows(node.heartbeat.rows());
  status.set_pid(node.pid);
  for (const JobRun* run : Runs()) {
    if (!run->Uses(node.incarnation) && !run->Follows(node.incarnation)) continue;
    const std::string& job_id = run->record()->status().job_id();
    status.set_job_id(absl::StrCat(status.job_id(), status.job_id().empty() ? "" : ", ", job_id));
  }
  if (const auto seat = SeatOf(node.incarnation)) status.set_rank(seat->rank.value());
  return status;
}

v1::JobStatus MasterCore::StatusOf(v1::JobRecord* record, const Now& now) {
  JobRun* const run = RunOf(record);
  if (run != nullptr) run->UpdateStatus(now);
  v1::JobStatus status = record->status();
  for (v1::NodeStatus& node : *status.mutable_nodes()) {
    const Node* found = membership_.Find(node.incarnation());
    if (found == nullptr) {
      node.set_alive(false);
      continue;
    }
    const uint32_t rank = node.rank();
    node = StatusOf(*found);
    node.set_rank(rank);
    node.set_job_id(status.job_id());
    if (run == nullptr) continue;
    for (const std::string& wait : found->heartbeat.waits()) {
      status.add_waits(absl::StrCat(found->name, ": ", wait));
    }
    for (const v1::JobOnPs& job : found->heartbeat.jobs()) {
      if (job.job_id() != status.job_id()) continue;
      for (const std::string& wait : job.waits()) {
        status.add_waits(absl::StrCat(found->name, ": ", wait));
      }
    }
  }
  if (run != nullptr) {
    AddRows(status);
    for (std::string& wait : run->Waits(now)) status.add_waits(std::move(wait));
  }
  return status;
}

absl::StatusOr<v1::JobStatus> MasterCore::GetJob(const std::string& job_id, const Now& now) {
  v1::JobRecord* record = jobs_.Find(job_id);
  if (record == nullptr) return UnknownJob(job_id);
  return StatusOf(record, now);
}

std::map<v1::JobState, int> MasterCore::JobsByState() const {
  std::map<v1::JobState, int> jobs;
  for (const v1::JobRecord* record : jobs_.NewestFirst()) ++jobs[record->status().state()];
  return jobs;
}

std::vector<v1::JobStatus> MasterCore::ListJobs(const Now& now) {
  std::vector<v1::JobStatus> all;
  size_t bytes = 0;
  for (v1::JobRecord* record : jobs_.NewestFirst()) {
    v1::JobStatus& status = all.emplace_back(StatusOf(record, now));
    // A thousand whole statuses do not fit one message.
    status.clear_spec();
    status.clear_events();
    status.clear_nodes();
    status.clear_history();
    auto* evaluations = status.mutable_evaluations();
    if (evaluations->size() > 1) evaluations->DeleteSubrange(0, evaluations->size() - 1);
    // Nor do all metrics of a thousand jobs that have hundreds each.
    constexpr size_t kMostBytes = 2 << 20;
    if (bytes + status.ByteSizeLong() > kMostBytes) {
      status.clear_evaluations();
      status.clear_final_metrics();
      status.clear_message();
    }
    bytes += status.ByteSizeLong();
  }
  return all;
}

v1::ClusterStatus MasterCore::Cluster() const {
  v1::ClusterStatus cluster;
  for (const Node* node : membership_.All()) *cluster.add_nodes() = StatusOf(*node);
  cluster.set_version(kVersion);
  cluster.set_protocol(kProtocolVersion);
  return cluster;
}

absl::StatusOr<const JobRun*> MasterCore::RunOf(const std::string& job_id,
                                                uint64_t generation) const {
  const v1::JobRecord* const record = jobs_.Find(job_id);
  if (record == nullptr) return UnknownJob(job_id);
  const v1::JobStatus& status = record->status();
  if (HasEnded(status.state())) {
    return absl::NotFoundError(
        absl::StrCat("job ", job_id, " has ended: ", v1::JobState_Name(status.state())));
  }
  const JobRun* const run = RunOf(record);
  if (run == nullptr || run->generation() != generation) {
    return absl::AbortedError(absl::StrCat("generation ", generation, " of job ", job_id,
                                           " is over; it is at ", status.generation()));
  }
  return run;
}

absl::StatusOr<JobRun*> MasterCore::RunOf(const std::string& job_id, uint64_t generation) {
  TESSERA_ASSIGN_OR_RETURN(const JobRun* run, std::as_const(*this).RunOf(job_id, generation));
  return RunOf(run->record());
}

absl::StatusOr<std::optional<v1::NextWorkResponse>> MasterCore::NextWork(
    const v1::NextWorkRequest& request, const Now& now) {
  TESSERA_ASSIGN_OR_RETURN(JobRun * run, RunOf(request.job_id(), request.generation()));
  auto unit = run->NextWork(request, now);
  if (run->end().has_value()) {
    Schedule(now);
    // Says whether the job or only this generation has ended.
    TESSERA_RETURN_IF_ERROR(RunOf(request.job_id(), request.generation()).status());
  }
  if (unit.ok() && unit->has_value() && (*unit)->has_predict()) {
    NameWriters(request.job_id(), *(*unit)->mutable_predict());
  }
  return unit;
}

void MasterCore::NameWriters(const std::string& job_id, v1::Predict& predict) {
  predict.set_cluster(options_.cluster);
  predict.set_job(jobs_.Find(job_id)->number());
  predict.set_ended_below(predict.job());
  for (const v1::JobRecord* record : jobs_.Unfinished()) {
    if (record->status().task() != v1::PREDICT) continue;
    predict.set_ended_below(std::min(predict.ended_below(), record->number()));
  }
}

absl::StatusOr<ScoresExpected> MasterCore::MayScore(const v1::ScoresChunk& chunk) const {
  TESSERA_ASSIGN_OR_RETURN(const JobRun* run, RunOf(chunk.job_id(), chunk.generation()));
  return run->ScoresOf(chunk.unit_id());
}

absl::Status MasterCore::AddScores(const v1::ScoresChunk& header, EvaluationRound::Scores scores) {
  TESSERA_ASSIGN_OR_RETURN(JobRun * run, RunOf(header.job_id(), header.generation()));
  TESSERA_ASSIGN_OR_RETURN(EvaluationRound * round, run->Round(header.evaluation_id()));
  return round->SetScores(header.unit_id(), std::move(scores));
}

absl::Status MasterCore::AddSums(const v1::ScoresChunk& header, std::unique_ptr<ScoreSums> sums) {
  TESSERA_ASSIGN_OR_RETURN(JobRun * run, RunOf(header.job_id(), header.generation()));
  TESSERA_ASSIGN_OR_RETURN(EvaluationRound * round, run->Round(header.evaluation_id()));
  return round->SetSums(header.unit_id(), std::move(sums));
}

void MasterCore::Tick(const Now& now) {
  NoticeStandstill(now);
  ticked_at_ = now.monotonic;
  for (const Membership::Death& death : membership_.Expire(now.monotonic)) OnDeath(death, now);
  ReplaceMissing(now);
  ScaleWorkersOfRuns();
  for (JobRun* run : Runs()) run->Tick(now);
  TickFollowers(now);
  ReleaseLeaving(now);
  ScaleRuns(now);
  EnforceQuotas(now);
  Schedule(now);
}

std::optional<Action> MasterCore::TakeAction(Lane lane) {
  for (auto& [number, slot] : slots_) {
    std::optional<Work> work = slot.TakeAction(lane, next_action_);
    if (!work.has_value()) continue;
    if (const JobRun* run = slot.run()) {
      slot.SeeRows(std::max(RowsOf(*run).row_bytes(), run->start_bytes()));
    }
    return Action{
        .id = next_action_++, .work = *std::move(work), .row_bytes = slot.most_row_bytes()};
  }
  return std::nullopt;
}

void MasterCore::ForgetLog(uint64_t ps, uint64_t number) {
  // By number, since the job itself may be forgotten by now.
  for (const v1::JobRecord* record : jobs_.NewestFirst()) {
    if (record->number() != number || !HasEnded(record->status().state())) continue;
    membership_.ForgetLog(ps, record->status().job_id());
  }
}

void MasterCore::ActionDone(uint64_t id, ActionResult result, const Now& now) {
  for (auto& [number, slot] : slots_) {
    if (!slot.Has(id)) continue;
    for (const uint64_t ps : result.closed) ForgetLog(ps, number);
    slot.ActionDone(id, std::move(result), now);
    return Schedule(now);
  }
}

std::vector<uint64_t> MasterCore::UnwantedActions() const {
  std::vector<uint64_t> ids;
  for (const auto& [number, slot] : slots_) slot.AddUnwanted(ids);
  return ids;
}

std::vector<std::string> MasterCore::Starts() const {
  std::vector<std::string> starts;
  for (const v1::JobRecord* record : jobs_.Unfinished()) {
    const std::string& start = record->status().spec().start().checkpoint();
    if (!start.empty()) starts.push_back(start);
  }
  return starts;
}

void MasterCore::SetUnanswered(uint64_t action, std::vector<std::string> ps) {
  for (auto& [number, slot] : slots_) {
    if (slot.Has(action)) return slot.SetUnanswered(action, std::move(ps));
  }
}

std::vector<StateLog::Write> MasterCore::TakeWrites() {
  std::vector<StateLog::Write> writes = std::exchange(writes_, {});
  for (StateLog::Write& write : jobs_.TakeWrites()) writes.push_back(std::move(write));
  for (JobRun* run : Runs()) {
    for (StateLog::Write& write : run->TakeWrites()) writes.push_back(std::move(write));
  }
  return writes;
}

}  // namespace tessera::master
