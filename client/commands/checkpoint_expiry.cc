#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands/checkpoint_commands.h"
#include "common/checkpoint/expiry_count.h"
#include "common/checkpoint/manifest.h"
#include "common/config/override.h"
#include "common/file_system.h"
#include "common/job/validate.h"
#include "common/status_macros.h"

namespace tessera::client {
namespace {

using nlohmann::json;

struct ExpiryCommand {
  std::string folder;
  std::vector<std::string> overrides;
  OutputOption output;
};

absl::StatusOr<std::vector<ExpiryCount>> Count(const ExpiryCommand& expiry, KeepGoing keep_going) {
  TESSERA_ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest,
                           ReadManifest(PosixFileSystem(), expiry.folder));
  LoadedJob job;
  job.spec = manifest.spec();
  for (const std::string& assignment : expiry.overrides) {
    TESSERA_RETURN_IF_ERROR(ApplyOverride(assignment, job));
  }
  if (!expiry.overrides.empty()) {
    TESSERA_RETURN_IF_ERROR(job.sources.Locate(ValidateJobSpec(job.spec)));
  }
  std::vector<const v1::TableSpec*> tables;
  for (const v1::TableSpec& table : job.spec.tables()) tables.push_back(&table);
  return CountExpiring(PosixFileSystem(), expiry.folder, tables, keep_going);
}

void Run(const ExpiryCommand& expiry, CommandContext& context) {
  const UntilInterrupted keep_going(context);
  const auto counts = Count(expiry, keep_going);
  if (!counts.ok()) return context.Fail(counts.status());
  json list = json::array();
  std::string text;
  for (const ExpiryCount& count : *counts) {
    list.push_back({{"name", count.table},
                    {"rows", count.rows},
                    {"would_expire", count.expired},
                    {"by_age", count.by_age},
                    {"by_frequency", count.by_frequency},
                    {"by_norm", count.by_norm}});
    const double share = count.rows == 0 ? 0
                                         : 100.0 * static_cast<double>(count.expired) /
                                               static_cast<double>(count.rows);
    absl::StrAppend(
        &text,
        absl::StrFormat("%s: %d of %d rows would go (%.1f%%): by age %d, by frequency %d, by "
                        "norm %d\n",
                        count.table, count.expired, count.rows, share, count.by_age,
                        count.by_frequency, count.by_norm));
  }
  if (expiry.output.json()) return context.Print(json{{"tables", list}});
  if (counts->empty()) {
    text =
        "no table has rules of expiry; try some with --set tables.TABLE.expiry.min_frequency=2 or "
        "the like";
  }
  context.Print(text);
}

}  // namespace

void AddCheckpointExpiry(CLI::App& parent, CommandContext& context) {
  CLI::App* command = parent.add_subcommand(
      "expiry", "Count the rows that rules of expiry would take, and take none");
  const auto expiry = std::make_shared<ExpiryCommand>();
  command->add_option("FOLDER", expiry->folder)->required();
  command
      ->add_option("--set", expiry->overrides,
                   "override a field of the checkpoint's job: PATH=VALUE; may be repeated")
      ->type_name("PATH=VALUE")
      ->allow_extra_args(false);
  expiry->output.Add(*command);
  command->footer(
      R"(The rules are those of the checkpoint's job with what --set changes of them, so that rules can be tried before a job has them. Of rows
that the job's own rules take a checkpoint has only those that came up while it was cut. A row that several rules take is counted by each,
and once in all. Exit code 0 whatever the counts.

Examples:
  tessera checkpoint expiry checkpoints/clicks-1/step-000000000500
  tessera checkpoint expiry FOLDER --set tables.embedding.expiry.min_frequency=3 --set tables.embedding.expiry.after_steps=100000)");
  command->callback([expiry, &context] { Run(*expiry, context); });
}

}  // namespace tessera::client
