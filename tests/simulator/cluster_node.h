#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "tessera/v1/cluster.pb.h"
#include "tests/simulator/world.h"

namespace tessera::simulator {

class MasterNode;

// How a ps or a worker belongs to the cluster, as common/cluster/node.h does it.
class ClusterNode {
 public:
  struct Callbacks {
    std::function<v1::Heartbeat()> heartbeat;
    std::function<void(uint64_t incarnation)> welcome;
    std::function<void(const v1::Assignment&)> assignment;
    std::function<void()> lost;
    std::function<void()> released;  // asked to leave, it may, or there is no master to ask
  };
  // Borrowed, outliving the node.
  ClusterNode(Process* process, Network* network, MasterNode* master, v1::NodeKind kind,
              Callbacks callbacks)
      : process_(*process),
        network_(*network),
        master_(*master),
        kind_(kind),
        callbacks_(std::move(callbacks)) {}

  // Hello.process of this life's.
  static uint64_t ProcessOf(const Process& process);
  // The process has started.
  void Begin();
  void AskForLeave();
  Process& process() { return process_; }

  // From the master, in the order in which it said so; of the session of that number.
  void TakeAssignment(uint64_t session, const v1::Assignment& assignment);
  void TakeRelease(uint64_t session);
  void End(uint64_t session);

 private:
  void Join();
  void SendHeartbeat(uint64_t session);
  void SendHeartbeats(uint64_t session);

  Process& process_;
  Network& network_;
  MasterNode& master_;
  const v1::NodeKind kind_;
  const Callbacks callbacks_;
  uint64_t session_ = 0;                 // counts them
  uint64_t incarnation_ = 0;             // 0: not in a session
  uint64_t had_ = 0;                     // the last one, unless it is over
  std::optional<v1::Assignment> early_;  // has overtaken the Welcome
  absl::Duration last_sent_;
  bool leaving_ = false;
};

}  // namespace tessera::simulator
