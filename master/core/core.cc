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

namespace tessera::master {
namespace {

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
