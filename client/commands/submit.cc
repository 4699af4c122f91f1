#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/job_json.h"
#include "common/job/defaults.h"
#include "common/job/validate.h"
#include "common/process/number_flags.h"
#include "common/status_macros.h"

namespace tessera::client {
namespace {

struct Submit {
  JobOption job;
  MasterOption master;
  OutputOption output;
  uint32_t workers = 0;
  uint32_t ps = 0;
  std::string predict;
  bool evaluate = false;
  bool watch = false;
};

absl::StatusOr<v1::SubmitRequest> Request(const Submit& submit, const CommandContext& context) {
  absl::StatusOr<LoadedJob> job = submit.job.Load();
  if (!job.ok()) return job.status();
  v1::SubmitRequest request;
  *request.mutable_spec() = job->spec;
  request.set_workers(submit.workers);
  request.set_ps(submit.ps);
  request.set_task(submit.evaluate          ? v1::EVALUATE
                   : submit.predict.empty() ? v1::TRAIN
                                            : v1::PREDICT);
  request.set_output(submit.predict);
  const absl::Status valid = job->sources.Locate(ValidateSubmit(request));
  if (!valid.ok()) return valid;
  // A network in a file is read by the workers.
  if (context.check_model != nullptr && job->spec.model().onnx_file().empty()) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> warnings, context.check_model(*job));
    for (const std::string& warning : warnings) {
      std::fprintf(context.err, "warning: %s\n", warning.c_str());
    }
  }
  return request;
}

void Run(const Submit& submit, CommandContext& context) {
  const absl::StatusOr<v1::SubmitRequest> request = Request(submit, context);
  if (!request.ok()) return context.Fail(request.status());
  const std::unique_ptr<JobClient> client = submit.master.Client(context);
  const auto interrupt = context.interrupt->Set([&] { client->Interrupt(); });
  const absl::StatusOr<std::string> job_id = client->Submit(*request);
  if (!job_id.ok()) return context.Fail(job_id.status());
  if (!submit.watch) {
    if (submit.output.json()) return context.Print(nlohmann::json{{"job_id", *job_id}});
    return context.Print(absl::StrCat("submitted ", *job_id, "; next: tessera watch ", *job_id));
  }
  std::fprintf(context.err, "submitted %s\n", job_id->c_str());
  ProgressDisplay display(DisplayOn(context.err));
  const absl::StatusOr<v1::JobStatus> ended = WatchWithProgress(*client, *job_id, display);
  if (!ended.ok()) return context.Fail(ended.status());
  if (submit.output.json()) {
    context.Print(SummaryJson(*ended));
  } else {
    context.Print(SummaryText(*ended));
  }
  context.exit_code = ExitCodeOf(*ended);
}

}  // namespace

void AddSubmit(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("submit", "Hand a job to the master");
  const auto submit = std::make_shared<Submit>();
  submit->job.Add(*command);
  submit->master.Add(*command, context);
  submit->output.Add(*command);
  command
      ->add_option("--workers", submit->workers,
                   "workers that the job needs; 0: as many as live when it starts")
      ->transform(WholeNumber(kMaxProcesses));
  command
      ->add_option("--ps", submit->ps,
                   "parameter servers that the job needs; 0: as many as live when it starts")
      ->transform(WholeNumber(kMaxProcesses));
  CLI::Option* const predict = command->add_option(
      "--predict", submit->predict,
      "do not train: write predictions for the test split to this file below the workers' "
      "--output-root; the job's start.checkpoint names the model");
  command
      ->add_flag("--evaluate", submit->evaluate,
                 "do not train: measure the model of the job's start.checkpoint on the validation "
                 "and test splits, on those that the job has")
      ->excludes(predict);
  command->add_flag("--watch", submit->watch, "show the progress until the job has ended");
  command->footer(
      R"(The job is checked here first, then it is durable at the master when the command returns.
Ctrl-C with --watch ends the watching, not the job.

Examples:
  tessera submit deploy/jobs/quickstart.yaml
  tessera submit job.yaml --set train.epochs=3 --set tables.emb.dim=8 --watch
  tessera submit job.yaml --set start.checkpoint=clicks-1/step-000000000500 --predict out.csv
  tessera submit job.yaml --set start.checkpoint=clicks-1/step-000000000500 --evaluate --watch)");
  command->callback([submit, &context] { Run(*submit, context); });
}

}  // namespace tessera::client
