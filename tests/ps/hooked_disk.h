#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "rocksdb/file_system.h"

namespace tessera::ps {

// The machine's disk, which asks before it makes a file. Thread-safe; `hook` is called without a
// lock.
class HookedDisk final : public rocksdb::FileSystemWrapper {
 public:
  using Hook = std::function<rocksdb::IOStatus()>;

  HookedDisk() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "HookedDisk"; }
  void BeforeWrite(Hook hook) {
    absl::MutexLock lock(&mu_);
    hook_ = std::move(hook);
  }
  void FailWith(rocksdb::IOStatus status) {
    BeforeWrite([status] { return status; });
  }
  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* debug) override {
    Hook hook;
    {
      absl::MutexLock lock(&mu_);
      hook = hook_;
    }
    if (hook != nullptr) {
      if (rocksdb::IOStatus status = hook(); !status.ok()) return status;
    }
    return FileSystemWrapper::NewWritableFile(path, options, file, debug);
  }

 private:
  absl::Mutex mu_;
  Hook hook_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::ps
