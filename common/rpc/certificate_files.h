#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tessera {

// Paths of PEM files, or what they held. `certificate` and `key` go together; both empty: none.
struct CertificateFiles {
  std::string ca;           // who has signed the certificates of others
  std::string certificate;  // the chain, one's own certificate first
  std::string key;          // that certificate's private key

  bool operator==(const CertificateFiles&) const = default;
};

// What the files hold, each read once. INVALID_ARGUMENT, which names the file: one cannot be read,
// has more than 1 MiB, has no certificate or key in PEM, has a certificate that has expired (with
// its dates; of authorities all have), or a key that needs a password or is not that of the first
// certificate. UNAVAILABLE: a certificate is not valid yet, as where clocks differ.
absl::StatusOr<CertificateFiles> ReadInOrder(const CertificateFiles& paths);

// When the first certificate of the chain, or the last authority, expires; of what ReadInOrder has
// returned.
absl::Time ValidUntil(const CertificateFiles& held);

}  // namespace tessera
