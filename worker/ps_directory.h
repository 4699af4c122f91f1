#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/channels.h"
#include "grpcpp/generic/generic_stub.h"
#include "tessera/v1/cluster.pb.h"

namespace tessera::worker {

// One ps and the way to it.
struct PsPeer {
  PsPeer(v1::PsAddress address, Channels& channels)
      : address(std::move(address)), stub(channels.Connect(this->address.address())) {}

  const v1::PsAddress address;
  grpc::GenericStub stub;  // thread-safe
};

// The ps of an assignment, by their numbers in the partition map. A ps that comes back with its
// push log may do so at another address; calls that are repeated then find it there. Thread-safe.
class PsDirectory {
 public:
  // `channels` is borrowed and outlives the directory.
  PsDirectory(const v1::PartitionMap& partitions, Channels* channels);

  size_t size() const { return size_; }
  uint64_t map_version() const { return map_version_; }
  std::shared_ptr<PsPeer> At(size_t ps) const ABSL_LOCKS_EXCLUDED(mu_);
  // Takes the ps of the same map as they are now.
  void Update(const v1::PartitionMap& partitions) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Channels* const channels_;
  const size_t size_;
  const uint64_t map_version_;
  mutable absl::Mutex mu_;
  std::vector<std::shared_ptr<PsPeer>> peers_ ABSL_GUARDED_BY(mu_);  // [size]
};

}  // namespace tessera::worker
