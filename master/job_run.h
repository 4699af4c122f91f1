#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "common/partition.h"
#include "master/action.h"
#include "master/counts.h"
#include "master/evaluation_round.h"
#include "master/job_table.h"
#include "master/membership.h"
#include "master/now.h"
#include "master/progress.h"
#include "master/ps_move.h"
#include "master/rank_watch.h"
#include "master/replicas.h"
#include "master/run_options.h"
#include "master/slow_processes.h"
#include "master/state_log.h"
#include "master/training_plan.h"
#include "master/unit_desk.h"
#include "tessera/v1/cluster.pb.h"
#include "tessera/v1/work.pb.h"

namespace tessera::master {

// One generation of one job, from the search for its checkpoint to its end: what each worker does
// next, what happens at barriers, and what is to be asked of ps and disks (actions). A pure core of
// calls and injected time.
//
//   finding -> loading -> counting -> training <-> evaluating, measuring, checkpointing
//                                        `-> evaluating (test) -> ended
//
// A checkpoint is cut at a barrier and written while training goes on. One that falls due while
// another is being written waits for it at its barrier, so that which steps are cut does not
// depend on the speed of a disk. The last one is awaited before the job's result is named.
//
// Keeps the figures in the job's record up to date. Not thread-safe.
class JobRun {
 public:
  // `jobs` and `record` outlive the run. The record says which generation this is.
  JobRun(JobTable* jobs, v1::JobRecord* record, RunOptions options, const Now& now);

  uint64_t generation() const { return record_->status().generation(); }
  v1::JobRecord* record() const { return record_; }
  const RunOptions& options() const { return options_; }
  const std::optional<RunEnd>& end() const { return end_; }
  bool Uses(uint64_t incarnation) const;
  // A ps is gone whose push log can bring it back, or which may return to a checkpoint alone: the
  // run waits for one of its name, and true is returned. False: the run cannot go on.
  bool AwaitPs(uint64_t incarnation, const Now& now);
  void PsJoined(const RunNode& ps, const Now& now);
  // A worker is gone: its rank is vacant until TakeOver. False: it has none.
  bool WorkerLost(uint64_t incarnation, const Now& now);
  // Ascending.
  std::vector<Rank> VacantRanks() const;
  // Of who had a vacant rank. Ps refuse smaller ones as late calls of somebody who is lost.
  uint64_t LostOf(Rank rank) const { return watch_.vacant().at(rank.value()).lost; }
  // `worker` lives, has no rank of the run, and a larger incarnation than LostOf: it gets this
  // one, and the run goes on where it was.
  void TakeOver(Rank rank, const RunNode& worker, const Now& now);
  // Of workers that are stuck for RunOptions::stuck_after. Ascending.
  std::vector<Rank> StuckRanks(absl::Duration now) const;
  // Its worker is stuck: the rank is vacant.
  void GiveUpStuck(Rank rank, bool another_is_free, const Now& now);
  // It held a rank of this run, lives, and did not do its work: it gets none again.
  bool GaveUpOn(uint64_t incarnation) const { return watch_.GaveUpOn(incarnation); }
  // The ps have their tables, and workers may begin.
  bool opened() const { return opened_ && !end_.has_value(); }

  // At most one of a lane is under way: ActionDone comes before the next one.
  std::optional<Work> TakeAction(Lane lane);
  void ActionDone(Lane lane, ActionResult result, const Now& now);

  // Copies of ps's rows (recovery.replicas). Parts that have none and may have one.
  std::vector<uint32_t> PartsToFollow(absl::Duration now) const;
  // `node` lives, and the run does not use it: it is to have a copy of the part's rows.
  void LetFollow(uint32_t part, const RunNode& node, const Now& now);
  bool Follows(uint64_t incarnation) const { return replicas_.Follows(incarnation); }
  // It is lost, or is to stop.
  void GiveUpFollower(uint64_t incarnation, absl::string_view why, const Now& now) {
    replicas_.GiveUp(incarnation, why, now);
  }
  // What a ps has last said of the job.
  void HearPs(uint64_t incarnation, const v1::JobOnPs& job, const Now& now);
  // Incarnations of ps, and of those that may take their places.
  std::vector<std::pair<uint64_t, uint64_t>> Copies() const { return replicas_.Copies(); }
  // Ps that may have copies, or rows of a move, besides those that the run, or the one after it,
  // uses: they are to be closed with it.
  std::vector<RunNode> CopiedTo() const;

  // The record's status says that the job is to have other ps, and nothing of that has begun. It
  // may where the job trains.
  bool AwaitsScaling() const;
  // Moves the job to `ps`: the rows travel while it trains, and at a barrier the run ends as
  // kRescale.
  void Scale(std::vector<RunNode> ps, const Now& now);
  // The copy under way in that lane is of no use any more, and may be cut short.
  bool CopyUnwanted(Lane lane) const {
    if (doing(lane) != Doing::kCopy) return false;
    if (!move_.has_value()) return true;
    return lane == Lane::kBackground && move_->stage() != PsMove::Stage::kCopying;
  }
  // Whether it is a ps that the run does not use yet.
  bool MovesTo(uint64_t incarnation) const;
  // The move that is under way, if any, is given up; the job goes on as it is.
  void GiveUpScaling(absl::string_view why, const Now& now);

  // The record's status says that the job is to be suspended: the run ends as kSuspended at its
  // next barrier, when a checkpoint of that is committed; at once where it has done nothing since
  // its last one. May be called again.
  void Suspend(const Now& now);
  // A ps of the run is to stop. True: it is asked to wait, since training would be lost with it;
  // the run ends as kRestart at its next barrier, when a checkpoint of that is committed. False:
  // nothing would be lost, or no checkpoint could be written. May be called again.
  bool HoldLeaving(const std::string& ps, const Now& now);
  // It trains, has done so for `least`, and has got further since it began.
  bool MayBePreempted(absl::Duration least, const Now& now) const;

  // The record's status says that the job is to have another number of workers, and it may where so
  // many are here: then the run ends as kRescale at a barrier whose checkpoint is committed.
  bool AwaitsWorkers() const;
  void ScaleWorkers(bool are_here);
  // More than it has, which are here and free: nobody else is to take them.
  uint32_t WorkersToCome() const;

  // Its workers sum their dense gradients among themselves.
  bool WorkersCall() const;
  // What a rank is to do; nullopt until the ps have their tables.
  std::optional<v1::Assignment> AssignmentOf(Rank rank) const;
  // nullopt: nothing for now; ask again after the next change. The caller has checked job and
  // generation. ABORTED: the run has ended or the incarnation is not the rank's.
  absl::StatusOr<std::optional<v1::NextWorkResponse>> NextWork(const v1::NextWorkRequest& request,
                                                               const Now& now);
  // What may come of an Evaluate unit. ABORTED: nobody is at such a unit.
  absl::StatusOr<ScoresExpected> ScoresOf(uint64_t unit_id) const;
  // The evaluation's, for its scores. ABORTED: it is not under way.
  absl::StatusOr<EvaluationRound*> Round(uint64_t evaluation_id);
  // For what time alone makes due.
  void Tick(const Now& now);
  // The master did: workers could not be heard meanwhile.
  void StoodStill(absl::Duration gap);
  // A process of the run is gone, or it must end for another reason. Nothing if it has ended.
  void End(RunEnd end, const Now& now);
  // A worker's; nothing if it has no rank.
  void Heard(uint64_t incarnation, const v1::Heartbeat& heartbeat, const Now& now);
  // Of training alone.
  std::vector<SlowProcesses::Process> Paces(absl::Duration now) const;
  // Who waits for whom for longer than a second, and who is slow.
  std::vector<std::string> Waits(const Now& now) const;
  void SetUnanswered(Lane lane, std::vector<std::string> ps) {
    unanswered_[static_cast<size_t>(lane)] = std::move(ps);
  }
  // Brings the figures in the record up to date.
  void UpdateStatus(const Now& now);
  // What a master that restarts needs to go on with the run (RunOptions::saved), where that has
  // changed; from the end of the run on, that it is gone.
  std::vector<StateLog::Write> TakeWrites();

 private:
  enum class Phase {
    kFinding,
    kLoading,
    kCounting,
    kTraining,
    kEvaluating,
    kMeasuring,      // metrics of the scores
    kCheckpointing,  // it is being cut
    kAwaitingWrite,  // of the last one: at the end, or before the next one
    kMoving,         // rows, to other ps, at a barrier
    kPredicting,
  };
  enum class Wanted { kBarrier, kFinalTest };
  // What the action under way in a lane is for, where its kind does not say that.
  enum class Doing {
    kOther,  // or nothing is under way
    kTellCommitted,
    kCopy,  // for a move that may have been given up
    kDrop,  // what one that was given up has brought
    kWeigh,
  };

  const v1::JobSpec& spec() const { return record_->status().spec(); }
  v1::JobStatus& status() { return *record_->mutable_status(); }
  Doing& doing(Lane lane) { return doing_[static_cast<size_t>(lane)]; }
  Doing doing(Lane lane) const { return doing_[static_cast<size_t>(lane)]; }
  bool Copies(Lane lane) const {
    return doing(lane) == Doing::kCopy || doing(lane) == Doing::kDrop;
  }
  std::vector<v1::FileRecords> FilesOf(absl::string_view split) const;
  bool HasSplit(absl::string_view split) const;
  void Enter(Phase phase, const Now& now);
  void Fail(absl::string_view reason, absl::string_view message, const Now& now);
  void Restart(absl::string_view reason, absl::string_view message, const Now& now);

  // job_run_start.cc: up to the first unit.
  void FindOrOpen(const Now& now);
  v1::OpenJobRequest OpenRequest(uint32_t part) const;
  void OnFound(ActionResult result, const Now& now);
  void Open(const Now& now);
  void OnOpened(const ActionResult& result, const Now& now);
  void BeginCounting(const Now& now);
  std::optional<v1::NextWorkResponse> NextCount(Rank rank);
  void OnCounted(const std::string& split, const v1::UnitResult& result, const Now& now);
  void AfterCounting(const Now& now);
  bool TookFallback(const absl::Status& status, const Now& now);

  // job_run_resume.cc
  void Resume(const Now& now);
  void OnSought(const ActionResult& result, const Now& now);
  v1::RunState State() const;

  // job_run_barrier.cc: what happens between units of training.
  void BeginTraining(const Now& now);
  void Advance(const Now& now);
  void CheckpointIfDue(const Now& now);
  // One that leaves what the job may return to as it is.
  std::string NewCheckpointFolder() const;
  void BeginCheckpoint(const Now& now);
  void OnCut(const ActionResult& result, const Now& now);
  void OnWritten(const ActionResult& result, const Now& now);
  // Once what it is told is in the state log, which every action waits for.
  void TellOfCheckpoint();
  void OnCheckpointFailed(const ActionResult& result, const Now& now);
  void LeaveBarrier(const Now& now);
  void Conclude(const Now& now);
  void SetResult(const std::string& checkpoint);
  void Succeed(const Now& now);

  // job_run_evaluation.cc
  // That of the validation split is to be made at this barrier, and has not been.
  bool EvaluationDue() const;
  void BeginEvaluation(absl::string_view split, Wanted wanted, const Now& now);
  // It is left to whoever leaves the barrier; EndAtBarrier follows.
  void GiveUpEvaluation(const Now& now);
  void OnMeasured(const ActionResult& result, const Now& now);
  // How far metrics may be from those that they stand for, to people.
  void TellErrors(const ActionResult& result, const Now& now);
  // Says the first time that the monitored metric is NaN. Before `evaluation` is added to them.
  void TellUndefined(const v1::Evaluation& evaluation, const Now& now);
  void FollowRules(const v1::Evaluation& evaluation, const Now& now);

  // job_run_best.cc
  struct Writing;
  // Of the validation split; null: there is none.
  v1::Evaluation* EvaluationOf(uint64_t step);
  // The best model was in that checkpoint alone.
  void LoseBest(const Writing& lost, absl::string_view why, const Now& now);

  // job_run_ps.cc: ps that are lost and come back.
  // What rows come from, beside what was pushed since.
  struct Origin {
    std::string folder;  // empty: initial values
    bool warm = false;
    uint64_t step = 0;
    uint64_t next_push = 0;  // of its position
  };
  struct Recovering {
    uint32_t part = 0;
    uint64_t incarnation = 0;
    std::optional<Origin> alone;  // it returns to that
  };
  // Neither predictions nor the end's last measures.
  bool Trains() const;
  bool Logged() const;
  // The rows came from other ps' memory, and no checkpoint has them yet.
  bool Unsaved() const;
  // What was pushed to a ps that is lost comes back with its log.
  bool ComesBackByLog() const { return Logged() && (!Unsaved() || log_origin_.has_value()); }
  // recovery.mode is partial: the checkpoint that a lost ps returns to alone, where no push log
  // brings it back. nullopt: it is exact, or there is none yet.
  std::optional<Origin> PartialOrigin() const;
  std::optional<Work> TakeRecovery();
  void ReturnAlone(const Origin& origin, v1::OpenJobRequest& request) const;
  // How many steps may have been pushed since, at most.
  uint64_t StepsSince(const Origin& origin) const;
  void OnRecovered(const Recovering& asked, const ActionResult& result, const Now& now);
  void TickLost(const Now& now);
  // The job is to have copies of its ps's rows, and may.
  bool Replicates() const;
  // False: that has been said for longer than `patience`.
  bool CutAgainLater(const std::string& why, absl::Duration patience, const Now& now);

  // job_run_workers.cc
  // Who has the rank has it no more; its incarnation.
  uint64_t Vacate(Rank rank);
  bool IsStuck(Rank rank, absl::Duration patience, absl::Duration now) const;
  void TickWorkers(const Now& now);
  void RestIfTooSlow(Rank rank, const Now& now);

  // job_run_scale.cc: other ps.
  std::optional<Work> TakeWeighing();
  void OnWeighed(const ActionResult& result, const Now& now);
  // `steps`: those that are to be in the rows, at a barrier; 0: no matter.
  CopyPartitions CopyWork(bool changed, uint64_t steps = 0) const;
  // The rows of the move under way are to travel by a checkpoint.
  bool MovesByCheckpoint() const {
    return move_.has_value() && move_->stage() == PsMove::Stage::kByCheckpoint;
  }
  void BeginCopy(const Now& now);
  void TickMove(const Now& now);
  void RequestMoveBarrier();
  // From the first round on, by a checkpoint where that was tried too often.
  void CopyAnew(const Now& now);
  void OnCopied(Lane lane, const ActionResult& result, const Now& now);
  bool MoveAtBarrier(bool checkpoint_due, const Now& now);
  void SwitchPs(bool checkpoint_due, const Now& now);
  void ForgetMove();
  // Whom the move waits for, and what for; empty: for nobody but what Waits says anyway.
  std::string MoveAwaits() const;
  void ShowShares();

  // job_run_suspend.cc
  bool Suspending() const { return record_->status().has_suspending(); }
  // The last checkpoint has all that was trained, and the job is being measured.
  bool Measures() const;
  // What was asked for stays in the record, and begins again with the next run.
  void PutMoveOff();
  // If the run trains, or stands at a barrier to evaluate; EndAtBarrier follows.
  void GoToBarrier(const Now& now);
  // The run is to end at its next barrier, and nobody waits for what is due there.
  bool EndsSoon() const { return Suspending() || leaving_.has_value(); }
  // Training is to end at this barrier, once its checkpoint is committed.
  bool EndsHere() const;
  // False: training goes on.
  bool EndAtBarrier(const Now& now);
  void OnLastCheckpointFailed(absl::string_view why, const Now& now);
  // The job's own checkpoint is from within a window of another number of workers: they end it.
  bool ReturnsToFormerWorkers(const Now& now);

  // job_run_waits.cc
  // That have not answered in the lane, with commas; `otherwise` where none is known.
  std::string Unanswered(Lane lane, absl::string_view otherwise) const;
  // Of Waits: for processes that are gone, for what ps and the master itself are asked, for what a
  // user wants, for those that are slower than the others, and for units.
  void AddWaitsForLost(absl::Duration now, std::vector<std::string>& waits) const;
  void AddWaitsForActions(absl::Duration now, std::vector<std::string>& waits) const;
  void AddWaitsForWishes(const Now& at, std::vector<std::string>& waits) const;
  void AddSlowOnes(absl::Duration now, std::vector<std::string>& waits) const;
  void AddWaitsForWorkers(absl::Duration now, std::vector<std::string>& waits) const;

  // job_run_units.cc: what a worker gets, and what it brings back.
  std::optional<v1::NextWorkResponse> NextUnit(Rank rank, absl::Duration now);
  void OnUnitDone(Rank rank, const v1::UnitResult& result, const Now& now);
  void OnUnitFailed(Rank rank, const v1::UnitResult& result, const Now& now);
  absl::Status IsOver() const;
  // The unit that failed may be the fault of one of its batches.
  bool MayTryAgain(Rank rank, const v1::NextWorkRequest& request) const;
  // Whether whoever had the rank's unit may have taken with it what its card had made of rows
  // (RowCacheSpec.write_back), of batches that count as done.
  bool MayHaveLostChanges(const v1::Train& train, const v1::NextWorkRequest& request) const;
  // The unit of training that the rank holds has been tried in vain, and how far it is the request
  // says; `what` goes on from "rank 1". Where changes may be lost, the job goes back to its last
  // checkpoint, or on without them, as recovery.mode says. The batch of its next push is set aside
  // where that was one time too many; not where some ps has that push: then nothing is wrong with
  // the batch, and the others are to get it, too.
  void OnTry(Rank rank, const v1::NextWorkRequest& request, const std::string& what,
             const Now& now);
  void CountBadRecords(const v1::UnitResult& result, const Now& now);
  // Where every record of the split, in an epoch or an evaluation, was a bad one.
  bool FailsWithoutSamples(absl::string_view split, uint64_t samples, const Now& now);

  JobTable* const jobs_;
  v1::JobRecord* const record_;
  RunOptions options_;  // a ps that came back changes its node

  Phase phase_ = Phase::kFinding;
  absl::Duration phase_since_;
  std::optional<RunEnd> end_;
  std::optional<Work> wanted_;
  std::optional<Work> wanted_behind_;  // of the background
  // Before that: what a move that was given up has brought is dropped.
  std::optional<CopyPartitions> wanted_drop_;
  std::optional<TellCommitted> committed_;  // before that
  std::array<Doing, kLanes> doing_{};
  UnitDesk desk_;
  std::array<std::vector<std::string>, kLanes> unanswered_;  // ps, of the actions under way
  Progress progress_;
  SlowProcesses slow_;
  RankWatch watch_;

  // Where the run starts from.
  std::string start_folder_;
  v1::CheckpointManifest start_;
  bool warm_ = false;
  uint32_t partition_count_;
  std::vector<uint32_t> owner_;  // [partition_count_], from Open on
  bool opened_ = false;
  Origin origin_;             // of the rows of all ps
  bool from_memory_ = false;  // they were other ps' at the run's start
  // While Unsaved, of a job with push logs: the checkpoint that the logs of the generations before
  // begin at (empty: none).
  std::optional<std::string> log_origin_;

  struct Lost {
    absl::Duration since;
    RunNode back;              // the one that joined; incarnation 0: none yet
    absl::Duration asks_from;  // it is told to recover, or told again
    bool asks = false;
    bool log_gone = false;  // it has said so
    bool replaces = false;  // `back` had a copy, and takes the place of the one that is lost
    uint64_t pair = 0;      // of theirs
    RunNode returned;       // meanwhile; incarnation 0: it has not
    // Counted as lost with what it had, since it was told to return alone.
    std::optional<uint64_t> lost_steps = std::nullopt;
  };
  std::map<uint32_t, Lost> lost_;         // by part
  std::optional<Recovering> recovering_;  // by the action under way
  Replicas replicas_;
  // A checkpoint failed at its barrier and is to be tried again: a ps was away, or it is the last
  // and the disk took it not.
  struct CutAgain {
    absl::Duration since;
    absl::Duration at;
    std::string why;
  };
  std::optional<CutAgain> cut_again_;

  std::vector<std::string> to_count_;    // splits that nobody has taken
  std::vector<std::string> counted_by_;  // by rank: the split that it counts

  v1::Position position_;  // at the last barrier
  std::vector<v1::Evaluation> evaluations_;
  std::unique_ptr<TrainingPlan> plan_;
  std::unique_ptr<EvaluationRound> round_;
  Wanted evaluation_for_ = Wanted::kBarrier;
  uint64_t evaluation_bad_records_ = 0;  // of the one under way
  std::string first_bad_record_;         // since this run began, with what is wrong with it
  uint64_t next_evaluation_ = 1;
  Due due_;
  bool improved_ = false;
  bool stopping_ = false;  // early stopping, or nothing is left to train
  // The checkpoint under way, from its cut until it is committed or given up.
  struct Writing {
    uint64_t step = 0;
    uint64_t next_push = 0;
    absl::Duration since;
    std::string best_before;  // position_.best_checkpoint() before it
    std::string folder;
    WriteCheckpoint work;  // until it is begun
    bool ps_lost = false;  // since its cut
    bool sought = false;   // by an earlier master: whether it was committed is to be found out
  };
  std::optional<Writing> writing_;
  std::optional<PsMove> move_;
  // Ps that have, or may have, been given rows for a move, by incarnation.
  std::map<uint64_t, RunNode> moved_to_;
  uint64_t copies_begun_ = 0;      // moves, or tries of one, that have begun to copy
  bool barrier_for_move_ = false;  // nothing else has asked for it
  absl::Duration barrier_since_;
  // Of this run's training.
  absl::Duration trains_since_;
  uint64_t first_step_ = 0;
  bool workers_are_here_ = false;  // those of status().worker_scaling
  // A ps that waits until the run ends.
  struct Leaving {
    std::string ps;
    absl::Duration since;
  };
  std::optional<Leaving> leaving_;
  bool lets_leave_ = false;  // no checkpoint could be written for one
  std::string last_checkpoint_;
  std::optional<uint64_t> last_checkpoint_step_;
  absl::Duration last_checkpoint_at_;
  // What the state log has of the run, by key; of ranks, which change one by one, the keys alone.
  std::map<std::string, std::string> logged_;
  uint32_t predicted_ = 0;  // ranks that have got their part
  uint32_t predictions_done_ = 0;
};

}  // namespace tessera::master
