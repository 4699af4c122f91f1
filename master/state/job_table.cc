#include "master/state/job_table.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/job/job_state.h"
#include "common/log.h"

namespace tessera::master {

bool MayFollow(v1::JobState from, v1::JobState to) {
  if (HasEnded(from)) return false;
  switch (to) {
    case v1::CREATED:
      return from == v1::SUSPENDED;
    case v1::RUNNING:
      return from == v1::CREATED || from == v1::RESTARTING || from == v1::SUSPENDED;
    case v1::SUSPENDED:
      return true;
    case v1::RESTARTING:
      return from == v1::RUNNING || from == v1::RESTARTING;
    case v1::SUCCEEDED:
      return from == v1::RUNNING;
    case v1::FAILED:
      return true;
    default:
      return false;
  }
}

std::string JobKey(uint64_t number) { return absl::StrFormat("job/%010d", number); }

void JobTable::Load(v1::JobRecord record) {
  SetNextNumber(record.number() + 1);
  const uint64_t number = record.number();
  jobs_[number] = std::make_unique<v1::JobRecord>(std::move(record));
}

v1::JobRecord* JobTable::Add(const v1::SubmitRequest& request, absl::Time wall) {
  auto record = std::make_unique<v1::JobRecord>();
  record->set_number(next_number_++);
  v1::JobStatus& status = *record->mutable_status();
  status.set_job_id(absl::StrCat(request.spec().name(), "-", record->number()));
  *status.mutable_spec() = request.spec();
  status.set_state(v1::CREATED);
  status.set_reason("Queued");
  status.set_created_unix_ms(absl::ToUnixMillis(wall));
  status.set_task(request.task() == v1::TASK_UNSPECIFIED ? v1::TRAIN : request.task());
  status.set_output(request.output());
  status.set_workers(request.workers());
  status.set_ps(request.ps());
  status.set_epochs(request.spec().train().epochs());
  v1::JobRecord* added = record.get();
  jobs_[record->number()] = std::move(record);
  writes_.push_back({"next_job", absl::StrCat(next_number_)});
  AddEvent(added, "submitted", wall);
  return added;
}

v1::JobRecord* JobTable::Find(const std::string& job_id) {
  for (auto& [number, record] : jobs_) {
    if (record->status().job_id() == job_id) return record.get();
  }
  return nullptr;
}

const v1::JobRecord* JobTable::Find(const std::string& job_id) const {
  for (const auto& [number, record] : jobs_) {
    if (record->status().job_id() == job_id) return record.get();
  }
  return nullptr;
}

std::vector<v1::JobRecord*> JobTable::Queue() {
  std::vector<v1::JobRecord*> queue;
  for (v1::JobRecord* record : Unfinished()) {
    const bool waits_for_user =
        record->status().state() == v1::SUSPENDED && record->preempted_by().empty();
    if (!waits_for_user) queue.push_back(record);
  }
  const auto rank = [](const v1::JobRecord* record) {
    const v1::JobState state = record->status().state();
    const v1::JobSpec& spec = record->status().spec();
    const bool restarts = state == v1::RESTARTING;
    const bool first = state == v1::RUNNING || (restarts && !IsPreemptible(spec));
    return std::tuple(!first, -spec.priority(), !restarts, record->number());
  };
  std::sort(queue.begin(), queue.end(),
            [&rank](const v1::JobRecord* a, const v1::JobRecord* b) { return rank(a) < rank(b); });
  return queue;
}

std::vector<v1::JobRecord*> JobTable::Unfinished() {
  std::vector<v1::JobRecord*> unfinished;
  for (auto& [number, record] : jobs_) {
    if (!HasEnded(record->status().state())) unfinished.push_back(record.get());
  }
  return unfinished;
}

std::vector<const v1::JobRecord*> JobTable::Unfinished() const {
  std::vector<const v1::JobRecord*> unfinished;
  for (const auto& [number, record] : jobs_) {
    if (!HasEnded(record->status().state())) unfinished.push_back(record.get());
  }
  return unfinished;
}

std::vector<v1::JobRecord*> JobTable::NewestFirst() {
  std::vector<v1::JobRecord*> all;
  for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) all.push_back(it->second.get());
  return all;
}

std::vector<const v1::JobRecord*> JobTable::NewestFirst() const {
  std::vector<const v1::JobRecord*> all;
  for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) all.push_back(it->second.get());
  return all;
}

std::string JobTable::KnownIds() const {
  std::vector<std::string> ids;
  for (const v1::JobRecord* record : NewestFirst()) {
    ids.push_back(record->status().job_id());
    if (ids.size() == 20) break;
  }
  return ids.empty() ? "none" : absl::StrJoin(ids, ", ");
}

void JobTable::Move(v1::JobRecord* record, v1::JobState state, absl::string_view reason,
                    absl::string_view message, absl::Time wall) {
  v1::JobStatus& status = *record->mutable_status();
  if (!MayFollow(status.state(), state)) {
    // A bug of this program; one job is no reason to end the master.
    SPDLOG_ERROR("job {} cannot go from {} to {}", status.job_id(),
                 v1::JobState_Name(status.state()), v1::JobState_Name(state));
    return;
  }
  status.set_state(state);
  Explain(record, reason, message);
  if (state == v1::RUNNING && status.started_unix_ms() == 0) {
    status.set_started_unix_ms(absl::ToUnixMillis(wall));
  }
  if (HasEnded(state)) {
    ++(state == v1::SUCCEEDED ? ended_.succeeded
       : reason == kCancelled ? ended_.cancelled
                              : ended_.failed);
    status.set_finished_unix_ms(absl::ToUnixMillis(wall));
    status.clear_phase();
    status.clear_suspending();
    status.clear_worker_scaling();
    record->clear_preempted_by();
    record->clear_files();  // there may be thousands, and nobody reads them any more
  }
  SPDLOG_INFO("job {}: {}{}{}", status.job_id(), v1::JobState_Name(state),
              reason.empty() ? "" : absl::StrCat(" (", reason, ")"),
              message.empty() ? "" : absl::StrCat(": ", message));
  Touch(record);
  if (HasEnded(state)) ForgetOldFinished(record);
}

void JobTable::Explain(v1::JobRecord* record, absl::string_view reason, absl::string_view message) {
  record->mutable_status()->set_reason(std::string(reason));
  record->mutable_status()->set_message(std::string(message));
}

void JobTable::AddEvent(v1::JobRecord* record, absl::string_view message, absl::Time wall) {
  auto* events = record->mutable_status()->mutable_events();
  if (events->size() >= kEventsKept) {
    events->DeleteSubrange(0, events->size() - kEventsKept + 1);
  }
  v1::Event* event = events->Add();
  event->set_unix_ms(absl::ToUnixMillis(wall));
  event->set_message(std::string(message));
  SPDLOG_INFO("job {}: {}", record->status().job_id(), std::string(message));
  Touch(record);
}

void JobTable::Touch(v1::JobRecord* record) {
  const std::string key = JobKey(record->number());
  // Only the newest content of a record matters within one batch.
  writes_.erase(std::remove_if(writes_.begin(), writes_.end(),
                               [&](const StateLog::Write& write) { return write.key == key; }),
                writes_.end());
  writes_.push_back({key, record->SerializeAsString()});
}

std::vector<StateLog::Write> JobTable::TakeWrites() { return std::exchange(writes_, {}); }

void JobTable::ForgetOldFinished(const v1::JobRecord* ended) {
  size_t finished = 0;
  const v1::JobStatus* oldest = nullptr;
  uint64_t number_of_oldest = 0;
  for (const auto& [number, record] : jobs_) {
    const v1::JobStatus& status = record->status();
    if (!HasEnded(status.state())) continue;
    ++finished;
    const bool is_older =
        oldest == nullptr || status.finished_unix_ms() < oldest->finished_unix_ms();
    if (record.get() == ended || !is_older) continue;
    oldest = &status;
    number_of_oldest = number;
  }
  if (finished <= kFinishedKept || oldest == nullptr) return;
  writes_.push_back({JobKey(number_of_oldest), std::nullopt});
  jobs_.erase(number_of_oldest);
}

}  // namespace tessera::master
