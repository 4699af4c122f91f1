#include "ps/jobs.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "ps/push_log/folders.h"

namespace tessera::ps {
namespace {

constexpr size_t kMaxIdBytes = 256;
constexpr size_t kMaxClosed = 1000;
// Of a writer, to see that its shard is closed.
constexpr absl::Duration kCutPatience = absl::Seconds(10);

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

// Moves by the order in which they begin.
std::pair<uint64_t, uint64_t> MoveOf(const v1::OpenJobRequest& request) {
  return {request.generation(), request.move()};
}

absl::Status MoveIsOver(const v1::OpenJobRequest& request, uint64_t current) {
  return absl::AbortedError(absl::StrCat("job ", request.job_id(), ": move ", request.move(),
                                         " is over, move ", current, " has begun"));
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

absl::Status Jobs::CheckMeant(uint64_t ps_process) const {
  if (ps_process == 0 || ps_process == process_) return absl::OkStatus();
  return absl::UnavailableError(
      "the call is for a ps that ran at this address earlier; this is a new process");
}

absl::StatusOr<std::shared_ptr<JobShard>> Jobs::Open(const v1::OpenJobRequest& request,
                                                     KeepGoing keep_going) {
  const std::string& id = request.job_id();
  TESSERA_RETURN_IF_ERROR(CheckId(id));
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
    TESSERA_ASSIGN_OR_RETURN(shard, request.recover() ? Recover(request, options_, wanted)
                                    : request.take_over() > 0
                                        ? TakeOver(request)
                                        : JobShard::Open(request, options_, wanted));
  }
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
  TESSERA_RETURN_IF_ERROR(CheckId(id));
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
  return Join(request, options_, near.get(), staged.get(), absl::OkStatus);
}

absl::StatusOr<std::shared_ptr<JobShard>> Jobs::Join(const v1::OpenJobRequest& request,
                                                     const JobShard::Options& options,
                                                     JobShard* near, JobShard* staged,
                                                     KeepGoing keep_going) {
  // A shard whose rows were taken over is closed, and has none to give.
  for (const JobShard* from : {near, staged}) {
    if (from != nullptr) TESSERA_RETURN_IF_ERROR(from->Closed());
  }
  for (const uint32_t partition : request.partitions()) {
    if (near != nullptr && near->Owns(partition)) continue;
    if (staged != nullptr && staged->Owns(partition)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("job ", request.job_id(), ": the rows of partition ", partition,
                     " are not here: no generation ", request.take_over(),
                     " that owns it is open, and none were brought over"));
  }
  if (near != nullptr) {
    near->ConfirmAll(request.first_step());
    TESSERA_RETURN_IF_ERROR(near->CheckApplied(request.first_step()));
  }
  TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<JobShard> shard,
                           JobShard::OpenEmpty(request, options, near, staged));
  std::optional<v1::TookOver> took_over(std::in_place);
  if (staged != nullptr) {
    const std::optional<uint64_t> end = staged->received_log().Sync();
    end.has_value() ? took_over->set_received_end(*end) : took_over.reset();
    staged->Close(MovedOn(request.job_id(), request.take_over(), request.generation()));
    shard->TakeOver(*staged);
    shard->received_log().TakeOver(staged->received_log());
  }
  if (near != nullptr) {
    near->Close(MovedOn(request.job_id(), request.take_over(), request.generation()));
    // One that was cut for a master that is gone.
    TESSERA_RETURN_IF_ERROR(near->EndCut(kCutPatience));
    shard->TakeOver(*near);
    if (took_over.has_value()) took_over->set_log_end(near->LogEnd());
  }
  TESSERA_RETURN_IF_ERROR(shard->OpenLog(keep_going, took_over));
  return shard;
}

absl::StatusOr<std::shared_ptr<JobShard>> Jobs::Recover(const v1::OpenJobRequest& request,
                                                        const JobShard::Options& options,
                                                        KeepGoing keep_going) {
  const std::string& id = request.job_id();
  const absl::StatusOr<v1::PushLogHead> head =
      JobShard::FindLog(id, request.generation(), request.checkpoint(), options);
  // Without a log, or with a damaged one, it says so.
  if (!head.ok() || !head->has_took_over()) return JobShard::Open(request, options, keep_going);
  const v1::TookOver& took_over = head->took_over();
  const uint64_t before = head->opened().take_over();
  std::shared_ptr<JobShard> near;
  std::shared_ptr<JobShard> staged;
  if (took_over.log_end() > 0) {
    TESSERA_ASSIGN_OR_RETURN(const v1::PushLogHead log,
                             JobShard::FindLog(id, before, request.checkpoint(), options));
    JobShard::Options up_to = options;
    up_to.read_log_until = took_over.log_end();
    TESSERA_ASSIGN_OR_RETURN(
        near, Recover(JobShard::ToRecover(log, request.checkpoint()), up_to, keep_going));
  }
  if (took_over.received_end() > 0) {
    TESSERA_ASSIGN_OR_RETURN(
        staged, JobShard::OpenReceived(id, request.generation(), took_over.received_end(), options,
                                       near.get(), keep_going));
  }
  v1::OpenJobRequest join = request;
  join.set_take_over(before);
  join.set_move(head->opened().move());
  join.clear_checkpoint();
  join.clear_warm();
  TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<JobShard> shard,
                           Join(join, options, near.get(), staged.get(), keep_going));
  shard->FinishTakeOver();
  return shard;
}

absl::StatusOr<std::shared_ptr<JobShard>> Jobs::Stage(const v1::OpenJobRequest& request,
                                                      bool changed, KeepGoing keep_going) {
  const std::string& id = request.job_id();
  TESSERA_RETURN_IF_ERROR(CheckId(id));
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
  TESSERA_RETURN_IF_ERROR(CheckId(job_id));
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
  if (options_.log_root.empty() || !CheckId(job_id).ok()) return;
  {
    absl::MutexLock lock(&mu_);
    if (!shutdown_.ok() || jobs_.contains(job_id)) return;
  }
  const absl::Status gone =
      push_log::RemoveLogsBefore(*options_.files, options_.log_root, job_id, UINT64_MAX);
  if (!gone.ok()) SPDLOG_WARN("job {}: its push log stays: {}", job_id, gone.ToString());
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
