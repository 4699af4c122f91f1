#pragma once

#include <memory>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/rpc/security.h"

namespace tessera {

// --tls-ca, --tls-server-name, --token-file, and for servers --tls-certificate and --tls-key.
struct SecurityFlags {
  SecurityFiles files;

  // Adds the flags of a server. Borrows this until the app has parsed. Parsing fails if a flag is
  // given without another that it needs.
  void AddForServer(CLI::App& app);
  // Adds the flags of a client, each of which the environment can set: TESSERA_TLS_CA,
  // TESSERA_TLS_SERVER_NAME, TESSERA_TOKEN_FILE.
  void AddForClient(CLI::App& app);

  // Null: no flag was given. Errors: those of Security::Load. `servers` are the servers to call,
  // "host:port" or a list. INVALID_ARGUMENT: a list without --tls-server-name.
  absl::StatusOr<std::unique_ptr<Security>> Load(absl::string_view servers = "") const;
};

}  // namespace tessera
