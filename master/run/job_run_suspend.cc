// Ends of a run that do not end its job: at a barrier, when its checkpoint is committed. The job is
// suspended, goes on with another number of workers, or one of its ps is to stop.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/defaults.h"
#include "master/run/job_run.h"

namespace tessera::master {

void JobRun::Suspend(const Now& now) {
  if (end_.has_value()) return;
  PutMoveOff();
  if ((plan_ == nullptr && !Unsaved()) || Measures()) {
    return End(RunEnd::Suspended(absl::StrCat("at step ", status().step())), now);
  }
  GoToBarrier(now);
}

bool JobRun::FailedToSuspend(const Now& now) const {
  return failed_to_suspend_at_.has_value() &&
         now.monotonic - *failed_to_suspend_at_ < absl::Minutes(1);
}

bool JobRun::Measures() const {
  return stopping_ && !writing_.has_value() && last_checkpoint_.step == position_.step();
}

void JobRun::PutMoveOff() {
  if (!move_.has_value()) return;
  status().mutable_scaling()->set_phase("waiting");
  ForgetMove();
}

void JobRun::GoToBarrier(const Now& now) {
  if (phase_ == Phase::kEvaluating && evaluation_for_ == Wanted::kBarrier) {
    return GiveUpEvaluation(now);
  }
  if (phase_ != Phase::kTraining) return;
  if (!plan_->BarrierDue()) RequestMoveBarrier();
  Advance(now);
}

bool JobRun::HoldLeaving(const std::string& ps, const Now& now) {
  const bool saved = plan_ == nullptr ? !Unsaved() : Measures() || ComesBackByLog();
  if (end_.has_value() || saved || lets_leave_) return false;
  if (!leaving_.has_value()) {
    leaving_ = {.ps = ps, .since = now.monotonic};
    jobs_->AddEvent(record_, absl::StrCat(ps, " is to stop: goes to the next barrier"), now.wall);
  }
  PutMoveOff();
  GoToBarrier(now);
  return true;
}

bool JobRun::MayBePreempted(absl::Duration least, const Now& now) const {
  return !end_.has_value() && plan_ != nullptr && !stopping_ &&
         now.monotonic - trains_since_ >= least && plan_->position().step() > first_step_;
}

bool JobRun::AwaitsWorkers() const {
  return !end_.has_value() && plan_ != nullptr && !stopping_ && !move_.has_value() &&
         record_->status().has_worker_scaling() && !Suspending() && !leaving_.has_value() &&
         record_->status().worker_scaling().to() != options_.workers.size();
}

void JobRun::ScaleWorkers(bool are_here, std::string above) {
  workers_are_here_ = are_here;
  above_quota_ = std::move(above);
}

uint32_t JobRun::WorkersToCome() const {
  if (!workers_are_here_ || !AwaitsWorkers()) return 0;
  const uint32_t to = record_->status().worker_scaling().to();
  return to - std::min(to, static_cast<uint32_t>(options_.workers.size()));
}

bool JobRun::EndsHere() const {
  if (EndsSoon()) return true;
  const bool sync = StepsTogether(spec().consistency());
  return workers_are_here_ && AwaitsWorkers() && (!sync || position_.open_size() == 0);
}

bool JobRun::EndAtBarrier(const Now& now) {
  if (!EndsHere() || last_checkpoint_.step != position_.step()) return false;
  if (Suspending()) {
    End(RunEnd::Suspended(
            absl::StrCat("at step ", position_.step(), " (", last_checkpoint_.folder, ")")),
        now);
    return true;
  }
  if (leaving_.has_value()) {
    Restart("PsLeaves",
            absl::StrCat(leaving_->ps, " is to stop, and ", last_checkpoint_.folder,
                         " has all that was trained"),
            now);
    return true;
  }
  RunOptions next = options_;
  // Ranks without a worker are the first to go; new ranks get free workers (FillRanks).
  std::stable_partition(next.workers.begin(), next.workers.end(),
                        [](const RunNode& worker) { return worker.incarnation != 0; });
  next.workers.resize(status().worker_scaling().to(), {"nobody", "", 0});
  next.owner = owner_;
  next.take_up = TakeUp{.position = position_,
                        .evaluations = evaluations_.all(),
                        .folder = last_checkpoint_.folder,
                        .last_checkpoint = last_checkpoint_,
                        .since = barrier_since_};
  const std::string message =
      absl::StrCat("goes from ", options_.workers.size(), " to ", next.workers.size(),
                   " workers at step ", position_.step());
  End(RunEnd::Rescale(message, std::move(next)), now);
  return true;
}

void JobRun::OnLastCheckpointFailed(absl::string_view why, const Now& now) {
  if (!EndsHere()) return;
  if (Suspending()) {
    jobs_->AddEvent(
        record_, absl::StrCat("runs on, since it cannot be suspended without its ", why), now.wall);
    status().clear_suspending();
    trains_since_ = now.monotonic;  // so that the job is not pre-empted again at once
    failed_to_suspend_at_ = now.monotonic;
  } else if (leaving_.has_value()) {
    jobs_->AddEvent(record_, absl::StrCat(leaving_->ps, " stops without a ", why), now.wall);
    leaving_.reset();
    lets_leave_ = true;
  } else {
    jobs_->AddEvent(record_,
                    absl::StrCat("keeps its ", options_.workers.size(),
                                 " workers, since others would go on from its ", why),
                    now.wall);
    status().clear_worker_scaling();
    workers_are_here_ = false;
  }
  jobs_->Touch(record_);
}

bool JobRun::ReturnsToFormerWorkers(const Now& now) {
  const uint32_t workers = static_cast<uint32_t>(options_.workers.size());
  const uint32_t cut_for = position_.window_workers();
  const bool own = last_checkpoint_.step.has_value();
  const bool sync = StepsTogether(spec().consistency());
  if (!own || !sync || position_.open_size() == 0 || cut_for == 0 || cut_for == workers) {
    return false;
  }
  v1::WorkerScaling& scaling = *status().mutable_worker_scaling();
  if (scaling.to() == 0) scaling.set_to(workers);
  scaling.set_from(cut_for);
  scaling.set_since_unix_ms(absl::ToUnixMillis(now.wall));
  if (scaling.to() == cut_for) status().clear_worker_scaling();
  record_->set_ranks(cut_for);
  const std::string why =
      absl::StrCat("the checkpoint of step ", position_.step(), " is from within a window of ",
                   cut_for, " workers, who end it before there are ", workers);
  jobs_->AddEvent(record_, why, now.wall);
  Restart("FormerWorkers", why, now);
  return true;
}

}  // namespace tessera::master
