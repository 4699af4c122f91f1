#pragma once

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

// The certificates and the key that a process uses: copies of its files, which a thread looks at
// again every `every`. What is put in their place is in force from the first look at which all of
// it is in order, so the files may be replaced one by one; until then, and where one is gone, what
// was there before stays in force. What is wrong, a certificate in force that has expired too, is
// logged once, and so is that it is mended.
//
// The copies are files for gRPC to watch. They are in memory, and one link for both the chain and
// its key takes a new copy at once: between two files there would be an instant at which they do
// not belong together, and a server that has read them then refuses all connections.
//
// Thread-safe. The links are gone with this object.
class CertificatesInForce {
 public:
  // INVALID_ARGUMENT: as of ReadInOrder. RESOURCE_EXHAUSTED or INTERNAL: the system gives no file
  // in memory.
  static absl::StatusOr<std::unique_ptr<CertificatesInForce>> Open(CertificateFiles paths,
                                                                   absl::Duration every);
  ~CertificatesInForce();

  // Paths of the copies, for this process alone. The second: the chain and then its key, empty
  // where there are none.
  std::string authorities() const { return authorities_.path(); }
  std::string chain_and_key() const { return paths_.key.empty() ? "" : chain_and_key_.path(); }
  // Of the last look; empty: nothing is wrong.
  std::string complaint() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // A path under which a file in memory is, and at once another.
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
  // Of the one that makes this object, then of thread_.
  Link authorities_, chain_and_key_;
  CertificateFiles in_force_;
  mutable absl::Mutex mu_;
  std::string complaint_ ABSL_GUARDED_BY(mu_);
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace tessera
