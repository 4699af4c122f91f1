#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "rocksdb/file_system.h"

namespace tessera {

// The machine's disk, which asks before it makes a file, and before it writes to one or syncs it.
// Thread-safe; hooks are called without a lock.
class HookedDisk final : public rocksdb::FileSystemWrapper {
 public:
  using Hook = std::function<rocksdb::IOStatus()>;

  HookedDisk() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "HookedDisk"; }
  void BeforeWrite(Hook hook) {
    absl::MutexLock lock(&mu_);
    hook_ = std::move(hook);
  }
  // Of files that are made from now on.
  using FileHook = std::function<rocksdb::IOStatus(const std::string& path)>;
  void BeforeAppend(FileHook hook) {
    absl::MutexLock lock(&mu_);
    append_hook_ = std::move(hook);
  }
  void BeforeSync(FileHook hook) {
    absl::MutexLock lock(&mu_);
    sync_hook_ = std::move(hook);
  }
  void FailWith(rocksdb::IOStatus status) {
    BeforeWrite([status] { return status; });
  }
  // What it says to have free from now on; nothing: what it has.
  void SayFree(std::optional<uint64_t> bytes) {
    absl::MutexLock lock(&mu_);
    free_ = bytes;
  }
  rocksdb::IOStatus GetFreeSpace(const std::string& path, const rocksdb::IOOptions& options,
                                 uint64_t* free, rocksdb::IODebugContext* debug) override {
    absl::MutexLock lock(&mu_);
    if (!free_.has_value()) return FileSystemWrapper::GetFreeSpace(path, options, free, debug);
    *free = *free_;
    return rocksdb::IOStatus::OK();
  }
  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* debug) override {
    Hook hook;
    FileHook append_hook;
    FileHook sync_hook;
    {
      absl::MutexLock lock(&mu_);
      hook = hook_;
      append_hook = append_hook_;
      sync_hook = sync_hook_;
    }
    if (hook != nullptr) {
      if (rocksdb::IOStatus status = hook(); !status.ok()) return status;
    }
    rocksdb::IOStatus status = FileSystemWrapper::NewWritableFile(path, options, file, debug);
    if (status.ok() && (append_hook != nullptr || sync_hook != nullptr)) {
      *file = std::make_unique<File>(std::move(*file), path, append_hook, sync_hook);
    }
    return status;
  }

 private:
  class File final : public rocksdb::FSWritableFileOwnerWrapper {
   public:
    File(std::unique_ptr<rocksdb::FSWritableFile> file, std::string path, FileHook append_hook,
         FileHook sync_hook)
        : FSWritableFileOwnerWrapper(std::move(file)),
          path_(std::move(path)),
          append_hook_(std::move(append_hook)),
          sync_hook_(std::move(sync_hook)) {}
    rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* debug) override {
      if (rocksdb::IOStatus status = Ask(append_hook_); !status.ok()) return status;
      return FSWritableFileOwnerWrapper::Append(data, options, debug);
    }
    rocksdb::IOStatus Sync(const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* debug) override {
      if (rocksdb::IOStatus status = Ask(sync_hook_); !status.ok()) return status;
      return FSWritableFileOwnerWrapper::Sync(options, debug);
    }
    rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options,
                            rocksdb::IODebugContext* debug) override {
      if (rocksdb::IOStatus status = Ask(sync_hook_); !status.ok()) return status;
      return FSWritableFileOwnerWrapper::Fsync(options, debug);
    }

   private:
    rocksdb::IOStatus Ask(const FileHook& hook) const {
      return hook == nullptr ? rocksdb::IOStatus::OK() : hook(path_);
    }
    const std::string path_;
    const FileHook append_hook_;
    const FileHook sync_hook_;
  };

  absl::Mutex mu_;
  Hook hook_ ABSL_GUARDED_BY(mu_);
  FileHook append_hook_ ABSL_GUARDED_BY(mu_);
  FileHook sync_hook_ ABSL_GUARDED_BY(mu_);
  std::optional<uint64_t> free_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera
