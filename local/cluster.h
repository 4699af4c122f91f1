#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/channels.h"

namespace tessera::local {

// Told in a thread of the cluster: what happens, for people.
using Say = std::function<void(const std::string&)>;

// What both kinds of cluster are made of. All folders are absolute.
struct ClusterOptions {
  // Of this cluster alone; everything below is written into it.
  std::string work_folder;
  std::string data_root;
  std::string checkpoint_root;
  std::string output_root;  // of predictions
  int ps = 1;
  int workers = 1;
  // Workers have servers, too, which jobs need whose workers call each other.
  bool workers_serve = false;
  // In one process: of each ps, for rows; what has no room is on disk. 0: all rows are in memory.
  uint64_t ps_memory_bytes = 0;
  bool ps_page_cache = false;  // ParameterServer::Options::spill_page_cache
  // In one process: see Master::Options.
  absl::Duration least_run = absl::Seconds(10);
  // Separate processes: workers and ps share memory.
  bool share_memory = true;
  // Of each worker's dense products.
  int compute_threads = 1;
  std::string device = "auto";
  uint64_t data_cache_bytes = 0;  // of each worker; 0: as tessera-worker has it
  // Where tessera-master, tessera-ps and tessera-worker are; empty: beside this program.
  std::string program_folder;
  Say say;
  // The cluster cannot go on: told once, after which it is only good for Stop. Does not call Stop.
  std::function<void(const absl::Status&)> on_failure;
};

// One master, some ps and workers on this machine, for one program's use. Runs until it is stopped
// or destroyed. Thread-safe.
class Cluster {
 public:
  virtual ~Cluster() = default;  // stops
  virtual const std::string& master_address() const = 0;
  // How to reach the master. Borrowed from the cluster.
  virtual Channels& channels() = 0;
  // Ends all processes, with SIGTERM at first where they are separate; at most some ten seconds.
  virtual void Stop() = 0;
};

// Separate processes on loopback: the programs beside this one (tessera-master, tessera-ps,
// tessera-worker), each with its own folder and its log in work_folder/logs. One that dies is
// started again on its port and folder, with backoff; see RestartPolicy. They die with this
// process. NOT_FOUND: a program is missing.
absl::StatusOr<std::unique_ptr<Cluster>> StartProcessCluster(ClusterOptions options);

// All in this process, over gRPC's in-process transport: nothing to restart, easy to debug.
absl::StatusOr<std::unique_ptr<Cluster>> StartInProcessCluster(ClusterOptions options);

}  // namespace tessera::local
