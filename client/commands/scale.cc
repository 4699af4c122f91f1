#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/commands.h"
#include "common/job/defaults.h"
#include "common/process/number_flags.h"

namespace tessera::client {
namespace {

struct Scale {
  std::string job_id;
  bool balance = false;
  uint32_t ps = 0;
  uint32_t workers = 0;
  std::vector<std::string> drain;
  MasterOption master;
  OutputOption output;
};

void Run(const Scale& scale, CommandContext& context) {
  v1::ScaleRequest request;
  request.set_job_id(scale.job_id);
  request.set_ps(scale.ps);
  request.set_workers(scale.workers);
  request.set_balance(scale.balance);
  for (const std::string& name : scale.drain) request.add_drain(name);
  const absl::StatusOr<uint32_t> ps = scale.master.Client(context)->Scale(request);
  if (!ps.ok()) return context.Fail(ps.status());
  if (scale.output.json()) {
    nlohmann::json answer = {{"job_id", scale.job_id}, {"drain", scale.drain}};
    if (*ps > 0) answer["ps"] = *ps;
    if (scale.workers > 0) answer["workers"] = scale.workers;
    return context.Print(answer);
  }
  if (scale.balance) {
    return context.Print(absl::StrCat(scale.job_id, " balances its ", *ps, " ps; tessera describe ",
                                      scale.job_id, " says how far it is"));
  }
  std::vector<std::string> to;
  if (*ps > 0) to.push_back(absl::StrCat(*ps, " ps"));
  if (scale.workers > 0) to.push_back(absl::StrCat(scale.workers, " workers"));
  context.Print(absl::StrCat(scale.job_id, " goes to ", absl::StrJoin(to, " and "),
                             scale.drain.empty() ? "" : " without ",
                             absl::StrJoin(scale.drain, ", "), "; tessera describe ", scale.job_id,
                             " says how far it is"));
}

}  // namespace

void AddScale(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("scale", "Give a running job more or fewer ps or workers");
  const auto scale = std::make_shared<Scale>();
  command->add_option("JOB", scale->job_id, "the job's id, as `tessera list` shows it")->required();
  CLI::Option_group* const number = command->add_option_group("how many");
  number->add_option("--ps", scale->ps, "how many ps it is to have")
      ->transform(WholeNumber(kMaxProcesses, /*least=*/1));
  number->add_option("--workers", scale->workers, "how many workers it is to have")
      ->transform(WholeNumber(kMaxProcesses, /*least=*/1));
  number->require_option(1, 2);
  scale->master.Add(*command, context);
  scale->output.Add(*command);
  command->footer(
      R"(Ps: the rows move while the job trains, and nothing is trained again; a sync job ends with the same bits.
New ps have to be started (tessera-ps); until so many are here, the job waits with the move and trains on.
Of more than are wanted those with the highest numbers leave, and may be stopped when `tessera describe`
shows no more `moving`.

Workers: at a barrier the job cuts a checkpoint and goes on from it with so many. No sample is lost, none
counts twice. An async job changes at once; a sync job at the end of a shuffle window, and its model is from
there on that of so many workers, since they divide each batch. More than live are waited for.

Examples:
  tessera scale clicks-1 --ps 3
  tessera scale clicks-1 --workers 8)");
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
      ->transform(WholeNumber(kMaxProcesses, /*least=*/1));
  scale->master.Add(*command, context);
  scale->output.Add(*command);
  command->footer(
      R"(As `tessera scale`: their rows move to the others while the job trains. They may be stopped when
`tessera describe` shows no more `moving`.

Examples:
  tessera drain clicks-1 ps-2
  tessera drain clicks-1 ps-0 --ps 3)");
  command->callback([scale, &context] { Run(*scale, context); });
}

void AddBalance(CLI::App& app, CommandContext& context) {
  CLI::App* command =
      app.add_subcommand("balance", "Give the ps of a running job equal shares of its rows");
  const auto scale = std::make_shared<Scale>();
  scale->balance = true;
  command->add_option("JOB", scale->job_id, "the job's id, as `tessera list` shows it")->required();
  scale->master.Add(*command, context);
  scale->output.Add(*command);
  command->footer(
      R"(As `tessera scale`, with the ps that the job has: as few partitions as it takes move, so that each ps has
the same share of the rows' bytes and of their updates. The job's events say how much moves.

Example:
  tessera balance clicks-1)");
  command->callback([scale, &context] { Run(*scale, context); });
}

}  // namespace tessera::client
