#pragma once

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace tessera {

// INVALID_ARGUMENT, which names the file: it cannot be read, has no certificate in PEM, or has one
// that is not valid now, with its dates.
absl::Status CheckCertificates(const std::string& path);

// INVALID_ARGUMENT: not a private key in PEM without a password, or not that of the first
// certificate of `certificate`.
absl::Status CheckKey(const std::string& path, const std::string& certificate);

// Of the authority, of this process and its key (both may be empty: it has none): that they can be
// read, are valid now, and belong together.
absl::Status CheckFiles(const std::string& ca, const std::string& certificate,
                        const std::string& key);

// Looks at such files again while a process runs: what is put in their place, and that they have
// expired, would show by calls that fail and say little. Thread-safe.
class CertificateWatch {
 public:
  CertificateWatch(std::string ca, std::string certificate, std::string key, absl::Duration every)
      : ca_(std::move(ca)),
        certificate_(std::move(certificate)),
        key_(std::move(key)),
        every_(every),
        looked_(SystemClock().Monotonic()) {}

  // If the last look, or the start, is `every` ago. What CheckFiles finds wrong is logged once, and
  // that it is mended, too.
  void Look() ABSL_LOCKS_EXCLUDED(mu_);
  // Of the last look; empty: nothing.
  std::string complaint() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const std::string ca_, certificate_, key_;
  const absl::Duration every_;
  mutable absl::Mutex mu_;
  absl::Duration looked_ ABSL_GUARDED_BY(mu_);
  std::string complaint_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera
