#include "common/version.h"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"

namespace tessera::client {

void AddVersion(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("version", "Print the version of this program");
  const auto output = std::make_shared<OutputOption>();
  output->Add(*command);
  command->footer(R"(Processes of different protocol numbers refuse each other.

Example:
  tessera version)");
  command->callback([output, &context] {
    if (output->json()) {
      return context.Print(nlohmann::json{{"version", kVersion}, {"protocol", kProtocolVersion}});
    }
    context.Print(absl::StrCat("tessera ", kVersion, ", protocol ", kProtocolVersion));
  });
}

}  // namespace tessera::client
