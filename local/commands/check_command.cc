#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/job/defaults.h"
#include "common/process/number_flags.h"
#include "google/protobuf/util/json_util.h"
#include "local/check.h"
#include "local/commands/local_commands.h"
#include "worker/data/data_source.h"

namespace tessera::local {
namespace {

using client::CommandContext;

struct Check {
  client::JobOption job;
  client::OutputOption output;
  std::string data;
  CheckOptions options;
};

std::string MiB(uint64_t bytes) { return absl::StrFormat("%.1f MiB", bytes / 1048576.0); }

std::string JsonText(const google::protobuf::Value& value) {
  std::string text;
  return google::protobuf::util::MessageToJsonString(value, &text).ok() ? text : "";
}

std::string ReportText(const std::string& file, const CheckReport& report,
                       const CheckOptions& options) {
  const MemoryEstimate& memory = report.memory;
  std::string text = absl::StrCat(report.model, report.model.empty() ? "" : "\n");
  if (!report.options.empty()) absl::StrAppend(&text, "options\n");
  for (const worker::OptionValue& option : report.options) {
    absl::StrAppend(&text, absl::StrFormat("  %-20s %s%s\n", option.name, JsonText(option.value),
                                           option.is_set ? "" : " (default)"));
  }
  for (const CheckReport::Split& split : report.splits) {
    absl::StrAppend(
        &text, absl::StrFormat("%-11s %s\n", split.name,
                               split.files.empty() ? "none" : absl::StrJoin(split.files, " ")));
  }
  absl::StrAppend(&text, "memory\n");
  for (const MemoryEstimate::Table& table : memory.tables) {
    absl::StrAppend(&text,
                    absl::StrFormat("  table %-14s %5d floats and %d of the optimizer a "
                                    "row: %d bytes\n",
                                    table.name, table.dim, table.slot_floats, table.row_bytes));
  }
  absl::StrAppend(&text, "  dense          ", memory.dense_floats, " floats\n",  //
                  "  largest batch  ", MiB(memory.batch_message_bytes), " of rows\n", "  each of ",
                  options.ps, " ps: about ", MiB(memory.ps_bytes), " for ", options.keys,
                  " different ids in every table (--keys)\n",  //
                  "  each of ", options.workers, options.workers == 1 ? " worker" : " workers",
                  ": about ", MiB(memory.worker_bytes), ", of which ", MiB(memory.window_bytes),
                  " are records (data.shuffle_window_records), and up to ",
                  MiB(worker::DataSource::kDefaultCacheBytes),
                  " of parsed records (--data-cache of tessera-worker)\n");
  if (memory.card_bytes > 0) {
    absl::StrAppend(&text, "  its card: about ", MiB(memory.card_bytes),
                    ", without what CUDA itself takes\n");
  }
  for (const std::string& warning : report.warnings) {
    absl::StrAppend(&text, "warning: ", warning, "\n");
  }
  return absl::StrCat(text, file, " is fine\n");
}

nlohmann::json ShapeJson(const worker::Shape& shape) {
  nlohmann::json dims = {"batch"};
  for (size_t i = 0; i < shape.rank(); ++i) dims.push_back(shape.dim(i));
  return dims;
}

// `shape` is that of the first output; `outputs` has all of a layer of several.
nlohmann::json LayerJson(const worker::Graph::Layer& layer) {
  nlohmann::json object = {{"name", layer.name},
                           {"op", layer.op},
                           {"inputs", layer.inputs},
                           {"shape", ShapeJson(layer.shapes[0])},
                           {"parameters", layer.trained_floats}};
  if (!layer.parameters_of.empty()) object["parameters_of"] = layer.parameters_of;
  for (size_t i = 0; layer.outputs.size() > 1 && i < layer.outputs.size(); ++i) {
    object["outputs"].push_back(
        {{"name", layer.outputs[i]}, {"shape", ShapeJson(layer.shapes[i])}});
  }
  return object;
}

nlohmann::json ReportJson(const CheckReport& report) {
  nlohmann::json object = {{"ok", true},
                           {"ps_bytes", report.memory.ps_bytes},
                           {"worker_bytes", report.memory.worker_bytes},
                           {"card_bytes", report.memory.card_bytes},
                           {"window_bytes", report.memory.window_bytes},
                           {"batch_message_bytes", report.memory.batch_message_bytes},
                           {"dense_floats", report.memory.dense_floats},
                           {"warnings", report.warnings},
                           {"tables", nlohmann::json::array()}};
  for (const MemoryEstimate::Table& table : report.memory.tables) {
    object["tables"].push_back({{"name", table.name},
                                {"dim", table.dim},
                                {"slot_floats", table.slot_floats},
                                {"row_bytes", table.row_bytes}});
  }
  for (const worker::Graph::Layer& layer : report.layers) {
    object["layers"].push_back(LayerJson(layer));
  }
  for (const worker::OptionValue& option : report.options) {
    object["options"][option.name] = nlohmann::json::parse(JsonText(option.value));
  }
  for (const CheckReport::Split& split : report.splits) object["files"][split.name] = split.files;
  return object;
}

void Run(const Check& check, CommandContext& context) {
  CheckOptions options = check.options;
  if (!check.data.empty()) options.data_root = check.data;
  const absl::StatusOr<LoadedJob> job = check.job.Load();
  if (!job.ok()) return context.Fail(job.status());
  const absl::StatusOr<CheckReport> report = CheckJob(*job, options);
  if (!report.ok()) return context.Fail(report.status());
  if (check.output.json()) return context.Print(ReportJson(*report));
  context.Print(ReportText(check.job.file, *report, options));
}

}  // namespace

void AddCheck(CLI::App& app, CommandContext& context) {
  CLI::App* command =
      app.add_subcommand("check", "Check a job file, and say what memory the job will need");
  const auto check = std::make_shared<Check>();
  check->job.Add(*command);
  command->add_option("--data", check->data,
                      "folder of the data: reads each file once, to count its records");
  command->add_option("--ps", check->options.ps, "parameter servers to check and estimate for")
      ->transform(WholeNumber(kMaxProcesses, /*least=*/1))
      ->capture_default_str();
  command->add_option("--workers", check->options.workers, "workers to check and estimate for")
      ->transform(WholeNumber(kMaxProcesses, /*least=*/1))
      ->capture_default_str();
  command
      ->add_option("--keys", check->options.keys, "different ids in every table, to estimate for")
      ->transform(WholeNumber(uint64_t{1} << 40, /*least=*/1))
      ->capture_default_str();
  check->output.Add(*command);
  command->footer(
      R"(Checks fields, ranges, references, the model's graph, whether so many workers may train it and, with --data, the
files; prints the graph and the memory of each process. Exit code 2 and the line that is wrong where something is.

Examples:
  tessera check deploy/jobs/quickstart.yaml
  tessera check job.yaml --data DIR --ps 2 --workers 2 --keys 50000000)");
  command->callback([check, &context] { Run(*check, context); });
}

}  // namespace tessera::local
