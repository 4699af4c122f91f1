#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/channels.h"
#include "grpcpp/generic/generic_stub.h"
#include "worker/assignment/cancellation.h"

namespace tessera::worker {

// Another process that this one calls.
struct PeerAddress {
  std::string name;   // for the status: whom this worker waits for
  std::string label;  // for errors: with the address
  std::string address;
  uint64_t incarnation = 0;
};

// A peer and the channel to it.
struct Peer {
  Peer(PeerAddress where, Channels& channels)
      : where(std::move(where)), stub(channels.Connect(this->where.address)) {}

  const PeerAddress where;
  grpc::GenericStub stub;  // thread-safe
  // Cancelled when another process takes this one's place, which may hang and answer no call.
  Cancellation replaced;
};

// Peers of one kind, by their numbers. A peer may move to another address, or another process may
// take its place. Calls under way to the old process are cancelled then, and repeated calls go to
// the new one. Thread-safe.
class PeerDirectory {
 public:
  // `channels` is borrowed and outlives the directory.
  PeerDirectory(std::vector<PeerAddress> peers, Channels* channels);

  size_t size() const { return size_; }
  std::shared_ptr<Peer> At(size_t peer) const ABSL_LOCKS_EXCLUDED(mu_);
  // Replaces each peer whose incarnation differs.
  void Update(std::vector<PeerAddress> peers) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Channels* const channels_;
  const size_t size_;
  mutable absl::Mutex mu_;
  std::vector<std::shared_ptr<Peer>> peers_ ABSL_GUARDED_BY(mu_);  // [size]
};

}  // namespace tessera::worker
