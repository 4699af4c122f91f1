#pragma once

#include <string>

#include "absl/status/status.h"

namespace tessera {

// INVALID_ARGUMENT, which names the file: it cannot be read, has no certificate in PEM, or has one
// that is not valid now, with its dates.
absl::Status CheckCertificates(const std::string& path);

// INVALID_ARGUMENT: not a private key in PEM without a password, or not that of the first
// certificate of `certificate`.
absl::Status CheckKey(const std::string& path, const std::string& certificate);

}  // namespace tessera
