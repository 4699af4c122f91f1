#include "common/rpc/security.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace tessera {
namespace {

constexpr int kRefreshSeconds = 1;  // of all files, and of gRPC's look at the certificates' copies
// RFC 6750.
constexpr char kAuthorization[] = "authorization";
constexpr char kBearer[] = "Bearer ";

// What the provider tells of, by who wants to know. Under one name for all, gRPC (1.51) forgets
// servers when a channel goes.
constexpr char kAuthorities[] = "authorities";
constexpr char kShownByClients[] = "shown by clients";
constexpr char kShownByServers[] = "shown by servers";

class SendToken final : public grpc::MetadataCredentialsPlugin {
 public:
  explicit SendToken(std::shared_ptr<TokenFile> token) : token_(std::move(token)) {}
  bool IsBlocking() const override { return false; }
  const char* GetType() const override { return "tessera_token"; }
  grpc::Status GetMetadata(grpc::string_ref /*url*/, grpc::string_ref /*method*/,
                           const grpc::AuthContext& /*context*/,
                           std::multimap<grpc::string, grpc::string>* metadata) override {
    metadata->emplace(kAuthorization, absl::StrCat(kBearer, token_->Sent()));
    return grpc::Status::OK;
  }

 private:
  const std::shared_ptr<TokenFile> token_;
};

class AskForToken final : public grpc::AuthMetadataProcessor {
 public:
  explicit AskForToken(std::shared_ptr<TokenFile> token) : token_(std::move(token)) {}
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* /*context*/,
                       OutputMetadata* consumed, OutputMetadata* /*response*/) override {
    const auto found = metadata.find(kAuthorization);
    if (found == metadata.end()) {
      return {grpc::StatusCode::UNAUTHENTICATED, "this call needs a token (--token-file)"};
    }
    absl::string_view token(found->second.data(), found->second.size());
    const size_t bearer = sizeof(kBearer) - 1;
    if (token.substr(0, bearer) != kBearer || !token_->Accepts(token.substr(bearer))) {
      return {grpc::StatusCode::UNAUTHENTICATED,
              "the token of this call (--token-file) is none of those that count here"};
    }
    consumed->emplace(std::string(found->first.data(), found->first.size()), std::string(token));
    return grpc::Status::OK;
  }

 private:
  const std::shared_ptr<TokenFile> token_;
};

}  // namespace

bool SecurityFiles::empty() const {
  return ca.empty() && certificate.empty() && key.empty() && token.empty() && server_name.empty();
}

absl::StatusOr<std::unique_ptr<Security>> Security::Load(const SecurityFiles& files) {
  if (files.ca.empty()) {
    return absl::InvalidArgumentError(
        "TLS needs the certificate of the authority that has signed the servers' (ca)");
  }
  if (files.certificate.empty() != files.key.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("a certificate and its key go together; only ",
                                                   files.certificate, files.key, " is given"));
  }
  std::shared_ptr<TokenFile> token;
  if (!files.token.empty()) {
    TESSERA_ASSIGN_OR_RETURN(token, TokenFile::Open(files.token));
  }
  TESSERA_ASSIGN_OR_RETURN(auto certificates,
                           CertificatesInForce::Open(
                               {.ca = files.ca, .certificate = files.certificate, .key = files.key},
                               absl::Seconds(kRefreshSeconds), [token] {
                                 if (token != nullptr) token->Look();
                               }));
  return std::unique_ptr<Security>(new Security(files, std::move(token), std::move(certificates)));
}

Security::Security(SecurityFiles files, std::shared_ptr<TokenFile> token,
                   std::unique_ptr<CertificatesInForce> certificates)
    : files_(std::move(files)),
      token_(std::move(token)),
      certificates_(std::move(certificates)),
      provider_(std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          certificates_->chain_and_key(), certificates_->chain_and_key(),
          certificates_->authorities(), kRefreshSeconds)) {}

std::shared_ptr<grpc::ChannelCredentials> Security::ForChannels() const {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(provider_);
  options.watch_root_certs();
  options.set_root_cert_name(kAuthorities);
  if (!files_.certificate.empty()) {
    options.watch_identity_key_cert_pairs();
    options.set_identity_cert_name(kShownByClients);
  }
  std::shared_ptr<grpc::ChannelCredentials> tls = grpc::experimental::TlsCredentials(options);
  if (token_ == nullptr) return tls;
  return grpc::CompositeChannelCredentials(
      tls, grpc::MetadataCredentialsFromPlugin(std::make_unique<SendToken>(token_)));
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> Security::ForServers() const {
  if (files_.certificate.empty() || token_ == nullptr) {
    return absl::FailedPreconditionError(
        "a server with TLS needs a certificate, its key and a token");
  }
  grpc::experimental::TlsServerCredentialsOptions options(provider_);
  options.watch_identity_key_cert_pairs();
  options.set_identity_cert_name(kShownByServers);
  options.set_cert_request_type(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  std::shared_ptr<grpc::ServerCredentials> credentials =
      grpc::experimental::TlsServerCredentials(options);
  credentials->SetAuthMetadataProcessor(std::make_shared<AskForToken>(token_));
  return credentials;
}

}  // namespace tessera
