#include "client/commands/tessera_app.h"

#include <algorithm>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "common/process/no_thread.h"
#include "common/suggest.h"
#include "common/version.h"

namespace tessera::client {
namespace {

constexpr char kFooter[] = R"(First steps:
  tessera data generate --out data                  click data whose best AUC is known
  tessera local deploy/jobs/quickstart.yaml --data data --ps 2 --workers 2
  tessera COMMAND --help                             options and examples of a command

Exit codes:
  0    done; of a job: it succeeded
  1    the job failed, or what was asked for cannot be done
  2    bad usage, or a bad job file: the message says which line
  3    no such job, file or checkpoint
  4    what was compared is not equal
  5    a job was sent, and it is not known whether the master has it: look with `tessera list` before sending it again
  128  the same command may succeed later: the master cannot be reached, a disk or what stdout is written to is full
  130  interrupted by Ctrl-C or SIGTERM)";

// Suggests the command that was meant, which CLI11's error does not.
std::string UnknownCommand(const CLI::App& app, const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0].empty() || arguments[0][0] == '-') return "";
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  if (std::find(names.begin(), names.end(), arguments[0]) != names.end()) return "";
  return "unknown command '" + arguments[0] + "'; " + SuggestName(arguments[0], names);
}

}  // namespace

std::unique_ptr<CLI::App> NewTesseraApp(
    CommandContext& context,
    const std::vector<std::function<void(CLI::App&, CommandContext&)>>& more) {
  auto app = std::make_unique<CLI::App>(
      "Trains click-through and recommendation models on parameter servers.", "tessera");
  app->require_subcommand(1);
  app->set_version_flag("--version", kVersion);
  app->get_formatter()->column_width(34);
  for (const auto& add : more) add(*app, context);
  AddSubmit(*app, context);
  AddWatch(*app, context);
  AddList(*app, context);
  AddDescribe(*app, context);
  AddPlot(*app, context);
  AddCancel(*app, context);
  AddSuspend(*app, context);
  AddResume(*app, context);
  AddScale(*app, context);
  AddDrain(*app, context);
  AddBalance(*app, context);
  AddCheckpoint(*app, context);
  AddMetrics(*app, context);
  AddData(*app, context);
  AddVersion(*app, context);
  app->footer(kFooter);
  return app;
}

int RunTessera(CLI::App& app, CommandContext& context, std::vector<std::string> arguments) {
  if (const std::string unknown = UnknownCommand(app, arguments); !unknown.empty()) {
    std::fprintf(context.err, "error: %s\n", unknown.c_str());
    return kExitUsage;
  }
  // An empty value is often a script's variable that is not set; CLI11 would ignore the flag then.
  for (size_t i = 0; i < arguments.size(); ++i) {
    // "--set=PATH=" has a value, and clears a field.
    const bool is_flag =
        absl::StartsWith(arguments[i], "--") && arguments[i].find('=') == arguments[i].size() - 1;
    if (!arguments[i].empty() && !is_flag) continue;
    std::fprintf(context.err, "error: %s: the value is empty; give one, or leave the flag out\n",
                 is_flag || i == 0
                     ? absl::StrCat("argument ", i + 1, ", \"", arguments[i], "\"").c_str()
                     : arguments[i - 1].c_str());
    return kExitUsage;
  }
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    std::ostringstream out, err;
    const int code = app.exit(error, out, err);
    if (!out.str().empty()) context.Print(out.str());
    std::fputs(err.str().c_str(), context.err);
    context.exit_code = code == 0 ? kExitOk : kExitUsage;
  } catch (const std::system_error& error) {
    if (!IsNoThread(error)) throw;
    context.Fail(NoThread("this command"));
  }
  // What the command itself came to says more.
  return context.out_failed && context.exit_code == kExitOk ? kExitRetry : context.exit_code;
}

}  // namespace tessera::client
