#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/job_json.h"

namespace tessera::client {
namespace {

struct Suspend {
  std::string job_id;
  bool watch = false;
  MasterOption master;
  OutputOption output;
};

void RunSuspend(const Suspend& suspend, CommandContext& context) {
  const std::unique_ptr<JobClient> client = suspend.master.Client(context);
  const auto interrupt = context.interrupt->Set([&] { client->Interrupt(); });
  const absl::Status status = client->Suspend(suspend.job_id);
  if (!status.ok()) return context.Fail(status);
  const absl::StatusOr<v1::JobStatus> job =
      suspend.watch ? client->AwaitSuspended(suspend.job_id) : client->Get(suspend.job_id);
  if (!job.ok()) return context.Fail(job.status());
  const bool suspended = job->state() == v1::SUSPENDED;  // at once if the job was in the queue
  if (suspend.output.json()) {
    return context.Print(nlohmann::json{{"job_id", suspend.job_id}, {"suspended", suspended}});
  }
  context.Print(absl::StrCat(suspend.job_id,
                             suspended ? " is suspended" : " is suspended at its next barrier",
                             "; `tessera resume ", suspend.job_id, "` queues it again"));
}

void RunResume(const Suspend& resume, CommandContext& context) {
  const absl::Status status = resume.master.Client(context)->Resume(resume.job_id);
  if (!status.ok()) return context.Fail(status);
  if (resume.output.json()) {
    return context.Print(nlohmann::json{{"job_id", resume.job_id}, {"resumed", true}});
  }
  context.Print(absl::StrCat("resumed ", resume.job_id, "; next: tessera watch ", resume.job_id));
}

}  // namespace

void AddSuspend(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("suspend", "Stop a job for a while, losing nothing");
  const auto suspend = std::make_shared<Suspend>();
  command->add_option("JOB", suspend->job_id, "the job's id, as `tessera list` shows it")
      ->required();
  command->add_flag("--watch", suspend->watch, "return when it is suspended");
  suspend->master.Add(*command, context);
  suspend->output.Add(*command);
  command->footer(
      R"(The job trains to its next barrier, cuts a checkpoint, and when that is written gives up its ps and
workers, which may be stopped or are free for other jobs. It stays Suspended, over restarts of the
master too, until `tessera resume`, or `tessera cancel`. If the checkpoint cannot be written, it runs on, and
an event says so (`tessera describe`). A job in the queue leaves it at once.

Examples:
  tessera suspend clicks-1
  tessera suspend clicks-1 --watch && echo "its processes are free")");
  command->callback([suspend, &context] { RunSuspend(*suspend, context); });
}

void AddResume(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("resume", "Let a suspended job go on");
  const auto resume = std::make_shared<Suspend>();
  command->add_option("JOB", resume->job_id, "the job's id, as `tessera list` shows it")
      ->required();
  resume->master.Add(*command, context);
  resume->output.Add(*command);
  command->footer(
      R"(The job queues again and goes on from the checkpoint that suspending it cut, on whatever ps and workers are
here then: as many as it had, or, where it was submitted without --ps, on all ps that live, and, where it was
submitted without --workers, on all workers that are free. A sync job keeps its number of workers, and ends with
the bits of one that was never suspended. One that is only about to be suspended runs on.

Example:
  tessera resume clicks-1)");
  command->callback([resume, &context] { RunResume(*resume, context); });
}

}  // namespace tessera::client
