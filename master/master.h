#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/file_system.h"
#include "common/metrics/metrics.h"
#include "common/rpc/channels.h"
#include "common/rpc/server.h"
#include "master/core/quotas.h"
#include "master/state/state_log.h"

namespace tessera::master {

// The master as a whole: the core (core.h), its durable state, the three services and the threads
// that drive them. This is the room's front door. Thread-safe.
class Master {
 public:
  struct Options {
    ServerOptions server;
    // The folder of the durable state (RocksDB); empty: the state lives in memory and ends with
    // this object.
    std::string data_dir;
    // Set: keeps the durable state, in place of data_dir. Borrowed, outlives the master.
    StateLog* state_log = nullptr;
    // The same folder for the master and all ps.
    std::string checkpoint_root;
    // The registry of the master's metrics; null: one of its own. Served either way. Borrowed,
    // outlives the master.
    MetricsRegistry* metrics = nullptr;
    Channels* channels = nullptr;  // to the ps; borrowed, outlives the master
    FileSystem* files = &PosixFileSystem();
    const Clock* clock = &SystemClock();
    // A node that says nothing for so long is dead.
    absl::Duration lease = absl::Seconds(10);
    absl::Duration heartbeat = absl::Seconds(2);
    // A job that takes as many processes as live starts when nobody has joined for this long.
    absl::Duration settle = absl::Seconds(1);
    // A job that has trained for less than this since its start is not pre-empted.
    absl::Duration least_run = absl::Seconds(10);
    // A worker that lives, makes no step and waits for nobody is replaced after this.
    absl::Duration stuck_after = absl::Minutes(10);
    Quotas quotas;
  };

  // FAILED_PRECONDITION: the data folder is in use, or an address that others can reach without
  // `insecure`; UNAVAILABLE: the address is taken; DATA_LOSS: the state is damaged.
  static absl::StatusOr<std::unique_ptr<Master>> Start(const Options& options);

  virtual ~Master() = default;  // stops at once
  // The address that workers, ps and clients connect to.
  virtual const std::string& address() const = 0;
  // Ends all streams and calls, those under way after `grace`. Jobs stay as they are and go on with
  // the next master.
  virtual void Stop(absl::Duration grace) = 0;
};

}  // namespace tessera::master
