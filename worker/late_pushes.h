#pragma once

#include <deque>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/support/byte_buffer.h"
#include "worker/peer_directory.h"

namespace tessera::worker {

// What a network does that delivers twice and late, for tests: where the failpoint
// worker.push.again is due, a copy of a push's message is sent once more, behind others that were
// sent after it. Its answer interests nobody. Does nothing else, and nothing at all unless that is
// armed. Thread-safe.
class LatePushes {
 public:
  explicit LatePushes(std::string method) : method_(std::move(method)) {}
  // `message` is about to be sent to `peer`.
  void Sending(const std::shared_ptr<Peer>& peer, const grpc::ByteBuffer& message)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Copy {
    std::shared_ptr<Peer> peer;
    grpc::ByteBuffer message;
    int messages_ahead = 0;  // that are still to be sent before it
  };
  void Send(Copy copy) const;

  const std::string method_;

  absl::Mutex mu_;
  std::deque<Copy> copies_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::worker
