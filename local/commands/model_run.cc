#include "local/commands/model_run.h"

#include <algorithm>
#include <thread>

#include "common/job/validate.h"
#include "common/status_macros.h"
#include "local/commands/work_folder.h"

namespace tessera::local {
namespace {

using client::CommandContext;

absl::StatusOr<LocalRun::Options> OptionsOf(const ModelRun& model, const std::string& work_folder,
                                            const PrepareModelRun& prepare) {
  TESSERA_ASSIGN_OR_RETURN(LoadedJob job, model.job.Load());
  LocalRun::Options run;
  ClusterOptions& cluster = run.cluster;
  TESSERA_ASSIGN_OR_RETURN(cluster.data_root, ExistingFolder("--data", model.data));
  cluster.work_folder = work_folder;
  cluster.checkpoint_root = work_folder + "/checkpoints";
  cluster.output_root = work_folder + "/output";
  cluster.compute_threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  run.in_process = !model.processes;
  run.request.set_workers(1);
  run.request.set_ps(1);
  TESSERA_RETURN_IF_ERROR(prepare(job, run));
  TESSERA_RETURN_IF_ERROR(LinkCheckpoint(model.checkpoint, cluster.checkpoint_root));
  job.spec.mutable_start()->set_checkpoint(kLinkedCheckpoint);
  *run.request.mutable_spec() = job.spec;
  TESSERA_RETURN_IF_ERROR(job.sources.Locate(ValidateSubmit(run.request)));
  return run;
}

}  // namespace

void ModelRun::Add(CLI::App& command) {
  job.Add(command);
  command.add_option("--checkpoint", checkpoint, "folder of the model's checkpoint")->required();
  command.add_option("--data", data, "folder that the job's files lie in")->capture_default_str();
  command.add_flag("--processes", processes, "use separate processes instead of this one");
  command.add_flag("--json", json, "print the result as one object, for scripts");
}

std::optional<v1::JobStatus> RunModel(const ModelRun& model, CommandContext& context,
                                      const PrepareModelRun& prepare) {
  const auto fail = [&context](const absl::Status& status) {
    context.Fail(status);
    return std::nullopt;
  };
  const absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Make();
  if (!folder.ok()) return fail(folder.status());
  absl::StatusOr<LocalRun::Options> options = OptionsOf(model, folder->path(), prepare);
  if (!options.ok()) return fail(options.status());
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
    return std::nullopt;
  }
  context.exit_code = run.cancelled() ? client::kExitInterrupted : client::ExitCodeOf(*status);
  // Names the checkpoint itself: the link to it goes with the temporary folder.
  status->set_checkpoint(model.checkpoint);
  return *std::move(status);
}

}  // namespace tessera::local
