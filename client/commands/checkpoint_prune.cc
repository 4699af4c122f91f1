#include "absl/strings/str_cat.h"
#include "client/commands/checkpoint_commands.h"
#include "common/checkpoint/prune.h"
#include "common/file_system.h"
#include "common/process/number_flags.h"

namespace tessera::client {
namespace {

using nlohmann::json;

struct PruneCommand {
  std::string folder;
  PruneOptions options;
  bool dry_run = false;
  OutputOption output;
};

void Run(const PruneCommand& prune, CommandContext& context) {
  const UntilInterrupted keep_going(context);
  const auto plan = PlanPrune(PosixFileSystem(), prune.folder, prune.options, keep_going);
  if (!plan.ok()) return context.Fail(plan.status());
  if (!prune.dry_run) {
    const absl::Status pruned = Prune(PosixFileSystem(), prune.folder, *plan, keep_going);
    if (!pruned.ok()) return context.Fail(pruned);
  }
  const char* const removed = prune.dry_run ? "would go" : "removed";
  json list = json::array();
  std::string text;
  for (const PruneStep& step : *plan) {
    list.push_back({{"name", step.name}, {"remove", step.remove}, {"reason", step.reason}});
    absl::StrAppend(&text, step.name, "  ", step.remove ? removed : "kept", ": ", step.reason,
                    "\n");
  }
  if (prune.output.json()) {
    return context.Print(json{{"dry_run", prune.dry_run}, {"checkpoints", list}});
  }
  context.Print(text);
}

}  // namespace

void AddCheckpointPrune(CLI::App& parent, CommandContext& context) {
  CLI::App* command = parent.add_subcommand("prune", "Remove old checkpoints of a job");
  const auto prune = std::make_shared<PruneCommand>();
  command->add_option("JOB_FOLDER", prune->folder, "such as checkpoints/clicks-1")->required();
  command->add_option("--keep", prune->options.keep, "how many of the newest stay")
      ->required()
      ->transform(WholeNumber(uint64_t{1} << 32, /*least=*/1));
  command->add_flag("--dry-run", prune->dry_run, "say what would go, and remove nothing");
  command->add_flag(
      "--job-stopped", prune->options.job_stopped,
      "nobody writes there now: half-written folders newer than the newest checkpoint go too");
  prune->output.Add(*command);
  command->footer(
      R"(Besides the newest, the best one and the newest that verifies always stay; half-written folders go. Where none verifies
nothing is removed, with exit code 1. Keep what other jobs start from (start.checkpoint) elsewhere: prune does not know of them.

Examples:
  tessera checkpoint prune checkpoints/clicks-1 --keep 3 --dry-run
  tessera checkpoint prune checkpoints/clicks-1 --keep 1 --job-stopped)");
  command->callback([prune, &context] { Run(*prune, context); });
}

}  // namespace tessera::client
