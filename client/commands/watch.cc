#include "client/commands/commands.h"
#include "client/job_json.h"
#include "common/job/job_state.h"

namespace tessera::client {
namespace {

struct Watch {
  std::string job_id;
  MasterOption master;
  OutputOption output;
};

void Run(const Watch& watch, CommandContext& context) {
  const std::unique_ptr<JobClient> client = watch.master.Client(context);
  const auto interrupt = context.interrupt->Set([&] { client->Interrupt(); });
  ProgressDisplay display(DisplayOn(context.err));
  const absl::StatusOr<v1::JobStatus> ended =
      client->Watch(watch.job_id, [&](const v1::JobStatus& status) {
        if (watch.output.json()) {
          if (!HasEnded(status.state())) context.Print(JobJson(status));
          if (context.out_failed) client->Interrupt();
        } else {
          display.Show(status);
        }
      });
  if (context.out_failed) return;
  if (!ended.ok()) return context.Fail(ended.status());
  if (watch.output.json()) {
    context.Print(SummaryJson(*ended));
  } else {
    context.Print(SummaryText(*ended));
  }
  context.exit_code = ExitCodeOf(*ended);
}

}  // namespace

void AddWatch(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("watch", "Show a job's progress until it has ended");
  const auto watch = std::make_shared<Watch>();
  command->add_option("JOB", watch->job_id, "the job's id, as `tessera list` shows it")->required();
  watch->master.Add(*command, context);
  watch->output.Add(*command);
  command->footer(
      R"(Goes on over restarts of the master. Ctrl-C ends the watching, not the job. Exit code: the job's.
With --output json every line is one object, the last one the job's summary.

Examples:
  tessera watch clicks-1
  tessera watch clicks-1 --output json | tail -1)");
  command->callback([watch, &context] { Run(*watch, context); });
}

}  // namespace tessera::client
