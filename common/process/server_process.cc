#include "common/process/server_process.h"

#include <csignal>
#include <cstdlib>

#include "common/failpoint.h"
#include "common/log.h"
#include "common/mutex_checks.h"
#include "common/process/file_descriptors.h"
#include "common/status_macros.h"
#include "common/version.h"

namespace tessera {

void ServerProcess::AddFlags(CLI::App& app, const std::string* master) {
  app.set_version_flag("--version", kVersion);
  security_flags.AddForServer(app);
  app.add_option("--log-level", log_level, "what is logged, on standard error")
      ->capture_default_str()
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "off"}));
  if (master == nullptr) return;
  app.parse_complete_callback([this, master] {
    if (const absl::Status given = security_flags.Check(*master); !given.ok()) {
      throw CLI::ValidationError(std::string(given.message()));
    }
  });
}

std::optional<int> ServerProcess::Parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return std::nullopt;
}

absl::StatusOr<std::unique_ptr<Security>> ServerProcess::Begin(absl::string_view name) const {
  EndMutexChecks();
  // A write beyond the file size limit (ulimit -f) then fails instead of ending the process.
  std::signal(SIGXFSZ, SIG_IGN);
  // So does a line of the log that nobody reads any more, such as after Ctrl-C of `... | tee log`.
  std::signal(SIGPIPE, SIG_IGN);
  InitLog(name, log_level);
  TESSERA_RETURN_IF_ERROR(CheckFileDescriptors());
  TESSERA_RETURN_IF_ERROR(ArmFailpoints(std::getenv(kFailpointsVariable)));
  return security_flags.Load();
}

}  // namespace tessera
