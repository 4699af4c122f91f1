#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/partition.h"
#include "master/action.h"
#include "master/counts.h"
#include "master/evaluation_round.h"
#include "master/job_run.h"
#include "master/job_slot.h"
#include "master/job_table.h"
#include "master/membership.h"
#include "master/quotas.h"
#include "master/state_log.h"
#include "tessera/v1/cluster.pb.h"
#include "tessera/v1/job_service.pb.h"
#include "tessera/v1/work.pb.h"

namespace tessera::master {

// The whole master as a function of its state, events and injected time: who is in the cluster, the
// queue of jobs, the runs under way. What is to be done outside leaves as actions and writes:
//   - TakeWrites must be durable before anything that came out of the core after them is acted on
//     (an answer, an action);
//   - TakeAction gives one action of a job and lane at a time, ActionDone answers it. A run begins
//     when what the one before of its job had under way is done.
// Services and threads (master.h) are around it. Not thread-safe.
class MasterCore {
 public:
  using Now = master::Now;
  struct Options {
    Membership::Options membership;
    // A job that takes "as many as live" starts when nobody has joined for this long.
    absl::Duration settle = absl::Seconds(1);
    // Before the n-th restart without progress: this, doubled n - 1 times, at most longest_retry.
    absl::Duration first_retry = absl::Milliseconds(200);
    absl::Duration longest_retry = absl::Seconds(10);
    // A job is not pre-empted before it has trained for so long since it was started, and a step.
    absl::Duration least_run = absl::Seconds(10);
    absl::Duration stuck_after = absl::Minutes(10);  // see RunOptions
    // Of a job that does not go on from a checkpoint, which has its own.
    uint32_t partitions = kDefaultPartitions;
    // Restarts in a row without progress that a job survives: about two minutes of them.
    uint32_t fruitless_restarts = 15;
    Quotas quotas;
    // The next job's number is at least this: above those of folders that earlier jobs have left.
    uint64_t next_job = 1;
    std::string cluster;  // CheckpointRoot::cluster
  };

  // `state` is all that the state log holds. DATA_LOSS: a record that cannot be read. A job that
  // trained goes on where it is, with the processes that join again as they were; others that ran,
  // from their last checkpoint. One that asks for what this version does not have has failed.
  static absl::StatusOr<std::unique_ptr<MasterCore>> New(
      const Options& options, const std::map<std::string, std::string>& state, const Now& now);

  // Where the master serves, for advice in messages.
  void SetAddress(std::string address) { address_ = std::move(address); }

  // ---- processes
  absl::StatusOr<v1::Welcome> Join(const v1::Hello& hello, const Now& now);
  // A new one is about to be told: its lease begins now. False: it is dead.
  bool BeginLease(uint64_t incarnation, const Now& now);
  // False: the incarnation is dead.
  bool Heartbeat(uint64_t incarnation, const v1::Heartbeat& heartbeat, const Now& now);
  void Leave(uint64_t incarnation, const std::string& reason, const Now& now);
  // The stream is over by which it joined at `joined_at` (monotonic); `broke`: not by its own will.
  // Leave, unless it lives on (Membership::Outlives).
  void StreamEnded(uint64_t incarnation, absl::Duration joined_at, bool broke,
                   const std::string& reason, const Now& now);
  bool IsAlive(uint64_t incarnation) const { return membership_.IsAlive(incarnation); }
  // Differs whenever the node's assignment does; empty where it has none.
  std::string AssignmentKey(uint64_t incarnation) const;
  v1::Assignment AssignmentFor(uint64_t incarnation) const;
  // It asked for leave (Heartbeat.leaving), and no job waits for what it has.
  bool MayLeave(uint64_t incarnation) const;

  // ---- jobs
  // Of a request that ValidateSubmit has accepted.
  absl::StatusOr<std::string> Submit(const v1::SubmitRequest& request, const Now& now);
  absl::Status Cancel(const std::string& job_id, const Now& now);
  // See JobService.Suspend, JobService.Resume.
  absl::Status Suspend(const std::string& job_id, const Now& now);
  absl::Status Resume(const std::string& job_id, const Now& now);
  // See JobService.Scale. What is refused changes nothing, and so not half of it either.
  absl::StatusOr<v1::ScaleResponse> Scale(const v1::ScaleRequest& request, const Now& now);
  absl::StatusOr<v1::JobStatus> GetJob(const std::string& job_id, const Now& now);
  std::vector<v1::JobStatus> ListJobs(const Now& now);
  v1::ClusterStatus Cluster() const;

  // ---- figures
  const Counts& counts() const { return counts_; }
  // Those that are remembered; a state that none is in may be missing.
  std::map<v1::JobState, int> JobsByState();
  // By job: how fast its ps and workers are.
  std::map<std::string, std::vector<SlowProcesses::Process>> Paces(const Now& now) const;
  size_t LiveNodes(v1::NodeKind kind) const { return membership_.Alive(kind).size(); }

  // ---- work
  absl::StatusOr<std::optional<v1::NextWorkResponse>> NextWork(const v1::NextWorkRequest& request,
                                                               const Now& now);
  // What a unit's scores may be; ABORTED, NOT_FOUND as NextWork.
  absl::StatusOr<ScoresExpected> MayScore(const v1::ScoresChunk& chunk);
  absl::Status AddScores(const v1::ScoresChunk& header, EvaluationRound::Scores scores);
  // The same where they are folded.
  absl::Status AddSums(const v1::ScoresChunk& header, std::unique_ptr<ScoreSums> sums);

  // ---- time and the outside
  void Tick(const Now& now);
  // nullopt: no job has anything to be done in that lane that may begin now.
  std::optional<Action> TakeAction(Lane lane);
  void ActionDone(uint64_t id, ActionResult result, const Now& now);
  // Actions under way that serve nobody any more: they may be cut short.
  std::vector<uint64_t> UnwantedActions() const;
  // Checkpoints that unfinished jobs start from, or did, as their users wrote them.
  std::vector<std::string> Starts();
  // The ps that an action under way waits for; for Waits.
  void SetUnanswered(uint64_t action, std::vector<std::string> ps);
  std::vector<StateLog::Write> TakeWrites();

 private:
  MasterCore(const Options& options, uint64_t first_incarnation)
      : options_(options), membership_(options.membership, first_incarnation) {}

  // core.cc
  absl::StatusOr<JobRun*> RunOf(const std::string& job_id, uint64_t generation);
  // Null: the job has none.
  JobRun* RunOf(const v1::JobRecord* record);
  // In the order of their jobs' numbers.
  std::vector<JobRun*> Runs();
  std::vector<const JobRun*> Runs() const;
  v1::NodeStatus StatusOf(const Node& node) const;
  struct Seat {
    const JobRun* run;
    Rank rank;
  };
  // Of a worker; nullopt: it is in no run.
  std::optional<Seat> SeatOf(uint64_t incarnation) const;
  // By their names; in no run.
  std::vector<const Node*> FreeWorkers() const;
  // Whether the worker may have a rank of the job: where workers call each other, it has an
  // address.
  static bool MayServe(const v1::JobRecord& record, bool has_address);
  // Those of `workers` that may.
  static std::vector<const Node*> Serving(const v1::JobRecord& record,
                                          std::vector<const Node*> workers);
  v1::JobStatus StatusOf(v1::JobRecord* record, const Now& now);
  void OnDeath(const Membership::Death& death, const Now& now);
  void ReserveIncarnations();
  // First of all calls that know of time: one that comes long after the last Tick shows that nobody
  // could be heard.
  void NoticeStandstill(const Now& now);
  absl::Status UnknownJob(const std::string& job_id);

  // core_resume.cc: what an earlier master had.
  void FailUnknown(const Now& now);
  absl::Status ResumeRuns(const std::map<std::string, std::string>& state, const Now& now);
  absl::Status ResumeRun(const std::map<std::string, std::string>& state, const v1::RunState& run,
                         v1::JobRecord* record, std::vector<Membership::Death>& deaths,
                         const Now& now);

  // core_schedule.cc
  void Schedule(const Now& now);
  void SettleEnd(JobSlot& slot, const Now& now);
  // Gives ranks without a worker to workers that are free.
  void FillRanks(const Now& now);
  void FillRanksOf(JobRun& run, const Now& now);
  // Jobs of the queue that have no run, in its order.
  std::vector<v1::JobRecord*> Waiting();
  void StartWaiting(const Now& now);
  void ExplainWait(v1::JobRecord* record, size_t place, const v1::JobRecord* head,
                   absl::string_view lacks);
  enum class Start {
    kStarted,
    kWaits,      // for a moment
    kLacksFree,  // as many workers live as it needs, and others have them
    kLacksLive,
    kAboveQuota,
  };
  Start TryStart(v1::JobRecord* record, const Now& now);
  // That one has started, and they cannot any more.
  void SuspendDisplaced(const v1::JobRecord* started, const Now& now);
  // Of ps and workers, at least; 0: as many as live.
  struct Needs {
    uint32_t ps = 0;
    uint32_t workers = 0;
  };
  Needs NeedsOf(const v1::JobRecord& record) const;
  // To runs that are to have more workers.
  size_t WorkersPromised() const;
  // Workers that are free, may serve the job, and are not promised to a run that is to have more.
  size_t WorkersToTake(const v1::JobRecord& record) const;
  void StartRun(v1::JobRecord* record, RunOptions options, const Now& now);
  // Who may be writing predictions.
  void NameWriters(const std::string& job_id, v1::Predict& predict);
  // The run's generation of its job, on those of `ps` that live.
  void CloseOn(const std::vector<RunNode>& ps, JobSlot& slot, const JobRun& run);
  // What a ps says that it has, and nobody uses any more: it was not reached when it was told to
  // close it, or has missed that a run was over.
  void CloseUnused(const Node& ps, const v1::Heartbeat& heartbeat);
  // Copies of rows: hears what ps say of them, and chooses who is to have one.
  void TickFollowers(const Now& now);
  // Ps that do not find this master, where those that have copies of their rows do.
  void ReplaceMissing(const Now& now);
  // Those that live and stay, of few jobs first.
  std::vector<const Node*> PsByUse() const;
  std::vector<RunNode> Choose(const v1::JobRecord& record, v1::NodeKind kind, uint32_t count) const;

  // core_quotas.cc
  struct TeamUse {
    uint32_t workers = 0;
    uint64_t rows = 0;
    uint64_t row_bytes = 0;
    std::vector<std::string> jobs;
  };
  // Of the jobs that run.
  TeamUse UseOf(const std::string& team) const;
  // What its ps have last said, of its present generation: where partitions have moved, what a ps
  // said before counts no row twice.
  void AddRows(v1::JobStatus& status) const;
  // Workers that the job's team may have besides.
  uint32_t WorkersLeft(const v1::JobSpec& spec) const;
  // Why the job cannot begin with so many workers; empty: it may.
  std::string AboveQuota(const v1::JobRecord& record, uint32_t workers) const;
  // FAILED_PRECONDITION: a job of the team can never have so many workers.
  absl::Status CheckQuota(const v1::JobSpec& spec, uint32_t workers) const;
  void EnforceQuotas(const Now& now);

  // core_scale_workers.cc
  void SetWorkers(v1::JobRecord* record, uint32_t workers);
  absl::Status ScaleWorkers(const std::string& job_id, uint32_t workers, const Now& now);
  void ScaleWorkersOfRuns();

  // core_suspend.cc
  // The job, which no run has, is suspended as its status says.
  void SetSuspended(v1::JobRecord* record, absl::string_view where, const Now& now);
  // Those that are to be suspended and have no run.
  void SuspendInterrupted(const Now& now);
  // The runs that are to give up their places, each to the waiting job of higher priority that
  // would start then.
  std::map<const JobRun*, const v1::JobRecord*> ToPreempt();
  void PreemptIfDue(const Now& now);
  // Ps that are to stop: they may, once no run has anything in them that would be lost.
  void ReleaseLeaving(const Now& now);

  // core_scale.cc
  void ScaleRuns(const Now& now);
  struct OtherPs {
    uint32_t from = 0;
    uint32_t to = 0;
    std::set<std::string> drain;
  };
  absl::StatusOr<OtherPs> CheckScalePs(const v1::ScaleRequest& request);
  void ScalePs(v1::JobRecord* record, const OtherPs& other, bool balance, const Now& now);
  void StartRescaled(v1::JobRecord* record, RunOptions options, const JobRun& before,
                     const Now& now);
  // Those that the job is to have, its own first; nullopt: too few are here.
  std::optional<std::vector<RunNode>> ChooseScaled(const v1::JobRecord& record) const;

  const Options options_;
  std::string address_ = "127.0.0.1:7070";
  Membership membership_;
  JobTable jobs_;
  Counts counts_;  // outlives slots_
  // Of jobs that have begun, by number; those that have nothing to do are forgotten.
  std::map<uint64_t, JobSlot> slots_;
  std::optional<absl::Duration> ticked_at_;
  uint64_t next_action_ = 1;
  uint64_t incarnation_limit_ = 0;
  std::vector<StateLog::Write> writes_;
};

}  // namespace tessera::master
