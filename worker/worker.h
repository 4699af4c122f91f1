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
    // For unpacked copies of compressed files. Locked: one worker each. Empty: a fresh folder below
    // the system's temporary one.
    std::string scratch_folder;
    // Predictions are written below this folder.
    std::string output_root = ".";
    // Of the dense graph; results do not depend on it. 0: one per processor.
    int compute_threads = 1;
    // Of parsed records, which later epochs find there.
    uint64_t data_cache_bytes = DataSource::kDefaultCacheBytes;
    // What there is of a job's data is kept for so long where no assignment follows: the job may
    // restart. At once where the job has said that it has ended.
    absl::Duration keep_data_for = absl::Minutes(1);
    // "auto", "cpu", "cuda", "cuda:N": what jobs that say "auto" get.
    std::string device = "auto";
    // With ps on this machine that agree: rows and gradients then go through it, past the network.
    bool share_memory = true;
    Channels* channels = nullptr;  // borrowed, outlives the worker
    // Set: serve health, reflection, metrics and, to other workers of its job, partial sums of
    // dense gradients there; only jobs with train.dense_gradients ALL_REDUCE need that.
    std::optional<ServerOptions> server;
    // Where it counts; null: in one of its own. Borrowed, outlives the worker.
    MetricsRegistry* metrics = nullptr;
    // Told once, in a thread of the worker's, what WaitForFatal says. Does not call Stop.
    std::function<void(const absl::Status&)> on_fatal;
  };

  // FAILED_PRECONDITION: the scratch folder is in use, the device cannot be had, or the server's
  // address needs `insecure`; UNAVAILABLE: the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<Worker>> Start(Options options);

  // Stops, giving up what is under way.
  virtual ~Worker() = default;
  virtual void Stop() = 0;
  // The first half of Stop: gives up what is under way, calls nobody any more, and still answers
  // calls.
  virtual void Leave() = 0;
  // Where it serves; empty without a server.
  virtual std::string address() const = 0;
  // Waits, at most `limit`, until this worker cannot go on: the master has refused it for good, or
  // (INTERNAL) its card is lost, and another process is to take its place. OK: it goes on.
  virtual absl::Status WaitForFatal(absl::Duration limit) = 0;
};

}  // namespace tessera::worker
