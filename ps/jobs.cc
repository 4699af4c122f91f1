#include "ps/jobs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tessera::ps {
namespace {

absl::Status MovedOn(const std::string& job_id, uint64_t asked, uint64_t current) {
  return absl::AbortedError(absl::StrCat("job ", job_id, ": generation ", asked,
                                         " has ended, generation ", current,
                                         " is current; wait for a new assignment"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<JobShard>> Jobs::Open(const v1::OpenJobRequest& request) {
  const std::string& id = request.job_id();
  if (id.empty()) return absl::InvalidArgumentError("OpenJob: job_id is empty");
  absl::MutexLock open_lock(&open_mu_);
  {
    absl::MutexLock lock(&mu_);
    TESSERA_RETURN_IF_ERROR(shutdown_);
    if (const auto it = jobs_.find(id); it != jobs_.end()) {
      const uint64_t current = it->second->request().generation();
      if (request.generation() < current) return MovedOn(id, request.generation(), current);
      if (request.generation() == current) return it->second;
    }
    const auto closed = closed_generations_.find(id);
    if (closed != closed_generations_.end() && request.generation() <= closed->second) {
      return MovedOn(id, request.generation(), closed->second + 1);
    }
  }
  TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<JobShard> opened, JobShard::Open(request, options_));
  std::shared_ptr<JobShard> old = opened;
  {
    absl::MutexLock lock(&mu_);
    TESSERA_RETURN_IF_ERROR(shutdown_);
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
    return absl::AbortedError(absl::StrCat("job ", job_id,
                                           " is not open on this ps; wait for a "
                                           "new assignment"));
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
  std::shared_ptr<JobShard> shard;
  {
    absl::MutexLock lock(&mu_);
    uint64_t& closed = closed_generations_[job_id];
    closed = std::max(closed, generation);
    const auto it = jobs_.find(job_id);
    if (it == jobs_.end()) return absl::OkStatus();
    const uint64_t current = it->second->request().generation();
    if (generation < current) return MovedOn(job_id, generation, current);
    shard = std::move(it->second);
    jobs_.erase(it);
  }
  shard->Close(absl::AbortedError(absl::StrCat("job ", job_id, " was closed")));
  return absl::OkStatus();
}

std::vector<std::shared_ptr<JobShard>> Jobs::CloseAll(const absl::Status& reason) {
  std::map<std::string, std::shared_ptr<JobShard>> jobs;
  {
    absl::MutexLock lock(&mu_);
    jobs.swap(jobs_);
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
