#pragma once

#include <deque>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/support/byte_buffer.h"
#include "worker/parameters/peer_directory.h"

namespace tessera::worker {

// Acts, for tests, like a network that delivers a message twice and late. When the failpoint
// worker.push.again is due, it sends a copy of a push's message again, after some later messages,
// and ignores the answer. Unless that failpoint is armed it does nothing. Thread-safe.
class LatePushes {
 public:
  explicit LatePushes(std::string method) : method_(std::move(method)) {}
  // Called before `message` is sent to `peer`.
  void Sending(const std::shared_ptr<Peer>& peer, const grpc::ByteBuffer& message)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Copy {
    std::shared_ptr<Peer> peer;
    grpc::ByteBuffer message;
    int messages_ahead = 0;  // messages still to be sent before this copy
  };
  void Send(Copy copy) const;

  const std::string method_;

  absl::Mutex mu_;
  std::deque<Copy> copies_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::worker
