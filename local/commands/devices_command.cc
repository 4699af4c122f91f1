#include "absl/strings/str_cat.h"
#include "cuda/devices.h"
#include "local/commands/local_commands.h"

namespace tessera::local {

void AddDevices(CLI::App& app, client::CommandContext& context) {
  CLI::App* command =
      app.add_subcommand("devices", "List the GPUs that a worker on this machine can use");
  const auto output = std::make_shared<client::OutputOption>();
  output->Add(*command);
  command->footer(
      R"(The first word of a line is what train.device of a job and --device take. Exits with 1, and says why, where there is
none: no card, no driver, or a build without CUDA.

Example:
  tessera devices --output json)");
  command->callback([output, &context] {
    const auto devices = cuda::ListDevices();
    if (!devices.ok()) return context.Fail(devices.status());
    nlohmann::json list = nlohmann::json::array();
    for (const cuda::Device& device : *devices) {
      const std::string wish = absl::StrCat("cuda:", device.index);
      const std::string compute = absl::StrCat(device.compute_major, ".", device.compute_minor);
      list.push_back({{"device", wish},
                      {"name", device.name},
                      {"memory_bytes", device.memory_bytes},
                      {"compute_capability", compute}});
      if (output->json()) continue;
      context.Print(absl::StrCat(wish, "  ", device.name, ", ", device.memory_bytes >> 20,
                                 " MiB, compute capability ", compute));
    }
    if (output->json()) context.Print(list);
  });
}

}  // namespace tessera::local
