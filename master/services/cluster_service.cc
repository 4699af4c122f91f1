#include <atomic>
#include <string>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/rpc/status.h"
#include "master/services/services.h"

namespace tessera::master {
namespace {

constexpr absl::Duration kHelloWithin = absl::Seconds(10);

}  // namespace

grpc::Status ClusterServiceImpl::Join(grpc::ServerContext* context, Stream* stream) {
  v1::NodeMessage in;
  // Frees the thread of a peer that connects and sends nothing for kHelloWithin.
  absl::Notification said;
  std::thread limit([&] {
    if (!said.WaitForNotificationWithTimeout(kHelloWithin)) context->TryCancel();
  });
  const bool read = stream->Read(&in);
  said.Notify();
  limit.join();
  // Bytes that are no message also fail the read.
  if (!read || !in.has_hello()) {
    return ToGrpc(absl::InvalidArgumentError("the first message of Join must be Hello"));
  }
  const v1::Hello hello = in.hello();
  // A process that comes back to a master that has just ended its stream goes on with the next
  // master: for this one the process is still alive, under its incarnation.
  if (host_->stopped()) return ToGrpc(absl::UnavailableError("the master stops"));
  absl::Duration joined_at;
  absl::StatusOr<v1::Welcome> welcome = host_->Update([&](MasterCore& core, const Now& now) {
    joined_at = now.monotonic;
    return core.Join(hello, now);
  });
  if (!welcome.ok()) return ToGrpc(welcome.status());
  const uint64_t incarnation = welcome->incarnation();
  std::string reason = "its connection broke";
  bool broke = true;
  const auto leave = absl::MakeCleanup([&] {
    // The master stops: its processes are not lost, but will join the next master.
    if (host_->stopped()) return;
    host_->Update([&](MasterCore& core, const Now& now) {
      core.StreamEnded(incarnation, joined_at, broke, reason, now);
    });
    SPDLOG_INFO("{} (incarnation {}) is gone: {}", welcome->name(), incarnation, reason);
  });
  // A new incarnation's number must never be given again, so it becomes durable before the Welcome.
  // A process that goes on has its number already, and must not end because a disk is slow.
  const bool goes_on = hello.incarnation() != 0;
  if (absl::Status status = goes_on ? absl::OkStatus() : host_->Flush(); !status.ok()) {
    reason = "the master's state log fails";
    return ToGrpc(absl::UnavailableError(
        absl::StrCat("the master cannot write its state: ", status.message())));
  }
  // A new process could not be heard before: its lease begins now.
  const bool lives = goes_on || host_->UpdateQuietly([&](MasterCore& core, const Now& now) {
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
    alive = host_->UpdateQuietly([&](MasterCore& core, const Now& now) {
      return core.Heartbeat(incarnation, in.heartbeat(), now);
    });
    if (!alive) break;
  }
  broke = context->IsCancelled();
  if (!broke) reason = alive ? "it left" : "its lease is over";
  ended = true;
  // The change ends the writer.
  if (!host_->stopped()) {
    host_->Update([&](MasterCore& core, const Now& now) {
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
    const bool alive = host_->Read([&](const MasterCore& core, const Now&) {
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
    // Makes the assignment durable before it is sent, for a master that restarts.
    if (!host_->Flush().ok()) continue;
    if (!stream->Write(out)) break;
    sent = key;
  }
  context->TryCancel();
}

}  // namespace tessera::master
