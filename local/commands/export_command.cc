#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/checkpoint_commands.h"
#include "common/process/number_flags.h"
#include "local/commands/local_commands.h"
#include "local/export_model.h"

namespace tessera::local {
namespace {

using client::CommandContext;

struct Export {
  ExportOptions options;
  std::string data;
  bool json = false;
};

std::string ReportText(const ExportReport& report) {
  std::string text =
      absl::StrCat(report.file, ": step ", report.step, ", ", report.trained_floats,
                   " dense parameters\ninputs\n  ", absl::StrJoin(report.inputs, "\n  "),
                   "\noutputs\n  ", absl::StrJoin(report.outputs, "\n  "), "\ntables\n");
  for (const ExportReport::Table& table : report.tables) {
    absl::StrAppend(&text, "  ", table.name, ": ", table.rows, " rows of ", table.dim, ", ",
                    table.file.empty() ? "inlined" : "in " + table.file, "; a key without a row ",
                    "gives ", table.unseen_value);
    if (!table.unseen_drawn.empty()) {
      absl::StrAppend(&text, ", the mean, where the service draws each number (",
                      table.unseen_drawn, ")");
    }
    text += "\n";
  }
  return text;
}

nlohmann::json ReportJson(const ExportReport& report) {
  nlohmann::json object = {{"file", report.file},
                           {"step", report.step},
                           {"inputs", report.inputs},
                           {"outputs", report.outputs},
                           {"tables", nlohmann::json::array()}};
  for (const ExportReport::Table& table : report.tables) {
    object["tables"].push_back({{"name", table.name},
                                {"rows", table.rows},
                                {"dim", table.dim},
                                {"file", table.file},
                                {"unseen_value", table.unseen_value},
                                {"unseen_exact", table.unseen_drawn.empty()},
                                {"unseen_drawn", table.unseen_drawn}});
  }
  return object;
}

void Run(Export arguments, CommandContext& context) {
  const absl::Status named = client::CheckOutputFile(
      arguments.options.output, "the ONNX file; --json prints the result as an object");
  if (!named.ok()) return context.Fail(named);
  const client::UntilInterrupted keep_going(context);
  if (!arguments.data.empty()) arguments.options.data_root = arguments.data;
  const absl::StatusOr<ExportReport> report = ExportCheckpoint(arguments.options, keep_going);
  if (!report.ok()) return context.Fail(report.status());
  if (arguments.json) return context.Print(ReportJson(*report));
  context.Print(ReportText(*report));
}

}  // namespace

void AddExport(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("export", "Write a checkpoint's model as an ONNX file");
  const auto arguments = std::make_shared<Export>();
  ExportOptions& options = arguments->options;
  command->add_option("CHECKPOINT", options.checkpoint, "its folder")->required();
  command->add_option("--output", options.output, "file to write")->required();
  command
      ->add_option("--inline-rows", options.inline_rows,
                   "tables of more rows go into files of their own")
      ->transform(WholeNumber())
      ->capture_default_str();
  command->add_option("--data", arguments->data,
                      "folder that model.onnx_file lies in, of a model that came from one");
  command->add_flag("--json", arguments->json, "print the result as one object, for scripts");
  command->footer(
      R"(The file predicts what the service predicts. Its inputs are the job's columns, one value a sample in each row:
  dense    float32 [batch, width], as in the data
  sparse   int64 [batch, 1], the id; -1: none. A column with a separator: [batch, ids], padded with -1.
           Ids that are padding in the data (padding_id) are none.
           A string's id is its 64-bit key (worker/onnx/README.md)
Its outputs are `prediction` and, where labels are 0 and 1, `logit`, both [batch, 1].

A key that has no row, such as an id that was never trained, gives the mean of its table's initializer: what the service
gives where that is a constant. Else the service draws its numbers from the key, so the two predict a little apart for
such keys. The command says for each table how many rows there are, and what a key without one gives.
Rows of a table with wire_type: bfloat16 are rounded to it, as they are for the service.

A table with more than --inline-rows rows is written beside the file, for m.onnx as m.TABLE.safetensors, with the
tensors `keys` (uint64 [rows]) and `rows` (float32 [rows, dim]); in place of ids, the file then has the inputs
COLUMN.TABLE, float32 [batch, dim], each a column's pooled rows.

Examples:
  tessera export runs/checkpoints/clicks-1/step-000000000500 --output clicks.onnx
  tessera export FOLDER --output model.onnx --inline-rows 0)");
  command->callback([arguments, &context] { Run(*arguments, context); });
}

}  // namespace tessera::local
