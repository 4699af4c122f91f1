// What people are told: of jobs, of processes, and figures.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/version.h"
#include "master/core/core.h"

namespace tessera::master {

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

absl::StatusOr<std::string> MasterCore::PhaseOf(const std::string& job_id) const {
  const v1::JobRecord* const record = jobs_.Find(job_id);
  if (record == nullptr) return UnknownJob(job_id);
  return record->status().phase();
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

std::map<v1::JobState, int> MasterCore::JobsByState() const {
  std::map<v1::JobState, int> jobs;
  for (const v1::JobRecord* record : jobs_.NewestFirst()) ++jobs[record->status().state()];
  return jobs;
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

}  // namespace tessera::master
