#pragma once

#include <memory>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/rpc/security.h"

namespace tessera {

// --tls-ca, --tls-server-name, --token-file, and for who serves --tls-certificate and --tls-key.
struct SecurityFlags {
  SecurityFiles files;

  // Borrows this until the app has parsed. Refused while parsing: one without another that it
  // needs.
  void AddForServer(CLI::App& app);
  // Each of them may come from the environment: TESSERA_TLS_CA, TESSERA_TLS_SERVER_NAME,
  // TESSERA_TOKEN_FILE.
  void AddForClient(CLI::App& app);

  // Null: none was given. Errors: Security::Load's. `servers` are those that are called,
  // "host:port" or a list of it, which needs --tls-server-name: INVALID_ARGUMENT.
  absl::StatusOr<std::unique_ptr<Security>> Load(absl::string_view servers = "") const;
};

}  // namespace tessera
