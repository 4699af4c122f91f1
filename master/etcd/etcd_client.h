#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/channels.h"
#include "grpcpp/client_context.h"
#include "master/etcd/etcd_api.grpc.pb.h"

namespace tessera::master {

// Calls to an etcd cluster. Each call goes to one member and is tried once; after a call that
// reached no etcd the next one goes to the next member. Thread-safe.
//
// Errors name the member. UNAVAILABLE: no answer within `limit`, or etcd cannot serve for now;
// a write may have been done then or not. RESOURCE_EXHAUSTED: etcd has no room.
// FAILED_PRECONDITION: an operator must act (the server wants a password, or is no etcd of version
// 3). INVALID_ARGUMENT: beyond etcd's limits. NOT_FOUND: no such lease.
class EtcdClient {
 public:
  // `members`: host:port each, one at least. `channels` is borrowed and outlives the client.
  EtcdClient(const std::vector<std::string>& members, Channels* channels);

  absl::StatusOr<etcdserverpb::RangeResponse> Range(const etcdserverpb::RangeRequest& request,
                                                    absl::Duration limit);
  absl::StatusOr<etcdserverpb::TxnResponse> Txn(const etcdserverpb::TxnRequest& request,
                                                absl::Duration limit);
  // The lease's id and its time to live, which may be longer than asked for.
  absl::StatusOr<etcdserverpb::LeaseGrantResponse> LeaseGrant(absl::Duration ttl,
                                                              absl::Duration limit);
  // NOT_FOUND: the lease has run out.
  absl::Status LeaseKeepAlive(int64_t id, absl::Duration limit);
  absl::Status LeaseRevoke(int64_t id, absl::Duration limit);

  // The members, for messages.
  const std::string& address() const { return address_; }

 private:
  struct Member {
    std::string address;
    std::unique_ptr<etcdserverpb::KV::Stub> kv;
    std::unique_ptr<etcdserverpb::Lease::Stub> lease;
  };
  template <typename Body>
  absl::Status Call(absl::string_view what, absl::Duration limit, const Body& body)
      ABSL_LOCKS_EXCLUDED(mu_);
  // The member to call; connects to it if need be.
  std::shared_ptr<Member> Current() ABSL_LOCKS_EXCLUDED(mu_);

  const std::vector<std::string> members_;
  const std::string address_;
  Channels* const channels_;
  absl::Mutex mu_;
  size_t current_ ABSL_GUARDED_BY(mu_) = 0;  // of members_
  // Shared with the calls under way; null: not connected. A failed call drops the connection: gRPC
  // reconnects only while calls wait for it, and calls on a failed connection do not wait.
  std::shared_ptr<Member> connected_ ABSL_GUARDED_BY(mu_);
};

// The end of the range of all keys that begin with `prefix`, which is not empty and not all 0xff.
std::string EndOfPrefix(std::string prefix);

}  // namespace tessera::master
