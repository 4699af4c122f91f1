#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"

namespace tessera::client {

void AddCancel(CLI::App& app, CommandContext& context) {
  struct Cancel {
    std::string job_id;
    MasterOption master;
    OutputOption output;
  };
  CLI::App* command = app.add_subcommand("cancel", "End a job");
  const auto cancel = std::make_shared<Cancel>();
  command->add_option("JOB", cancel->job_id, "the job's id, as `tessera list` shows it")
      ->required();
  cancel->master.Add(*command, context);
  cancel->output.Add(*command);
  command->footer(
      R"(The job ends soon after, as Failed with the reason Cancelled; its checkpoints stay, and another job can
go on from them (start.checkpoint).

Example:
  tessera cancel clicks-1)");
  command->callback([cancel, &context] {
    const absl::Status status = cancel->master.Client(context)->Cancel(cancel->job_id);
    if (!status.ok()) return context.Fail(status);
    if (cancel->output.json()) {
      return context.Print(nlohmann::json{{"job_id", cancel->job_id}, {"cancelled", true}});
    }
    context.Print(absl::StrCat("cancelled ", cancel->job_id));
  });
}

}  // namespace tessera::client
