// The durable state of a run, and how a restarted master goes on with it: ps and workers go on
// meanwhile, and find their run as they left it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/defaults.h"
#include "master/actions/checkpoint_calls.h"
#include "master/run/job_run.h"
#include "master/run/run_state.h"

namespace tessera::master {
v1::RunState JobRun::State() const {
  v1::RunState state;
  state.set_generation(generation());
  for (const RunNode& ps : options_.ps) *state.add_ps() = ToProto(ps);
  for (const RunNode& worker : options_.workers) *state.add_workers() = ToProto(worker);
  state.set_origin(origin_.folder);
  state.set_warm(origin_.warm);
  state.set_first_step(origin_.step);
  state.set_first_push(origin_.next_push);
  *state.mutable_position() = position_;
  state.set_last_checkpoint(last_checkpoint_.folder);
  if (last_checkpoint_.step.has_value()) state.set_last_checkpoint_step(*last_checkpoint_.step);
  state.set_last_checkpoint_due(!last_checkpoint_.early);
  state.set_stopping(stopping_);
  const bool to_checkpoint = phase_ == Phase::kCheckpointing || phase_ == Phase::kAwaitingWrite ||
                             phase_ == Phase::kMoving;
  state.set_to_checkpoint(to_checkpoint && !EvaluationDue());
  *state.mutable_due() = master::ToProto(due_);
  state.set_improved(improved_);
  if (writing_.has_value()) {
    state.mutable_writing()->set_folder(writing_->folder);
    state.mutable_writing()->set_step(writing_->step);
    state.mutable_writing()->set_next_push(writing_->next_push);
    state.mutable_writing()->set_best_before(writing_->best_before);
    state.mutable_writing()->set_due(!writing_->early);
  }
  state.set_next_evaluation(next_evaluation_);
  state.set_copies_begun(copies_begun_);
  state.set_evaluation_bad_records(bad_records_.of_evaluation());
  state.set_barrier_for_move(barrier_for_move_);
  replicas_.Save(state);
  for (const auto& [incarnation, node] : moved_to_) {
    *state.add_moved_to() = master::ToProto(node);
  }
  for (const auto& [part, lost] : lost_.places()) {
    if (!lost.replaces) continue;
    v1::RunFollower* const out = state.add_followers();
    out->set_part(part);
    *out->mutable_node() = master::ToProto(lost.back);
    out->set_pair(lost.pair);
    out->set_told(true);
    out->set_in_sync(true);
    out->set_replaces(true);
  }
  state.set_unsaved(Unsaved());
  if (Unsaved() && log_origin_.has_value()) state.set_log_origin(*log_origin_);
  return state;
}

std::vector<StateLog::Write> JobRun::TakeWrites() {
  std::vector<StateLog::Write> writes;
  if (end_.has_value() || plan_ == nullptr) {
    for (const auto& [key, value] : std::exchange(logged_, {})) {
      writes.push_back({key, std::nullopt});
    }
    return writes;
  }
  const uint64_t number = record_->number();
  const auto write = [&](const std::string& key, std::string value) {
    const auto [logged, is_new] = logged_.try_emplace(key);
    if (!is_new && logged->second == value) return;
    logged->second = value;
    writes.push_back({key, std::move(value)});
  };
  if (!logged_.contains(RunMapKey(number))) {
    v1::RunMap map;
    *map.mutable_owner() = {owner_.begin(), owner_.end()};
    write(RunMapKey(number), map.SerializeAsString());
  }
  write(RunStateKey(number), State().SerializeAsString());
  write(RunPlanKey(number), plan_->Save().SerializeAsString());
  for (const uint32_t rank : desk_.TakeChanged()) {
    std::string key = RunRankKey(number, rank);
    logged_.try_emplace(key);
    writes.push_back({std::move(key), desk_.StateOf(Rank(rank)).SerializeAsString()});
  }
  return writes;
}

void JobRun::Resume(const Now& now) {
  const std::shared_ptr<const SavedRun> saved = std::exchange(options_.saved, nullptr);
  const v1::RunState& state = saved->state;
  partition_count_ = static_cast<uint32_t>(options_.owner.size());
  owner_ = options_.owner;
  ShowShares();
  // A master of an earlier version did not write the numbers of pushes; in sync they are the steps.
  const bool together = StepsTogether(spec().consistency());
  origin_ = {.folder = state.origin(),
             .warm = state.warm(),
             .step = state.first_step(),
             .next_push = together ? state.first_step() : state.first_push()};
  from_memory_ = state.unsaved();
  if (state.has_log_origin()) log_origin_ = state.log_origin();
  opened_ = true;
  position_ = state.position();
  if (together) position_.set_next_push(position_.step());
  // The evaluation that was under way is made anew, and counts its bad records again.
  bad_records_.ForgetEvaluation(state.evaluation_bad_records());
  evaluations_.Set({status().evaluations().begin(), status().evaluations().end()});
  last_checkpoint_.folder = state.last_checkpoint();
  if (state.has_last_checkpoint_step()) last_checkpoint_.step = state.last_checkpoint_step();
  last_checkpoint_.early = !state.last_checkpoint_due();
  next_evaluation_ = state.next_evaluation();
  copies_begun_ = state.copies_begun();
  due_ = FromProto(state.due());
  improved_ = state.improved();
  stopping_ = state.stopping();
  barrier_for_move_ = state.barrier_for_move();
  trains_since_ = now.monotonic;
  first_step_ = position_.step();
  replicas_.Restore(state, now);
  for (const v1::RunProcess& process : state.moved_to()) {
    moved_to_.emplace(process.incarnation(), NodeOf(process));
  }
  Enter(Phase::kTraining, now);
  for (uint32_t r = 0; r < saved->ranks.size(); ++r) {
    desk_.Restore(Rank(r), saved->ranks[r], now.monotonic);
  }
  auto plan = NewTrainingPlan(PlanOptionsOf(spec(), static_cast<uint32_t>(saved->ranks.size())),
                              FilesOf("train"), position_, &saved->plan);
  if (!plan.ok()) return Restart("MasterRestarted", plan.status().message(), now);
  plan_ = *std::move(plan);
  UpdateStatus(now);
  jobs_->AddEvent(record_,
                  absl::StrCat("the master restarted; the job goes on at step ", status().step()),
                  now.wall);
  // A move begins anew.
  if (status().has_scaling()) {
    v1::Scaling& scaling = *status().mutable_scaling();
    scaling.set_phase("waiting");
    scaling.clear_partitions();
    scaling.clear_rows();
    scaling.clear_bytes();
  }
  if (state.has_writing()) {
    writing_ = {.step = state.writing().step(),
                .next_push = together ? state.writing().step() : state.writing().next_push(),
                .since = now.monotonic,
                .best_before = state.writing().best_before(),
                .folder = state.writing().folder(),
                .early = !state.writing().due(),
                .work = {},
                .ps_lost = false,
                .sought = true};
    FindCheckpoint find;
    find.folder = writing_->folder;
    find.own = true;
    actions_.Want(Lane::kBackground, std::move(find));
  }
  barrier_since_ = now.monotonic;
  if (!state.to_checkpoint()) return Advance(now);
  // The master may have been lost while it removed the ones before the job's last.
  if (!writing_.has_value() && last_checkpoint_.step == position_.step()) {
    actions_.WantPruning(PruneOf(*record_, last_checkpoint_.folder, position_.best_checkpoint()));
  }
  if (!writing_.has_value()) return ContinueBarrier(now);
  Enter(Phase::kAwaitingWrite, now);
}

// The checkpoint that the earlier master had under way was not committed.
void JobRun::OnSought(const ActionResult& result, const Now& now) {
  const Writing lost = *std::exchange(writing_, std::nullopt);
  const bool at_its_barrier = phase_ == Phase::kAwaitingWrite && lost.step == position_.step();
  if (position_.best_checkpoint() == lost.folder) {
    // The model of that step was the best one, and no ps has it any more.
    if (!at_its_barrier) {
      return Restart(
          "CheckpointLost",
          absl::StrCat("the best model so far, of step ", lost.step,
                       ", was being written when the master was lost: ", result.status.message()),
          now);
    }
    position_.set_best_checkpoint(lost.best_before);
    improved_ = true;  // the ps have it still; the barrier may have been come to twice
  }
  if (phase_ == Phase::kAwaitingWrite) return ContinueBarrier(now);
  jobs_->AddEvent(record_,
                  absl::StrCat("the checkpoint of step ", lost.step,
                               ", which the master had under way, is cut again at a later step"),
                  now.wall);
  plan_->RequestBarrier();
}

}  // namespace tessera::master
