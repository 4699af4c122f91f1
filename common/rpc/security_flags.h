#pragma once

#include <memory>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
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

  // Null: none was given. Errors: Security::Load's.
  absl::StatusOr<std::unique_ptr<Security>> Load() const;
};

}  // namespace tessera
