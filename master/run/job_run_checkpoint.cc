// Checkpoints at a barrier: the cut, the write, and what follows where one of them fails.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/log.h"
#include "master/actions/checkpoint_calls.h"
#include "master/run/cut_failure.h"
#include "master/run/job_run.h"

namespace tessera::master {

bool JobRun::CutsEarly() const {
  const v1::CheckpointSpec& rules = spec().checkpoint();
  // A model that is worse than the best one seen is kept since that one's checkpoint was lost: a
  // matter of disks.
  const bool best = improved_ && rules.keep_best() && position_.stop_misses() == 0;
  // Rows are to expire once the model has been measured, which a suspension leaves for later.
  const bool asked_for = (due_.checkpoint || best || stopping_) && !EvaluationDue();
  return !asked_for && rules.every_minutes() == 0;
}

bool JobRun::HasCheckpointHere() const {
  if (last_checkpoint_.step != position_.step()) return false;
  const auto& tables = spec().tables();
  const bool expires = std::any_of(tables.begin(), tables.end(),
                                   [](const v1::TableSpec& table) { return table.has_expiry(); });
  // What that one has left out a later one of the step makes up for.
  return !expires || !last_checkpoint_.early || CutsEarly();
}

std::string JobRun::NewCheckpointFolder() const {
  for (uint32_t number = 1;; ++number) {
    const std::string folder = absl::StrCat(record_->status().job_id(), "/",
                                            CheckpointFolderName(position_.step(), number));
    if (folder != last_checkpoint_.folder && folder != origin_.folder &&
        folder != position_.best_checkpoint()) {
      return folder;
    }
  }
}

void JobRun::BeginCheckpoint(const Now& now) {
  Enter(Phase::kCheckpointing, now);
  const std::string best_before = position_.best_checkpoint();
  // Ps that begin anew at different checkpoints leave none that has no file in common with another.
  const std::string base = last_checkpoint_.out_of_step ? "" : last_checkpoint_.folder;
  NewCheckpoint checkpoint = {.record = record_,
                              .ps = options_.ps,
                              .folder = NewCheckpointFolder(),
                              .base = base,
                              .partition_count = partition_count_,
                              .position = {},
                              .pushes = plan_->pushes(),
                              .evaluations = evaluations_.all(),
                              .early = CutsEarly(),
                              .at = now.wall};
  if (improved_ && spec().checkpoint().keep_best()) {
    position_.set_best_checkpoint(checkpoint.folder);
  }
  checkpoint.position = position_;
  writing_ = {.step = position_.step(),
              .next_push = position_.next_push(),
              .since = now.monotonic,
              .best_before = best_before,
              .folder = checkpoint.folder,
              .early = checkpoint.early,
              .work = WriteOf(checkpoint)};
  actions_.Want(Lane::kForeground, CutOf(checkpoint));
}

void JobRun::OnCut(const ActionResult& result, const Now& now) {
  last_checkpoint_.at = now.monotonic;
  if (!result.status.ok()) {
    OnCheckpointFailed(result, now);
    if (!end_.has_value() && !cut_retry_.waits()) LeaveBarrier(now);
    return;
  }
  actions_.Want(Lane::kBackground, std::move(writing_->work));
  // Nothing can be trained during the write, or too little is left of a push log.
  if (stopping_ || MovesByCheckpoint() || EndsHere() || log_room_.Scarce(now.monotonic)) {
    return Enter(Phase::kAwaitingWrite, now);
  }
  cut_retry_.Reset();
  LeaveBarrier(now);
}

void JobRun::OnWritten(const ActionResult& result, const Now& now) {
  if (writing_->sought && !result.status.ok()) return OnSought(result, now);
  if (!result.status.ok()) {
    OnCheckpointFailed(result, now);
    if (end_.has_value()) return;
  } else {
    ++options_.counts->checkpoints_committed;
    cut_retry_.Reset();
    last_checkpoint_.folder = writing_->folder;
    last_checkpoint_.step = writing_->step;
    last_checkpoint_.early = writing_->early;
    last_checkpoint_.out_of_step = result.out_of_step;
    origin_ = {.folder = writing_->folder,
               .warm = false,
               .step = writing_->step,
               .next_push = writing_->next_push};
    log_origin_.reset();
    status().set_checkpoint(last_checkpoint_.folder);
    // The folder may have been a damaged one, and is written anew.
    auto* damaged = record_->mutable_damaged();
    damaged->erase(std::remove(damaged->begin(), damaged->end(), last_checkpoint_.folder),
                   damaged->end());
    // Checkpoints and evaluations are no events: they have fields of their own, and would push the
    // events of the job's processes out of the newest 50.
    jobs_->Touch(record_);
    SPDLOG_INFO("job {}: checkpoint {}", status().job_id(), last_checkpoint_.folder);
    writing_.reset();
    actions_.WantPruning(PruneOf(*record_, last_checkpoint_.folder, position_.best_checkpoint()));
    if (Logged()) {
      log_room_.OnCommitted();
      TellOfCheckpoint();
    }
  }
  // A barrier that waited cuts its own checkpoint now, or the job is at its end.
  if (phase_ == Phase::kAwaitingWrite) ContinueBarrier(now);
}

void JobRun::TellOfCheckpoint() {
  actions_.WantTelling(TellOf(*record_, options_.ps, last_checkpoint_.folder));
}

void JobRun::OnCheckpointFailed(const ActionResult& result, const Now& now) {
  ++options_.counts->checkpoints_failed;
  log_room_.OnFailed();
  const Writing writing = *std::exchange(writing_, std::nullopt);
  const CutFailure failure = Classify(result, writing.ps_lost, lost_.empty());
  const std::string why =
      absl::StrCat("checkpoint at step ", writing.step, ": ", result.status.message());
  const bool comes_back = Logged() || PartialOrigin().has_value();
  if (failure == CutFailure::kShardFailed || (failure == CutFailure::kDropped && !comes_back)) {
    return Restart("PsFailed", why, now);
  }
  const bool was_best = position_.best_checkpoint() == writing.folder;
  if (was_best) position_.set_best_checkpoint(writing.best_before);
  const bool awaited = phase_ == Phase::kCheckpointing || phase_ == Phase::kAwaitingWrite;
  const FailedCheckpoint failed = {.writing = writing,
                                   .status = result.status,
                                   .why = why,
                                   .was_best = was_best,
                                   .awaited = awaited,
                                   .at_its_barrier = awaited && writing.step == position_.step()};
  // It is to be marked if it is cut again; the barrier may have been come to twice.
  if (was_best && failed.at_its_barrier) improved_ = true;
  if (failure != CutFailure::kDisk && OnCutWithoutPs(failed, now)) return;
  if (stopping_ && writing.step == position_.step()) return OnFinalCutFailed(failed, now);
  TrainOnWithout(failed, now);
}

bool JobRun::CutAgainLater(const std::string& why, absl::Duration patience, const Now& now) {
  // While a ps is lost, ps_patience of TickLost counts instead.
  if (!cut_retry_.Again(why, patience, /*ps_lost=*/!lost_.empty(), now.monotonic)) return false;
  Enter(Phase::kCheckpointing, now);
  if (cut_retry_.ToTell(now.monotonic)) {
    jobs_->AddEvent(record_, absl::StrCat(why, "; it is cut again"), now.wall);
  }
  return true;
}

bool JobRun::OnCutWithoutPs(const FailedCheckpoint& failed, const Now& now) {
  // The ps have later rows by now, so the best model must be trained once more, as in OnSought.
  if (failed.was_best && !failed.at_its_barrier && !PartialOrigin().has_value()) {
    Restart("CheckpointLost",
            absl::StrCat("the best model so far was being written, and is lost: ", failed.why),
            now);
    return true;
  }
  if (!failed.awaited) return false;
  if (!CutAgainLater(failed.why, options_.ps_patience, now)) Restart("PsFailed", failed.why, now);
  return true;
}

void JobRun::OnFinalCutFailed(const FailedCheckpoint& failed, const Now& now) {
  // The ps still have all that was trained: tries again while somebody may make room or mend the
  // disk, which may be read-only by now.
  const bool may_pass = absl::IsResourceExhausted(failed.status) ||
                        absl::IsUnavailable(failed.status) ||
                        absl::IsPermissionDenied(failed.status);
  if (may_pass && CutAgainLater(failed.why, options_.disk_patience, now)) return;
  if (last_checkpoint_.step == failed.writing.step) {
    // This one was to make up for it. The job has what it needs, but for rows that may have been
    // due to expire.
    last_checkpoint_.early = false;
    if (failed.was_best) position_.set_best_checkpoint(last_checkpoint_.folder);
    cut_retry_.Reset();
    jobs_->AddEvent(
        record_,
        absl::StrCat(failed.why, "; the one of this step that is there, ", last_checkpoint_.folder,
                     ", stays, in which rows may be that were due to expire"),
        now.wall);
    return;
  }
  if (failed.was_best) LoseBest(failed.writing, failed.status.message(), now);
  Fail("CheckpointFailed",
       absl::StrCat("training is done, and its last checkpoint, at step ", failed.writing.step,
                    ", could not be written: ", failed.status.message(),
                    absl::IsResourceExhausted(failed.status)
                        ? "; make room below the checkpoint root, then submit the job again"
                        : "; mend that, then submit the job again",
                    last_checkpoint_.folder.empty()
                        ? ""
                        : absl::StrCat(" with start.checkpoint = ", last_checkpoint_.folder)),
       now);
}

void JobRun::TrainOnWithout(const FailedCheckpoint& failed, const Now& now) {
  const bool leaves = failed.at_its_barrier && !EndsHere() && !MovesByCheckpoint();
  // What is pushed from here on would fill the log.
  if (const auto log = log_room_.fullest(now.monotonic);
      leaves && log.has_value() && log_room_.Scarce(now.monotonic)) {
    const std::string both =
        absl::StrCat(WhoseLog(*log), "'s push log has little room, and the ", failed.why);
    if (CutAgainLater(both, options_.disk_patience, now)) return;
  }
  if (leaves) given_up_ = position_.step();
  cut_retry_.Reset();
  const absl::string_view message = failed.status.message();
  jobs_->AddEvent(record_,
                  absl::StrCat("checkpoint at step ", failed.writing.step,
                               " failed, training goes on without it: ", message),
                  now.wall);
  // Where the barrier is not left the checkpoint is cut again; else no ps has its model any more.
  const bool is_cut_again = phase_ == Phase::kAwaitingWrite && failed.at_its_barrier && !leaves;
  if (failed.was_best && !is_cut_again) LoseBest(failed.writing, message, now);
  if (leaves) improved_ = false;
  if (failed.at_its_barrier) OnLastCheckpointFailed(failed.why, now);
  if (MovesByCheckpoint()) {
    GiveUpScaling("its rows would have travelled by that checkpoint", now);
  }
}

}  // namespace tessera::master
