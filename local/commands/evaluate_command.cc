#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/job_json.h"
#include "common/config/override.h"
#include "common/status_macros.h"
#include "local/commands/local_commands.h"
#include "local/commands/model_run.h"

namespace tessera::local {
namespace {

using client::CommandContext;

struct Evaluate {
  ModelRun model;
  std::string split;  // empty: all that the job has
  std::vector<std::string> files;
  std::vector<std::string> metrics;
};

// FIELD=['a', 'b'], as ApplyOverride takes it.
std::string ListAssignment(const std::string& field, const std::vector<std::string>& values) {
  const auto quote = [](std::string* out, const std::string& value) {
    absl::StrAppend(out, "'", absl::StrReplaceAll(value, {{"'", "''"}}), "'");
  };
  return absl::StrCat(field, "=[", absl::StrJoin(values, ", ", quote), "]");
}

// Leaves the job nothing to measure but `split`, and no rules of training: these need a validation
// split, and nothing is trained.
absl::Status MeasureOnly(const std::string& split, LoadedJob& job) {
  v1::DataSpec& data = *job.spec.mutable_data();
  const bool test = split == "test";
  if ((test ? data.test() : data.validation()).files().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--split ", split, ": data.", split,
                     ".files is empty; name files (--files), or another split"));
  }
  test ? data.clear_validation() : data.clear_test();
  job.spec.mutable_train()->clear_early_stopping();
  job.spec.mutable_train()->mutable_schedule()->clear_plateau();
  job.spec.mutable_checkpoint()->clear_keep_best();
  job.spec.mutable_evaluation()->clear_every_steps();
  job.spec.mutable_evaluation()->clear_every_epochs();
  return absl::OkStatus();
}

absl::Status Prepare(const Evaluate& evaluate, LoadedJob& job, LocalRun::Options& run) {
  if (!evaluate.metrics.empty()) {
    TESSERA_RETURN_IF_ERROR(
        ApplyOverride(ListAssignment("evaluation.metrics", evaluate.metrics), job));
    TESSERA_RETURN_IF_ERROR(ApplyOverride("evaluation.monitor=", job));
  }
  std::string split = evaluate.split;
  if (!evaluate.files.empty()) {
    if (split.empty()) split = "test";
    TESSERA_RETURN_IF_ERROR(
        ApplyOverride(ListAssignment(absl::StrCat("data.", split, ".files"), evaluate.files), job));
  }
  if (!split.empty()) TESSERA_RETURN_IF_ERROR(MeasureOnly(split, job));
  run.request.set_task(v1::EVALUATE);
  return absl::OkStatus();
}

// A line for each metric, and a column for each split.
std::string MetricsTable(const v1::JobStatus& status) {
  constexpr int kWidth = 14;
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const v1::Evaluation& evaluation : status.evaluations()) {
    for (std::string& name : client::MetricsInOrder(evaluation)) {
      if (seen.insert(name).second) names.push_back(std::move(name));
    }
  }
  size_t first = 7;  // "samples"
  for (const std::string& name : names) first = std::max(first, name.size());
  std::string text;
  const auto line = [&](const std::string& head, const auto& cell) {
    absl::StrAppendFormat(&text, "%-*s", static_cast<int>(first), head);
    for (const v1::Evaluation& evaluation : status.evaluations()) {
      absl::StrAppendFormat(&text, "%*s", kWidth, cell(evaluation));
    }
    text += "\n";
  };
  line("", [](const v1::Evaluation& evaluation) { return evaluation.split(); });
  line("samples",
       [](const v1::Evaluation& evaluation) { return absl::StrCat(evaluation.samples()); });
  for (const std::string& name : names) {
    line(name, [&name](const v1::Evaluation& evaluation) -> std::string {
      const double value = evaluation.metrics().at(name);
      return std::isnan(value) ? "undefined" : absl::StrFormat("%.6f", value);
    });
  }
  return text;
}

std::string ResultText(const v1::JobStatus& status) {
  if (status.state() != v1::SUCCEEDED) return client::SummaryText(status);
  std::string text =
      absl::StrCat(status.checkpoint(), ": step ", status.evaluations(0).step(), "\n");
  if (status.bad_records() > 0) {
    absl::StrAppend(&text, status.bad_records(), " bad records left out\n");
  }
  return text + MetricsTable(status);
}

void Run(const Evaluate& evaluate, CommandContext& context) {
  const std::optional<v1::JobStatus> status =
      RunModel(evaluate.model, context,
               [&](LoadedJob& job, LocalRun::Options& run) { return Prepare(evaluate, job, run); });
  if (!status.has_value()) return;
  if (!evaluate.model.json) return context.Print(ResultText(*status));
  nlohmann::json object = client::SummaryJson(*status);
  object["evaluations"] = client::EvaluationsJson(*status);
  context.Print(object);
}

}  // namespace

void AddEvaluate(CLI::App& app, CommandContext& context) {
  CLI::App* command =
      app.add_subcommand("evaluate", "Measure a trained model on files that have labels");
  const auto evaluate = std::make_shared<Evaluate>();
  evaluate->model.Add(*command);
  command
      ->add_option("--split", evaluate->split,
                   "measure this split alone; default: validation and test, those that the job has")
      ->check(CLI::IsMember({"validation", "test"}));
  command
      ->add_option("--files", evaluate->files,
                   "measure these files below --data, or globs, and no other, as the test split "
                   "(or --split); may be repeated")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option("--metrics", evaluate->metrics,
                   "what to measure in place of the job's evaluation.metrics, such as "
                   "auc,logloss,calibration; may be repeated")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->footer(
      R"(Reads the validation and test splits of the job, or what --split and --files name, and prints the metrics that the
job says (evaluation.metrics; empty: those of its loss), of every task. They are the values that a job which trains
measures: for the same checkpoint and files the same to the last bit, on the same kind of device with the same
train.batch_size (but rows that a table's expiry takes go as the checkpoint is cut, after the job measured its
validation split). Nothing is trained, and the checkpoint stays as it is.

Labels are needed, and weights where the job has a column of them; `tessera predict` takes files without. How columns
become inputs, and the loss, must be as in training. Bad records are left out up to data.max_bad_records.
--metrics takes what evaluation.metrics takes, with tasks also METRIC/TASK; gauc and those with @ need
evaluation.group_by. EvaluationSpec in proto/tessera/v1/job.proto says what each is of, and which values are better.

A table for people: a line for each metric, a column for each split. With --json one object, whose
metrics.SPLIT.METRIC has all digits; null where a metric is not defined, such as auc where all labels are alike.

Examples:
  tessera evaluate job.yaml --checkpoint runs/checkpoints/clicks-1/step-000000000500 --data DIR
  tessera evaluate job.yaml --checkpoint FOLDER --data DIR --files day-11.csv --metrics auc,calibration
  tessera evaluate job.yaml --checkpoint FOLDER --data DIR --metrics gauc,ndcg@10 --set evaluation.group_by=user --json
On a cluster: tessera submit job.yaml --set start.checkpoint=JOB/STEP --evaluate --watch)");
  command->callback([evaluate, &context] { Run(*evaluate, context); });
}

}  // namespace tessera::local
