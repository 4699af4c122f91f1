#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/file_system.h"
#include "common/metrics/metrics.h"
#include "common/rpc/server.h"

namespace tessera::ps {

// The front door of the room: a parameter server that serves ParameterService and belongs to the
// master's cluster. Thread-safe.
class ParameterServer {
 public:
  struct Options {
    ServerOptions server = {.max_received_bytes = 1 << 30};  // waiting requests included
    // Host by which other machines reach this one, if it is not the host of server.listen.
    std::string advertise_host;
    std::string master_address;
    // Stable over restarts, e.g. "ps-0". Empty: the master picks one.
    std::string name;
    // Folder of this process alone, which it locks, for push logs. Empty: there is none, and jobs
    // with a push log are refused.
    std::string data_folder;
    // Most bytes of a job's push log. 0: as much as the disk has.
    uint64_t max_log_bytes = 0;
    // Folder of this process alone, for rows that memory_bytes has no room for. Empty: all rows are
    // in memory. What it holds does not outlive the process.
    std::string spill_folder;
    // As Spill::Options has them: memory for rows that may spill, over all jobs, or for the whole
    // process. Rows that stay in memory (those of dense or EVERY_ROW tables; without a spill folder
    // all) are refused where they do not fit (RowLimit), with a spill folder beside the half of it
    // that rows that may spill have at least. 0, without a spill folder: however many there are.
    uint64_t memory_bytes = 0;
    bool memory_of_process = false;
    // Most bytes of a job's files in the spill folder.
    uint64_t max_spill_bytes = UINT64_MAX;
    // Rows on disk are read through the kernel's page cache (ColdStore::Options).
    bool spill_page_cache = false;
    // As JobShard::Options has them: of all jobs.
    uint64_t max_held_push_bytes = 768 << 20;
    uint64_t max_waiting_bytes = 64 << 20;
    uint64_t max_copied_bytes = 1 << 30;
    double writer_share = 0.1;
    // Folder that checkpoints lie in; the same as the master's.
    std::string checkpoint_root = ".";
    // Threads that work on requests. 0: one per processor, and one more (TaskQueue says why).
    int threads = 0;
    // Bytes of requests that wait for a thread or have one; more are refused with
    // RESOURCE_EXHAUSTED.
    uint64_t max_queued_bytes = 512 << 20;
    // Bytes of answers that workers have not taken yet; above it, pulls are refused the same way.
    uint64_t max_unsent_bytes = 256 << 20;
    // Bytes of memory that workers on this machine share, so that rows and gradients need not go
    // through the network; what does not fit goes there. 0: none is shared.
    uint64_t max_shared_bytes = 1 << 30;
    // The registry that it counts in; null: one of its own. Served in both cases. Borrowed,
    // outlives the server.
    MetricsRegistry* metrics = nullptr;
    Channels* channels = nullptr;  // borrowed, outlives the server
    FileSystem* files = nullptr;   // borrowed, outlives the server
    const Clock* clock = nullptr;  // borrowed, outlives the server

    // Lowers the bounds of what is beside rows to shares of `memory` bytes for the whole process:
    // three eighths together, an eighth that is shared with workers, and what senders leave
    // unfinished, a quarter with the requests in hand. Those that are below their share stay.
    void BoundBeside(uint64_t memory);
  };

  // Listens when it returns; joins the cluster on its own, however late the master comes.
  // FAILED_PRECONDITION: the data folder or the spill folder is in use, or the address needs
  // `insecure` or advertise_host; UNAVAILABLE: the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<ParameterServer>> Start(Options options);

  virtual ~ParameterServer() = default;  // stops
  // What Channels::Connect takes.
  virtual const std::string& address() const = 0;
  // Asks the master for leave, and serves until it has it: until jobs that would lose what they
  // have trained have cut a checkpoint. Health is NOT_SERVING from here on. False: not within
  // `limit`, or there is no master.
  virtual bool AwaitRelease(absl::Duration limit) = 0;
  // Leaves the cluster: makes no call to the master from here on, and still serves. Stop does it
  // too.
  virtual void Leave() = 0;
  // Leaves the cluster and stops serving: running calls may finish for `grace`, calls that wait for
  // a step are ended. The rows are gone afterwards.
  virtual void Stop(absl::Duration grace) = 0;
  // Waits, at most `limit`, until the master has refused this ps for good; OK: it has not.
  virtual absl::Status WaitForFatal(absl::Duration limit) = 0;
};

}  // namespace tessera::ps
