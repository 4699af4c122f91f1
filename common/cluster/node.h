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

// How a ps or a worker belongs to the cluster: keeps the stream to the master's ClusterService.Join
// open for as long as it lives, says Hello, heartbeats, and joins again with backoff whenever the
// stream breaks: as the incarnation that it was, where the master takes it up, else as a new one.
//
// Owns one thread, in which all callbacks run, one at a time: they return soon (a heartbeat that
// comes late counts as death) and do not call Stop. What they use outlives the node. Thread-safe.
class ClusterNode {
 public:
  struct Options {
    std::string master_address;
    // kind, name and address; the node fills in the rest.
    v1::Hello hello;
    Channels* channels = nullptr;  // borrowed, outlives the node
    Backoff::Options backoff;
    // A name is taken until the lease of a killed process has run out: for so long a refusal
    // because of it is retried. Once a Welcome has told the lease, the longer of the two counts.
    absl::Duration name_taken_limit = absl::Seconds(15);
    // A master that accepts the stream and does not answer is given up after this.
    absl::Duration welcome_limit = absl::Seconds(10);
    // While there is no master the log says so once, then this often.
    absl::Duration log_every = absl::Seconds(5);
  };
  struct Callbacks {
    // Adds to Options::hello what is true now.
    std::function<void(v1::Hello*)> hello = nullptr;
    // What the next heartbeat says.
    std::function<v1::Heartbeat()> heartbeat;
    // Joined, or joined again: with a new incarnation after `lost`, else with the same.
    std::function<void(const v1::Welcome&)> welcome;
    std::function<void(const v1::Assignment&)> assignment;
    // The incarnation is over: what it did counts no more. The node joins anew. A stream that
    // breaks says nothing of this: a master that restarts may find its processes as they were.
    std::function<void(const absl::Status&)> lost;
    // The master refuses this process for good (FAILED_PRECONDITION: versions differ;
    // ALREADY_EXISTS: its name is taken). Nothing else happens after this; main exits.
    std::function<void(const absl::Status&)> fatal;
  };

  // A number for Hello.process, which is not 0. Start draws one where the Hello has none.
  static uint64_t DrawProcess();
  // Returns at once. Callbacks that are null are not called.
  static std::unique_ptr<ClusterNode> Start(Options options, Callbacks callbacks);

  virtual ~ClusterNode() = default;  // stops
  // Before Stop, so that nobody loses what this process has: tells the master that it is to stop
  // (Heartbeat.leaving), and waits until it may. False: not within `limit`, or there is no master
  // to ask, from the start or from some time on; with `awaits_master` it waits for that, too.
  virtual bool AwaitRelease(absl::Duration limit, bool awaits_master = false) = 0;
  // Says goodbye to the master (half a second at most); no callback runs after it returns. A second
  // call does nothing.
  virtual void Stop() = 0;
};

}  // namespace tessera
