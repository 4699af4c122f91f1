#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "common/task_pool.h"
#include "ps/cold/cold_store.h"
#include "ps/evictor.h"
#include "ps/memory_budget.h"
#include "ps/table.h"

namespace tessera::ps {

// What the jobs of a ps share where rows may leave memory for disk: the budget, the thread that
// keeps it, the threads that read, and the folder. Thread-safe; outlives the jobs.
class Spill {
 public:
  struct Options {
    std::string folder;  // of this process alone: locked, and wiped of what an earlier left
    // For rows and what their tier takes in memory or, if `of_process`, for all that this process
    // has resident; rows get what the rest leaves, at least half.
    uint64_t memory_bytes = 0;
    bool of_process = false;
    uint64_t max_job_bytes = UINT64_MAX;  // of files of one job
    bool page_cache = false;              // as ColdStore's
    // Each has as many reads in flight as a MultiGet finds in one file (UringReads), or one. 0: 16
    // that wait for the disk, or one a processor where most reads are of the page cache.
    int reader_threads = 0;
    absl::Duration room_limit = absl::Seconds(10);  // as TableTier's
  };

  // FAILED_PRECONDITION: another process has the folder.
  static absl::StatusOr<std::unique_ptr<Spill>> Open(Options options);

  const Options& options() const { return options_; }
  MemoryBudget& budget() { return budget_; }
  Evictor& evictor() { return evictor_; }
  TaskPool& readers() { return readers_; }
  // A folder that no other job has, below that of the options.
  std::string NewFolder();
  // Gives those of a job's tables that may spill their place on disk; they go before it does.
  // `shared` (null: none) is that of the same tables with other partitions. Null: none may.
  absl::StatusOr<std::shared_ptr<ColdStore>> Attach(
      const std::vector<std::unique_ptr<Table>>& tables,
      std::shared_ptr<ColdStore> shared = nullptr);

 private:
  Spill(Options options, std::unique_ptr<FolderLock> lock);

  const Options options_;
  const std::unique_ptr<FolderLock> lock_;
  std::atomic<uint64_t> folders_ = 0;
  MemoryBudget budget_;
  Evictor evictor_;
  // Threads that wait for the disk, so that many reads are in flight: a device answers 64 reads at
  // once several times faster than one after another, and Debian's RocksDB reads in the thread that
  // asks.
  TaskPool readers_;
};

}  // namespace tessera::ps
