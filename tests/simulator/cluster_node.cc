#include "tests/simulator/cluster_node.h"

#include "absl/status/statusor.h"
#include "common/version.h"
#include "tests/simulator/master_node.h"

namespace tessera::simulator {

uint64_t ClusterNode::ProcessOf(const Process& process) {
  return process.life() + NameHash(process.name());
}

void ClusterNode::Begin() {
  incarnation_ = 0;
  had_ = 0;
  last_sent_ = absl::ZeroDuration();
  leaving_ = false;
  Join();
}

void ClusterNode::AskForLeave() {
  leaving_ = true;
  if (incarnation_ == 0) return callbacks_.released();
  SendHeartbeat(session_);
}

void ClusterNode::Join() {
  const uint64_t session = ++session_;
  early_.reset();
  v1::Hello hello;
  hello.set_kind(kind_);
  hello.set_name(process_.name());
  if (kind_ == v1::PS) hello.set_address(process_.name() + ":1");
  hello.set_version(kVersion);
  hello.set_protocol(kProtocolVersion);
  hello.set_process(ProcessOf(process_));
  hello.set_incarnation(had_);
  network_.Call<v1::Welcome>(
      process_, master_.process(), absl::Seconds(5),
      [this, hello, session](const Network::Reply<v1::Welcome>& reply) {
        reply(master_.Join(*this, session, hello));
      },
      [this, session, life = master_.process().life()](const absl::StatusOr<v1::Welcome>& welcome) {
        if (session != session_) return;
        if (absl::IsAborted(welcome.status()) && std::exchange(had_, 0) != 0) callbacks_.lost();
        if (!welcome.ok()) {
          process_.After(process_.world().Between(absl::Milliseconds(100), absl::Seconds(1)),
                         [this, session] {
                           if (session == session_) Join();
                         });
          return;
        }
        incarnation_ = had_ = welcome->incarnation();
        callbacks_.welcome(incarnation_);
        if (early_.has_value()) callbacks_.assignment(*std::exchange(early_, std::nullopt));
        process_.After(absl::Milliseconds(welcome->heartbeat_ms()),
                       [this, session] { SendHeartbeats(session); });
        // The stream breaks with the master.
        if (!master_.process().alive() || master_.process().life() != life) return End(session);
        master_.process().OnDeath([this, session] { return session != session_; },
                                  [this, session] {
                                    process_.After(network_.Delay(),
                                                   [this, session] { End(session); });
                                  });
      },
      Network::Arrives::kOnce);
}

void ClusterNode::SendHeartbeat(uint64_t session) {
  if (session != session_) return;
  v1::Heartbeat heartbeat = callbacks_.heartbeat();
  heartbeat.set_leaving(leaving_);
  network_.SendInOrder(
      process_, master_.process(), last_sent_,
      [this, heartbeat, incarnation = incarnation_] { master_.Heartbeat(incarnation, heartbeat); });
}

void ClusterNode::SendHeartbeats(uint64_t session) {
  if (session != session_) return;
  SendHeartbeat(session);
  process_.After(master_.heartbeat(), [this, session] { SendHeartbeats(session); });
}

void ClusterNode::TakeAssignment(uint64_t session, const v1::Assignment& assignment) {
  if (session != session_) return;
  if (incarnation_ != 0) return callbacks_.assignment(assignment);
  early_ = assignment;
}

void ClusterNode::TakeRelease(uint64_t session) {
  if (session == session_) callbacks_.released();
}

void ClusterNode::End(uint64_t session) {
  if (session != session_) return;
  incarnation_ = 0;
  if (leaving_) return callbacks_.released();
  Join();
}

}  // namespace tessera::simulator
