// Quotas of teams: jobs wait while their team has no workers left, and one of the team's jobs is
// suspended when its rows exceed the quota.
#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/defaults.h"
#include "master/core/core.h"

namespace tessera::master {
namespace {

// "1200 rows, and may have 1000"; empty: the team is within its quota.
std::string RowsAbove(const v1::Quota& quota, uint64_t rows, uint64_t row_bytes) {
  if (quota.has_rows() && rows > quota.rows()) {
    return absl::StrCat(rows, " rows, and may have ", quota.rows());
  }
  if (quota.has_row_bytes() && row_bytes > quota.row_bytes()) {
    return absl::StrCat(row_bytes, " bytes of rows, and may have ", quota.row_bytes());
  }
  return "";
}

}  // namespace

void MasterCore::AddRows(v1::JobStatus& status) const {
  for (const Node* node : membership_.Alive(v1::PS)) {
    for (const v1::JobOnPs& job : node->heartbeat.jobs()) {
      if (job.job_id() != status.job_id() || job.generation() != status.generation()) continue;
      if (job.follows() > 0) continue;
      status.set_rows(status.rows() + job.rows());
      status.set_row_bytes(status.row_bytes() + job.row_bytes());
    }
  }
}

v1::JobStatus MasterCore::RowsOf(const JobRun& run) const {
  v1::JobStatus rows;
  rows.set_job_id(run.record()->status().job_id());
  rows.set_generation(run.record()->status().generation());
  AddRows(rows);
  return rows;
}

MasterCore::TeamUse MasterCore::UseOf(const std::string& team) const {
  TeamUse use;
  for (const JobRun* run : Runs()) {
    const v1::JobStatus& status = run->record()->status();
    if (run->end().has_value() || TeamOf(status.spec()) != team) continue;
    use.workers += static_cast<uint32_t>(run->options().workers.size()) + run->WorkersToCome();
    use.jobs.push_back(status.job_id());
    const v1::JobStatus rows = RowsOf(*run);
    use.rows += rows.rows();
    use.row_bytes += rows.row_bytes();
  }
  return use;
}

uint32_t MasterCore::WorkersLeft(const v1::JobSpec& spec) const {
  const v1::Quota* const quota = options_.quotas.Of(spec);
  if (quota == nullptr || !quota->has_workers()) return std::numeric_limits<uint32_t>::max();
  return quota->workers() - std::min(quota->workers(), UseOf(TeamOf(spec)).workers);
}

std::string MasterCore::AboveQuota(const v1::JobRecord& record, uint32_t workers,
                                   absl::string_view more) const {
  const v1::JobSpec& spec = record.status().spec();
  const v1::Quota* const quota = options_.quotas.Of(spec);
  if (quota == nullptr) return "";
  const std::string team = TeamOf(spec);
  const TeamUse use = UseOf(team);
  std::string above = RowsAbove(*quota, use.rows, use.row_bytes);
  if (above.empty() && WorkersLeft(spec) < std::max(workers, 1u)) {
    above = absl::StrCat(use.workers, " of its ", quota->workers(), " workers at work");
  }
  if (above.empty()) return "";
  return absl::StrCat(
      "team ", team, " has ", above,
      use.jobs.empty() ? "" : absl::StrCat(" (", absl::StrJoin(use.jobs, ", "), ")"),
      "; the job needs ", std::max(workers, 1u), more);
}

std::string MasterCore::AboveQuotaWith(const JobRun& run, uint32_t workers) const {
  // Vacant ranks count as the team's.
  const uint32_t has = static_cast<uint32_t>(run.options().workers.size());
  const uint32_t more = workers - std::min(workers, has);
  if (more == 0 || WorkersLeft(run.record()->status().spec()) >= more) return "";
  return AboveQuota(*run.record(), more, " more");
}

absl::Status MasterCore::CheckQuota(const v1::JobSpec& spec, uint32_t workers) const {
  const v1::Quota* const quota = options_.quotas.Of(spec);
  if (quota == nullptr || !quota->has_workers() || quota->workers() >= std::max(workers, 1u)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "team ", TeamOf(spec), " may have ", quota->workers(),
      " workers (tessera-master --quotas), and the job is to have ", std::max(workers, 1u)));
}

void MasterCore::EnforceQuotas(const Now& now) {
  std::set<std::string> seen;
  for (const JobRun* any : Runs()) {
    const v1::JobSpec& spec = any->record()->status().spec();
    const v1::Quota* const quota = options_.quotas.Of(spec);
    const std::string team = TeamOf(spec);
    if (quota == nullptr || !seen.insert(team).second) continue;
    const TeamUse use = UseOf(team);
    const std::string above = RowsAbove(*quota, use.rows, use.row_bytes);
    if (above.empty()) continue;
    // Suspends the team's job of lowest priority, the youngest of several.
    JobRun* last = nullptr;
    bool goes = false;
    for (JobRun* run : Runs()) {
      const v1::JobStatus& status = run->record()->status();
      if (run->end().has_value() || TeamOf(status.spec()) != team) continue;
      goes |= status.has_suspending() || run->FailedToSuspend(now);
      if (!IsTraining(status.task())) continue;
      if (last == nullptr ||
          status.spec().priority() <= last->record()->status().spec().priority()) {
        last = run;
      }
    }
    if (goes || last == nullptr) continue;
    v1::JobRecord* const record = last->record();
    std::string why = absl::StrCat("team ", team, " has ", above, " (tessera-master --quotas)");
    // It would be suspended again wherever it is resumed.
    if (use.jobs.size() == 1) {
      absl::StrAppend(&why, ", and this job alone is above: raise it first");
    }
    v1::Suspension& suspending = *record->mutable_status()->mutable_suspending();
    suspending.set_since_unix_ms(absl::ToUnixMillis(now.wall));
    suspending.set_why(why);
    jobs_.AddEvent(record, absl::StrCat(why, ": to be suspended at its next barrier"), now.wall);
    last->Suspend(now);
  }
}

}  // namespace tessera::master
