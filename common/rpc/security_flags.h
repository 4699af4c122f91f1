#pragma once

#include <memory>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
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

  // INVALID_ARGUMENT: `servers`, those to call, are a list, "host:port,host:port", and with TLS it
  // needs --tls-server-name, which is not given.
  absl::Status Check(absl::string_view servers) const;
  // Null: no flag was given. Errors: those of Security::Load.
  absl::StatusOr<std::unique_ptr<Security>> Load() const;
};

}  // namespace tessera
