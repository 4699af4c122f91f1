#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/job_json.h"
#include "common/file_system.h"
#include "common/job/validate.h"
#include "common/status_macros.h"
#include "local/commands/local_commands.h"
#include "local/commands/work_folder.h"
#include "local/local_run.h"

namespace tessera::local {
namespace {

using client::CommandContext;

struct Predict {
  client::JobOption job;
  std::string checkpoint;
  std::string data = ".";
  std::string file;
  bool processes = false;
  bool json = false;
};

absl::StatusOr<LocalRun::Options> Prepare(const Predict& predict, const std::string& work_folder) {
  TESSERA_RETURN_IF_ERROR(client::CheckOutputFile(
      predict.file, "the file for the predictions; --json prints the result as an object"));
  TESSERA_ASSIGN_OR_RETURN(LoadedJob job, predict.job.Load());
  LocalRun::Options run;
  ClusterOptions& cluster = run.cluster;
  TESSERA_ASSIGN_OR_RETURN(cluster.data_root, ExistingFolder("--data", predict.data));
  const std::filesystem::path file = std::filesystem::absolute(predict.file);
  TESSERA_ASSIGN_OR_RETURN(cluster.output_root,
                           ExistingFolder("the folder of --output", file.parent_path()));
  cluster.work_folder = work_folder;
  cluster.checkpoint_root = work_folder + "/checkpoints";
  cluster.compute_threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  run.in_process = !predict.processes;
  TESSERA_RETURN_IF_ERROR(LinkCheckpoint(predict.checkpoint, cluster.checkpoint_root));
  job.spec.mutable_start()->set_checkpoint(kLinkedCheckpoint);
  v1::SubmitRequest& request = run.request;
  *request.mutable_spec() = job.spec;
  request.set_workers(1);
  request.set_ps(1);
  request.set_task(v1::PREDICT);
  request.set_output(file.filename());
  TESSERA_RETURN_IF_ERROR(job.sources.Locate(ValidateSubmit(request)));
  return run;
}

void Run(const Predict& predict, CommandContext& context) {
  const absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Make();
  if (!folder.ok()) return context.Fail(folder.status());
  absl::StatusOr<LocalRun::Options> options = Prepare(predict, folder->path());
  if (!options.ok()) return context.Fail(options.status());
  absl::Mutex mu;
  client::ProgressDisplay display(client::DisplayOn(context.err));
  options->cluster.say = [&](const std::string& text) {
    absl::MutexLock lock(&mu);
    display.Say(text);
  };
  options->on_status = [&](const v1::JobStatus& status) {
    absl::MutexLock lock(&mu);
    display.Show(status);
  };
  LocalRun run(*options);
  absl::StatusOr<v1::JobStatus> status = absl::UnknownError("");
  {
    const auto interrupt = context.interrupt->Set([&run] { run.Cancel(); });
    status = run.Run();
  }
  if (!status.ok()) {
    context.Fail(status.status());
    if (run.cancelled()) context.exit_code = client::kExitInterrupted;
    return;
  }
  status->set_output(absl::StrCat(options->cluster.output_root, "/", options->request.output()));
  // Names the checkpoint itself: the link to it goes with the temporary folder.
  status->set_checkpoint(predict.checkpoint);
  if (predict.json) {
    nlohmann::json object = client::SummaryJson(*status);
    object["output"] = status->output();
    context.Print(object);
  } else {
    context.Print(client::SummaryText(*status));
  }
  context.exit_code = run.cancelled() ? client::kExitInterrupted : client::ExitCodeOf(*status);
}

}  // namespace

void AddPredict(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("predict", "Write a model's predictions for a file");
  const auto predict = std::make_shared<Predict>();
  predict->job.Add(*command);
  command->add_option("--checkpoint", predict->checkpoint, "folder of the model's checkpoint")
      ->required();
  command->add_option("--data", predict->data, "folder that the job's files lie in")
      ->capture_default_str();
  command->add_option("--output", predict->file, "file to write predictions to")->required();
  command->add_flag("--processes", predict->processes,
                    "use separate processes instead of this one");
  command->add_flag("--json", predict->json, "print the result as one object, for scripts");
  command->footer(
      R"(Reads the job's test split and writes one line "label,prediction" for every record, in the order in which
data.test.files lists the files (those of one glob by name); blank lines are no records. A bad record has a line without
values. With more of them than data.max_bad_records the job fails, and what is in --output already stays.

Columns of labels and weights may lack in files with a header, or be empty: so is "label" then, whatever its
default_value. How columns become inputs, and the loss, must be as in training. The checkpoint stays as it is.

Examples:
  tessera predict job.yaml --checkpoint runs/checkpoints/clicks-1/step-000000000500 --data DIR --output out.csv
  tessera predict job.yaml --checkpoint FOLDER --data DIR --output out.csv --set data.test.files=new.csv)");
  command->callback([predict, &context] { Run(*predict, context); });
}

}  // namespace tessera::local
