#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/rpc/certificates_in_force.h"
#include "common/rpc/token_file.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/security/tls_certificate_provider.h"

namespace tessera {

// PEM files and a token; an empty path: none.
struct SecurityFiles {
  // Who has signed the certificates of the servers that this process calls.
  std::string ca;
  // This process's own: the chain, its own certificate first, and the private key. A server needs
  // them; a client that has them shows them to servers that ask (etcd does, ours do not).
  std::string certificate;
  std::string key;
  // See TokenFile. Sent with each call, and asked of each.
  std::string token;
  // What servers' certificates are made out to; empty: the host by which a server is called. With
  // it one certificate may serve a whole cluster.
  std::string server_name;

  bool empty() const;
};

// TLS for what a process serves and calls. All files are watched: what is put in their place counts
// for new connections, and the token for new calls, within three seconds; connections that there
// are stay as they are. Certificates and keys that are not in order (see CertificatesInForce) and
// files that are gone are logged, and leave what was there before in force. Thread-safe; outlives
// the servers and channels made with it.
class Security {
 public:
  // INVALID_ARGUMENT: a file is missing, is no PEM, has expired, or they do not belong together;
  // the message names it. UNAVAILABLE: a certificate is not valid yet.
  static absl::StatusOr<std::unique_ptr<Security>> Load(const SecurityFiles& files);

  std::shared_ptr<grpc::ChannelCredentials> ForChannels() const;
  // FAILED_PRECONDITION: there is no certificate, or no token to ask for.
  absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ForServers() const;
  const std::string& server_name() const { return files_.server_name; }
  // ValidUntil of the certificates in force: new connections fail from then on.
  absl::Time certificates_until() const { return certificates_->valid_until(); }

 private:
  Security(SecurityFiles files, std::shared_ptr<TokenFile> token,
           std::unique_ptr<CertificatesInForce> certificates);

  const SecurityFiles files_;
  const std::shared_ptr<TokenFile> token_;  // null: none
  const std::unique_ptr<CertificatesInForce> certificates_;
  const std::shared_ptr<grpc::experimental::CertificateProviderInterface> provider_;
};

}  // namespace tessera
