// The start of a run: finds its checkpoint, opens the ps, counts the records.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/job/defaults.h"
#include "common/job/job_tables.h"
#include "common/job/metric_names.h"
#include "common/job/scores.h"
#include "common/partition.h"
#include "common/rpc/status.h"
#include "master/plan/start_check.h"
#include "master/plan/start_position.h"
#include "master/run/job_run.h"

namespace tessera::master {

void JobRun::FindOrOpen(const Now& now) {
  if (options_.take_up.has_value()) {
    const TakeUp& take_up = *options_.take_up;
    partition_count_ = static_cast<uint32_t>(options_.owner.size());
    position_ = take_up.position;
    evaluations_.Set(take_up.evaluations);
    start_folder_ = take_up.folder;
    from_memory_ = take_up.generation > 0;
    log_origin_ = take_up.log_origin;
    start_.set_step(position_.step());
    last_checkpoint_ = take_up.last_checkpoint;
    return Open(now);
  }
  Enter(Phase::kFinding, now);
  FindCheckpoint find;
  if (options_.OnlyMeasures()) {
    find.folder = options_.final_checkpoint;
    find.own = true;
  } else if (record_->has_run()) {
    find.job_folder = status().job_id();
    find.damaged = {record_->damaged().begin(), record_->damaged().end()};
  } else if (!spec().start().checkpoint().empty()) {
    find.folder = spec().start().checkpoint();
  } else {
    return Open(now);
  }
  actions_.Want(Lane::kForeground, std::move(find));
}

void JobRun::OnFound(ActionResult result, const Now& now) {
  for (const std::string& skipped : result.skipped) {
    jobs_->AddEvent(record_, absl::StrCat("damaged checkpoint left out: ", skipped), now.wall);
  }
  for (const std::string& folder : result.damaged) *record_->add_damaged() = folder;
  const StartOf of = options_.OnlyMeasures() ? StartOf::kFinal
                     : record_->has_run()    ? StartOf::kOwn
                                             : StartOf::kOther;
  const bool own = of == StartOf::kOwn;
  const bool first = of == StartOf::kOther;
  if (TookFallback(result.status, now)) return;
  if (own && absl::IsNotFound(result.status)) {
    if (const std::string& had = status().checkpoint(); !had.empty()) {
      return Fail(
          "CheckpointError",
          absl::StrCat("the job's last checkpoint was ", had,
                       ", and now none of its checkpoints is sound (", result.status.message(),
                       "); it does not begin again at step 0 by itself: put the folder "
                       "back and submit the job with start.checkpoint = ",
                       had, ", or submit it again to train from the start"),
          now);
    }
    // No checkpoint was committed before the loss: begins from the start again.
    if (spec().start().checkpoint().empty()) return Open(now);
    record_->set_has_run(false);
    return FindOrOpen(now);
  }
  if (!result.status.ok()) {
    if (IsRetryable(result.status)) {
      return Restart("CheckpointUnreadable", result.status.message(), now);
    }
    return Fail("CheckpointError",
                absl::StrCat(first ? "start.checkpoint: " : "", result.status.message()), now);
  }
  if (first) {
    warm_ = spec().start().warm();
    const absl::Status may = CheckStart(spec(), result.manifest, status().task(), warm_);
    if (!may.ok()) return Fail("InvalidStart", may.message(), now);
    const std::string otherwise = PreparedOtherwise(spec(), result.manifest.spec());
    if (!otherwise.empty()) {
      jobs_->AddEvent(record_, absl::StrCat(otherwise, "; it is trained on as this job says"),
                      now.wall);
    }
  }
  start_folder_ = std::move(result.folder);
  start_ = std::move(result.manifest);
  partition_count_ = start_.partition_count() > 0 ? start_.partition_count() : options_.partitions;
  position_ = StartPosition(status(), start_, of);
  if (!warm_) evaluations_.Set({start_.evaluations().begin(), start_.evaluations().end()});
  if (first) evaluations_.MarkNone();
  // Evaluates anew what the checkpoint's job may have evaluated.
  if (status().task() == v1::EVALUATE) evaluations_.Set({});
  if (own) {
    last_checkpoint_.folder = start_folder_;
    last_checkpoint_.step = start_.step();
  }
  Open(now);
}

uint64_t JobRun::start_bytes() const {
  uint64_t bytes = 0;
  for (const v1::CheckpointFile& file : start_.files()) bytes += file.bytes();
  return bytes;
}

// If the best model is gone, the last one is the job's result. True: the run has ended for that.
bool JobRun::TookFallback(const absl::Status& status, const Now& now) {
  if (options_.fallback_checkpoint.empty()) return false;
  if (!absl::IsNotFound(status) && !absl::IsDataLoss(status)) return false;
  const std::string& last = options_.fallback_checkpoint;
  SetResult(last);
  End(RunEnd::Finalize(
          absl::StrCat("the best model, ", options_.final_checkpoint, ", cannot be read (",
                       status.message(), "); the last one, ", last, ", is the result"),
          last, ""),
      now);
  return true;
}

void JobRun::Open(const Now& now) {
  Enter(Phase::kLoading, now);
  owner_ = options_.owner;
  if (owner_.size() != partition_count_) {
    owner_ = EvenOwners(partition_count_, static_cast<uint32_t>(options_.ps.size()));
  }
  ShowShares();
  if (!options_.OnlyMeasures()) {
    // Evaluations that an earlier run made after its last checkpoint are made again.
    *status().mutable_evaluations() = {evaluations_.all().begin(), evaluations_.all().end()};
    status().set_step(position_.step());
    status().set_samples(position_.samples());
    bad_records_.Show();
  }
  origin_ = {.folder = start_folder_,
             .warm = warm_,
             .step = position_.step(),
             .next_push = position_.next_push()};
  OpenPs open;
  for (uint32_t i = 0; i < options_.ps.size(); ++i) {
    open.calls.emplace_back(options_.ps[i], OpenRequest(i));
  }
  actions_.Want(Lane::kForeground, std::move(open));
}

v1::OpenJobRequest JobRun::OpenRequest(uint32_t part) const {
  v1::OpenJobRequest request;
  request.set_job_id(record_->status().job_id());
  request.set_cluster(options_.cluster);
  request.set_generation(generation());
  request.set_seed(spec().seed());
  request.set_workers(static_cast<uint32_t>(options_.workers.size()));
  for (const RunNode& worker : options_.workers) request.add_incarnations(worker.incarnation);
  for (v1::PsTable& table : TablesOf(spec())) *request.add_tables() = std::move(table);
  request.set_map_version(generation());
  for (uint32_t p = 0; p < partition_count_; ++p) {
    if (owner_[p] == part) request.add_partitions(p);
  }
  if (options_.take_up.has_value()) {
    request.set_take_over(options_.take_up->generation);
    request.set_move(options_.take_up->move);
  }
  request.set_partition_count(partition_count_);
  request.set_checkpoint(origin_.folder);
  request.set_warm(origin_.warm);
  request.set_first_step(origin_.next_push);
  request.set_max_lead(MaxLeadOf(spec().consistency()));
  if (Logged()) request.set_push_log(spec().recovery().push_log());
  return request;
}

void JobRun::OnOpened(const ActionResult& result, const Now& now) {
  if (TookFallback(result.status, now)) return;
  const bool takes_up = options_.take_up.has_value();
  if (!result.status.ok()) {
    const std::string message(result.status.message());
    if (absl::IsResourceExhausted(result.status)) {
      RunEnd end = RunEnd::Restart(kNoRoom, message);
      end.without_room = result.failed_ps;
      return End(std::move(end), now);
    }
    // The rows to take over are gone with the generation before.
    if (takes_up && options_.take_up->generation > 0) return Restart("PsFailed", message, now);
    const bool own = !start_folder_.empty() && start_folder_ != spec().start().checkpoint();
    if (absl::IsDataLoss(result.status) && own && !options_.OnlyMeasures()) {
      // Go back one checkpoint further.
      *record_->add_damaged() = start_folder_;
      jobs_->AddEvent(record_, absl::StrCat("checkpoint ", start_folder_, " is damaged: ", message),
                      now.wall);
      return Restart("CheckpointDamaged", message, now);
    }
    if (absl::IsDataLoss(result.status)) return Fail("CheckpointError", message, now);
    if (absl::IsInvalidArgument(result.status) || absl::IsFailedPrecondition(result.status) ||
        absl::IsNotFound(result.status) || absl::IsUnimplemented(result.status)) {
      return Fail("PsError", message, now);
    }
    return Restart("PsFailed", message, now);
  }
  opened_ = true;
  if (options_.OnlyMeasures()) {
    // Measured below.
  } else if (takes_up) {
    jobs_->AddEvent(
        record_,
        absl::StrFormat("goes on at step %d with %d ps and %d workers; training stood for %.0f ms",
                        position_.step(), options_.ps.size(), options_.workers.size(),
                        absl::ToDoubleMilliseconds(now.monotonic - options_.take_up->since)),
        now.wall);
  } else if (start_folder_.empty()) {
    jobs_->AddEvent(record_,
                    absl::StrCat("started with ", options_.ps.size(), " ps and ",
                                 options_.workers.size(), " workers"),
                    now.wall);
  } else {
    jobs_->AddEvent(record_,
                    absl::StrCat(options_.resumed     ? "goes on from step "
                                 : record_->has_run() ? "restarted from step "
                                 : warm_              ? "warm start from the model of step "
                                                      : "resumed from step ",
                                 start_.step(), " (", start_folder_, ")"),
                    now.wall);
  }
  // From here on workers and ps may have changed something.
  record_->set_has_run(true);
  jobs_->Touch(record_);
  watch_.MayAsk(now.monotonic);
  BeginCounting(now);
}

void JobRun::BeginCounting(const Now& now) {
  Enter(Phase::kCounting, now);
  const bool train = IsTraining(status().task());
  const bool predict = status().task() == v1::PREDICT;
  for (const absl::string_view split : {"train", "validation", "test"}) {
    if ((split == "train" && !train) || (split == "validation" && predict)) continue;
    const bool counted =
        std::any_of(record_->files().begin(), record_->files().end(),
                    [split](const v1::SplitFiles& files) { return files.split() == split; });
    if (HasSplit(split) && !counted) split_counts_.Add(std::string(split));
  }
  if (split_counts_.done()) AfterCounting(now);
}

std::optional<v1::NextWorkResponse> JobRun::NextCount(Rank rank) {
  const std::optional<std::string> split = split_counts_.Next(rank);
  if (!split.has_value()) return std::nullopt;
  const v1::SplitSpec& files = *split == "train"        ? spec().data().train()
                               : *split == "validation" ? spec().data().validation()
                                                        : spec().data().test();
  v1::NextWorkResponse unit;
  *unit.mutable_count()->mutable_patterns() = files.files();
  return unit;
}

void JobRun::OnCounted(const std::string& split, const v1::UnitResult& result, const Now& now) {
  uint64_t records = 0;
  for (const v1::FileRecords& file : result.files()) records += file.records();
  if (records == 0) {
    return Fail("DataError",
                absl::StrCat("data.", split, ".files: no records in the ", result.files_size(),
                             " files that they name"),
                now);
  }
  const bool scored = split != "train" && status().task() != v1::PREDICT;
  const uint64_t most = kMaxEvaluationBytes / ScoreLayout::Of(spec()).sample_bytes();
  if (scored && records > most && !MeasuresInParts(spec())) {
    const std::vector<std::string> in_parts = MetricsInParts(spec());
    std::string other;
    if (!in_parts.empty()) {
      const bool auc = std::find(in_parts.begin(), in_parts.end(), "binned_auc") != in_parts.end();
      other = absl::StrCat(", or in evaluation.metrics none but ", absl::StrJoin(in_parts, ", "),
                           ", which lifts the limit", auc ? " (binned_auc for auc)" : "");
    }
    return Fail(
        "DataError",
        absl::StrCat("data.", split, ": ", records, " records, and an evaluation holds at most ",
                     most, "; name fewer files", other),
        now);
  }
  v1::SplitFiles* files = record_->add_files();
  files->set_split(split);
  *files->mutable_files() = result.files();
  jobs_->AddEvent(record_,
                  absl::StrCat(split, ": ", records, " records in ", result.files_size(), " files"),
                  now.wall);
  if (split_counts_.done()) AfterCounting(now);
}

void JobRun::AfterCounting(const Now& now) {
  if (status().task() == v1::PREDICT) return Enter(Phase::kPredicting, now);
  if (status().task() == v1::EVALUATE) {
    return BeginEvaluation(HasSplit("validation") ? "validation" : "test", Wanted::kTask, now);
  }
  if (options_.OnlyMeasures()) {
    last_checkpoint_.folder = options_.final_checkpoint;
    return BeginEvaluation("test", Wanted::kFinalTest, now);
  }
  BeginTraining(now);
}

}  // namespace tessera::master
