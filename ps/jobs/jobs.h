#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "ps/jobs/job_shard.h"
#include "tessera/v1/cluster.pb.h"

namespace tessera::ps {

// The jobs that are open on this ps, each at one generation. Thread-safe. A shard is shared by this
// map and by the calls that are in it, which may outlive its closing.
class Jobs {
 public:
  // `process` is this one's, as the master knows it (Hello.process).
  explicit Jobs(JobShard::Options options, uint64_t process = 0)
      : options_(std::move(options)), process_(process) {}
  // All jobs must be closed, or no calls be left.
  ~Jobs() = default;

  // UNAVAILABLE: a call with this `ps_process` is meant for one that was at this address before.
  absl::Status CheckMeant(uint64_t ps_process) const;
  // One at a time. The same generation again is OK and changes nothing; an older one is ABORTED. A
  // newer one replaces the older, and only when it is open: an error leaves what there was, but for
  // rows that were being taken over (take_over), which are gone with it. A load ends with an error
  // of `keep_going`, or when the job is closed meanwhile.
  absl::StatusOr<std::shared_ptr<JobShard>> Open(const v1::OpenJobRequest& request,
                                                 KeepGoing keep_going = absl::OkStatus)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Where rows are received that an OpenJob with take_over is about to use: a new one in place of
  // what there was, or (`changed`) the one of before. FAILED_PRECONDITION: there is none for it;
  // ABORTED: a later move has begun, or this one is over. Waits for another open of the job, until
  // an error of `keep_going`.
  absl::StatusOr<std::shared_ptr<JobShard>> Stage(const v1::OpenJobRequest& request, bool changed,
                                                  KeepGoing keep_going = absl::OkStatus)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Drops what was brought for this move or an earlier one, not for a later one.
  void DropStaged(const std::string& job_id, uint64_t generation, uint64_t move)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Jobs whose rows another ps has, which workers call, and this one a copy of them
  // (OpenJobRequest.follow). OpenJob of the same generation with `recover` makes it the one that
  // they call, with what has come by then.
  //
  // True: it is new, and the caller has it opened and fed. False: it was told before. ABORTED: a
  // later pair was, or the job is open here, or was closed.
  absl::StatusOr<bool> BeginFollowing(const v1::OpenJobRequest& request) ABSL_LOCKS_EXCLUDED(mu_);
  // The load ends with an error of `keep_going`.
  absl::StatusOr<std::shared_ptr<JobShard>> OpenFollower(const v1::OpenJobRequest& request,
                                                         KeepGoing keep_going = absl::OkStatus)
      ABSL_LOCKS_EXCLUDED(mu_);
  // ABORTED: it is not to be followed any more.
  absl::Status CheckFollowing(const v1::OpenJobRequest& request) ABSL_LOCKS_EXCLUDED(mu_);
  // Following has ended with the error `why`: keeps it for heartbeats and frees the rows.
  void FollowingFailed(const v1::OpenJobRequest& request, const absl::Status& why)
      ABSL_LOCKS_EXCLUDED(mu_);
  // What heartbeats say of them.
  std::vector<v1::JobOnPs> Followed() const ABSL_LOCKS_EXCLUDED(mu_);
  // UNAVAILABLE: not open here; ABORTED: at another generation.
  absl::StatusOr<std::shared_ptr<JobShard>> Find(const std::string& job_id,
                                                 uint64_t generation) const
      ABSL_LOCKS_EXCLUDED(mu_);
  // NOT_FOUND.
  absl::StatusOr<std::shared_ptr<JobShard>> Find(const std::string& job_id) const
      ABSL_LOCKS_EXCLUDED(mu_);
  // OK if it is not open; ABORTED if it is open at a newer generation. Its push log goes too.
  absl::Status Close(const std::string& job_id, uint64_t generation) ABSL_LOCKS_EXCLUDED(mu_);
  // Jobs of which there are push logs here, open or not.
  std::vector<std::string> Logged() const;
  // Of a job that has ended, and is not open.
  void RemoveLogs(const std::string& job_id) ABSL_LOCKS_EXCLUDED(mu_);
  // Removes the logs of the cluster's jobs whose numbers are below `below`: they have ended, and
  // its master has forgotten them. Logs of other clusters, and those that do not say whose they
  // are, stay.
  void RemoveForgotten(const std::string& cluster, uint64_t below) ABSL_LOCKS_EXCLUDED(mu_);
  // Every call that waits is answered with `reason`, and what was closed before is forgotten: the
  // next master counts generations anew. Returns the shards: whoever drops them frees their rows,
  // which takes time.
  std::vector<std::shared_ptr<JobShard>> CloseAll(const absl::Status& reason)
      ABSL_LOCKS_EXCLUDED(mu_);
  // CloseAll, and every call from now on is answered with `reason`.
  void Shutdown(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<std::shared_ptr<JobShard>> All() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Closed {
    uint64_t generation = 0;
    uint64_t number = 0;  // of closes; the smallest is forgotten first
  };
  struct Following {
    v1::OpenJobRequest request;
    std::shared_ptr<JobShard> shard;  // null: it is being opened, or has failed
    absl::Status failed;
  };

  // One at a time opens a job's shard, or begins its log. The error is keep_going's.
  absl::Status AwaitOpening(const std::string& job_id, KeepGoing keep_going)
      ABSL_LOCKS_EXCLUDED(mu_);
  void EndOpening(const std::string& job_id) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::shared_ptr<JobShard>> TakeOver(const v1::OpenJobRequest& request)
      ABSL_LOCKS_EXCLUDED(mu_);
  // jobs_follow.cc
  // Out of following_, to be called by workers; null: there is none of that generation.
  std::shared_ptr<JobShard> TakeFollower(const v1::OpenJobRequest& request)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Of that generation and those before; the shard of what is gone.
  std::shared_ptr<JobShard> DropFollowing(const std::string& job_id, uint64_t generation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // ABORTED: it is another pair that is followed, or none.
  absl::StatusOr<Following*> FindFollowing(const v1::OpenJobRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Out of jobs_, to be closed; null: it was not open.
  absl::Status Take(const std::string& job_id, uint64_t generation,
                    std::shared_ptr<JobShard>& shard) ABSL_LOCKS_EXCLUDED(mu_);
  // ABORTED: closed at that generation, or a CloseAll came after `close_alls` of them.
  absl::Status CheckWanted(const v1::OpenJobRequest& request, uint64_t close_alls) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const JobShard::Options options_;
  const uint64_t process_;

  mutable absl::Mutex mu_;
  std::set<std::string> opening_ ABSL_GUARDED_BY(mu_);  // jobs, one call of Open at a time each
  std::map<std::string, std::shared_ptr<JobShard>> jobs_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::shared_ptr<JobShard>> staged_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Following> following_ ABSL_GUARDED_BY(mu_);
  absl::Status shutdown_ ABSL_GUARDED_BY(mu_);
  // Of jobs that were closed, the newest kMaxClosed: an OpenJob that comes late must not bring one
  // back.
  std::map<std::string, Closed> closed_ ABSL_GUARDED_BY(mu_);
  uint64_t closes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t close_alls_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tessera::ps
