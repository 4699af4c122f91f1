#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace tessera {

// The secret that a cluster's processes and callers share: a file with one token per line. The
// first token is sent, all are accepted, so that a token can be replaced: add the new one as the
// second line everywhere, then put it first, then remove the old one.
//
// The file may be a pipe, which is read once. A regular file is read again by Look alone, so that a
// file system that hangs holds up no call. Thread-safe.
class TokenFile {
 public:
  static constexpr size_t kFewestCharacters = 16;
  static constexpr size_t kMostBytes = 1 << 20;

  // INVALID_ARGUMENT: the file is missing, has no token or more than kMostBytes, or a token in it
  // is shorter than kFewestCharacters or has characters other than printable ASCII without spaces.
  static absl::StatusOr<std::unique_ptr<TokenFile>> Open(const std::string& path);

  std::string Sent() const ABSL_LOCKS_EXCLUDED(mu_);
  // Takes the same time for all tokens of one length.
  bool Accepts(absl::string_view token) const ABSL_LOCKS_EXCLUDED(mu_);
  // Reads the file again. If it cannot be read or has a bad token or none, that is logged and the
  // earlier tokens stay valid. Called by one thread at a time.
  void Look() ABSL_LOCKS_EXCLUDED(mu_);
  const std::string& path() const { return path_; }

 private:
  explicit TokenFile(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  bool read_once_ = false;  // constant after Open
  // Used by Open, then by Look alone.
  std::string content_;    // that tokens_ came from
  std::string complaint_;  // of the last read, logged once
  mutable absl::Mutex mu_;
  std::vector<std::string> tokens_ ABSL_GUARDED_BY(mu_);  // never empty
};

}  // namespace tessera
