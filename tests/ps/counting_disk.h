#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "rocksdb/file_system.h"

namespace tessera::ps {

// Counts the bytes that are read, and the files that are opened to be read past the page cache.
class CountingDisk final : public rocksdb::FileSystemWrapper {
 public:
  CountingDisk() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "CountingDisk"; }
  uint64_t bytes_read() const { return bytes_read_; }
  uint64_t direct_files() const { return direct_files_; }
  rocksdb::IOStatus NewRandomAccessFile(const std::string& path,
                                        const rocksdb::FileOptions& options,
                                        std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                                        rocksdb::IODebugContext* dbg) override {
    rocksdb::IOStatus status = FileSystemWrapper::NewRandomAccessFile(path, options, file, dbg);
    if (options.use_direct_reads) ++direct_files_;
    if (status.ok()) *file = std::make_unique<File>(std::move(*file), bytes_read_);
    return status;
  }

 private:
  class File final : public rocksdb::FSRandomAccessFileOwnerWrapper {
   public:
    File(std::unique_ptr<rocksdb::FSRandomAccessFile> file, std::atomic<uint64_t>& bytes)
        : FSRandomAccessFileOwnerWrapper(std::move(file)), bytes_(bytes) {}
    rocksdb::IOStatus Read(uint64_t offset, size_t n, const rocksdb::IOOptions& options,
                           rocksdb::Slice* result, char* scratch,
                           rocksdb::IODebugContext* dbg) const override {
      bytes_ += n;
      return FSRandomAccessFileOwnerWrapper::Read(offset, n, options, result, scratch, dbg);
    }

   private:
    std::atomic<uint64_t>& bytes_;
  };
  std::atomic<uint64_t> bytes_read_ = 0;
  std::atomic<uint64_t> direct_files_ = 0;
};

}  // namespace tessera::ps
