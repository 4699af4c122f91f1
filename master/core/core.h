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
#include "master/actions/action.h"
#include "master/core/job_slot.h"
#include "master/core/quotas.h"
#include "master/plan/evaluation_round.h"
#include "master/run/counts.h"
#include "master/run/job_run.h"
#include "master/state/job_table.h"
#include "master/state/membership.h"
#include "master/state/now.h"
#include "master/state/state_log.h"
#include "tessera/v1/cluster.pb.h"
#include "tessera/v1/job_service.pb.h"
#include "tessera/v1/work.pb.h"

namespace tessera::master {

// The whole master as a function of its state, events and injected time: who is in the cluster, the
// queue of jobs, the runs under way. Work to be done outside leaves as actions and writes:
//   - the caller makes TakeWrites durable before it acts on anything (an answer, an action) that
//     came out of the core after them;
//   - TakeAction gives one action of a job and lane at a time, ActionDone answers it. A run's
//     actions begin when those of the job's run before it are done.
// Services and threads (master.h) drive the core. Not thread-safe.
class MasterCore {
 public:
  struct Options {
    Membership::Options membership;
    // A job that takes "as many as live" starts when nobody has joined for this long.
    absl::Duration settle = absl::Seconds(1);
    // The wait before the n-th restart without progress: this, doubled n - 1 times, at most
    // longest_retry.
    absl::Duration first_retry = absl::Milliseconds(200);
    absl::Duration longest_retry = absl::Seconds(10);
    // A job is not pre-empted before it has trained for so long, and one step, since its start.
    absl::Duration least_run = absl::Seconds(10);
    absl::Duration stuck_after = absl::Minutes(10);  // see RunOptions
    // For a job that starts without a checkpoint; a checkpoint has its own number.
    uint32_t partitions = kDefaultPartitions;
    // Restarts in a row without progress that a job survives: about two minutes of them. Those
    // that find no room do not count: RunOptions::disk_patience is theirs.
    uint32_t fruitless_restarts = 15;
    Quotas quotas;
    // The next job's number is at least this: above the numbers of folders left by earlier jobs.
    uint64_t next_job = 1;
    std::string cluster;  // CheckpointRoot::cluster
  };

  // `state` is all that the state log holds. A job that trained goes on where it is, with the
  // processes that join again as they were; other running jobs go on from their last checkpoint. A
  // job that asks for something that this version does not have fails. DATA_LOSS: a record cannot
  // be read.
  static absl::StatusOr<std::unique_ptr<MasterCore>> New(
      const Options& options, const std::map<std::string, std::string>& state, const Now& now);

  // The master's own address, for advice in messages.
  void SetAddress(std::string address) { address_ = std::move(address); }

  // ---- processes
  absl::StatusOr<v1::Welcome> Join(const v1::Hello& hello, const Now& now);
  // A process that joined is about to get its Welcome: its lease begins now. False: it is dead.
  bool BeginLease(uint64_t incarnation, const Now& now);
  // False: the incarnation is dead.
  bool Heartbeat(uint64_t incarnation, const v1::Heartbeat& heartbeat, const Now& now);
  void Leave(uint64_t incarnation, const std::string& reason, const Now& now);
  // The stream by which a process joined at `joined_at` (monotonic) is over; `broke`: the process
  // did not end it. As Leave, unless the process lives on (Membership::Outlives).
  void StreamEnded(uint64_t incarnation, absl::Duration joined_at, bool broke,
                   const std::string& reason, const Now& now);
  bool IsAlive(uint64_t incarnation) const { return membership_.IsAlive(incarnation); }
  // A key that changes whenever the node's assignment does; empty: it has none.
  std::string AssignmentKey(uint64_t incarnation) const;
  v1::Assignment AssignmentFor(uint64_t incarnation) const;
  // The ps asked for leave (Heartbeat.leaving), and no job still needs its rows.
  bool MayLeave(uint64_t incarnation) const;

  // ---- jobs
  // The new job's id. ValidateSubmit has accepted the request.
  absl::StatusOr<std::string> Submit(const v1::SubmitRequest& request, const Now& now);
  absl::Status Cancel(const std::string& job_id, const Now& now);
  // See JobService.Suspend, JobService.Resume.
  absl::Status Suspend(const std::string& job_id, const Now& now);
  absl::Status Resume(const std::string& job_id, const Now& now);
  // See JobService.Scale. A refused request changes nothing, not even the half that could be done.
  absl::StatusOr<v1::ScaleResponse> Scale(const v1::ScaleRequest& request, const Now& now);
  absl::StatusOr<v1::JobStatus> GetJob(const std::string& job_id, const Now& now);
  // The phase of its status, without a copy of the rest. NOT_FOUND: no such job.
  absl::StatusOr<std::string> PhaseOf(const std::string& job_id) const;
  std::vector<v1::JobStatus> ListJobs(const Now& now);
  v1::ClusterStatus Cluster() const;

  // ---- figures
  const Counts& counts() const { return counts_; }
  // The number of remembered jobs by state; a state of no job may be missing.
  std::map<v1::JobState, int> JobsByState() const;
  const JobTable::Ended& ended() const { return jobs_.ended(); }
  // The statuses of the jobs that have a run.
  std::vector<v1::JobStatus> RunningJobs(const Now& now);
  // How fast ps and workers are, by job.
  std::map<std::string, std::vector<SlowProcesses::Process>> Paces(const Now& now) const;
  size_t LiveNodes(v1::NodeKind kind) const { return membership_.Alive(kind).size(); }

  // ---- work
  absl::StatusOr<std::optional<v1::NextWorkResponse>> NextWork(const v1::NextWorkRequest& request,
                                                               const Now& now);
  // The scores that a unit may bring. ABORTED, NOT_FOUND: as NextWork.
  absl::StatusOr<ScoresExpected> MayScore(const v1::ScoresChunk& chunk) const;
  absl::Status AddScores(const v1::ScoresChunk& header, EvaluationRound::Scores scores);
  // As AddScores, where scores are folded.
  absl::Status AddSums(const v1::ScoresChunk& header, std::unique_ptr<ScoreSums> sums);

  // ---- time and the outside
  void Tick(const Now& now);
  // The next action of that lane; nullopt: no job has one that may begin now.
  std::optional<Action> TakeAction(Lane lane);
  void ActionDone(uint64_t id, ActionResult result, const Now& now);
  // Actions under way that serve nobody any more: they may be cancelled.
  std::vector<uint64_t> UnwantedActions() const;
  // Checkpoints that unfinished jobs start from, or started from, as their users wrote them.
  std::vector<std::string> Starts() const;
  // Tells the job, for its Waits, which ps an action under way waits for.
  void SetUnanswered(uint64_t action, std::vector<std::string> ps);
  std::vector<StateLog::Write> TakeWrites();

 private:
  MasterCore(const Options& options, uint64_t first_incarnation)
      : options_(options), membership_(options.membership, first_incarnation) {}

  // core.cc
  // The run of that generation. NOT_FOUND: the job is unknown or has ended. ABORTED: the generation
  // is over.
  absl::StatusOr<JobRun*> RunOf(const std::string& job_id, uint64_t generation);
  absl::StatusOr<const JobRun*> RunOf(const std::string& job_id, uint64_t generation) const;
  // The job's run; null: it has none.
  JobRun* RunOf(const v1::JobRecord* record);
  const JobRun* RunOf(const v1::JobRecord* record) const;
  // All runs, in the order of their jobs' numbers.
  std::vector<JobRun*> Runs();
  std::vector<const JobRun*> Runs() const;
  struct Seat {
    const JobRun* run;
    Rank rank;
  };
  // The run and rank of a worker; nullopt: it is in no run.
  std::optional<Seat> SeatOf(uint64_t incarnation) const;
  // Live workers in no run, by name.
  std::vector<const Node*> FreeWorkers() const;
  // Whether the worker may have a rank of the job: it needs an address if workers call each other.
  static bool MayServe(const v1::JobRecord& record, bool has_address);
  // Those of `workers` that may have a rank of the job.
  static std::vector<const Node*> Serving(const v1::JobRecord& record,
                                          std::vector<const Node*> workers);
  // Called first by the calls that have a time: a call long after the last Tick shows that the
  // master stood still and could hear nobody.
  void NoticeStandstill(const Now& now);
  absl::Status UnknownJob(const std::string& job_id) const;
  // FAILED_PRECONDITION: a job that has not ended writes its predictions there.
  absl::Status CheckOutput(const std::string& output) const;
  // Adds to `predict` the workers that may be writing predictions.
  void NameWriters(const std::string& job_id, v1::Predict& predict);

  // core_status.cc
  v1::NodeStatus StatusOf(const Node& node) const;
  v1::JobStatus StatusOf(v1::JobRecord* record, const Now& now);

  // core_processes.cc
  void OnDeath(const Membership::Death& death, const Now& now);
  // Whether the job has a process of that name, or waits for one of its kind: only then does it
  // tell people that the process has joined. One that starts again and again would else push other
  // jobs' events out.
  bool Concerns(const v1::JobRecord& record, v1::NodeKind kind, const std::string& name,
                const Now& now) const;
  // The ps has closed the job of that number, and with it its log; one that goes on may get
  // another.
  void ForgetLog(uint64_t ps, uint64_t number);
  // Tells the jobs' runs how full their push logs on a ps are.
  void HearLogs(const Node& ps, const v1::Heartbeat& heartbeat, const Now& now);
  // Closes the jobs that a ps says it has and that nobody uses any more: the call to close them did
  // not reach the ps, or the ps was away when a run ended. So with the jobs that have ended, and of
  // which the ps brought logs alone when it joined: another has taken its place.
  void CloseUnused(const Node& ps, const v1::Heartbeat& heartbeat);
  // Copies of rows: hears what ps say of them, and chooses which ps is to have one.
  void TickFollowers(const Now& now);
  // Lets copies take the places of ps that do not find this master, if the copies' ps do.
  void ReplaceMissing(const Now& now);
  void ReserveIncarnations();

  // core_resume.cc: the state that an earlier master left.
  void FailUnknown(const Now& now);
  absl::Status ResumeRuns(const std::map<std::string, std::string>& state, const Now& now);
  absl::Status ResumeRun(const std::map<std::string, std::string>& state, const v1::RunState& run,
                         v1::JobRecord* record, std::vector<Membership::Death>& deaths,
                         const Now& now);

  // core_schedule.cc
  void Schedule(const Now& now);
  void SettleEnd(JobSlot& slot, const Now& now);
  // The run of that end is over, and the job goes on with another, or fails after too many.
  void SettleRestart(JobSlot& slot, RunEnd end, const JobRun& run, const Now& now);
  // Gives ranks without a worker to workers that are free.
  void FillRanks(const Now& now);
  void FillRanksOf(JobRun& run, const Now& now);
  // Jobs of the queue that have no run, in the queue's order.
  std::vector<v1::JobRecord*> Waiting();
  void StartWaiting(const Now& now);
  void ExplainWait(v1::JobRecord* record, size_t place, const v1::JobRecord* head,
                   absl::string_view lacks);
  enum class Start {
    kStarted,
    kFailed,
    kWaits,      // for a moment
    kLacksRoom,  // a ps has none for the job: it is tried again later
    kLacksFree,  // enough workers live, but other jobs have them
    kLacksLive,
    kAboveQuota,
  };
  // The ps and workers that a job needs at least; 0: as many as live.
  struct Needs {
    uint32_t ps = 0;
    uint32_t workers = 0;
  };
  Start TryStart(v1::JobRecord* record, const Now& now);
  // The job was interrupted, and is not yet to be tried again.
  bool IsToWait(const v1::JobRecord& record, const Now& now) const;
  // Ps have had no room for the job for so long that it neither holds back others nor pre-empts
  // any.
  static bool LacksRoom(const v1::JobRecord& record);
  // Settles the numbers of processes of a job that takes as many as there are. False: it cannot
  // train on them, and has failed.
  bool SettleNumbers(v1::JobRecord* record, const Needs& needs, size_t ps, size_t free,
                     const Now& now);
  // Suspends the interrupted jobs that cannot start any more now that `started` has.
  void SuspendDisplaced(const v1::JobRecord* started, const Now& now);
  Needs NeedsOf(const v1::JobRecord& record) const;
  // Workers promised to runs that are to have more of them.
  size_t WorkersPromised() const;
  // Workers that are free, may serve the job, and are not promised to a run that is to have more.
  size_t WorkersToTake(const v1::JobRecord& record) const;
  void StartRun(v1::JobRecord* record, RunOptions options, const Now& now);
  // Closes the run's generation of its job on those of `ps` that live.
  void CloseOn(const std::vector<RunNode>& ps, JobSlot& slot, const JobRun& run);

  // core_place.cc
  // Ps that live and are not about to stop, those with few jobs first.
  std::vector<const Node*> PsByUse() const;
  std::vector<RunNode> Choose(const v1::JobRecord& record, v1::NodeKind kind, uint32_t count) const;
  // A ps (its incarnation; 0: which one is not known) had no room for the job: there are enough
  // others to open it on.
  bool OthersHaveRoom(v1::JobRecord* record, uint64_t without, const Now& now) const;

  // core_quotas.cc
  struct TeamUse {
    uint32_t workers = 0;
    uint64_t rows = 0;
    uint64_t row_bytes = 0;
    std::vector<std::string> jobs;
  };
  // The use of the team's running jobs.
  TeamUse UseOf(const std::string& team) const;
  // Adds the rows that the job's ps have last reported. Only reports of the present generation
  // count, so that a row of a moved partition is not counted twice.
  void AddRows(v1::JobStatus& status) const;
  // With no other fields but these, and whose they are.
  v1::JobStatus RowsOf(const JobRun& run) const;
  // Workers that the job's team may have beyond those that it has.
  uint32_t WorkersLeft(const v1::JobSpec& spec) const;
  // Why the job cannot begin with so many workers; empty: it may.
  std::string AboveQuota(const v1::JobRecord& record, uint32_t workers,
                         absl::string_view more = "") const;
  // Why the run may not go on with so many workers; empty: it may.
  std::string AboveQuotaWith(const JobRun& run, uint32_t workers) const;
  // FAILED_PRECONDITION: a job of the team can never have so many workers.
  absl::Status CheckQuota(const v1::JobSpec& spec, uint32_t workers) const;
  void EnforceQuotas(const Now& now);

  // core_scale_workers.cc
  void SetWorkers(v1::JobRecord* record, uint32_t workers);
  absl::Status ScaleWorkers(const std::string& job_id, uint32_t workers, const Now& now);
  void ScaleWorkersOfRuns();

  // core_suspend.cc
  // Suspends a job without a run, as its status says.
  void SetSuspended(v1::JobRecord* record, absl::string_view where, const Now& now);
  // Suspends the jobs that are to be suspended and have no run.
  void SuspendInterrupted(const Now& now);
  // The runs to pre-empt, each with the waiting job of higher priority that would start in its
  // place.
  std::map<const JobRun*, const v1::JobRecord*> ToPreempt();
  void PreemptIfDue(const Now& now);
  // Lets ps that are to stop do so once no run would lose anything with them.
  void ReleaseLeaving(const Now& now);

  // core_scale.cc
  void ScaleRuns(const Now& now);
  struct OtherPs {
    uint32_t from = 0;
    uint32_t to = 0;
    std::set<std::string> drain;
  };
  absl::StatusOr<OtherPs> CheckScalePs(const v1::ScaleRequest& request);
  // Whether the job could train on the processes that it is to have then; `ps` 0: as before.
  absl::Status CheckScaled(const v1::ScaleRequest& request, uint32_t ps) const;
  void ScalePs(v1::JobRecord* record, const OtherPs& other, bool balance, const Now& now);
  void StartRescaled(v1::JobRecord* record, RunOptions options, const JobRun& before,
                     const Now& now);
  // The ps that the job is to have, its present ones first; nullopt: too few are here.
  std::optional<std::vector<RunNode>> ChooseScaled(const v1::JobRecord& record) const;

  const Options options_;
  std::string address_ = "127.0.0.1:7070";
  Membership membership_;
  JobTable jobs_;
  Counts counts_;  // outlives slots_
  // The slots of jobs that have begun, by number; idle ones are forgotten.
  std::map<uint64_t, JobSlot> slots_;
  std::optional<absl::Duration> ticked_at_;
  uint64_t next_action_ = 1;
  uint64_t incarnation_limit_ = 0;
  std::vector<StateLog::Write> writes_;
};

}  // namespace tessera::master
