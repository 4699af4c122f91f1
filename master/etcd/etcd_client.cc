#include "master/etcd/etcd_client.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/rpc/status.h"
#include "common/status_macros.h"
#include "grpc/support/time.h"

namespace tessera::master {
namespace {

using etcdserverpb::KV;
using etcdserverpb::Lease;

// On the monotonic clock, so that a jump of the wall clock ends no wait.
gpr_timespec Deadline(absl::Duration limit) {
  limit = std::clamp(limit, absl::ZeroDuration(), absl::Hours(1));
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_micros(absl::ToInt64Microseconds(limit), GPR_TIMESPAN));
}

// Translates etcd's status; the only place that does.
absl::Status Translate(const absl::Status& status, absl::string_view what,
                       const std::string& member) {
  if (status.ok()) return status;
  const std::string message = absl::StrCat("etcd at ", member, ": ", what, ": ", status.message());
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return absl::NotFoundError(message);
    case absl::StatusCode::kInvalidArgument:
      return absl::InvalidArgumentError(message);
    case absl::StatusCode::kResourceExhausted:
      return absl::ResourceExhaustedError(absl::StrCat(
          message,
          "; where its space is used up: compact, defragment and disarm its alarm, and "
          "let it compact by itself (--auto-compaction-retention)"));
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
      return absl::FailedPreconditionError(message);
    default:
      return absl::UnavailableError(message);
  }
}

}  // namespace

EtcdClient::EtcdClient(const std::vector<std::string>& members, Channels* channels)
    : members_(members), address_(absl::StrJoin(members, ",")), channels_(channels) {}

std::shared_ptr<EtcdClient::Member> EtcdClient::Current() {
  absl::MutexLock lock(&mu_);
  if (connected_ == nullptr) {
    const std::string& address = members_[current_];
    const std::shared_ptr<grpc::Channel> channel = channels_->Connect(address);
    connected_ =
        std::make_shared<Member>(Member{address, KV::NewStub(channel), Lease::NewStub(channel)});
  }
  return connected_;
}

template <typename Body>
absl::Status EtcdClient::Call(absl::string_view what, absl::Duration limit, const Body& body) {
  const std::shared_ptr<Member> member = Current();
  grpc::ClientContext context;
  context.set_deadline(Deadline(limit));
  absl::Status status = Translate(FromGrpc(body(*member, context)), what, member->address);
  if (absl::IsUnavailable(status)) {
    absl::MutexLock lock(&mu_);
    if (connected_ == member) {
      connected_ = nullptr;
      current_ = (current_ + 1) % members_.size();
    }
  }
  return status;
}

absl::StatusOr<etcdserverpb::RangeResponse> EtcdClient::Range(
    const etcdserverpb::RangeRequest& request, absl::Duration limit) {
  etcdserverpb::RangeResponse response;
  TESSERA_RETURN_IF_ERROR(
      Call("read", limit, [&](const Member& member, grpc::ClientContext& context) {
        return member.kv->Range(&context, request, &response);
      }));
  return response;
}

absl::StatusOr<etcdserverpb::TxnResponse> EtcdClient::Txn(const etcdserverpb::TxnRequest& request,
                                                          absl::Duration limit) {
  etcdserverpb::TxnResponse response;
  TESSERA_RETURN_IF_ERROR(
      Call("transaction", limit, [&](const Member& member, grpc::ClientContext& context) {
        return member.kv->Txn(&context, request, &response);
      }));
  return response;
}

absl::StatusOr<etcdserverpb::LeaseGrantResponse> EtcdClient::LeaseGrant(absl::Duration ttl,
                                                                        absl::Duration limit) {
  etcdserverpb::LeaseGrantRequest request;
  request.set_ttl(absl::ToInt64Seconds(absl::Ceil(ttl, absl::Seconds(1))));
  etcdserverpb::LeaseGrantResponse response;
  TESSERA_RETURN_IF_ERROR(
      Call("lease", limit, [&](const Member& member, grpc::ClientContext& context) {
        return member.lease->LeaseGrant(&context, request, &response);
      }));
  if (!response.error().empty() || response.ttl() <= 0) {
    return absl::UnavailableError(
        absl::StrCat("etcd at ", address_, " grants no lease: ", response.error()));
  }
  return response;
}

absl::Status EtcdClient::LeaseKeepAlive(int64_t id, absl::Duration limit) {
  etcdserverpb::LeaseKeepAliveRequest request;
  request.set_id(id);
  etcdserverpb::LeaseKeepAliveResponse response;
  bool answered = false;
  TESSERA_RETURN_IF_ERROR(
      Call("keep lease alive", limit, [&](const Member& member, grpc::ClientContext& context) {
        const auto stream = member.lease->LeaseKeepAlive(&context);
        // One request and one answer; then the stream ends.
        answered = stream->Write(request) && stream->WritesDone() && stream->Read(&response);
        return stream->Finish();
      }));
  if (!answered) {
    return absl::UnavailableError(
        absl::StrCat("etcd at ", address_, " ended a stream without an answer"));
  }
  if (response.ttl() <= 0) {
    return absl::NotFoundError(absl::StrCat("etcd at ", address_, ": the lease has run out"));
  }
  return absl::OkStatus();
}

absl::Status EtcdClient::LeaseRevoke(int64_t id, absl::Duration limit) {
  etcdserverpb::LeaseRevokeRequest request;
  request.set_id(id);
  return Call("revoke lease", limit, [&](const Member& member, grpc::ClientContext& context) {
    etcdserverpb::LeaseRevokeResponse response;
    return member.lease->LeaseRevoke(&context, request, &response);
  });
}

std::string EndOfPrefix(std::string prefix) {
  while (static_cast<unsigned char>(prefix.back()) == 0xff) prefix.pop_back();
  ++prefix.back();
  return prefix;
}

}  // namespace tessera::master
