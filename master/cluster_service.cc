#include <atomic>
#include <string>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/rpc/status.h"
#include "master/services.h"

namespace tessera::master {
namespace {

constexpr absl::Duration kHelloWithin = absl::Seconds(10);

}  // namespace

grpc::Status ClusterServiceImpl::Join(grpc::ServerContext* context, Stream* stream) {
  v1::NodeMessage in;
  // A peer that connects and says nothing holds its thread no longer than this.
  absl::Notification said;
  std::thread limit([&] {
    if (!said.WaitForNotificationWithTimeout(kHelloWithin)) context->TryCancel();
  });
  const bool read = stream->Read(&in);
  said.Notify();
  limit.join();
  // Of bytes that are no message nothing is read, either.
  if (!read || !in.has_hello()) {
    return ToGrpc(absl::InvalidArgumentError("the first message of Join must be Hello"));
  }
  const v1::Hello hello = in.hello();
  // Whoever comes back to a master that has just ended its stream goes on at the next one: for this
  // one it is alive, and its number taken.
  if (host_->stopped()) return ToGrpc(absl::UnavailableError("the master stops"));
  absl::Duration joined_at;
  absl::StatusOr<v1::Welcome> welcome =
      host_->With([&](MasterCore& core, const MasterCore::Now& now) {
        joined_at = now.monotonic;
        return core.Join(hello, now);
      });
  if (!welcome.ok()) return ToGrpc(welcome.status());
  const uint64_t incarnation = welcome->incarnation();
  std::string reason = "its connection broke";
  bool broke = true;
  const auto leave = absl::MakeCleanup([&] {
    // The master stops: its processes are not lost, they will join the next one.
    if (host_->stopped()) return;
    host_->With([&](MasterCore& core, const MasterCore::Now& now) {
      core.StreamEnded(incarnation, joined_at, broke, reason, now);
    });
    SPDLOG_INFO("{} (incarnation {}) is gone: {}", welcome->name(), incarnation, reason);
  });
  // The number of a new incarnation must never be given again, so it is durable before it is said.
  // One that goes on has its number, and must not end because a disk is slow.
  const bool goes_on = hello.incarnation() != 0;
  if (absl::Status status = goes_on ? absl::OkStatus() : host_->Flush(); !status.ok()) {
    reason = "the master's state log fails";
    return ToGrpc(absl::UnavailableError(
        absl::StrCat("the master cannot write its state: ", status.message())));
  }
  // It cannot have been heard before.
  const bool lives = goes_on || host_->Look([&](MasterCore& core, const MasterCore::Now& now) {
    return core.BeginLease(incarnation, now);
  });
  if (!lives) {
    reason = "the master's state log is slow";
    return ToGrpc(absl::UnavailableError(
        "the master's state log took longer than a lease to take this process in; join again"));
  }
  SPDLOG_INFO("{} joined (incarnation {}, pid {}{})", welcome->name(), incarnation, hello.pid(),
              hello.address().empty() ? "" : absl::StrCat(", serving at ", hello.address()));
  v1::MasterMessage out;
  *out.mutable_welcome() = *welcome;
  if (!stream->Write(out)) return grpc::Status::OK;
  std::atomic<bool> ended = false;
  std::thread writer([&] { SendAssignments(incarnation, context, stream, ended); });
  bool alive = true;
  while (stream->Read(&in)) {
    alive = host_->Look([&](MasterCore& core, const MasterCore::Now& now) {
      return core.Heartbeat(incarnation, in.heartbeat(), now);
    });
    if (!alive) break;
  }
  broke = context->IsCancelled();
  if (!broke) reason = alive ? "it left" : "its lease is over";
  ended = true;
  // The change ends the writer.
  if (!host_->stopped()) {
    host_->With([&](MasterCore& core, const MasterCore::Now& now) {
      core.StreamEnded(incarnation, joined_at, broke, reason, now);
    });
  }
  writer.join();
  return host_->stopped() ? ToGrpc(absl::UnavailableError("the master stops")) : grpc::Status::OK;
}

void ClusterServiceImpl::SendAssignments(uint64_t incarnation, grpc::ServerContext* context,
                                         Stream* stream, const std::atomic<bool>& ended) {
  uint64_t seen = 0;
  std::string sent;
  bool released = false;
  while (!ended && host_->AwaitChange(&seen, absl::Seconds(1)) && !ended) {
    v1::MasterMessage out;
    std::string key;
    bool may_leave = false;
    const bool alive = host_->Look([&](MasterCore& core, const MasterCore::Now&) {
      key = core.AssignmentKey(incarnation);
      if (key != sent) *out.mutable_assignment() = core.AssignmentFor(incarnation);
      may_leave = core.MayLeave(incarnation);
      return core.IsAlive(incarnation);
    });
    if (!alive) break;
    if (may_leave && !released) {
      v1::MasterMessage release;
      release.mutable_release();
      if (!stream->Write(release)) break;
      released = true;
    }
    if (key == sent) continue;
    // A master that dies must know afterwards what it has said.
    if (!host_->Flush().ok()) continue;
    if (!stream->Write(out)) break;
    sent = key;
  }
  context->TryCancel();
}

}  // namespace tessera::master
