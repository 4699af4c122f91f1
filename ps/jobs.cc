#include "ps/jobs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "ps/push_log/record.h"

namespace tessera::ps {
namespace {

constexpr size_t kMaxIdBytes = 256;
constexpr size_t kMaxClosed = 1000;

absl::Status CheckId(const std::string& id) {
  if (id.empty() || id.size() > kMaxIdBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("job_id has ", id.size(), " bytes, expected 1 to ", kMaxIdBytes));
  }
  // It names a folder.
  if (id[0] != '.' && !absl::StrContains(id, '/') && !absl::StrContains(id, '\0')) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("job_id is '", absl::CEscape(id), "', expected no '/' and no '.' at its begin"));
}

absl::Status MovedOn(const std::string& job_id, uint64_t asked, uint64_t current) {
  return absl::AbortedError(absl::StrCat("job ", job_id, ": generation ", asked,
                                         " has ended, generation ", current,
                                         " is current; wait for a new assignment"));
}

}  // namespace

absl::Status Jobs::CheckWanted(const v1::OpenJobRequest& request, uint64_t close_alls) const {
  TESSERA_RETURN_IF_ERROR(shutdown_);
  const std::string& id = request.job_id();
  if (const auto it = closed_.find(id);
      it != closed_.end() && request.generation() <= it->second.generation) {
    return MovedOn(id, request.generation(), it->second.generation + 1);
  }
  if (close_alls == close_alls_) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(
      "job ", id, ": all jobs were closed while it was opened; wait for a new assignment"));
}

absl::StatusOr<std::shared_ptr<JobShard>> Jobs::Open(const v1::OpenJobRequest& request,
                                                     KeepGoing keep_going) {
  const std::string& id = request.job_id();
  TESSERA_RETURN_IF_ERROR(CheckId(id));
  absl::MutexLock open_lock(&open_mu_);
  uint64_t close_alls = 0;
  {
    absl::MutexLock lock(&mu_);
    close_alls = close_alls_;
    TESSERA_RETURN_IF_ERROR(CheckWanted(request, close_alls));
    if (const auto it = jobs_.find(id); it != jobs_.end()) {
      const uint64_t current = it->second->request().generation();
      if (request.generation() < current) return MovedOn(id, request.generation(), current);
      if (request.generation() == current) return it->second;
    }
  }
  // The load may take minutes, in which the job may be closed.
  const auto wanted = [&]() -> absl::Status {
    TESSERA_RETURN_IF_ERROR(keep_going());
    absl::MutexLock lock(&mu_);
    return CheckWanted(request, close_alls);
  };
  TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<JobShard> opened,
                           JobShard::Open(request, options_, wanted));
  std::shared_ptr<JobShard> old = opened;
  {
    absl::MutexLock lock(&mu_);
    TESSERA_RETURN_IF_ERROR(CheckWanted(request, close_alls));
    std::swap(old, jobs_[id]);
  }
  if (old != nullptr) {
    old->Close(MovedOn(id, old->request().generation(), request.generation()));
  }
  return opened;
}

absl::StatusOr<std::shared_ptr<JobShard>> Jobs::Find(const std::string& job_id,
                                                     uint64_t generation) const {
  absl::MutexLock lock(&mu_);
  TESSERA_RETURN_IF_ERROR(shutdown_);
  const auto it = jobs_.find(job_id);
  if (it == jobs_.end()) {
    // Not yet, or not again: a new assignment ends the caller's patience.
    return absl::UnavailableError(absl::StrCat("job ", job_id, " is not open on this ps"));
  }
  const uint64_t current = it->second->request().generation();
  if (generation == current) return it->second;
  if (generation < current) return MovedOn(job_id, generation, current);
  return absl::AbortedError(absl::StrCat("job ", job_id, ": generation ", generation,
                                         " is not open on this ps yet, it has generation ",
                                         current));
}

absl::StatusOr<std::shared_ptr<JobShard>> Jobs::Find(const std::string& job_id) const {
  absl::MutexLock lock(&mu_);
  const auto it = jobs_.find(job_id);
  if (it != jobs_.end()) return it->second;
  return absl::NotFoundError(absl::StrCat("job ", job_id, " is not open on this ps"));
}

absl::Status Jobs::Close(const std::string& job_id, uint64_t generation) {
  TESSERA_RETURN_IF_ERROR(CheckId(job_id));
  std::shared_ptr<JobShard> shard;
  TESSERA_RETURN_IF_ERROR(Take(job_id, generation, shard));
  if (shard != nullptr)
    shard->Close(absl::AbortedError(absl::StrCat("job ", job_id, " was closed")));
  if (options_.log_root.empty()) return absl::OkStatus();
  return options_.files->Remove(push_log::GenerationFolder(options_.log_root, job_id, generation));
}

absl::Status Jobs::Take(const std::string& job_id, uint64_t generation,
                        std::shared_ptr<JobShard>& shard) {
  absl::MutexLock lock(&mu_);
  Closed& closed = closed_[job_id];
  closed = {.generation = std::max(closed.generation, generation), .number = ++closes_};
  if (closed_.size() > kMaxClosed) {
    closed_.erase(std::min_element(
        closed_.begin(), closed_.end(),
        [](const auto& a, const auto& b) { return a.second.number < b.second.number; }));
  }
  const auto it = jobs_.find(job_id);
  if (it == jobs_.end()) return absl::OkStatus();
  const uint64_t current = it->second->request().generation();
  if (generation < current) return MovedOn(job_id, generation, current);
  shard = std::move(it->second);
  jobs_.erase(it);
  return absl::OkStatus();
}

std::vector<std::shared_ptr<JobShard>> Jobs::CloseAll(const absl::Status& reason) {
  std::map<std::string, std::shared_ptr<JobShard>> jobs;
  {
    absl::MutexLock lock(&mu_);
    jobs.swap(jobs_);
    closed_.clear();
    ++close_alls_;
  }
  std::vector<std::shared_ptr<JobShard>> shards;
  for (auto& [id, shard] : jobs) {
    shard->Close(reason);
    shards.push_back(std::move(shard));
  }
  return shards;
}

void Jobs::Shutdown(const absl::Status& reason) {
  {
    absl::MutexLock lock(&mu_);
    shutdown_ = reason;
  }
  CloseAll(reason);
}

std::vector<std::shared_ptr<JobShard>> Jobs::All() const {
  absl::MutexLock lock(&mu_);
  std::vector<std::shared_ptr<JobShard>> shards;
  for (const auto& [id, shard] : jobs_) shards.push_back(shard);
  return shards;
}

}  // namespace tessera::ps
