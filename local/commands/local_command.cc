#include <algorithm>
#include <filesystem>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/curves.h"
#include "client/job_json.h"
#include "common/file_system.h"
#include "common/job/device.h"
#include "common/process/number_flags.h"
#include "common/status_macros.h"
#include "local/check.h"
#include "local/commands/local_commands.h"
#include "local/commands/shown_run.h"
#include "local/commands/work_folder.h"
#include "local/local_run.h"
#include "local/truth.h"

namespace tessera::local {
namespace {

using client::CommandContext;

struct Local {
  client::JobOption job;
  client::OutputOption output;
  std::string data = ".";
  std::string work_folder;
  std::string start;
  std::string truth;
  int ps = 1;
  int workers = 1;
  int threads = 0;
  std::string device = "auto";
  uint64_t data_cache_bytes = 0;
  bool in_process = false;
  bool resume = false;
};

// The needs of the run; Prepare finds all errors that can be found before anything starts.
struct Prepared {
  LocalRun::Options run;
  std::unique_ptr<FolderLock> lock;
  std::map<std::string, BestPossible> best;
  std::vector<std::string> warnings;  // CheckReport::warnings
};

absl::StatusOr<std::string> WorkFolder(const Local& local, const std::string& job_name) {
  if (local.work_folder.empty()) {
    if (local.resume) {
      return absl::InvalidArgumentError("--resume needs --work-dir, the folder of the run");
    }
    return NewRunFolder(job_name, absl::Now());
  }
  if (local.resume) return ExistingFolder("--work-dir", local.work_folder);
  TESSERA_RETURN_IF_ERROR(PosixFileSystem().CreateFolder(local.work_folder));
  return ExistingFolder("--work-dir", local.work_folder);
}

absl::StatusOr<Prepared> Prepare(const Local& local) {
  Prepared prepared;
  if (local.resume && !local.start.empty()) {
    return absl::InvalidArgumentError(
        "--start does not go with --resume: the job goes on from its last checkpoint, or from what "
        "it was first told to start from; leave --start out");
  }
  TESSERA_ASSIGN_OR_RETURN(LoadedJob job, local.job.Load());
  // A job file with start.warm needs start.checkpoint; for a resumed job the master knows it.
  if (!local.start.empty() || local.resume) {
    job.spec.mutable_start()->set_checkpoint(kLinkedCheckpoint);
  }
  v1::SubmitRequest& request = prepared.run.request;
  *request.mutable_spec() = job.spec;
  request.set_workers(static_cast<uint32_t>(local.workers));
  request.set_ps(static_cast<uint32_t>(local.ps));
  request.set_task(v1::TRAIN);
  // Checks only what is known at once; the workers count the records of the files.
  const CheckOptions check = {.data_root = local.data,
                              .read_data = false,
                              .ps = request.ps(),
                              .workers = request.workers()};
  TESSERA_ASSIGN_OR_RETURN(CheckReport report, CheckJob(job, check));
  prepared.warnings = std::move(report.warnings);
  ClusterOptions& cluster = prepared.run.cluster;
  TESSERA_ASSIGN_OR_RETURN(cluster.data_root, ExistingFolder("--data", local.data));
  if (!local.truth.empty()) {
    TESSERA_ASSIGN_OR_RETURN(prepared.best, ReadTruth(PosixFileSystem(), local.truth));
  }
  TESSERA_ASSIGN_OR_RETURN(cluster.work_folder, WorkFolder(local, job.spec.name()));
  TESSERA_ASSIGN_OR_RETURN(prepared.lock, FolderLock::Take(cluster.work_folder));
  cluster.checkpoint_root = absl::StrCat(cluster.work_folder, "/checkpoints");
  cluster.output_root = absl::StrCat(cluster.work_folder, "/output");
  cluster.ps = local.ps;
  cluster.workers = local.workers;
  const auto cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  cluster.compute_threads = local.threads > 0 ? local.threads : std::max(1, cores / local.workers);
  cluster.device = local.device;
  cluster.data_cache_bytes = local.data_cache_bytes;
  prepared.run.in_process = local.in_process;
  prepared.run.resume = local.resume;
  if (!local.start.empty()) {
    // Not earlier: an unfinished job of the folder, which keeps this one from being submitted, may
    // still start from the present link.
    TESSERA_ASSIGN_OR_RETURN(const std::string start, CheckpointFolder(local.start));
    prepared.run.before_submit = [start, root = cluster.checkpoint_root] {
      return LinkCheckpoint(start, root);
    };
  }
  return prepared;
}

// Writes the job's figures and its page into the run's folder. Returns the page's path; empty:
// nothing was trained.
absl::StatusOr<std::string> WriteCurves(const std::string& folder, const v1::JobStatus& status) {
  if (status.history().empty()) return "";
  const std::string path = absl::StrCat(folder, "/", status.job_id());
  const nlohmann::json job = client::JobJson(status);
  TESSERA_RETURN_IF_ERROR(
      WriteFileAtomically(PosixFileSystem(), path + ".json", client::Dump(job)));
  TESSERA_ASSIGN_OR_RETURN(const std::string page,
                           client::CurvesPage({job}, client::CurveAxis::kSteps));
  TESSERA_RETURN_IF_ERROR(WriteFileAtomically(PosixFileSystem(), path + ".html", page));
  return path + ".html";
}

std::string ResultText(const Local& local, const Prepared& prepared, const v1::JobStatus& status,
                       const std::string& curves) {
  std::string text = client::SummaryText(status);
  if (!curves.empty()) absl::StrAppend(&text, "  curves      ", curves, "\n");
  for (const auto& [split, best] : prepared.best) {
    const auto found = status.final_metrics().find(split);
    if (found == status.final_metrics().end()) continue;
    const auto auc = found->second.metrics().find("auc");
    if (auc == found->second.metrics().end()) continue;
    absl::StrAppend(&text, absl::StrFormat("%s AUC %.4f; the best that any model could reach on "
                                           "this data is %.4f\n",
                                           split, auc->second, best.auc));
  }
  if (status.checkpoint().empty()) return text;
  const std::string folder = status.checkpoint();
  absl::StrAppend(&text, "next:\n");
  if (!status.spec().data().test().files().empty()) {
    absl::StrAppend(&text, "  tessera predict ", local.job.file, " --checkpoint ", folder,
                    " --data ", local.data, " --output predictions.csv\n");
  }
  absl::StrAppend(&text, "  tessera checkpoint inspect ", folder, "\n");
  return text;
}

nlohmann::json ResultJson(const Prepared& prepared, const v1::JobStatus& status,
                          const std::string& curves) {
  nlohmann::json object = client::SummaryJson(status);
  object["work_dir"] = prepared.run.cluster.work_folder;
  object["curves"] = curves;
  for (const auto& [split, best] : prepared.best) {
    object["best_possible"][split] = {{"auc", best.auc}, {"logloss", best.logloss}};
  }
  return object;
}

void Run(const Local& local, CommandContext& context) {
  absl::StatusOr<Prepared> prepared = Prepare(local);
  if (!prepared.ok()) return context.Fail(prepared.status());
  const ClusterOptions& cluster = prepared->run.cluster;
  ShownRun shown(context);
  for (const std::string& warning : prepared->warnings)
    shown.Say(absl::StrCat("warning: ", warning));
  shown.Say(absl::StrCat("starting 1 master, ", local.ps, " ps, ", local.workers,
                         local.workers == 1 ? " worker" : " workers",
                         local.in_process ? " in this process" : " as separate processes",
                         "; folder: ", cluster.work_folder));
  const std::optional<v1::JobStatus> status = shown.Run(prepared->run);
  if (!status.has_value()) return;
  const absl::StatusOr<std::string> curves = WriteCurves(cluster.work_folder, *status);
  if (!curves.ok()) shown.Say(absl::StrCat("no curves: ", curves.status().message()));
  if (local.output.json()) {
    context.Print(ResultJson(*prepared, *status, curves.value_or("")));
  } else {
    context.Print(ResultText(local, *prepared, *status, curves.value_or("")));
  }
}

}  // namespace

void AddLocal(CLI::App& app, CommandContext& context) {
  CLI::App* command =
      app.add_subcommand("local", "Train a job on a cluster of its own, right here");
  const auto local = std::make_shared<Local>();
  local->job.Add(*command);
  // Scripts that give some may be given others behind (deploy/quickstart).
  command->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  command->add_option("--data", local->data, "folder that the job's files lie in")
      ->capture_default_str();
  command->add_option("--ps", local->ps, "parameter servers")
      ->transform(WholeNumber(64, /*least=*/1))
      ->capture_default_str();
  command->add_option("--workers", local->workers, "workers")
      ->transform(WholeNumber(64, /*least=*/1))
      ->capture_default_str();
  command->add_flag("--in-process", local->in_process,
                    "all in this process, over memory, for debugging and notebooks");
  command->add_option("--work-dir", local->work_folder,
                      "folder of the run: state, logs, checkpoints; default: a new one, "
                      "./tessera-runs/NAME-TIME");
  command->add_flag("--resume", local->resume,
                    "go on with the unfinished job of --work-dir, as it was submitted");
  command->add_option("--start", local->start,
                      "folder of a checkpoint to start from; resumes it, so that train.epochs and "
                      "train.steps count what it has already, or with --set start.warm=true takes "
                      "its parameters only; of a new job, not with --resume");
  command->add_option("--truth", local->truth,
                      "truth.json of `tessera data generate`: shows the best AUC possible beside "
                      "the one reached");
  command
      ->add_option("--threads", local->threads,
                   "of each worker's products; 0: the cores divided by the workers")
      ->transform(WholeNumber(1024));
  command->add_option("--device", local->device, "of jobs that say auto: auto, cpu, cuda, cuda:N")
      ->check(WrongDeviceFlag)
      ->capture_default_str();
  command
      ->add_option("--data-cache", local->data_cache_bytes,
                   "memory of each worker for parsed records, which later epochs need not "
                   "parse, e.g. 8GiB; 0: 1GiB")
      ->transform(ByteSize());
  local->output.Add(*command);
  command->footer(
      R"(Starts a master, ps and workers as separate processes on loopback, submits the job, shows its progress on
stderr, and ends them. A process that dies is started again and the job goes on. Ctrl-C cancels the job; a second one
ends everything at once. After a crash or a power cut:
  tessera local JOB.yaml --data DIR --work-dir FOLDER --resume
goes on from the last checkpoint; give it the same --ps and --workers.
Of an option that is given twice the last counts; each --set counts.
With --output json the last line of stdout is one object: state, metrics, steps, epochs, bad_records,
samples_per_second, seconds_to_first_step, checkpoint, ...

Examples:
  tessera data generate --out data
  tessera local deploy/jobs/quickstart.yaml --data data --ps 2 --workers 2 --truth data/truth.json
  tessera local job.yaml --data DIR --in-process --set train.epochs=1 --output json)");
  command->callback([local, &context] { Run(*local, context); });
}

}  // namespace tessera::local
