#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/backoff.h"
#include "common/rpc/channels.h"
#include "tessera/v1/cluster.pb.h"

namespace tessera {

// The membership of a ps or a worker in the cluster. The node keeps the stream to the master's
// ClusterService.Join open while it lives: it says Hello, heartbeats, and joins again with backoff
// whenever the stream breaks: with its old incarnation if the master accepts that, else with a new
// one.
//
// Owns one thread, which runs all callbacks, one at a time. They must return soon (a late heartbeat
// counts as death) and must not call Stop. Objects that they use outlive the node. Thread-safe.
class ClusterNode {
 public:
  struct Options {
    std::string master_address;
    // kind, name and address; the node fills in the rest.
    v1::Hello hello;
    Channels* channels = nullptr;  // borrowed, outlives the node
    Backoff::Options backoff;
    // A killed process's name stays taken until its lease has run out: for this long the node
    // retries after a refusal because of its name. Once a Welcome has told the lease, for 1.5
    // leases if that is longer.
    absl::Duration name_taken_limit = absl::Seconds(15);
    // The node gives up on a master that accepts the stream but does not answer within this time.
    absl::Duration welcome_limit = absl::Seconds(10);
    // How long a node that stops waits until the master has taken its goodbye.
    absl::Duration goodbye_limit = absl::Milliseconds(300);
    // While there is no master the node logs it once, then this often.
    absl::Duration log_every = absl::Seconds(5);
  };
  struct Callbacks {
    // Fills the current state into a copy of Options::hello.
    std::function<void(v1::Hello*)> hello = nullptr;
    // Returns the next heartbeat.
    std::function<v1::Heartbeat()> heartbeat;
    // The node has joined or joined again: with a new incarnation after `lost`, else with the same
    // one.
    std::function<void(const v1::Welcome&)> welcome;
    std::function<void(const v1::Assignment&)> assignment;
    // The incarnation has ended: its work counts no more, and the node joins anew. A broken stream
    // alone does not end it: a master that restarts may find its processes as they were.
    std::function<void(const absl::Status&)> lost;
    // The master refuses this process for good (e.g. FAILED_PRECONDITION: versions differ;
    // ALREADY_EXISTS: the name is taken). No other callback follows; main exits.
    std::function<void(const absl::Status&)> fatal;
  };

  // Draws a number for Hello.process, not 0. Start does so if the Hello has none.
  static uint64_t DrawProcess();
  // Returns at once. Callbacks that are null are not called.
  static std::unique_ptr<ClusterNode> Start(Options options, Callbacks callbacks);

  virtual ~ClusterNode() = default;  // stops
  // Call before Stop, so that others lose nothing that this process has: tells the master that the
  // process wants to stop (Heartbeat.leaving), and waits until the master releases it. False: no
  // release within `limit`, or no master is connected, now or later during the wait; with
  // `awaits_master` it waits for a master, too.
  virtual bool AwaitRelease(absl::Duration limit, bool awaits_master = false) = 0;
  // Sends the next heartbeat at once, since it says what the master should not wait for. Does
  // nothing while no master is connected. Any thread, callbacks too; does not wait.
  virtual void Beat() = 0;
  // Says goodbye to the master, which has Options::goodbye_limit to take it: then the stream is
  // broken off. No callback runs after Stop returns. A second call does nothing.
  virtual void Stop() = 0;
};

}  // namespace tessera
