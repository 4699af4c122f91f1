#include "common/rpc/certificate_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/file_system.h"
#include "common/status_macros.h"

namespace tessera {
namespace {

constexpr size_t kMostBytes = 1 << 20;  // of a file

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

absl::Status Wrong(const std::string& path, absl::string_view what) {
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

absl::StatusOr<std::string> Read(const std::string& path) {
  absl::StatusOr<std::string> content = ReadWholeFile(PosixFileSystem(), path, kMostBytes);
  if (!content.ok()) return absl::InvalidArgumentError(content.status().message());
  return content;
}

// The certificates in `content`, which is that of `path`; at least one.
absl::StatusOr<std::vector<Owned<X509>>> Parse(const std::string& path,
                                               const std::string& content) {
  const Owned<BIO> bio(BIO_new_mem_buf(content.data(), static_cast<int>(content.size())));
  std::vector<Owned<X509>> certificates;
  while (X509* const next = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    certificates.emplace_back(next);
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (!at_end) {
    return Wrong(path, absl::StrCat("certificate ", certificates.size() + 1, " is no good PEM"));
  }
  if (certificates.empty()) {
    return Wrong(path, "has no certificate in PEM (-----BEGIN CERTIFICATE-----)");
  }
  ERR_clear_error();
  return certificates;
}

std::string ToString(const ASN1_TIME* time) {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  ASN1_TIME_print(bio.get(), time);
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &text);
  return std::string(text, static_cast<size_t>(size));
}

// The password of a key, which nobody is here to be asked for.
int NoPassword(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*context*/) { return -1; }

absl::Status CheckValid(const std::string& path, const X509& certificate) {
  const ASN1_TIME* const from = X509_get0_notBefore(&certificate);
  const ASN1_TIME* const until = X509_get0_notAfter(&certificate);
  const bool too_early = X509_cmp_current_time(from) >= 0;
  if (!too_early && X509_cmp_current_time(until) > 0) return absl::OkStatus();
  const absl::Status wrong =
      Wrong(path, absl::StrCat("has a certificate that is valid from ", ToString(from), " until ",
                               ToString(until), ", not now"));
  return too_early ? absl::UnavailableError(wrong.message()) : wrong;
}

// Of several authorities one has to be valid: the others may be those of before and of later.
absl::Status CheckAuthorities(const std::string& path,
                              const std::vector<Owned<X509>>& authorities) {
  absl::Status first;
  for (const Owned<X509>& authority : authorities) {
    const absl::Status status = CheckValid(path, *authority);
    if (status.ok()) return status;
    first.Update(status);
  }
  return first;
}

absl::Time ExpiryOf(const X509& certificate) {
  tm time = {};
  ASN1_TIME_to_tm(X509_get0_notAfter(&certificate), &time);
  return absl::FromTM(time, absl::UTCTimeZone());
}

absl::Status CheckKey(const CertificateFiles& paths, const std::string& key, X509& certificate) {
  const Owned<BIO> bio(BIO_new_mem_buf(key.data(), static_cast<int>(key.size())));
  const Owned<EVP_PKEY> parsed(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr));
  if (parsed == nullptr) {
    return Wrong(paths.key,
                 "has no private key in PEM without a password (-----BEGIN PRIVATE KEY-----)");
  }
  if (X509_check_private_key(&certificate, parsed.get()) != 1) {
    return Wrong(paths.key,
                 absl::StrCat("is not the key of the first certificate of ", paths.certificate));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CertificateFiles> ReadInOrder(const CertificateFiles& paths) {
  CertificateFiles held;
  TESSERA_ASSIGN_OR_RETURN(held.ca, Read(paths.ca));
  TESSERA_ASSIGN_OR_RETURN(const auto authorities, Parse(paths.ca, held.ca));
  TESSERA_RETURN_IF_ERROR(CheckAuthorities(paths.ca, authorities));
  if (paths.certificate.empty()) return held;
  TESSERA_ASSIGN_OR_RETURN(held.certificate, Read(paths.certificate));
  TESSERA_ASSIGN_OR_RETURN(const auto chain, Parse(paths.certificate, held.certificate));
  for (const Owned<X509>& certificate : chain) {
    TESSERA_RETURN_IF_ERROR(CheckValid(paths.certificate, *certificate));
  }
  TESSERA_ASSIGN_OR_RETURN(held.key, Read(paths.key));
  TESSERA_RETURN_IF_ERROR(CheckKey(paths, held.key, *chain.front()));
  return held;
}

absl::Time ValidUntil(const CertificateFiles& held) {
  absl::Time until = absl::InfinitePast();
  if (const auto authorities = Parse("", held.ca); authorities.ok()) {
    for (const Owned<X509>& authority : *authorities) {
      until = std::max(until, ExpiryOf(*authority));
    }
  }
  // A client may have no certificate of its own.
  if (const auto chain = Parse("", held.certificate); chain.ok()) {
    for (const Owned<X509>& certificate : *chain) {
      until = std::min(until, ExpiryOf(*certificate));
    }
  }
  return until;
}

}  // namespace tessera
