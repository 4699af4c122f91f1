#include "master/plan/training_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "common/job/defaults.h"
#include "common/status_macros.h"
#include "master/plan/plan_parts.h"

namespace tessera::master {
namespace {

// All shards of an epoch are in memory here at once, each with about 160 bytes.
constexpr uint64_t kMostShards = uint64_t{1} << 23;

absl::Status CheckShards(const std::vector<v1::FileRecords>& files, uint64_t records,
                         uint64_t shard_records) {
  uint64_t shards = 0;
  for (const v1::FileRecords& file : files) {
    shards += (file.records() + shard_records - 1) / shard_records;
  }
  if (shards <= kMostShards) return absl::OkStatus();
  // Each file's last shard may be short.
  const uint64_t whole = kMostShards - std::min<uint64_t>(files.size(), kMostShards - 1);
  return absl::InvalidArgumentError(
      absl::StrCat("data.shard_records: ", records, " records in shards of ", shard_records,
                   " are ", shards, " shards; expected at most ", kMostShards, "; use shards of ",
                   (records + whole - 1) / whole, " records or more"));
}

uint64_t NextMultiple(uint64_t step, uint64_t every) {
  return every == 0 ? std::numeric_limits<uint64_t>::max() : (step / every + 1) * every;
}
bool Divides(uint64_t every, uint64_t n) { return every != 0 && n % every == 0; }

// Position.epoch_files
uint64_t HashOf(const std::vector<v1::FileRecords>& files) {
  uint64_t hash = 1;
  for (const v1::FileRecords& file : files) {
    if (file.records() > 0) hash = Mix64(hash ^ file.records());
  }
  return hash;
}

// Whether the position, within an epoch, is of files with these records and of `windows`.
absl::Status CheckWithin(const v1::Position& at, const PlanOptions& options, uint32_t workers,
                         const WindowShapes& shapes,
                         const std::vector<std::vector<v1::RecordRange>>& windows) {
  bool fits = at.next_window() <= windows.size() &&
              (at.epoch_files() == 0 || at.epoch_files() == shapes.files);
  for (int i = 0; fits && i < at.open_size(); ++i) {
    const v1::OpenWindow& open = at.open(i);
    fits = open.window() < windows.size();
    if (!fits) break;
    const uint64_t records = CountRecords(windows[open.window()]), batch = options.batch_size;
    const uint64_t batches = options.sync ? SyncSteps(records, options.batch_size, workers)
                                          : (records + batch - 1) / batch;
    const uint64_t end = open.end_batch() > 0 ? open.end_batch() : batches;
    fits = open.next_batch() < end && end <= batches;
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "start.checkpoint: it was cut within an epoch of ",
      at.epoch_records() > 0 ? absl::StrCat(at.epoch_records()) : "other", " records, and the ",
      shapes.records, " of data.train are ",
      at.epoch_records() == shapes.records ? "in other files" : "not those",
      "; which of them that epoch has trained cannot be told: give the files as they were, start "
      "from a checkpoint of an epoch's end, or set start.warm"));
}

}  // namespace

PlanOptions PlanOptionsOf(const v1::JobSpec& spec, uint32_t workers) {
  PlanOptions options;
  options.sync = StepsTogether(spec.consistency());
  options.workers = workers;
  options.batch_size = spec.train().batch_size();
  options.seed = spec.seed();
  options.shard_records = ShardRecords(spec.data());
  options.shuffle_window_records = ShuffleWindowRecords(spec.data());
  options.epochs = spec.train().epochs();
  options.steps = spec.train().steps();
  if (spec.data().validation().files_size() > 0) {
    options.evaluate_every_steps = spec.evaluation().every_steps();
    options.evaluate_every_epochs = EvaluationEpochs(spec.evaluation());
  }
  // Longer units: at the end of each, a card's changes of its rows go back to the ps.
  if (spec.train().row_cache().write_back()) options.unit_seconds = 4;
  options.checkpoint_every_epochs = spec.checkpoint().every_epochs();
  options.checkpoint_every_steps = spec.checkpoint().every_steps();
  return options;
}

v1::PlanDue ToProto(const Due& due) {
  v1::PlanDue out;
  out.set_evaluate(due.evaluate);
  out.set_checkpoint(due.checkpoint);
  out.set_finished(due.finished);
  out.set_requested(due.requested);
  return out;
}

Due FromProto(const v1::PlanDue& due) {
  return {.evaluate = due.evaluate(),
          .checkpoint = due.checkpoint(),
          .finished = due.finished(),
          .requested = due.requested()};
}

uint64_t NextBarrierStep(const PlanOptions& options, uint64_t step) {
  uint64_t next = std::min(NextMultiple(step, options.evaluate_every_steps),
                           NextMultiple(step, options.checkpoint_every_steps));
  if (options.steps > step) next = std::min(next, options.steps);
  return next;
}

Due DueAtStep(const PlanOptions& options, uint64_t step) {
  Due due;
  due.evaluate = Divides(options.evaluate_every_steps, step);
  due.checkpoint = Divides(options.checkpoint_every_steps, step);
  due.finished = options.steps > 0 && step >= options.steps;
  return due;
}

Due DueAtEpochEnd(const PlanOptions& options, uint64_t epochs_done) {
  Due due;
  due.evaluate = Divides(options.evaluate_every_epochs, epochs_done);
  due.checkpoint = Divides(options.checkpoint_every_epochs, epochs_done);
  due.finished = options.epochs > 0 && epochs_done >= options.epochs;
  return due;
}

uint64_t WindowRecords(const PlanOptions& options, uint64_t records) {
  if (options.sync) return options.shuffle_window_records * options.workers;
  const uint64_t of_worker =
      options.workers == 1 ? records : records / (16 * uint64_t{options.workers});
  const uint64_t wanted = std::min(options.shuffle_window_records, of_worker);
  const uint64_t batch = options.batch_size;
  return std::max<uint64_t>(1, (wanted + batch - 1) / batch) * batch;
}

absl::StatusOr<std::unique_ptr<TrainingPlan>> NewTrainingPlan(const PlanOptions& options,
                                                              std::vector<v1::FileRecords> files,
                                                              const v1::Position& start,
                                                              const v1::PlanState* state) {
  uint64_t records = 0;
  for (const v1::FileRecords& file : files) records += file.records();
  if (records == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.train: the ", files.size(), " files hold no records"));
  }
  if (options.batch_size < (options.sync ? options.workers : 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("train.batch_size: ", options.batch_size, " samples cannot be divided among ",
                     options.workers, " workers; expected at least one for each"));
  }
  const auto shape = [&](uint32_t workers) {
    PlanOptions with = options;
    with.workers = workers;
    WindowOptions windows;
    windows.seed = options.seed;
    windows.window_records = WindowRecords(with, records);
    windows.shard_records = std::min(options.shard_records, windows.window_records);
    return windows;
  };
  WindowShapes shapes;
  shapes.first_epoch = start.epoch();
  shapes.first = shapes.later = shape(options.workers);
  TESSERA_RETURN_IF_ERROR(CheckShards(files, records, shapes.later.shard_records));
  shapes.first_workers = shapes.later_workers = options.workers;
  shapes.records = records;
  shapes.files = HashOf(files);
  v1::Position at = start;
  if (IsWithinEpoch(start)) {
    const uint32_t workers = start.window_workers() > 0 ? start.window_workers() : options.workers;
    WindowOptions had = shape(workers);
    const bool alike = start.window_records() == had.window_records;
    if (!alike || (options.sync && start.open_size() > 0 && workers != options.workers)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "start.checkpoint: it was cut within an epoch with shuffle windows of ",
          start.window_records(), " records, and this job's have ", shapes.later.window_records,
          "; run it with the same number of workers, data.shuffle_window_records and batch size, "
          "or set start.warm"));
    }
    had.begin = start.epoch_begin();
    if (start.epoch_shard_records() > 0) had.shard_records = start.epoch_shard_records();
    const auto windows = EpochWindows(files, start.epoch(), had);
    TESSERA_RETURN_IF_ERROR(CheckWithin(start, options, workers, shapes, windows));
    if (workers == options.workers || !options.sync) {
      shapes.first = had;
      shapes.first_workers = workers;
    } else {
      // Another number of ranks shares the rest of the epoch, from its first window that is not
      // done.
      shapes.first.shard_records = had.shard_records;
      shapes.first.begin = had.begin;
      for (uint64_t w = 0; w < start.next_window() && w < windows.size(); ++w) {
        shapes.first.begin += CountRecords(windows[w]);
      }
      at.set_next_window(0);
    }
  }
  const bool in_parts =
      start.open_size() > 1 || (start.open_size() == 1 && start.open(0).end_batch() > 0);
  if (options.sync && in_parts) {
    return absl::InvalidArgumentError(
        absl::StrCat("start.checkpoint: it was cut in async mode with ", start.open_size(),
                     " parts of windows under way, and sync mode has one window, whole to its end; "
                     "set start.warm"));
  }
  if (state != nullptr) {
    const size_t ranks =
        static_cast<size_t>(options.sync ? state->sync().next_size() : state->async().ranks_size());
    if (ranks != options.workers) {
      return absl::InvalidArgumentError(absl::StrCat("the plan's state is of ", ranks,
                                                     " ranks, and the job has ", options.workers));
    }
  }
  return options.sync ? NewSyncPlan(options, std::move(files), shapes, at, state)
                      : NewAsyncPlan(options, std::move(files), shapes, at, state);
}

}  // namespace tessera::master
