#include "common/job/validate.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/match.h"
#include "common/job/defaults.h"
#include "common/job/optimizer.h"
#include "common/job/tasks.h"
#include "common/job/trained_row_age.h"
#include "common/job/validate_parts.h"
#include "common/job/wire_type.h"
#include "common/rpc/channels.h"
#include "common/status_macros.h"

namespace tessera {
namespace {

using validate::Wrong;

absl::Status Name(const char* field, const std::string& name) {
  const bool good = !name.empty() && name.size() <= 63 && name[0] != '-' &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
                    });
  if (good) return absl::OkStatus();
  return Wrong(field,
               name.empty() ? "missing" : absl::StrCat("'", name.substr(0, 100), "' is no name"),
               "; expected 1 to 63 lower-case letters, digits and '-', such as 'clicks-2'");
}

absl::Status Start(const v1::StartSpec& start) {
  if (start.checkpoint().empty()) {
    if (!start.warm()) return absl::OkStatus();
    return Wrong("start.warm", "needs start.checkpoint, the folder to take parameters from");
  }
  return validate::Path(start.checkpoint(), "start.checkpoint");
}

absl::Status Priority(int32_t priority) {
  constexpr int32_t kMost = 1000;
  if (priority >= -kMost && priority <= kMost) return absl::OkStatus();
  return Wrong("priority", "found ", priority, "; expected ", -kMost, " to ", kMost);
}

// Bounds the counts that the checks below multiply in nested loops, and those whose values statuses
// hold.
absl::Status Counts(const v1::JobSpec& spec) {
  constexpr size_t kMostTasks = 256, kMostMetrics = 1000;
  const size_t tasks = spec.model().tasks_size();
  if (tasks > kMostTasks) {
    return Wrong("model.tasks", "found ", tasks, "; expected at most ", kMostTasks);
  }
  if (const uint32_t labels = LabelColumns(spec.data()); labels > kMostTasks) {
    return Wrong("data.columns", "found ", labels, " of role label; expected at most ", kMostTasks);
  }
  size_t metrics = 0;
  for (const std::string& metric : spec.evaluation().metrics()) {
    metrics += absl::StrContains(metric, '/') ? 1 : std::max<size_t>(1, tasks);
  }
  if (metrics <= kMostMetrics) return absl::OkStatus();
  return Wrong("evaluation.metrics", "found ", spec.evaluation().metrics_size(), " for ",
               std::max<size_t>(1, tasks), " tasks, ", metrics, " in all; expected at most ",
               kMostMetrics, " (METRIC/TASK is of one task)");
}

// Only for jobs whose ranks step together; windows of async jobs hold whole batches, whatever their
// size. `workers` 0: not known.
absl::Status BatchFitsTheWindow(const v1::JobSpec& spec, uint32_t workers) {
  const uint64_t window = ShuffleWindowRecords(spec.data());
  const uint64_t batch = spec.train().batch_size();
  if (!StepsTogether(spec.consistency()) || workers == 0 || window * workers >= batch) {
    return absl::OkStatus();
  }
  return Wrong("data.shuffle_window_records", "found ", window,
               spec.data().shuffle_window_records() == 0 ? " (the default)" : "", " of each of ",
               workers, " workers, fewer in all than train.batch_size: ", batch,
               "; batches are made of a window's records, and none would be full: set it to ",
               (batch + workers - 1) / workers, " or more");
}

}  // namespace

BatchRowBytes BatchRowBytesOf(const v1::JobSpec& spec, uint64_t samples,
                              absl::Span<const double> ids) {
  std::map<std::string, const v1::TableSpec*> tables;
  for (const v1::TableSpec& table : spec.tables()) tables[table.name()] = &table;
  double in_memory = 0, on_wire = 0;  // double: sums do not wrap
  for (int i = 0; i < spec.data().columns_size(); ++i) {
    const v1::ColumnSpec& column = spec.data().columns(i);
    const bool sequence = column.pooling() == v1::SEQUENCE;
    double each = sequence ? column.max_length() : 1;
    if (!ids.empty()) {
      const double seen = ids[static_cast<size_t>(i)];
      each = sequence ? std::min(seen, each) : seen;
    }
    for (const std::string& name : column.table()) {
      const auto found = tables.find(name);
      if (found == tables.end()) continue;
      const v1::TableSpec& table = *found->second;
      const double rows = std::ceil(each * static_cast<double>(samples));
      in_memory += rows * (sizeof(uint64_t) + double{sizeof(float)} * table.dim());
      on_wire += rows * static_cast<double>(sizeof(uint64_t) + WireRowBytes(table));
    }
  }
  constexpr double kMost = 1e18;
  return {.in_memory = static_cast<uint64_t>(std::min(in_memory, kMost)),
          .on_wire = static_cast<uint64_t>(std::min(on_wire, kMost))};
}

uint64_t SamplesOfAWorker(const v1::JobSpec& spec, uint32_t workers) {
  const uint64_t batch = spec.train().batch_size();
  return StepsTogether(spec.consistency()) ? (batch + workers - 1) / workers : batch;
}

absl::Status ValidatePush(const v1::JobSpec& spec, uint32_t workers, uint32_t ps,
                          absl::Span<const double> ids) {
  if (workers == 0 || ps == 0) return absl::OkStatus();
  const uint64_t samples = SamplesOfAWorker(spec, workers);
  const uint64_t bytes = BatchRowBytesOf(spec, samples, ids).on_wire / ps;
  // A sixteenth is left free, for blocks of the dense parameters.
  constexpr uint64_t kRoom = kMaxPushBytes - kMaxPushBytes / 16;
  if (bytes <= kRoom) return absl::OkStatus();
  const double share = static_cast<double>(kRoom) / static_cast<double>(bytes);
  return Wrong("train.batch_size", "the rows of ", samples, " samples take ", bytes >> 20,
               " MiB in one push to each of ", ps, " ps, more than the ", kRoom >> 20,
               " MiB that fit; use batch_size ",
               std::max<uint64_t>(1, static_cast<uint64_t>(spec.train().batch_size() * share)),
               " or less, more ps, or tables of a smaller dim");
}

absl::Status CheckKnown(const v1::JobSpec& spec) {
  TESSERA_RETURN_IF_ERROR(validate::Values(spec, ""));
  return CheckLosses(spec);
}

absl::Status ValidateJobSpec(const v1::JobSpec& spec) {
  TESSERA_RETURN_IF_ERROR(Counts(spec));
  TESSERA_RETURN_IF_ERROR(CheckKnown(spec));  // the parts below need a known loss
  TESSERA_RETURN_IF_ERROR(Name("name", spec.name()));
  TESSERA_RETURN_IF_ERROR(validate::Tables(spec));
  TESSERA_RETURN_IF_ERROR(validate::Data(spec));
  TESSERA_RETURN_IF_ERROR(validate::Model(spec));
  TESSERA_RETURN_IF_ERROR(validate::Training(spec));
  TESSERA_RETURN_IF_ERROR(Start(spec.start()));
  TESSERA_RETURN_IF_ERROR(Priority(spec.priority()));
  if (!spec.team().empty()) TESSERA_RETURN_IF_ERROR(Name("team", spec.team()));
  return absl::OkStatus();
}

absl::Status ValidateWorkers(const v1::JobSpec& spec, uint32_t workers) {
  if (workers == 1 || !spec.train().row_cache().write_back()) return absl::OkStatus();
  const v1::ConsistencySpec& consistency = spec.consistency();
  if (consistency.sparse() == v1::BOUNDED && MaxLeadOf(consistency) < kLeastTrainedRowAge) {
    return Wrong("consistency.max_lead", "found ", MaxLeadOf(consistency), " and ", workers,
                 " workers", workers == 0 ? " (as many as there are)" : "",
                 "; with train.row_cache.write_back what one worker has made of a row is ",
                 kLeastTrainedRowAge, " batches old before others can have it; expected at least ",
                 kLeastTrainedRowAge, ", or 1 worker");
  }
  for (const v1::TableSpec& table : spec.tables()) {
    if (HasSummedSlots(table.optimizer())) continue;
    return Wrong(
        "workers", "found ", workers, workers == 0 ? " (as many as there are)" : "",
        ", expected 1: with train.row_cache.write_back what several workers have made of a "
        "row is added up, which sgd, adagrad without decay and row_wise_adagrad allow, and "
        "the optimizer of table ",
        table.name(), ", ", OptimizerName(table.optimizer()), ", does not");
  }
  return absl::OkStatus();
}

absl::Status ValidateProcesses(const v1::JobSpec& spec, uint32_t workers, uint32_t ps) {
  if (StepsTogether(spec.consistency()) && workers > spec.train().batch_size()) {
    return Wrong("workers", workers, " workers cannot share a batch of ", spec.train().batch_size(),
                 " samples; ask for fewer or raise train.batch_size");
  }
  TESSERA_RETURN_IF_ERROR(ValidateWorkers(spec, workers));
  TESSERA_RETURN_IF_ERROR(BatchFitsTheWindow(spec, workers));
  return ValidatePush(spec, workers, ps);
}

absl::Status ValidateSubmit(const v1::SubmitRequest& request) {
  if (!v1::Task_IsValid(request.task())) {
    return Wrong("task", "found number ", request.task(), "; expected train, predict or evaluate");
  }
  for (const auto& [name, number] :
       {std::pair("workers", request.workers()), std::pair("ps", request.ps())}) {
    if (number <= kMaxProcesses) continue;
    return Wrong(name, "found ", number, ", expected at most ", kMaxProcesses);
  }
  constexpr size_t kMaxSpecBytes = 1 << 20;
  if (const size_t bytes = request.spec().ByteSizeLong(); bytes > kMaxSpecBytes) {
    return Wrong("spec", "the job takes ", bytes, " bytes, more than the ", kMaxSpecBytes,
                 " that fit; name files by globs, and leave out what is not needed");
  }
  TESSERA_RETURN_IF_ERROR(ValidateJobSpec(request.spec()));
  const bool predicts = request.task() == v1::PREDICT;
  if (!predicts && !request.output().empty()) {
    return Wrong("output", "belongs to the task predict; leave it out");
  }
  if (IsTraining(request.task())) {
    return ValidateProcesses(request.spec(), request.workers(), request.ps());
  }
  if (request.spec().start().checkpoint().empty()) {
    return Wrong("start.checkpoint", "missing; ", predicts ? "prediction" : "evaluation",
                 " needs the folder of a checkpoint");
  }
  const v1::DataSpec& data = request.spec().data();
  if (!predicts) {
    if (!data.validation().files().empty() || !data.test().files().empty()) return absl::OkStatus();
    return Wrong("data.test.files", "empty, and so is data.validation.files; evaluation measures ",
                 "the model on these splits: name files that have labels");
  }
  if (data.test().files().empty()) {
    return Wrong("data.test.files", "empty; prediction reads the test split");
  }
  if (request.output().empty()) {
    return Wrong("output", "missing; expected the file to write predictions to");
  }
  return validate::NewFile(request.output(), "output");
}

}  // namespace tessera
