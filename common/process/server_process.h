#pragma once

#include <memory>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "common/rpc/security.h"
#include "common/rpc/security_flags.h"

namespace tessera {

// The steps that master, ps and worker share before they serve: some flags, and the start of the
// process.
struct ServerProcess {
  SecurityFlags security_flags;
  std::string log_level = "info";

  // Adds --version, --log-level and those of SecurityFlags. Borrows this, and `master`, the address
  // that the process calls (null: none), until the app has parsed. Parsing fails if
  // SecurityFlags::Check does.
  void AddFlags(CLI::App& app, const std::string* master = nullptr);

  // The exit code: 0 after --help or --version, 2 after wrong flags, none if the process goes on.
  static std::optional<int> Parse(CLI::App& app, int argc, char** argv);

  // Call once, after Parse. Starts the log, which calls the process `name`; makes writes beyond the
  // file size limit, and to a pipe whose reader has gone, fail instead of ending the process;
  // raises the limit of open files; arms the failpoints that the environment names; and loads the
  // security files that the flags name (null: they name none). Errors are those of
  // CheckFileDescriptors, ArmFailpoints and SecurityFlags::Load.
  absl::StatusOr<std::unique_ptr<Security>> Begin(absl::string_view name) const;
};

}  // namespace tessera
