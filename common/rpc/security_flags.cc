#include "common/rpc/security_flags.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

constexpr char kGroup[] = "TLS";

struct Options {
  CLI::Option* ca;
  CLI::Option* server_name;
  CLI::Option* token;
};

Options AddShared(CLI::App& app, SecurityFiles& files) {
  Options options = {};
  options.ca = app.add_option("--tls-ca", files.ca,
                              "PEM file of the authority that has signed the certificates of the "
                              "cluster's servers: all connections use TLS");
  options.server_name = app.add_option("--tls-server-name", files.server_name,
                                       "what those certificates are made out to, if not the hosts "
                                       "of the addresses by which servers are called");
  options.token = app.add_option("--token-file", files.token,
                                 "file of the cluster's secret, sent with each call; of several "
                                 "lines the first is sent, all are accepted");
  options.ca->needs(options.token);
  options.token->needs(options.ca);
  options.server_name->needs(options.ca);
  for (CLI::Option* option : {options.ca, options.server_name, options.token}) {
    option->group(kGroup);
  }
  return options;
}

}  // namespace

void SecurityFlags::AddForServer(CLI::App& app) {
  const Options options = AddShared(app, files);
  CLI::Option* const certificate =
      app.add_option("--tls-certificate", files.certificate,
                     "PEM file of this server's certificate and its chain");
  CLI::Option* const key =
      app.add_option("--tls-key", files.key, "PEM file of that certificate's private key");
  certificate->needs(options.ca)->needs(key)->group(kGroup);
  key->needs(certificate)->group(kGroup);
}

void SecurityFlags::AddForClient(CLI::App& app) {
  const Options options = AddShared(app, files);
  options.ca->envname("TESSERA_TLS_CA");
  options.server_name->envname("TESSERA_TLS_SERVER_NAME");
  options.token->envname("TESSERA_TOKEN_FILE");
}

absl::Status SecurityFlags::Check(absl::string_view servers) const {
  if (files.empty() || !files.server_name.empty() || !absl::StrContains(servers, ',')) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--tls-server-name: missing; of several servers (", servers,
                   ") it says what the certificates of all are made out to"));
}

absl::StatusOr<std::unique_ptr<Security>> SecurityFlags::Load() const {
  if (files.empty()) return nullptr;
  return Security::Load(files);
}

}  // namespace tessera
