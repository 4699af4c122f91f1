#include <filesystem>

#include "absl/strings/str_cat.h"
#include "client/job_json.h"
#include "common/status_macros.h"
#include "local/commands/local_commands.h"
#include "local/commands/model_run.h"
#include "local/commands/work_folder.h"

namespace tessera::local {
namespace {

using client::CommandContext;

struct Predict {
  ModelRun model;
  std::string file;
};

void Run(const Predict& predict, CommandContext& context) {
  const absl::Status named = client::CheckOutputFile(
      predict.file, "the file for the predictions; --json prints the result as an object");
  if (!named.ok()) return context.Fail(named);
  const std::filesystem::path file = std::filesystem::absolute(predict.file);
  std::string folder;
  const auto prepare = [&](LoadedJob&, LocalRun::Options& run) {
    TESSERA_ASSIGN_OR_RETURN(folder, ExistingFolder("the folder of --output", file.parent_path()));
    run.cluster.output_root = folder;
    run.request.set_task(v1::PREDICT);
    run.request.set_output(file.filename());
    return absl::OkStatus();
  };
  std::optional<v1::JobStatus> status = RunModel(predict.model, context, prepare);
  if (!status.has_value()) return;
  status->set_output(absl::StrCat(folder, "/", file.filename().string()));
  if (!predict.model.json) return context.Print(client::SummaryText(*status));
  nlohmann::json object = client::SummaryJson(*status);
  object["output"] = status->state() == v1::SUCCEEDED ? status->output() : "";
  context.Print(object);
}

}  // namespace

void AddPredict(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("predict", "Write a model's predictions for a file");
  const auto predict = std::make_shared<Predict>();
  predict->model.Add(*command);
  command->add_option("--output", predict->file, "file to write predictions to")->required();
  command->footer(
      R"(Reads the job's test split and writes a header and one line "label,prediction" for every record, in the order
in which data.test.files lists the files (those of one glob by name); blank lines are no records. A bad record has a
line without values. With more of them than data.max_bad_records the job fails, and what is in --output already stays.

A prediction is the probability of label 1; with a loss of several classes the likeliest class, and its probability
follows ("label,prediction,probability"); with other losses the model's output. With tasks, each has these columns, in
the order of model.tasks: "label/TASK,prediction/TASK".

Columns of labels and weights may lack in files with a header, or be empty: so is "label" then, whatever its
default_value. How columns become inputs, and the loss, must be as in training. The checkpoint stays as it is.

Examples:
  tessera predict job.yaml --checkpoint runs/checkpoints/clicks-1/step-000000000500 --data DIR --output out.csv
  tessera predict job.yaml --checkpoint FOLDER --data DIR --output out.csv --set data.test.files=new.csv)");
  command->callback([predict, &context] { Run(*predict, context); });
}

}  // namespace tessera::local
