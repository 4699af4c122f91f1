#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/rpc/certificate_files.h"

namespace tessera {

// The certificates and the key that a process uses: copies of its files. A thread compares them
// with the files every `every`. New files count from the first look that finds all of them in
// order, so they may be replaced one by one. Until then, and if a file is gone, the copies stay in
// force. The log says once what is wrong, such as a certificate in force that has expired or will
// within two weeks, and once that it is mended.
//
// gRPC watches the copies as files. They are in memory, and the chain and its key share one file,
// which the thread replaces at once: with two files gRPC could read a key without its certificate
// between two writes, and a server would then refuse all connections.
//
// Thread-safe. The paths of the copies end with this object.
class CertificatesInForce {
 public:
  // INVALID_ARGUMENT, UNAVAILABLE: as ReadInOrder. The code of the system's error: it gives no file
  // in memory. Throws std::system_error if there is no thread. `look_too`: called after each look,
  // in its thread.
  static absl::StatusOr<std::unique_ptr<CertificatesInForce>> Open(
      CertificateFiles paths, absl::Duration every, std::function<void()> look_too = [] {});
  ~CertificatesInForce();

  // Paths of the copies, which only this process can open. chain_and_key: a file with the chain and
  // then its key; empty if the process has none.
  std::string authorities() const { return authorities_.path(); }
  std::string chain_and_key() const { return paths_.key.empty() ? "" : chain_and_key_.path(); }
  // What the last look found wrong; empty: nothing.
  std::string complaint() const ABSL_LOCKS_EXCLUDED(mu_);
  // ValidUntil of the certificates in force.
  absl::Time valid_until() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // A path to a file in memory that can be replaced by another at once.
  class Link {
   public:
    ~Link();
    absl::Status Put(const std::string& content);
    std::string path() const;

   private:
    int fd_ = -1;
  };

  explicit CertificatesInForce(CertificateFiles paths) : paths_(std::move(paths)) {}
  absl::Status Put(CertificateFiles held);
  void Look();

  const CertificateFiles paths_;
  // Used by Open, then by thread_ alone.
  Link authorities_, chain_and_key_;
  CertificateFiles in_force_;
  mutable absl::Mutex mu_;
  std::string complaint_ ABSL_GUARDED_BY(mu_);
  absl::Time valid_until_ ABSL_GUARDED_BY(mu_);
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace tessera
