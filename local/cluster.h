#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/channels.h"

namespace tessera::local {

// Called in a thread of the cluster with events for people.
using Say = std::function<void(const std::string&)>;

// Options of both kinds of cluster. All folders are absolute.
struct ClusterOptions {
  // Used by this cluster alone, for its processes' folders and logs.
  std::string work_folder;
  std::string data_root;
  std::string checkpoint_root;
  std::string output_root;  // for predictions
  int ps = 1;
  int workers = 1;
  // Workers have servers, too, for jobs whose workers call each other.
  bool workers_serve = false;
  // In one process: each ps's memory for rows; rows beyond it are on disk. 0: all are in memory.
  uint64_t ps_memory_bytes = 0;
  bool ps_page_cache = false;  // ParameterServer::Options::spill_page_cache
  // In one process: see Master::Options.
  absl::Duration least_run = absl::Seconds(10);
  // Separate processes: workers and ps share memory.
  bool share_memory = true;
  // Threads of each worker's dense products.
  int compute_threads = 1;
  std::string device = "auto";
  uint64_t data_cache_bytes = 0;  // of each worker; 0: tessera-worker's default
  // The folder of tessera-master, tessera-ps and tessera-worker; empty: that of this program.
  std::string program_folder;
  Say say;
  // Called once when the cluster cannot go on; it can only be stopped then. Must not call Stop.
  std::function<void(const absl::Status&)> on_failure;
};

// One master, some ps and workers on this machine, for one program's use. The cluster runs until it
// is stopped or destroyed. Thread-safe.
class Cluster {
 public:
  virtual ~Cluster() = default;  // stops
  virtual const std::string& master_address() const = 0;
  // The channels that reach the master. Borrowed from the cluster.
  virtual Channels& channels() = 0;
  // Ends all processes, separate ones with SIGTERM first; takes at most some ten seconds.
  virtual void Stop() = 0;
};

// Separate processes on loopback: the programs beside this one (tessera-master, tessera-ps,
// tessera-worker), each with its own folder and its log in work_folder/logs. A process that dies is
// started again with the same command, with backoff; see RestartPolicy. All die with this process.
// NOT_FOUND: a program is missing.
absl::StatusOr<std::unique_ptr<Cluster>> StartProcessCluster(ClusterOptions options);

// All in this process, over gRPC's in-process transport: no restarts, easy to debug.
absl::StatusOr<std::unique_ptr<Cluster>> StartInProcessCluster(ClusterOptions options);

}  // namespace tessera::local
