// Jobs: those whose rows another ps has, and this one a copy of them.
#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "ps/jobs/jobs.h"
#include "ps/jobs/moved_on.h"
#include "ps/jobs/request_check.h"

namespace tessera::ps {

absl::StatusOr<Jobs::Following*> Jobs::FindFollowing(const v1::OpenJobRequest& request) {
  const auto it = following_.find(request.job_id());
  if (it != following_.end() && it->second.request.generation() == request.generation() &&
      it->second.request.pair() == request.pair()) {
    return &it->second;
  }
  return absl::AbortedError(absl::StrCat("job ", request.job_id(), ": is not to be followed"));
}

absl::StatusOr<bool> Jobs::BeginFollowing(const v1::OpenJobRequest& request) {
  const std::string& id = request.job_id();
  TESSERA_RETURN_IF_ERROR(CheckJobId(id));
  std::shared_ptr<JobShard> before;
  absl::ReleasableMutexLock lock(&mu_);
  TESSERA_RETURN_IF_ERROR(CheckWanted(request, close_alls_));
  if (const auto it = jobs_.find(id); it != jobs_.end()) {
    const uint64_t current = it->second->request().generation();
    // Workers call it here, or will have called others by now.
    if (request.generation() <= current) return MovedOn(id, request.generation(), current);
  }
  if (FindFollowing(request).ok()) return false;
  Following& following = following_[id];
  const auto pair_of = [](const v1::OpenJobRequest& r) {
    return std::pair(r.generation(), r.pair());
  };
  if (pair_of(following.request) > pair_of(request)) {
    return absl::AbortedError(absl::StrCat("job ", id, ": pair ", request.pair(), " is over, pair ",
                                           following.request.pair(), " has begun"));
  }
  before =
      std::exchange(following, Following{.request = request, .shard = nullptr, .failed = {}}).shard;
  lock.Release();
  // An answer may be on its way to it, and its log lies where that of the next one will.
  if (before != nullptr) before->StopFollowing().IgnoreError();
  return true;
}

absl::StatusOr<std::shared_ptr<JobShard>> Jobs::OpenFollower(const v1::OpenJobRequest& request,
                                                             KeepGoing keep_going) {
  TESSERA_RETURN_IF_ERROR(CheckFollowing(request));
  TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<JobShard> shard,
                           JobShard::Open(request, options_, keep_going));
  // Its log takes the place of those of before. Whoever follows no more must not touch them: they
  // may be of a later generation, or of one that has followed and is called by workers now.
  TESSERA_RETURN_IF_ERROR(AwaitOpening(request.job_id(), keep_going));
  const auto opened = absl::MakeCleanup([&] { EndOpening(request.job_id()); });
  TESSERA_RETURN_IF_ERROR(CheckFollowing(request));
  TESSERA_RETURN_IF_ERROR(shard->OpenLog());
  absl::MutexLock lock(&mu_);
  TESSERA_ASSIGN_OR_RETURN(Following * following, FindFollowing(request));
  following->shard = shard;
  return shard;
}

absl::Status Jobs::CheckFollowing(const v1::OpenJobRequest& request) {
  absl::MutexLock lock(&mu_);
  return FindFollowing(request).status();
}

void Jobs::FollowingFailed(const v1::OpenJobRequest& request, const absl::Status& why) {
  std::shared_ptr<JobShard> shard;
  {
    absl::MutexLock lock(&mu_);
    const absl::StatusOr<Following*> following = FindFollowing(request);
    if (!following.ok()) return;
    shard = std::exchange((*following)->shard, nullptr);
    (*following)->failed = why;
  }
  if (shard != nullptr) shard->Close(why);
}

std::vector<v1::JobOnPs> Jobs::Followed() const {
  std::vector<v1::JobOnPs> followed;
  absl::MutexLock lock(&mu_);
  for (const auto& [id, following] : following_) {
    v1::JobOnPs& job = followed.emplace_back();
    job.set_job_id(id);
    job.set_generation(following.request.generation());
    job.set_follows(following.request.pair());
    job.set_follow_error(std::string(following.failed.message()));
    if (following.shard == nullptr) continue;
    job.set_rows(following.shard->rows());
    job.set_row_bytes(following.shard->row_bytes());
    job.set_log_share(following.shard->log_share());
  }
  return followed;
}

std::shared_ptr<JobShard> Jobs::TakeFollower(const v1::OpenJobRequest& request) {
  std::shared_ptr<JobShard> shard;
  {
    absl::MutexLock lock(&mu_);
    const auto it = following_.find(request.job_id());
    if (it == following_.end()) return nullptr;
    const v1::OpenJobRequest& followed = it->second.request;
    // A master that does not know of it may mean another part, which this ps had before.
    if (followed.generation() != request.generation() ||
        !std::equal(followed.partitions().begin(), followed.partitions().end(),
                    request.partitions().begin(), request.partitions().end())) {
      return nullptr;
    }
    shard = std::move(it->second.shard);
    following_.erase(it);
  }
  if (shard == nullptr || !shard->StopFollowing().ok()) return nullptr;
  return shard;
}

std::shared_ptr<JobShard> Jobs::DropFollowing(const std::string& job_id, uint64_t generation) {
  const auto it = following_.find(job_id);
  if (it == following_.end() || it->second.request.generation() > generation) return nullptr;
  std::shared_ptr<JobShard> shard = std::move(it->second.shard);
  following_.erase(it);
  return shard;
}

}  // namespace tessera::ps
