#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/metrics/metrics.h"
#include "common/rpc/server.h"
#include "worker/data/data_source.h"

namespace tessera::worker {

// The front door of the room: a worker that joins the master and works off its assignments, one at
// a time, in a thread of its own. Thread-safe.
class Worker {
 public:
  struct Options {
    std::string master_address;
    // Stable over restarts, e.g. "worker-0". Empty: the master picks one.
    std::string name;
    // Files that jobs name lie below this folder.
    std::string data_root = ".";
    // For unpacked copies of compressed files. Locked: each worker needs its own. Empty: a new
    // folder below the system's temporary one.
    std::string scratch_folder;
    // Predictions are written below this folder.
    std::string output_root = ".";
    // Threads that compute the dense graph; results do not depend on it. 0: one per processor.
    int compute_threads = 1;
    // Most memory for parsed records, which later epochs need not parse.
    uint64_t data_cache_bytes = DataSource::kDefaultCacheBytes;
    // How long a job's data is kept when no assignment follows, since the job may restart. Once the
    // master has said that the job has ended, the data is freed at once.
    absl::Duration keep_data_for = absl::Minutes(1);
    // "auto", "cpu", "cuda" or "cuda:N": the device for jobs that say "auto".
    std::string device = "auto";
    // Rows and gradients go through shared memory to and from those ps on this machine that agree.
    bool share_memory = true;
    Channels* channels = nullptr;  // borrowed, outlives the worker
    // If set, the worker serves health, reflection and metrics there, and partial sums of dense
    // gradients to other workers of its job. Only jobs with train.dense_gradients ALL_REDUCE need
    // that.
    std::optional<ServerOptions> server;
    // Where the worker counts; null: in a registry of its own. Borrowed, outlives the worker.
    MetricsRegistry* metrics = nullptr;
    // Called once, in a thread of the worker, with what WaitForFatal returns. Must not call Stop.
    std::function<void(const absl::Status&)> on_fatal;
  };

  // FAILED_PRECONDITION: the scratch folder is in use, the device cannot be had, or the server's
  // address needs `insecure`; UNAVAILABLE: the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<Worker>> Start(Options options);

  // Stop gives up what is under way and ends the worker's threads; the destructor stops too.
  virtual ~Worker() = default;
  virtual void Stop() = 0;
  // The first half of Stop: gives up what is under way and makes no more calls, but still answers
  // calls.
  virtual void Leave() = 0;
  // The address where it serves; empty without a server.
  virtual std::string address() const = 0;
  // Waits until this worker cannot go on, or for `limit`, and returns OK then. It cannot go on if
  // the master has refused it for good, or (INTERNAL) its card is lost: another process should take
  // its place.
  virtual absl::Status WaitForFatal(absl::Duration limit) = 0;
};

}  // namespace tessera::worker
