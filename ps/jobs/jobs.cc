#include "ps/jobs/jobs.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "ps/jobs/joined_shard.h"
#include "ps/jobs/moved_on.h"
#include "ps/jobs/request_check.h"
#include "ps/push_log/folders.h"

namespace tessera::ps {
namespace {

constexpr size_t kMaxClosed = 1000;

// Moves by the order in which they begin.
std::pair<uint64_t, uint64_t> MoveOf(const v1::OpenJobRequest& request) {
  return {request.generation(), request.move()};
}

absl::Status MoveIsOver(const v1::OpenJobRequest& request, uint64_t current) {
  return absl::AbortedError(absl::StrCat("job ", request.job_id(), ": move ", request.move(),
                                         " is over, move ", current, " has begun"));
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

absl::Status Jobs::CheckMeant(uint64_t ps_process) const {
  if (ps_process == 0 || ps_process == process_) return absl::OkStatus();
  return absl::UnavailableError(
      "the call is for a ps that ran at this address earlier; this is a new process");
}

absl::StatusOr<std::shared_ptr<JobShard>> Jobs::Open(const v1::OpenJobRequest& request,
                                                     KeepGoing keep_going) {
  const std::string& id = request.job_id();
  TESSERA_RETURN_IF_ERROR(CheckJobId(id));
  uint64_t close_alls = 0;
  TESSERA_RETURN_IF_ERROR(AwaitOpening(id, keep_going));
  const auto opened = absl::MakeCleanup([this, &id] { EndOpening(id); });
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
  std::shared_ptr<JobShard> shard = request.recover() ? TakeFollower(request) : nullptr;
  if (shard == nullptr) {
    TESSERA_ASSIGN_OR_RETURN(shard, request.recover() ? RecoverShard(request, options_, wanted)
                                    : request.take_over() > 0
                                        ? TakeOver(request)
                                        : JobShard::Open(request, options_, wanted));
  }
  shard->RefuseBefore(request.incarnations());
  std::shared_ptr<JobShard> old = shard;
  std::shared_ptr<JobShard> staged;  // is of no use any more
  std::shared_ptr<JobShard> followed;
  {
    absl::MutexLock lock(&mu_);
    followed = DropFollowing(id, request.generation());
    if (const auto it = staged_.find(id); it != staged_.end()) {
      staged = std::move(it->second);
      staged_.erase(it);
    }
    TESSERA_RETURN_IF_ERROR(CheckWanted(request, close_alls));
    std::swap(old, jobs_[id]);
  }
  if (old != nullptr) {
    old->Close(MovedOn(id, old->request().generation(), request.generation()));
  }
  return shard;
}

absl::Status Jobs::AwaitOpening(const std::string& job_id, KeepGoing keep_going) {
  absl::MutexLock lock(&mu_);
  const auto free = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !opening_.contains(job_id); };
  while (!mu_.AwaitWithTimeout(absl::Condition(&free), absl::Seconds(1))) {
    TESSERA_RETURN_IF_ERROR(keep_going());
  }
  opening_.insert(job_id);
  return absl::OkStatus();
}

void Jobs::EndOpening(const std::string& job_id) {
  absl::MutexLock lock(&mu_);
  opening_.erase(job_id);
}

absl::StatusOr<std::shared_ptr<JobShard>> Jobs::TakeOver(const v1::OpenJobRequest& request) {
  std::shared_ptr<JobShard> near;
  std::shared_ptr<JobShard> staged;
  {
    absl::MutexLock lock(&mu_);
    if (const auto it = jobs_.find(request.job_id()); it != jobs_.end()) near = it->second;
    if (const auto it = staged_.find(request.job_id()); it != staged_.end()) staged = it->second;
  }
  if (near != nullptr && near->request().generation() != request.take_over()) near = nullptr;
  if (staged != nullptr && MoveOf(staged->request()) != MoveOf(request)) staged = nullptr;
  return JoinShards(request, options_, near.get(), staged.get(), absl::OkStatus);
}

absl::StatusOr<std::shared_ptr<JobShard>> Jobs::Stage(const v1::OpenJobRequest& request,
                                                      bool changed, KeepGoing keep_going) {
  const std::string& id = request.job_id();
  TESSERA_RETURN_IF_ERROR(CheckJobId(id));
  // Nobody else begins the log of what is received.
  TESSERA_RETURN_IF_ERROR(AwaitOpening(id, keep_going));
  const auto opened = absl::MakeCleanup([this, &id] { EndOpening(id); });
  std::shared_ptr<JobShard> near;
  std::shared_ptr<JobShard> old;
  uint64_t close_alls = 0;
  {
    absl::MutexLock lock(&mu_);
    close_alls = close_alls_;
    TESSERA_RETURN_IF_ERROR(CheckWanted(request, close_alls));
    if (const auto it = jobs_.find(id); it != jobs_.end()) near = it->second;
    if (near != nullptr && near->request().generation() >= request.generation()) {
      return MovedOn(id, request.generation(), near->request().generation());
    }
    if (const auto it = staged_.find(id); it != staged_.end()) {
      const auto has = MoveOf(it->second->request());
      if (changed && has == MoveOf(request)) return it->second;
      if (has > MoveOf(request)) return MoveIsOver(request, has.second);
      old = std::move(it->second);
      staged_.erase(it);
    }
  }
  if (changed) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", id, ": no rows were brought over for generation ",
                     request.generation(), " to which changes could be made"));
  }
  if (old != nullptr) {
    old->Close(MoveIsOver(request, request.move()));
    old->received_log().Remove();
  }
  // One that has not heard of its end has rows on disk that must not be found among those that
  // come.
  if (near != nullptr && near->request().generation() != request.take_over()) near = nullptr;
  TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<JobShard> staged,
                           JobShard::OpenEmpty(request, options_, near.get()));
  {
    absl::MutexLock lock(&mu_);
    TESSERA_RETURN_IF_ERROR(CheckWanted(request, close_alls));
    staged_[id] = staged;
  }
  staged->LogReceived();
  return staged;
}

void Jobs::DropStaged(const std::string& job_id, uint64_t generation, uint64_t move) {
  std::shared_ptr<JobShard> staged;
  absl::ReleasableMutexLock lock(&mu_);
  const auto it = staged_.find(job_id);
  if (it == staged_.end() || MoveOf(it->second->request()) > std::pair(generation, move)) return;
  staged = std::move(it->second);
  staged_.erase(it);
  lock.Release();
  staged->Close(MoveIsOver(staged->request(), move));
  staged->received_log().Remove();
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
  TESSERA_RETURN_IF_ERROR(CheckJobId(job_id));
  std::shared_ptr<JobShard> shard;
  std::shared_ptr<JobShard> followed;
  {
    absl::MutexLock lock(&mu_);
    followed = DropFollowing(job_id, generation);
  }
  TESSERA_RETURN_IF_ERROR(Take(job_id, generation, shard));
  // For the move from that generation, or an earlier one.
  DropStaged(job_id, generation + 1, UINT64_MAX);
  if (shard != nullptr)
    shard->Close(absl::AbortedError(absl::StrCat("job ", job_id, " was closed")));
  if (options_.log_root.empty()) return absl::OkStatus();
  return push_log::RemoveLogsBefore(*options_.files, options_.log_root, job_id, generation + 1);
}

std::vector<std::string> Jobs::Logged() const {
  if (options_.log_root.empty()) return {};
  return options_.files->List(options_.log_root).value_or(std::vector<std::string>());
}

void Jobs::RemoveLogs(const std::string& job_id) {
  if (options_.log_root.empty() || !CheckJobId(job_id).ok()) return;
  {
    absl::MutexLock lock(&mu_);
    if (!shutdown_.ok() || jobs_.contains(job_id)) return;
  }
  const absl::Status gone =
      push_log::RemoveLogsBefore(*options_.files, options_.log_root, job_id, UINT64_MAX);
  if (!gone.ok()) SPDLOG_WARN("job {}: its push log stays: {}", job_id, gone.ToString());
}

void Jobs::RemoveForgotten(const std::string& cluster, uint64_t below) {
  if (cluster.empty()) return;
  for (const std::string& id : Logged()) {
    uint64_t number = 0;  // NAME-NUMBER
    if (!absl::SimpleAtoi(absl::string_view(id).substr(id.rfind('-') + 1), &number)) continue;
    // Another cluster's may be one that goes on.
    if (number >= below) continue;
    if (push_log::ClusterOf(*options_.files, options_.log_root, id) == cluster) RemoveLogs(id);
  }
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
  std::map<std::string, std::shared_ptr<JobShard>> staged;
  std::map<std::string, Following> following;
  {
    absl::MutexLock lock(&mu_);
    jobs.swap(jobs_);
    staged.swap(staged_);
    following.swap(following_);
    closed_.clear();
    ++close_alls_;
  }
  // Nobody goes on with what was brought for a move: its log goes, too.
  for (auto& [id, shard] : staged) shard->received_log().Remove();
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
