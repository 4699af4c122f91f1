#pragma once

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
#include "master/actions/action.h"
#include "master/actions/action_queue.h"
#include "master/plan/evaluation_round.h"
#include "master/plan/prediction_parts.h"
#include "master/plan/split_counts.h"
#include "master/plan/training_plan.h"
#include "master/plan/unit_desk.h"
#include "master/run/bad_records.h"
#include "master/run/counts.h"
#include "master/run/cut_retry.h"
#include "master/run/evaluations.h"
#include "master/run/log_room.h"
#include "master/run/lost_ps.h"
#include "master/run/progress.h"
#include "master/run/ps_move.h"
#include "master/run/rank_watch.h"
#include "master/run/replicas.h"
#include "master/run/run_options.h"
#include "master/run/slow_processes.h"
#include "master/state/job_table.h"
#include "master/state/membership.h"
#include "master/state/now.h"
#include "master/state/state_log.h"
#include "tessera/v1/cluster.pb.h"
#include "tessera/v1/work.pb.h"

namespace tessera::master {

// One generation of one job, from the search for its checkpoint to its end. Decides what each
// worker does next, what happens at barriers, and what ps and disks are asked for (actions). A pure
// core of calls and injected time.
//
//   finding -> loading -> counting -> training <-> at a barrier: evaluating -> measuring, moving,
//                            |           |         checkpointing -> awaiting the write
//                            |           `-> evaluating (test) -> measuring -> ended
//                            `-> predicting, or evaluating -> measuring (other tasks) -> ended
//
// With a checkpoint to measure alone it goes from counting to the test's evaluation; without one to
// begin with it does not find. A restarted master goes on in training, or at the barrier.
//
// A checkpoint is cut at a barrier and written while training goes on. If the next one falls due
// before that, its barrier waits for the write, so that a disk's speed does not decide at which
// steps checkpoints are cut. The last one is awaited before the job's result is named.
//
// Keeps the figures in the job's record up to date. Not thread-safe.
class JobRun {
 public:
  // `jobs` and `record` outlive the run. The record says which generation this is.
  JobRun(JobTable* jobs, v1::JobRecord* record, RunOptions options, const Now& now);

  uint64_t generation() const { return record_->status().generation(); }
  v1::JobRecord* record() const { return record_; }
  // Of the checkpoint that the run began with, whose manifest it has read; 0: none.
  uint64_t start_bytes() const;
  const RunOptions& options() const { return options_; }
  const std::optional<RunEnd>& end() const { return end_; }
  absl::Duration began() const { return began_; }  // by the monotonic clock
  bool Uses(uint64_t incarnation) const;
  // A ps is gone. True: its push log can bring it back, or it may return to a checkpoint alone; the
  // run waits for a ps of its name. False: the run cannot go on.
  bool AwaitPs(uint64_t incarnation, const Now& now);
  void PsJoined(const RunNode& ps, const Now& now);
  // A worker is gone: its rank is vacant until TakeOver. False: the worker has no rank.
  bool WorkerLost(uint64_t incarnation, const Now& now);
  // Ascending.
  std::vector<Rank> VacantRanks() const;
  // The incarnation of the worker that had the vacant rank. Ps refuse calls of smaller incarnations
  // as late calls of lost workers.
  uint64_t LostOf(Rank rank) const { return watch_.vacant().at(rank.value()).lost; }
  // Gives the vacant rank to `worker`, which lives, has no rank of the run, and a larger
  // incarnation than LostOf(rank). The run goes on where it was.
  void TakeOver(Rank rank, const RunNode& worker, const Now& now);
  // Ranks whose workers have been stuck for RunOptions::stuck_after. Ascending.
  std::vector<Rank> StuckRanks(absl::Duration now) const;
  // Takes the rank from its worker, which is stuck: the rank is vacant.
  void GiveUpStuck(Rank rank, bool another_is_free, const Now& now);
  // The worker held a rank of this run, lives, and did not do its work: it gets no rank again.
  bool GaveUpOn(uint64_t incarnation) const { return watch_.GaveUpOn(incarnation); }
  // The ps have their tables, and workers may begin.
  bool opened() const { return opened_ && !end_.has_value(); }

  // At most one action of a lane is under way: the caller calls ActionDone before the next
  // TakeAction.
  std::optional<Work> TakeAction(Lane lane);
  void ActionDone(Lane lane, ActionResult result, const Now& now);

  // Copies of ps's rows (recovery.replicas): the parts that have none and may have one.
  std::vector<uint32_t> PartsToFollow(absl::Duration now) const;
  // Lets `node`, which lives and which the run does not use, have a copy of the part's rows.
  void LetFollow(uint32_t part, const RunNode& node, const Now& now);
  bool Follows(uint64_t incarnation) const { return replicas_.Follows(incarnation); }
  // The follower is lost, or is to stop.
  void GiveUpFollower(uint64_t incarnation, absl::string_view why, const Now& now) {
    replicas_.GiveUp(incarnation, why, now);
  }
  // `job` is what a ps has last said of the job.
  void HearPs(uint64_t incarnation, const v1::JobOnPs& job, const Now& now);
  // `share`: how much of its room the job's push log there takes (JobOnPs.log_share), in this
  // generation.
  void HearLog(uint64_t incarnation, double share, const Now& now);
  // Pairs of incarnations: a ps, and the ps that may take its place.
  std::vector<std::pair<uint64_t, uint64_t>> Copies() const { return replicas_.Copies(); }
  // Ps that may have copies, or rows of a move, and that neither this run nor the next one uses:
  // the job is to be closed on them with the run.
  std::vector<RunNode> CopiedTo() const;

  // The record's status says that the job is to have other ps, the move has not begun, and the job
  // trains, so that it may begin.
  bool AwaitsScaling() const;
  // Moves the job to `ps`: the rows travel while it trains, and at a barrier the run ends as
  // kRescale.
  void Scale(std::vector<RunNode> ps, const Now& now);
  // The copy under way in that lane is of no use any more and may be cancelled.
  bool CopyUnwanted(Lane lane) const {
    if (actions_.purpose(lane) != ActionQueue::Purpose::kCopy) return false;
    if (!move_.has_value()) return true;
    return lane == Lane::kBackground && move_->stage() != PsMove::Stage::kCopying;
  }
  // Whether the rows move to this ps, which the run does not use yet.
  bool MovesTo(uint64_t incarnation) const;
  // Gives up the move that is under way, if any; the job goes on with the ps that it has.
  void GiveUpScaling(absl::string_view why, const Now& now);

  // The record's status says that the job is to be suspended: the run ends as kSuspended when a
  // checkpoint of its next barrier is committed, or at once if it has done nothing since its last
  // checkpoint. May be called again.
  void Suspend(const Now& now);
  // The checkpoint of the run's last suspension failed, less than a minute ago.
  bool FailedToSuspend(const Now& now) const;
  // A ps of the run is to stop. True: the ps must wait, since training would be lost with it; the
  // run ends as kRestart when a checkpoint of its next barrier is committed. False: nothing would
  // be lost, or no checkpoint could be written. May be called again.
  bool HoldLeaving(const std::string& ps, const Now& now);
  // The run trains, has trained for `least`, and has done a step since it began.
  bool MayBePreempted(absl::Duration least, const Now& now) const;

  // The record's status says that the job is to have another number of workers.
  bool AwaitsWorkers() const;
  // `are_here`: so many workers are free or the job's own, and the job may have them. Then the run
  // ends as kRescale at a barrier whose checkpoint is committed. `above`: why it may not have them,
  // for people.
  void ScaleWorkers(bool are_here, std::string above = "");
  // Workers beyond its own that the run is promised: they are here and free, and no other job is to
  // take them.
  uint32_t WorkersToCome() const;

  // The job's workers sum their dense gradients among themselves.
  bool WorkersCall() const;
  // The rank's assignment; nullopt until the ps have their tables, and once the run has ended.
  std::optional<v1::Assignment> AssignmentOf(Rank rank) const;
  // The rank's next unit; nullopt: none for now, ask again after the next change. The caller has
  // checked job and generation. ABORTED: the run has ended or the incarnation is not the rank's.
  absl::StatusOr<std::optional<v1::NextWorkResponse>> NextWork(const v1::NextWorkRequest& request,
                                                               const Now& now);
  // The scores that an Evaluate unit may bring. ABORTED: nobody is at such a unit.
  absl::StatusOr<ScoresExpected> ScoresOf(uint64_t unit_id) const;
  // The evaluation's round, which takes its scores. ABORTED: the evaluation is not under way.
  absl::StatusOr<EvaluationRound*> Round(uint64_t evaluation_id);
  // Does what is due by time alone.
  void Tick(const Now& now);
  // The master stood still for `gap` and could not hear anybody meanwhile.
  void StoodStill(absl::Duration gap, const Now& now);
  // A process of the run is gone, or the run must end for another reason. Does nothing if the run
  // has ended.
  void End(RunEnd end, const Now& now);
  // A worker's heartbeat; ignored if the worker has no rank.
  void Heard(uint64_t incarnation, const v1::Heartbeat& heartbeat, const Now& now);
  // The paces of the job's processes; empty unless the job trains.
  std::vector<SlowProcesses::Process> Paces(absl::Duration now) const;
  // Who waits for whom for longer than a second, and who is slow.
  std::vector<std::string> Waits(const Now& now) const;
  void SetUnanswered(Lane lane, std::vector<std::string> ps) {
    actions_.SetUnanswered(lane, std::move(ps));
  }
  // Brings the figures in the record up to date.
  void UpdateStatus(const Now& now);
  // Changes of the state that a restarted master needs to go on with the run (RunOptions::saved);
  // once the run has ended, its removal.
  std::vector<StateLog::Write> TakeWrites();

 private:
  enum class Phase {
    kFinding,
    kLoading,
    kCounting,
    kTraining,
    kEvaluating,
    kMeasuring,      // metrics of the scores
    kCheckpointing,  // a checkpoint is being cut
    // The last checkpoint is being written: at the end, or before the next one. Or it is written,
    // and earlier ones are being removed.
    kAwaitingWrite,
    kMoving,  // the last rows go to other ps, at a barrier
    kPredicting,
  };
  // kTask: the job's task is to evaluate.
  enum class Wanted { kBarrier, kFinalTest, kTask };

  const v1::JobSpec& spec() const { return record_->status().spec(); }
  v1::JobStatus& status() { return *record_->mutable_status(); }
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

  // job_run_barrier.cc: between units of training.
  void BeginTraining(const Now& now);
  void Advance(const Now& now);
  // Does what is next at a barrier whose evaluation is done, given up or not due: moves rows, cuts
  // a checkpoint, waits for the one that is being written, or leaves the barrier. Called again when
  // that is done.
  void ContinueBarrier(const Now& now);
  // Asks for a barrier if a checkpoint is due by time, or since a push log needs one.
  void RequestDueBarrier(const Now& now);
  void LeaveBarrier(const Now& now);
  void Conclude(const Now& now);
  void SetResult(const std::string& checkpoint);
  void Succeed(const Now& now);

  // job_run_checkpoint.cc
  // Whether a checkpoint at the barrier is none that the job's rules ask for, but for a push log's
  // room, a move or a suspension. With every_minutes none is: which steps are cut is a matter of
  // time anyway.
  bool CutsEarly() const;
  // Whether no checkpoint is to be cut any more at the barrier, since there is one.
  bool HasCheckpointHere() const;
  // A folder other than those of the checkpoints that the job may return to.
  std::string NewCheckpointFolder() const;
  void BeginCheckpoint(const Now& now);
  void OnCut(const ActionResult& result, const Now& now);
  void OnWritten(const ActionResult& result, const Now& now);
  // Asks for TellCommitted. As every action, it leaves once the state log has the checkpoint.
  void TellOfCheckpoint();
  // Earlier checkpoints are being removed, or are to be now.
  bool Prunes() const { return actions_.Prunes(/*may_prune=*/lost_.empty()); }
  // The end of the run waits for that.
  bool AwaitsPruning() const { return phase_ == Phase::kAwaitingWrite && !writing_.has_value(); }
  void OnCheckpointFailed(const ActionResult& result, const Now& now);
  // Cuts the failed checkpoint again after a while. False: its cuts have failed for longer than
  // `patience`.
  bool CutAgainLater(const std::string& why, absl::Duration patience, const Now& now);
  struct FailedCheckpoint;
  // OnCheckpointFailed, where a ps was away or dropped the job and comes back. False: nobody awaits
  // the checkpoint, and training goes on without it.
  bool OnCutWithoutPs(const FailedCheckpoint& failed, const Now& now);
  // OnCheckpointFailed, for the last checkpoint of a job that has trained: it is cut again, or the
  // job ends with another one of its step, or fails.
  void OnFinalCutFailed(const FailedCheckpoint& failed, const Now& now);
  // OnCheckpointFailed, for all others: training goes on, or waits for another cut if a push log
  // has little room.
  void TrainOnWithout(const FailedCheckpoint& failed, const Now& now);

  // job_run_evaluation.cc
  // The validation split is to be evaluated at this barrier and has not been.
  bool EvaluationDue() const;
  // What the plan said was due when it came to this position, which may have been in an earlier
  // run.
  Due DueHere() const;
  void BeginEvaluation(absl::string_view split, Wanted wanted, const Now& now);
  // Leaves the evaluation to whoever leaves the barrier; EndAtBarrier follows.
  void GiveUpEvaluation(const Now& now);
  void OnMeasured(const ActionResult& result, const Now& now);
  // Keeps what a job that evaluates has measured, and goes on to its next split or ends it.
  void OnTaskMeasured(const v1::Evaluation& evaluation, const Now& now);
  // Tells people how far metrics may be from their exact values.
  void TellErrors(const ActionResult& result, const Now& now);
  void FollowRules(const v1::Evaluation& evaluation, const Now& now);
  void ShowEvaluations();
  struct Writing;
  // Only the checkpoint `lost` had the best model: an earlier evaluation, or the one at this
  // barrier, is the best now.
  void LoseBest(const Writing& lost, absl::string_view why, const Now& now);

  // job_run_ps.cc: ps that are lost and come back.
  // The checkpoint that rows come from; what was pushed since is added.
  struct Origin {
    std::string folder;  // empty: initial values
    bool warm = false;
    uint64_t step = 0;
    uint64_t next_push = 0;  // in the checkpoint's position
  };
  // The run trains: it neither predicts nor evaluates, nor takes the last measures of a finished
  // training.
  bool Trains() const;
  bool Logged() const;
  // The rows came from other ps' memory, and no checkpoint has them yet.
  bool Unsaved() const;
  // The push log of a lost ps brings back what was pushed to it.
  bool ComesBackByLog() const { return Logged() && (!Unsaved() || log_origin_.has_value()); }
  // The checkpoint that a lost ps returns to alone if no push log brings it back and recovery.mode
  // is partial. nullopt: the mode is exact, MayTrainOnCards, or there is no checkpoint yet.
  std::optional<Origin> PartialOrigin() const;
  std::optional<Work> TakeRecovery();
  // Makes `request` that of a ps that returns to `origin` alone.
  void ReturnAlone(const Origin& origin, v1::OpenJobRequest& request) const;
  // At most so many steps have been pushed since `origin`.
  uint64_t StepsSince(const Origin& origin) const;
  void OnRecovered(const ActionResult& result, const Now& now);
  // The part's place is taken; `lost` is what it was.
  void OnBack(uint32_t part, const LostPs::Place& lost, const Now& now);
  void TickLost(const Now& now);

  // job_run_replicas.cc: copies of ps's rows.
  // The job is to have copies of its ps's rows, and may have them now.
  bool Replicates() const;

  // job_run_log_room.cc: room of push logs.
  // "ps-1's push log takes 80% of its room", of the fullest of all; nullopt: none is known.
  std::optional<std::string> FullestLog(absl::Duration now) const;
  std::string WhoseLog(const LogRoom::Fullest& log) const;

  // job_run_workers.cc
  // Takes the rank from its worker and returns the worker's incarnation.
  uint64_t Vacate(Rank rank);
  bool IsStuck(Rank rank, absl::Duration patience, absl::Duration now) const;
  void TickWorkers(const Now& now);
  void RestIfTooSlow(Rank rank, const Now& now);

  // job_run_scale.cc: other ps.
  std::optional<Work> TakeWeighing();
  void OnWeighed(const ActionResult& result, const Now& now);
  // `changed`: only rows changed since the last round. `steps`: at a barrier, the steps that the
  // rows must have; 0: any.
  CopyPartitions CopyWork(bool changed, uint64_t steps = 0) const;
  // The rows of the move under way are to travel by a checkpoint.
  bool MovesByCheckpoint() const {
    return move_.has_value() && move_->stage() == PsMove::Stage::kByCheckpoint;
  }
  void BeginCopy(const Now& now);
  // The next round is not to be begun yet.
  bool CopyRests() const;
  void TickMove(const Now& now);
  void RequestMoveBarrier();
  // Copies from the first round on, or by a checkpoint if that was tried too often.
  void CopyAnew(const Now& now);
  void OnCopied(Lane lane, const ActionResult& result, const Now& now);
  bool MoveAtBarrier(bool checkpoint_due, const Now& now);
  void SwitchPs(bool checkpoint_due, const Now& now);
  void ForgetMove();
  // Whom the move waits for, and what for; empty: nothing that Waits does not say anyway.
  std::string MoveAwaits() const;
  void ShowShares();

  // job_run_suspend.cc
  bool Suspending() const { return record_->status().has_suspending(); }
  // The last checkpoint has all that was trained, and the job is being measured.
  bool Measures() const;
  // Gives up the move for now. The record keeps the request, and the next run begins it again.
  void PutMoveOff();
  // Goes to the next barrier if the run trains, and leaves the evaluation at a barrier that it
  // stands at; EndAtBarrier follows.
  void GoToBarrier(const Now& now);
  // The run is to end at its next barrier, without the evaluation that is due there.
  bool EndsSoon() const { return Suspending() || leaving_.has_value(); }
  // Training is to end at this barrier, once its checkpoint is committed.
  bool EndsHere() const;
  // Ends the run if it is to end here. False: training goes on.
  bool EndAtBarrier(const Now& now);
  void OnLastCheckpointFailed(absl::string_view why, const Now& now);
  // True: the job's own checkpoint is from within a window of another number of workers. The run
  // restarts with that number, which ends the window.
  bool ReturnsToFormerWorkers(const Now& now);

  // job_run_waits.cc
  // The ps that have not answered in the lane, with commas; `otherwise` if none is known.
  std::string Unanswered(Lane lane, absl::string_view otherwise) const;
  // Parts of Waits: processes that are gone; actions of ps and the master itself; what a user has
  // asked for; processes that are slower than the others; units of workers.
  void AddWaitsForLost(absl::Duration now, std::vector<std::string>& waits) const;
  void AddWaitsForActions(absl::Duration now, std::vector<std::string>& waits) const;
  void AddWaitsForWishes(const Now& at, std::vector<std::string>& waits) const;
  void AddSlowOnes(absl::Duration now, std::vector<std::string>& waits) const;
  void AddWaitsForWorkers(absl::Duration now, std::vector<std::string>& waits) const;

  // job_run_units.cc: units that workers get, and their results.
  std::optional<v1::NextWorkResponse> NextUnit(Rank rank, absl::Duration now);
  // Leaves out what the worker would read ahead if that has no room in the message. False: the unit
  // itself has none, and the job has failed.
  bool FitsMessage(v1::NextWorkResponse& unit, const Now& now);
  void OnUnitDone(Rank rank, const v1::UnitResult& result, const Now& now);
  void OnUnitFailed(Rank rank, const v1::UnitResult& result, const Now& now);
  absl::Status IsOver() const;
  // One of the batches of the failed unit may be at fault, so the unit may be tried again.
  bool MayTryAgain(Rank rank, const v1::NextWorkRequest& request) const;
  // Whether cards train rows, where workers have them (RowCacheSpec.write_back).
  bool MayTrainOnCards() const;
  // Whether the former holder of the rank's unit may have lost changes that its card had made to
  // rows and not pushed (RowCacheSpec.write_back), from batches that count as done.
  bool MayHaveLostChanges(const v1::Train& train, const v1::NextWorkRequest& request) const;
  // The unit of training that the rank holds has been tried in vain; the request says how far it
  // got, and `what` goes on from "rank 1". If changes may be lost, the job goes back to its last
  // checkpoint or goes on without them, as recovery.mode says. After too many tries the batch of
  // the next push is set aside, unless some ps has that push: then nothing is wrong with the batch,
  // and the other ps must get it, too.
  void OnTry(Rank rank, const v1::NextWorkRequest& request, const std::string& what,
             const Now& now);
  void CountBadRecords(const v1::UnitResult& result, const Now& now);
  // Fails the job if every record of the split, in an epoch or an evaluation, was bad.
  bool FailsWithoutSamples(absl::string_view split, uint64_t samples, const Now& now);

  JobTable* const jobs_;
  v1::JobRecord* const record_;
  RunOptions options_;  // a ps that came back changes its node

  const absl::Duration began_;
  Phase phase_ = Phase::kFinding;
  absl::Duration phase_since_;
  std::optional<RunEnd> end_;
  ActionQueue actions_;
  UnitDesk desk_;
  Progress progress_;
  SlowProcesses slow_;
  RankWatch watch_;

  // The start of the run: its checkpoint and partitions.
  std::string start_folder_;
  v1::CheckpointManifest start_;
  bool warm_ = false;
  uint32_t partition_count_;
  std::vector<uint32_t> owner_;  // [partition_count_], from Open on
  bool opened_ = false;
  Origin origin_;             // of the rows of all ps
  bool from_memory_ = false;  // they came from other ps' memory at the run's start
  // While Unsaved, for a job with push logs: the checkpoint that the logs of the earlier
  // generations begin at (empty: none).
  std::optional<std::string> log_origin_;

  LostPs lost_;
  std::optional<Origin> returns_to_;  // who is asked to take up a lost ps's rows returns to this
  std::string recovers_from_;         // the checkpoint that it is asked to begin with
  Replicas replicas_;
  CutRetry cut_retry_;
  LogRoom log_room_;
  bool told_of_log_ = false;  // people, that a log has had little room

  SplitCounts split_counts_;

  v1::Position position_;  // at the last barrier
  BadRecords bad_records_;
  Evaluations evaluations_;
  std::unique_ptr<TrainingPlan> plan_;
  std::unique_ptr<EvaluationRound> round_;
  Wanted evaluation_for_ = Wanted::kBarrier;
  uint64_t next_evaluation_ = 1;
  Due due_;
  bool improved_ = false;  // the model at the barrier is marked as the best
  bool stopping_ = false;  // early stopping, or nothing is left to train
  // The checkpoint under way, from its cut until it is committed or given up.
  struct Writing {
    uint64_t step = 0;
    uint64_t next_push = 0;
    absl::Duration since;
    std::string best_before;  // position_.best_checkpoint() before this one
    std::string folder;
    bool early = false;
    WriteCheckpoint work;  // until the write begins
    bool ps_lost = false;  // since the cut
    bool sought = false;   // an earlier master's; whether it was committed is being found out
  };
  std::optional<Writing> writing_;
  // One that has failed.
  struct FailedCheckpoint {
    Writing writing;
    absl::Status status;
    std::string why;              // "checkpoint at step 7: no space left"
    bool was_best = false;        // it was marked as having the best model
    bool awaited = false;         // a barrier waits for it
    bool at_its_barrier = false;  // and training stands where it was cut
  };
  std::optional<uint64_t> given_up_;  // the step at whose barrier no further checkpoint is tried
  std::optional<PsMove> move_;
  // Ps that have, or may have, been given rows for a move, by incarnation.
  std::map<uint64_t, RunNode> moved_to_;
  uint64_t copies_begun_ = 0;      // moves, or tries of one, that have begun to copy
  bool barrier_for_move_ = false;  // only the move has asked for the barrier
  absl::Duration barrier_since_;
  // When this run's training began, and at which step.
  absl::Duration trains_since_;
  std::optional<absl::Duration> failed_to_suspend_at_;
  uint64_t first_step_ = 0;
  bool workers_are_here_ = false;  // as many as status().worker_scaling asks for
  std::string above_quota_;        // why the job may not have so many; empty: it may
  // A ps that waits until the run ends.
  struct Leaving {
    std::string ps;
    absl::Duration since;
  };
  std::optional<Leaving> leaving_;
  bool lets_leave_ = false;  // no checkpoint could be written before a ps stops
  LastCheckpoint last_checkpoint_;
  // The run's values in the state log, by key; for ranks, which change one by one, only the keys.
  std::map<std::string, std::string> logged_;
  PredictionParts predictions_;
};

}  // namespace tessera::master
