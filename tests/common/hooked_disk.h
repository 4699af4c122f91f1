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

// The machine's disk, which asks before it makes a file, and before it writes to one. Thread-safe;
// hooks are called without a lock.
class HookedDisk final : public rocksdb::FileSystemWrapper {
 public:
  using Hook = std::function<rocksdb::IOStatus()>;

  HookedDisk() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "HookedDisk"; }
  void BeforeWrite(Hook hook) {
    absl::MutexLock lock(&mu_);
    hook_ = std::move(hook);
  }
  // Of appends to files that are made from now on.
  using AppendHook = std::function<rocksdb::IOStatus(const std::string& path)>;
  void BeforeAppend(AppendHook hook) {
    absl::MutexLock lock(&mu_);
    append_hook_ = std::move(hook);
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
    AppendHook append_hook;
    {
      absl::MutexLock lock(&mu_);
      hook = hook_;
      append_hook = append_hook_;
    }
    if (hook != nullptr) {
      if (rocksdb::IOStatus status = hook(); !status.ok()) return status;
    }
    rocksdb::IOStatus status = FileSystemWrapper::NewWritableFile(path, options, file, debug);
    if (status.ok() && append_hook != nullptr) {
      *file = std::make_unique<File>(std::move(*file),
                                     [append_hook, path] { return append_hook(path); });
    }
    return status;
  }

 private:
  class File final : public rocksdb::FSWritableFileOwnerWrapper {
   public:
    File(std::unique_ptr<rocksdb::FSWritableFile> file, Hook hook)
        : FSWritableFileOwnerWrapper(std::move(file)), hook_(std::move(hook)) {}
    rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* debug) override {
      if (rocksdb::IOStatus status = hook_(); !status.ok()) return status;
      return FSWritableFileOwnerWrapper::Append(data, options, debug);
    }

   private:
    const Hook hook_;
  };

  absl::Mutex mu_;
  Hook hook_ ABSL_GUARDED_BY(mu_);
  AppendHook append_hook_ ABSL_GUARDED_BY(mu_);
  std::optional<uint64_t> free_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera
