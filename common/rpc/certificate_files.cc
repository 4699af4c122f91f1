#include "common/rpc/certificate_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/file_system.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace tessera {
namespace {

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
  absl::StatusOr<std::string> content = ReadWholeFile(PosixFileSystem(), path);
  if (!content.ok()) return absl::InvalidArgumentError(content.status().message());
  return content;
}

// At least one.
absl::StatusOr<std::vector<Owned<X509>>> ReadCertificates(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::string content, Read(path));
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

}  // namespace

absl::Status CheckCertificates(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const auto certificates, ReadCertificates(path));
  for (const Owned<X509>& certificate : certificates) {
    const ASN1_TIME* const from = X509_get0_notBefore(certificate.get());
    const ASN1_TIME* const until = X509_get0_notAfter(certificate.get());
    if (X509_cmp_current_time(from) >= 0 || X509_cmp_current_time(until) <= 0) {
      return Wrong(path, absl::StrCat("has a certificate that is valid from ", ToString(from),
                                      " until ", ToString(until), ", not now"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckKey(const std::string& path, const std::string& certificate) {
  TESSERA_ASSIGN_OR_RETURN(const std::string content, Read(path));
  const Owned<BIO> bio(BIO_new_mem_buf(content.data(), static_cast<int>(content.size())));
  const Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr));
  if (key == nullptr) {
    return Wrong(path,
                 "has no private key in PEM without a password (-----BEGIN PRIVATE KEY-----)");
  }
  TESSERA_ASSIGN_OR_RETURN(const auto certificates, ReadCertificates(certificate));
  if (X509_check_private_key(certificates.front().get(), key.get()) != 1) {
    return Wrong(path, absl::StrCat("is not the key of the first certificate of ", certificate));
  }
  return absl::OkStatus();
}

absl::Status CheckFiles(const std::string& ca, const std::string& certificate,
                        const std::string& key) {
  TESSERA_RETURN_IF_ERROR(CheckCertificates(ca));
  if (certificate.empty()) return absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(CheckCertificates(certificate));
  return CheckKey(key, certificate);
}

void CertificateWatch::Look() {
  absl::MutexLock lock(&mu_);
  const absl::Duration now = SystemClock().Monotonic();
  if (now - looked_ < every_) return;
  looked_ = now;
  std::string complaint(CheckFiles(ca_, certificate_, key_).message());
  if (complaint == complaint_) return;
  if (complaint.empty()) {
    SPDLOG_INFO("the certificates and keys are in order again");
  } else {
    SPDLOG_WARN("{}; new connections fail until that is mended", complaint);
  }
  complaint_ = std::move(complaint);
}

std::string CertificateWatch::complaint() const {
  absl::MutexLock lock(&mu_);
  return complaint_;
}

}  // namespace tessera
