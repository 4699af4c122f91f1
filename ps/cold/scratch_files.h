#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "rocksdb/file_system.h"

namespace tessera::ps {

// RocksDB's files as the tier wants them. They are never synced, since nothing in them outlives the
// process. They are counted, so that the folder's use and what went to the device are known. They
// take at most max_bytes in all; past that, appends fail as on a full disk: to tables with NoSpace,
// to RocksDB's own records with a SpaceLimit that may pass. A file that has lost its end is
// Corruption when it is read there. Thread-safe.
class ScratchFiles final : public rocksdb::FileSystemWrapper {
 public:
  ScratchFiles(std::shared_ptr<rocksdb::FileSystem> disk, uint64_t max_bytes);

  const char* Name() const override { return "TesseraScratchFiles"; }

  // Bytes of all files that exist now.
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  // Bytes written since the start, compactions included.
  uint64_t bytes_written() const { return bytes_written_.load(std::memory_order_relaxed); }

  // From now on writing RocksDB's own records does not fail: one that cannot be written is dropped.
  // For a database that is closed and not opened again. True: there was no room for one before.
  bool DropRecords() {
    drop_records_ = true;
    return lacked_room_;
  }

  // rocksdb::FileSystem:
  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus NewRandomAccessFile(const std::string& path,
                                        const rocksdb::FileOptions& options,
                                        std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                                        rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus ReopenWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                       std::unique_ptr<rocksdb::FSWritableFile>* file,
                                       rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus NewDirectory(const std::string& path, const rocksdb::IOOptions& options,
                                 std::unique_ptr<rocksdb::FSDirectory>* directory,
                                 rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus DeleteFile(const std::string& path, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus LinkFile(const std::string& from, const std::string& to,
                             const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* dbg) override;

 private:
  class File;
  class ReadFile;
  class DroppedFile;

  // What RocksDB is told of a write to `path` that ended with `status`.
  rocksdb::IOStatus ForRocksDb(const std::string& path, rocksdb::IOStatus status);
  // NoSpace: the folder would be larger than max_bytes.
  rocksdb::IOStatus Take(uint64_t bytes);
  void Give(uint64_t bytes) { bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  // Bytes of a file that is counted under its path; a link shares the number.
  using Size = std::shared_ptr<std::atomic<uint64_t>>;
  Size SizeOf(const std::string& path) ABSL_LOCKS_EXCLUDED(mu_);
  void Forget(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const uint64_t max_bytes_;
  std::atomic<uint64_t> bytes_ = 0;
  std::atomic<uint64_t> bytes_written_ = 0;
  // Of RocksDB's own records.
  std::atomic<bool> lacked_room_ = false;
  std::atomic<bool> drop_records_ = false;
  absl::Mutex mu_;
  std::map<std::string, Size> sizes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::ps
