#include "local/commands/model_run.h"

#include <algorithm>
#include <thread>

#include "common/job/validate.h"
#include "common/status_macros.h"
#include "local/commands/shown_run.h"
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
  const absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Make();
  if (!folder.ok()) {
    context.Fail(folder.status());
    return std::nullopt;
  }
  absl::StatusOr<LocalRun::Options> options = OptionsOf(model, folder->path(), prepare);
  if (!options.ok()) {
    context.Fail(options.status());
    return std::nullopt;
  }
  std::optional<v1::JobStatus> status = ShownRun(context).Run(*std::move(options));
  if (!status.has_value()) return std::nullopt;
  // Names the checkpoint itself: the link to it goes with the temporary folder.
  status->set_checkpoint(model.checkpoint);
  return status;
}

}  // namespace tessera::local
