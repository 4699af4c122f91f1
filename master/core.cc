#include "master/core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/job/validate.h"
#include "common/status_macros.h"
#include "common/version.h"

namespace tessera::master {
namespace {

// Incarnations are made durable in blocks, so that joining costs no write each time.
constexpr uint64_t kIncarnationBlock = 1000;
constexpr size_t kMaxQueue = 1000;

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
  TESSERA_RETURN_IF_ERROR(core->ResumeRun(state, now));
  for (v1::JobRecord* record : core->jobs_.Queue()) {
    if (record->cancel()) {
      core->jobs_.Move(record, v1::FAILED, "Cancelled", "cancelled by a user", now.wall);
    } else if (core->run_ != nullptr && core->run_->record() == record) {
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

absl::StatusOr<v1::Welcome> MasterCore::Join(const v1::Hello& hello, const Now& now) {
  TESSERA_ASSIGN_OR_RETURN(Membership::Joined joined,
                           membership_.Join(hello, now.monotonic, now.wall));
  ReserveIncarnations();
  if (joined.replaced.has_value()) OnDeath(*joined.replaced, now);
  if (run_ != nullptr && hello.kind() == v1::PS) {
    run_->PsJoined({.name = joined.welcome.name(),
                    .address = hello.address(),
                    .incarnation = joined.welcome.incarnation()},
                   now);
  }
  for (v1::JobRecord* record : jobs_.Queue()) {
    if (record->status().state() == v1::RUNNING || record->status().state() == v1::RESTARTING) {
      jobs_.AddEvent(record, absl::StrCat(joined.welcome.name(), " joined"), now.wall);
    }
  }
  Schedule(now);
  return joined.welcome;
}

bool MasterCore::Heartbeat(uint64_t incarnation, const v1::Heartbeat& heartbeat, const Now& now) {
  return membership_.Heartbeat(incarnation, heartbeat, now.monotonic, now.wall);
}

void MasterCore::Leave(uint64_t incarnation, const std::string& reason, const Now& now) {
  if (auto death = membership_.Leave(incarnation, reason, now.monotonic)) {
    OnDeath(*death, now);
    Schedule(now);
  }
}

void MasterCore::OnDeath(const Membership::Death& death, const Now& now) {
  if (run_ != nullptr && !run_->end().has_value() && run_->MovesTo(death.incarnation)) {
    run_->GiveUpScaling(absl::StrCat(death.name, " is lost (", death.reason, ")"), now);
  }
  if (run_ == nullptr || run_->end().has_value() || !run_->Uses(death.incarnation)) return;
  const std::string message = absl::StrCat(death.name, " lost (", death.reason, ")");
  jobs_.AddEvent(run_->record(), message, now.wall);
  if (run_->AwaitPs(death.incarnation, now) || run_->WorkerLost(death.incarnation, now)) return;
  run_->End({RunEnd::kRestart, "ProcessLost", message, "", ""}, now);
}

std::optional<Rank> MasterCore::RankOf(uint64_t incarnation) const {
  if (run_ == nullptr) return std::nullopt;
  const std::vector<RunNode>& workers = run_->options().workers;
  for (uint32_t r = 0; r < workers.size(); ++r) {
    if (workers[r].incarnation == incarnation) return Rank(r);
  }
  return std::nullopt;
}

std::string MasterCore::AssignmentKey(uint64_t incarnation) const {
  const std::optional<Rank> rank = RankOf(incarnation);
  if (!rank.has_value() || !run_->opened()) return "";
  std::string key =
      absl::StrCat(run_->record()->status().job_id(), ":", run_->generation(), ":", rank->value());
  // One that comes back may have another address.
  for (const RunNode& ps : run_->options().ps) absl::StrAppend(&key, ":", ps.incarnation);
  return key;
}

v1::Assignment MasterCore::AssignmentFor(uint64_t incarnation) const {
  const std::optional<Rank> rank = RankOf(incarnation);
  if (!rank.has_value()) return v1::Assignment();
  return run_->AssignmentOf(*rank).value_or(v1::Assignment());
}

absl::StatusOr<std::string> MasterCore::Submit(const v1::SubmitRequest& request, const Now& now) {
  TESSERA_RETURN_IF_ERROR(ValidateSubmit(request));
  if (const size_t waiting = jobs_.Unfinished().size(); waiting >= kMaxQueue) {
    return absl::ResourceExhaustedError(
        absl::StrCat(waiting,
                     " jobs have not ended, and the queue holds no more; submit again "
                     "when some have, or cancel some"));
  }
  v1::JobRecord* record = jobs_.Add(request, now.wall);
  Schedule(now);
  return record->status().job_id();
}

absl::Status MasterCore::UnknownJob(const std::string& job_id) {
  return absl::NotFoundError(
      absl::StrCat("no job ", job_id, "; the newest jobs: ", jobs_.KnownIds()));
}

absl::Status MasterCore::Cancel(const std::string& job_id, const Now& now) {
  v1::JobRecord* record = jobs_.Find(job_id);
  if (record == nullptr) return UnknownJob(job_id);
  if (IsFinished(record->status().state())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", job_id, " has ended already: ", v1::JobState_Name(record->status().state())));
  }
  record->set_cancel(true);
  jobs_.AddEvent(record, "cancelled by a user", now.wall);
  if (run_ != nullptr && run_->record() == record) {
    run_->End({RunEnd::kFailed, "Cancelled", "cancelled by a user", "", ""}, now);
  } else {
    jobs_.Move(record, v1::FAILED, "Cancelled", "cancelled by a user", now.wall);
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
  if (run_ != nullptr && run_->Uses(node.incarnation)) {
    status.set_job_id(run_->record()->status().job_id());
    status.set_rank(RankOf(node.incarnation).value_or(Rank(0)).value());
  }
  return status;
}

v1::JobStatus MasterCore::StatusOf(v1::JobRecord* record, const Now& now) {
  const bool runs = run_ != nullptr && run_->record() == record;
  if (runs) run_->UpdateStatus(now);
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
    if (!runs) continue;
    for (const std::string& wait : found->heartbeat.waits()) {
      status.add_waits(absl::StrCat(found->name, ": ", wait));
    }
  }
  if (runs) {
    for (std::string& wait : run_->Waits(now.monotonic)) status.add_waits(std::move(wait));
  }
  return status;
}

absl::StatusOr<v1::JobStatus> MasterCore::GetJob(const std::string& job_id, const Now& now) {
  v1::JobRecord* record = jobs_.Find(job_id);
  if (record == nullptr) return UnknownJob(job_id);
  return StatusOf(record, now);
}

std::map<v1::JobState, int> MasterCore::JobsByState() {
  std::map<v1::JobState, int> jobs;
  for (const v1::JobRecord* record : jobs_.NewestFirst()) ++jobs[record->status().state()];
  return jobs;
}

std::vector<v1::JobStatus> MasterCore::ListJobs(const Now& now) {
  std::vector<v1::JobStatus> all;
  for (v1::JobRecord* record : jobs_.NewestFirst()) {
    v1::JobStatus& status = all.emplace_back(StatusOf(record, now));
    // A thousand whole ones do not fit one message.
    status.clear_spec();
    status.clear_events();
    status.clear_nodes();
    auto* evaluations = status.mutable_evaluations();
    if (evaluations->size() > 1) evaluations->DeleteSubrange(0, evaluations->size() - 1);
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

absl::StatusOr<JobRun*> MasterCore::RunOf(const std::string& job_id, uint64_t generation) {
  v1::JobRecord* record = jobs_.Find(job_id);
  if (record == nullptr) return UnknownJob(job_id);
  const v1::JobStatus& status = record->status();
  if (IsFinished(status.state())) {
    return absl::NotFoundError(
        absl::StrCat("job ", job_id, " has ended: ", v1::JobState_Name(status.state())));
  }
  if (run_ == nullptr || run_->record() != record || run_->generation() != generation) {
    return absl::AbortedError(absl::StrCat("generation ", generation, " of job ", job_id,
                                           " is over; it is at ", status.generation()));
  }
  return run_.get();
}

absl::StatusOr<std::optional<v1::NextWorkResponse>> MasterCore::NextWork(
    const v1::NextWorkRequest& request, const Now& now) {
  TESSERA_ASSIGN_OR_RETURN(JobRun * run, RunOf(request.job_id(), request.generation()));
  auto unit = run->NextWork(request, now);
  if (run->end().has_value()) {
    Schedule(now);
    // Whether the job or only this generation has ended.
    TESSERA_RETURN_IF_ERROR(RunOf(request.job_id(), request.generation()).status());
  }
  return unit;
}

absl::StatusOr<uint64_t> MasterCore::MayScore(const v1::ScoresChunk& chunk) {
  TESSERA_ASSIGN_OR_RETURN(JobRun * run, RunOf(chunk.job_id(), chunk.generation()));
  return run->ScoreBytesOf(chunk.unit_id());
}

absl::Status MasterCore::AddScores(const v1::ScoresChunk& header, EvaluationRound::Scores scores) {
  TESSERA_ASSIGN_OR_RETURN(JobRun * run, RunOf(header.job_id(), header.generation()));
  return run->AddScores(header.evaluation_id(), header.unit_id(), std::move(scores));
}

void MasterCore::Tick(const Now& now) {
  for (const Membership::Death& death : membership_.Expire(now.monotonic)) OnDeath(death, now);
  ScaleWorkersOfRun();
  if (run_ != nullptr) run_->Tick(now);
  ScaleRun(now);
  Schedule(now);
}

std::optional<Action> MasterCore::TakeAction(Lane which) {
  UnderWay& mine = lane(which);
  if (mine.id != 0) return std::nullopt;
  const UnderWay& other = lane(which == Lane::kForeground ? Lane::kBackground : Lane::kForeground);
  Action action;
  if (which == Lane::kForeground && !close_.empty()) {
    action.work = std::move(close_.front());
    close_.pop_front();
    mine = {.id = next_action_++, .of_run = false, .close = true};
  } else if (run_ != nullptr && !run_->end().has_value()) {
    // An earlier run may still be writing the checkpoint that this one is about to look for.
    if (other.id != 0 && !other.of_run && !other.close) return std::nullopt;
    std::optional<Work> work = run_->TakeAction(which);
    if (!work.has_value()) return std::nullopt;
    action.work = *std::move(work);
    mine = {.id = next_action_++, .of_run = true, .close = false};
  } else {
    return std::nullopt;
  }
  action.id = mine.id;
  return action;
}

void MasterCore::ActionDone(uint64_t id, ActionResult result, const Now& now) {
  for (const Lane which : kAllLanes) {
    if (id != lane(which).id || id == 0) continue;
    const bool of_run = std::exchange(lane(which), {}).of_run;
    if (of_run && run_ != nullptr) run_->ActionDone(which, std::move(result), now);
    if (close_when_open_.has_value() && run_ != nullptr && run_->opened()) {
      close_.push_back(*std::exchange(close_when_open_, std::nullopt));
    }
    Schedule(now);
    return;
  }
}

std::optional<uint64_t> MasterCore::UnwantedAction(Lane which) const {
  const UnderWay& under_way = lane(which);
  if (under_way.id == 0 || under_way.close) return std::nullopt;
  const bool wanted = run_ == nullptr || !run_->CopyUnwanted(which);
  if (under_way.of_run && wanted) return std::nullopt;
  return under_way.id;
}

void MasterCore::SetUnanswered(Lane which, std::vector<std::string> ps) {
  if (run_ != nullptr && lane(which).of_run) run_->SetUnanswered(which, std::move(ps));
}

std::vector<StateLog::Write> MasterCore::TakeWrites() {
  std::vector<StateLog::Write> writes = std::exchange(writes_, {});
  for (StateLog::Write& write : jobs_.TakeWrites()) writes.push_back(std::move(write));
  if (run_ == nullptr) return writes;
  for (StateLog::Write& write : run_->TakeWrites()) writes.push_back(std::move(write));
  return writes;
}

}  // namespace tessera::master
