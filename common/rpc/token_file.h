#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera {

// A secret that all processes of a cluster, and who calls them, have in common: a file with a token
// in each line. The first is sent, all are accepted, so that one can take another's place: it is
// added as the second line everywhere, then put first, then the other is taken out.
//
// It may be a pipe, which is read once. A file is looked at again when it is used and the last look
// is kRefresh ago; one that cannot be read or has no good token is logged, and what was there
// before counts. Thread-safe.
class TokenFile {
 public:
  static constexpr absl::Duration kRefresh = absl::Seconds(1);
  static constexpr size_t kFewestCharacters = 16;
  static constexpr size_t kMostBytes = 1 << 20;

  // INVALID_ARGUMENT: there is no such file, it has more than kMostBytes, or a token in it is
  // shorter than kFewestCharacters or has other characters than printable ASCII ones without
  // spaces.
  static absl::StatusOr<std::unique_ptr<TokenFile>> Open(const std::string& path);

  std::string Sent() ABSL_LOCKS_EXCLUDED(mu_);
  // Takes as long for any token of the same length.
  bool Accepts(absl::string_view token) ABSL_LOCKS_EXCLUDED(mu_);
  const std::string& path() const { return path_; }

 private:
  explicit TokenFile(std::string path) : path_(std::move(path)) {}
  void Refresh() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string path_;
  bool read_once_ = false;  // constant from Open on
  absl::Mutex mu_;
  absl::Duration looked_ ABSL_GUARDED_BY(mu_);
  std::string content_ ABSL_GUARDED_BY(mu_);              // that tokens_ are of
  std::string complaint_ ABSL_GUARDED_BY(mu_);            // of the last look, logged once
  std::vector<std::string> tokens_ ABSL_GUARDED_BY(mu_);  // never empty
};

}  // namespace tessera
