#include "ps/cold/scratch_files.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tessera::ps {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

class ScratchFiles::File final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  File(std::unique_ptr<rocksdb::FSWritableFile> file, ScratchFiles* owner, std::string path)
      : FSWritableFileOwnerWrapper(std::move(file)),
        owner_(*owner),
        path_(std::move(path)),
        size_(owner->SizeOf(path_)) {}

  IOStatus Append(const rocksdb::Slice& data, const IOOptions& options,
                  IODebugContext* dbg) override {
    IOStatus status = owner_.Take(data.size());
    if (!status.ok()) return owner_.ForRocksDb(path_, std::move(status));
    size_->fetch_add(data.size(), std::memory_order_relaxed);
    return owner_.ForRocksDb(path_, FSWritableFileOwnerWrapper::Append(data, options, dbg));
  }
  IOStatus Append(const rocksdb::Slice& data, const IOOptions& options,
                  const rocksdb::DataVerificationInfo&, IODebugContext* dbg) override {
    return Append(data, options, dbg);
  }
  IOStatus Sync(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Fsync(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus RangeSync(uint64_t, uint64_t, const IOOptions&, IODebugContext*) override {
    return IOStatus::OK();
  }

 private:
  ScratchFiles& owner_;
  const std::string path_;
  const Size size_;
};

// RocksDB 7.8 ends the process where a scan's readahead gets less of a table than there must be.
class ScratchFiles::ReadFile final : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  ReadFile(std::unique_ptr<rocksdb::FSRandomAccessFile> file, std::string path, Size size)
      : FSRandomAccessFileOwnerWrapper(std::move(file)),
        path_(std::move(path)),
        size_(std::move(size)) {}

  IOStatus Read(uint64_t offset, size_t n, const IOOptions& options, rocksdb::Slice* result,
                char* scratch, IODebugContext* dbg) const override {
    IOStatus status =
        FSRandomAccessFileOwnerWrapper::Read(offset, n, options, result, scratch, dbg);
    if (!status.ok()) return status;
    const uint64_t size = size_->load(std::memory_order_relaxed);
    const uint64_t there = offset < size ? std::min<uint64_t>(n, size - offset) : 0;
    if (result->size() >= there) return status;
    return IOStatus::Corruption(absl::StrCat(path_, " has less than the ", size,
                                             " bytes that were written: of ", there, " from byte ",
                                             offset, " on, ", result->size(), " are there"));
  }

 private:
  const std::string path_;
  const Size size_;
};

namespace {

class Directory final : public rocksdb::FSDirectoryWrapper {
 public:
  using FSDirectoryWrapper::FSDirectoryWrapper;
  IOStatus Fsync(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus FsyncWithDirOptions(const IOOptions&, IODebugContext*,
                               const rocksdb::DirFsyncOptions&) override {
    return IOStatus::OK();
  }
};

}  // namespace

// Of records that are dropped, where the file could not be made.
class ScratchFiles::DroppedFile final : public rocksdb::FSWritableFile {
 public:
  using FSWritableFile::Append;
  IOStatus Append(const rocksdb::Slice&, const IOOptions&, IODebugContext*) override {
    return IOStatus::OK();
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
};

ScratchFiles::ScratchFiles(std::shared_ptr<rocksdb::FileSystem> disk, uint64_t max_bytes)
    : FileSystemWrapper(std::move(disk)), max_bytes_(max_bytes) {}

// RocksDB 7.8 stops when there is no room for a record of its own, and goes on once there is some.
// But it leaves the mark of a stopped database (ErrorHandler::ClearBGError): the next
// IngestExternalFile has no number for its file and ends the process. After any other error that
// may pass it removes the mark. So a lack of room becomes such an error, except for tables.
IOStatus ScratchFiles::ForRocksDb(const std::string& path, IOStatus status) {
  if (status.ok() || absl::EndsWith(path, ".sst")) return status;
  if (status.IsNoSpace()) lacked_room_ = true;
  if (drop_records_) return IOStatus::OK();
  if (!status.IsNoSpace()) return status;
  const char* message = status.getState();
  status = rocksdb::status_to_io_status(
      rocksdb::Status::SpaceLimit(message != nullptr ? message : path.c_str()));
  status.SetRetryable(true);
  return status;
}

IOStatus ScratchFiles::Take(uint64_t bytes) {
  if (bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes > max_bytes_) {
    Give(bytes);
    return IOStatus::NoSpace("the folder has reached its cap");
  }
  bytes_written_.fetch_add(bytes, std::memory_order_relaxed);
  return IOStatus::OK();
}

ScratchFiles::Size ScratchFiles::SizeOf(const std::string& path) {
  absl::MutexLock lock(&mu_);
  Size& size = sizes_[path];
  if (size == nullptr) size = std::make_shared<std::atomic<uint64_t>>(0);
  return size;
}

void ScratchFiles::Forget(const std::string& path) {
  const auto it = sizes_.find(path);
  if (it == sizes_.end()) return;
  // The bytes of a file go with its last name. A file that is still being written keeps the number
  // too; RocksDB deletes none such.
  const Size size = std::move(it->second);
  sizes_.erase(it);
  for (const auto& [other, same] : sizes_) {
    if (same == size) return;
  }
  Give(size->exchange(0, std::memory_order_relaxed));
}

IOStatus ScratchFiles::NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                       std::unique_ptr<rocksdb::FSWritableFile>* file,
                                       IODebugContext* dbg) {
  IOStatus status = ForRocksDb(path, FileSystemWrapper::NewWritableFile(path, options, file, dbg));
  if (!status.ok()) return status;
  if (*file == nullptr) {
    *file = std::make_unique<DroppedFile>();
    return status;
  }
  {
    absl::MutexLock lock(&mu_);
    Forget(path);
  }
  *file = std::make_unique<File>(std::move(*file), this, path);
  return status;
}

IOStatus ScratchFiles::NewRandomAccessFile(const std::string& path,
                                           const rocksdb::FileOptions& options,
                                           std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                                           IODebugContext* dbg) {
  IOStatus status = FileSystemWrapper::NewRandomAccessFile(path, options, file, dbg);
  if (status.ok()) *file = std::make_unique<ReadFile>(std::move(*file), path, SizeOf(path));
  return status;
}

IOStatus ScratchFiles::ReopenWritableFile(const std::string& path,
                                          const rocksdb::FileOptions& options,
                                          std::unique_ptr<rocksdb::FSWritableFile>* file,
                                          IODebugContext* dbg) {
  IOStatus status = FileSystemWrapper::ReopenWritableFile(path, options, file, dbg);
  if (status.ok()) *file = std::make_unique<File>(std::move(*file), this, path);
  return status;
}

IOStatus ScratchFiles::NewDirectory(const std::string& path, const IOOptions& options,
                                    std::unique_ptr<rocksdb::FSDirectory>* directory,
                                    IODebugContext* dbg) {
  IOStatus status = FileSystemWrapper::NewDirectory(path, options, directory, dbg);
  if (status.ok()) *directory = std::make_unique<Directory>(std::move(*directory));
  return status;
}

IOStatus ScratchFiles::DeleteFile(const std::string& path, const IOOptions& options,
                                  IODebugContext* dbg) {
  IOStatus status = FileSystemWrapper::DeleteFile(path, options, dbg);
  if (!status.ok()) return status;
  absl::MutexLock lock(&mu_);
  Forget(path);
  return status;
}

IOStatus ScratchFiles::RenameFile(const std::string& from, const std::string& to,
                                  const IOOptions& options, IODebugContext* dbg) {
  IOStatus status = ForRocksDb(to, FileSystemWrapper::RenameFile(from, to, options, dbg));
  if (!status.ok()) return status;
  const Size size = SizeOf(from);
  absl::MutexLock lock(&mu_);
  Forget(to);
  sizes_[to] = size;
  Forget(from);
  return status;
}

IOStatus ScratchFiles::LinkFile(const std::string& from, const std::string& to,
                                const IOOptions& options, IODebugContext* dbg) {
  IOStatus status = FileSystemWrapper::LinkFile(from, to, options, dbg);
  if (!status.ok()) return status;
  const Size size = SizeOf(from);
  absl::MutexLock lock(&mu_);
  sizes_[to] = size;
  return status;
}

}  // namespace tessera::ps
