#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/task_pool.h"
#include "ps/cold/known_filter.h"
#include "ps/cold/record_format.h"

namespace rocksdb {
class FileSystem;
}  // namespace rocksdb

namespace tessera::ps {

// One table of the tier: rows are records of one size.
struct ColdTable {
  std::string name;
  uint32_t record_bytes = 0;
};

struct ColdRecord {
  ColdKey key;
  const char* bytes = nullptr;  // [record_bytes]; borrowed for the call
};

// Partitions first to last, both included.
struct PartitionRange {
  uint32_t first = 0;
  uint32_t last = 0;
};

// The records of all tables as they were when it was taken. Records replaced meanwhile stay on disk
// for it. Ends before its store.
class ColdSnapshot {
 public:
  virtual ~ColdSnapshot() = default;
};

// Reads all of a table's records, in one pass over its files. Not thread-safe.
class ColdScan {
 public:
  virtual ~ColdScan() = default;
  // Visits the partition's records, ascending by key; ends with the first error of `visit`.
  // Partitions are asked for in ascending order.
  virtual absl::Status Visit(
      uint32_t partition,
      absl::FunctionRef<absl::Status(uint64_t key, const char* record)> visit) = 0;
};

// Rows on disk: the tier below the memory of one job on one ps. Records by (table, partition, key),
// in RocksDB, a column family a table.
//
// Scratch: the folder is emptied by Open and removed by the destructor, nothing is logged or
// synced. What must outlive the process is in checkpoints.
//
// Every record is verified when it is read, against RocksDB's checksum of its block and against its
// own (record_format.h).
//
// Thread-safe. A call sees what calls that have returned before it wrote; a batch is not atomic for
// readers. Errors: DATA_LOSS names table, key (or partition) and folder; RESOURCE_EXHAUSTED names
// folder, cap and use, or a full disk; UNAVAILABLE: an I/O error, try again.
class ColdStore {
 public:
  struct Options {
    std::string folder;  // of this store alone; created
    // Most bytes of all files in the folder, compactions under way included. Rows are written up to
    // 15/16 of it.
    uint64_t max_bytes = UINT64_MAX;
    // True: reads go through the kernel's page cache, which is faster if it has room for the files,
    // in memory that the kernel can take back. False: past it, because memory belongs to rows, not
    // to blocks.
    bool page_cache = false;
    TaskPool* readers = nullptr;  // borrowed, outlives the store
    // Null: the machine's own disk. Tests put faults in.
    std::shared_ptr<rocksdb::FileSystem> disk = nullptr;
  };
  struct Stats {
    uint64_t records_written = 0;
    uint64_t record_bytes_written = 0;
    uint64_t device_bytes_written = 0;  // compactions included
    uint64_t folder_bytes = 0;
    uint64_t known_keys = 0;    // keys in the filters: ever written, or since they were renewed
    uint64_t memory_bytes = 0;  // filters and indices
  };

  // FAILED_PRECONDITION: another store, of this process or another, has the folder.
  static absl::StatusOr<std::unique_ptr<ColdStore>> Open(Options options,
                                                         std::vector<ColdTable> tables);
  virtual ~ColdStore() = default;

  // may[i] = 0: there is no record of keys[i]. Asks memory alone; for a few in a thousand keys that
  // were never written it answers 1.
  virtual size_t MayContain(uint32_t table, absl::Span<const uint64_t> keys,
                            uint8_t* may) const = 0;
  // The filter behind MayContain. Every Write adds to it before it begins. A caller that renews it
  // ensures that no Write is under way when the renewal begins, and keeps the keys of all records
  // that exist then.
  virtual KnownFilter& Known(uint32_t table) = 0;
  // found[i] = 1: records[i] is the newest record of keys[i]; 0: there is none, and records[i] is
  // untouched. After an error both hold anything.
  virtual absl::Status Read(uint32_t table,
                            absl::Span<const ColdKey> keys,         // ascending
                            char* records,                          // [keys, record_bytes]
                            uint8_t* found,                         // [keys]
                            const ColdSnapshot* at = nullptr) = 0;  // null: now
  // Writes or replaces records, all of them or none. A batch is a file: large ones cost less a row.
  virtual absl::Status Write(uint32_t table,
                             absl::Span<const ColdRecord> records) = 0;  // ascending, no key twice
  // Wait while many batches are yet to be merged: between Writes for 10 s at most, before an Erase
  // for a moment. Write and Erase do not wait, because their callers may hold locks; without this,
  // reads look into ever more files. Once `stopped` is true, waiting for writes ends soon.
  virtual void AwaitCompactionOfWrites(uint32_t table, const std::atomic<bool>& stopped) = 0;
  virtual void AwaitCompactionToErase(uint32_t table) = 0;
  virtual absl::Status Erase(uint32_t table,
                             absl::Span<const ColdKey> keys) = 0;  // ascending, no key twice
  // Erases all records of whole partitions; the time depends on the number of ranges.
  virtual absl::Status ErasePartitions(
      uint32_t table, absl::Span<const PartitionRange> ranges) = 0;  // ascending, apart
  // Visits a partition's records, ascending by key, each as it was at some moment of the call; ends
  // with the first error of `visit`.
  virtual absl::Status VisitPartition(
      uint32_t table, uint32_t partition,
      absl::FunctionRef<absl::Status(uint64_t key, const char* record)> visit) = 0;
  // A scan as of `at`, or of now. It ends before the store, and before `at`.
  virtual std::unique_ptr<ColdScan> Scan(uint32_t table, const ColdSnapshot* at = nullptr) = 0;
  virtual std::unique_ptr<ColdSnapshot> TakeSnapshot() = 0;

  virtual Stats stats() const = 0;
  // Memory of one table's filters and indices.
  virtual uint64_t MemoryBytes(uint32_t table) const = 0;
};

}  // namespace tessera::ps
