#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/commands.h"

namespace tessera::client {
namespace {

struct Scale {
  std::string job_id;
  uint32_t ps = 0;
  std::vector<std::string> drain;
  MasterOption master;
  OutputOption output;
};

void Run(const Scale& scale, CommandContext& context) {
  v1::ScaleRequest request;
  request.set_job_id(scale.job_id);
  request.set_ps(scale.ps);
  for (const std::string& name : scale.drain) request.add_drain(name);
  const absl::StatusOr<uint32_t> ps = scale.master.Client(context)->Scale(request);
  if (!ps.ok()) return context.Fail(ps.status());
  if (scale.output.json()) {
    return context.Print(
        nlohmann::json{{"job_id", scale.job_id}, {"ps", *ps}, {"drain", scale.drain}});
  }
  context.Print(absl::StrCat(scale.job_id, " goes to ", *ps, " ps",
                             scale.drain.empty() ? "" : " without ",
                             absl::StrJoin(scale.drain, ", "), "; tessera describe ", scale.job_id,
                             " says how far it is"));
}

}  // namespace

void AddScale(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("scale", "Give a running job more or fewer ps");
  const auto scale = std::make_shared<Scale>();
  command->add_option("JOB", scale->job_id, "the job's id, as `tessera list` shows it")->required();
  command->add_option("--ps", scale->ps, "how many ps it is to have")
      ->required()
      ->check(CLI::Range(1u, 1024u));
  scale->master.Add(*command);
  scale->output.Add(*command);
  command->footer(
      R"(The rows move while the job trains, and nothing is trained again; a sync job ends with the same bits. New
ps have to be started (tessera-ps); until so many are here, the job waits with the move and trains on. Of
more than are wanted those with the highest numbers leave, and may be stopped when `tessera describe`
shows no more `moving`.

Example:
  tessera scale clicks-1 --ps 3)");
  command->callback([scale, &context] { Run(*scale, context); });
}

void AddDrain(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("drain", "Take ps away from a running job");
  const auto scale = std::make_shared<Scale>();
  command->add_option("JOB", scale->job_id, "the job's id, as `tessera list` shows it")->required();
  command->add_option("PS", scale->drain, "names of ps, as `tessera describe` shows them")
      ->required();
  command
      ->add_option("--ps", scale->ps,
                   "how many ps it is to have, if others are to take their place; else so many "
                   "fewer")
      ->check(CLI::Range(1u, 1024u));
  scale->master.Add(*command);
  scale->output.Add(*command);
  command->footer(
      R"(As `tessera scale`: their rows move to the others while the job trains. They may be stopped when
`tessera describe` shows no more `moving`.

Examples:
  tessera drain clicks-1 ps-2
  tessera drain clicks-1 ps-0 --ps 3)");
  command->callback([scale, &context] { Run(*scale, context); });
}

}  // namespace tessera::client
