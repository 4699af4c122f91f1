#pragma once

#include <memory>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "common/rpc/security.h"
#include "common/rpc/security_flags.h"

namespace tessera {

// What master, ps and worker do alike before they serve: some flags, and the start of the process.
struct ServerProcess {
  SecurityFlags security_flags;
  std::string log_level = "info";

  // --version, --log-level and those of SecurityFlags. Borrows this until the app has parsed.
  void AddFlags(CLI::App& app);

  // The code to exit with: 0 after --help or --version, 2 after wrong flags, none if the process is
  // to go on.
  static std::optional<int> Parse(CLI::App& app, int argc, char** argv);

  // Once, after Parse: starts the log, in whose lines the process is called `name`, takes files
  // that would be larger than they may for errors, raises the limit of open files, arms the
  // failpoints that the environment names, and loads what the flags say of security, which may be
  // null. Errors: CheckFileDescriptors', ArmFailpoints' and those of SecurityFlags::Load, which has
  // the `master` that is called.
  absl::StatusOr<std::unique_ptr<Security>> Begin(absl::string_view name,
                                                  absl::string_view master = "") const;
};

}  // namespace tessera
