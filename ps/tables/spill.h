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
#include "ps/memory/memory_budget.h"
#include "ps/tables/evictor.h"
#include "ps/tables/table.h"

namespace tessera::ps {

// What the jobs of a ps share if rows may leave memory for disk: the budget, the thread that keeps
// it, the threads that read, and the folder. Thread-safe; outlives the jobs.
class Spill {
 public:
  struct Options {
    std::string folder;  // of this process alone; locked, and emptied at the start
    // The budget: for rows and what their tier takes in memory or, with `of_process`, for all that
    // this process has resident. Rows get what the rest leaves, at least half.
    uint64_t memory_bytes = 0;
    bool of_process = false;
    uint64_t max_job_bytes = UINT64_MAX;  // of files of one job
    bool page_cache = false;              // as ColdStore's
    // Threads that read. Each has as many reads in flight as a MultiGet finds in one file
    // (UringReads), or one. 0: 16, since they wait for the disk, or one a processor if most reads
    // hit the page cache.
    int reader_threads = 0;
    absl::Duration room_limit = absl::Seconds(10);  // as TableTier's
  };

  // FAILED_PRECONDITION: another process has the folder.
  static absl::StatusOr<std::unique_ptr<Spill>> Open(Options options);

  const Options& options() const { return options_; }
  MemoryBudget& budget() { return budget_; }
  Evictor& evictor() { return evictor_; }
  TaskPool& readers() { return readers_; }
  // A folder below that of the options that no other job has.
  std::string NewFolder();
  // Gives a place on disk to those of a job's tables that may spill; they end before it does.
  // `shared` (null: none) is the store of the same tables with other partitions. Returns null if no
  // table may spill.
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
