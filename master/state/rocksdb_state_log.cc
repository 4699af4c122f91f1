#include <array>
#include <cstdarg>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/failpoint.h"
#include "common/file_system.h"
#include "common/free_space.h"
#include "common/status_macros.h"
#include "master/state/rocksdb_wal.h"
#include "master/state/state_log.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "rocksdb/options.h"
#include "rocksdb/write_batch.h"
#include "spdlog/spdlog.h"

namespace tessera::master {
namespace {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

constexpr absl::Duration kBetweenOpens = absl::Milliseconds(500);
// RocksDB's words.
constexpr absl::string_view kNoSpace = "No space left on device";

absl::Status Damaged(absl::string_view message) {
  return absl::DataLossError(absl::StrCat(
      message, "; move the folder away to start with no jobs (checkpoints are not in it)"));
}

// Translates RocksDB's status; the only place that does.
absl::Status Translate(const rocksdb::Status& status, absl::string_view what,
                       const std::string& folder) {
  if (status.ok()) return absl::OkStatus();
  const std::string message = absl::StrCat(what, " ", folder, ": ", status.ToString());
  if (status.IsNotFound()) return absl::NotFoundError(message);
  if (status.IsCorruption()) return Damaged(message);
  // See LastingErrors.
  if (absl::StrContains(message, kNoSpace)) return absl::ResourceExhaustedError(message);
  return absl::UnavailableError(message);
}

// RocksDB has no code for it. What an error is of stands before the first colon, without the path:
// "While lock file: PATH: ...", or "lock hold by current process ...".
bool IsHeldByAnother(const rocksdb::Status& status) {
  const char* const state = status.getState();
  return status.IsIOError() && state != nullptr &&
         (absl::StartsWith(state, "While lock file:") || absl::StartsWith(state, "lock hold by"));
}

// What RocksDB has to tell goes to the master's log if it is a warning or worse. RocksDB 7.8 would
// write a file in the folder, and end the process by an assertion at the second line that a full
// disk has no room for.
class Warnings final : public rocksdb::Logger {
 public:
  using Logger::Logv;
  void Logv(const char*, va_list) override {}
  void Logv(const rocksdb::InfoLogLevel level, const char* format, va_list values) override {
    if (level < rocksdb::InfoLogLevel::WARN_LEVEL || level >= rocksdb::InfoLogLevel::HEADER_LEVEL) {
      return;
    }
    std::array<char, 500> line;
    std::vsnprintf(line.data(), line.size(), format, values);
    SPDLOG_WARN("state log: {}", line.data());
  }
};

// A disk whose errors RocksDB takes for lasting ones. From a lack of room RocksDB 7.8 would recover
// by itself, in a thread that may keep the database from closing (ps/cold/cold_store.cc), and then
// end the process by an assertion at the next write to its log, whose file remembers the error.
class LastingErrors final : public rocksdb::FileSystemWrapper {
 public:
  using FileSystemWrapper::FileSystemWrapper;
  const char* Name() const override { return "LastingErrors"; }
  IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* file,
                           IODebugContext* debug) override {
    IOStatus status = FileSystemWrapper::NewWritableFile(path, options, file, debug);
    if (status.ok()) *file = std::make_unique<File>(std::move(*file));
    return Lasting(std::move(status));
  }

 private:
  class File final : public rocksdb::FSWritableFileOwnerWrapper {
   public:
    using FSWritableFileOwnerWrapper::FSWritableFileOwnerWrapper;
    IOStatus Append(const rocksdb::Slice& data, const IOOptions& options,
                    IODebugContext* debug) override {
      return Lasting(FSWritableFileOwnerWrapper::Append(data, options, debug));
    }
    IOStatus Append(const rocksdb::Slice& data, const IOOptions& options,
                    const rocksdb::DataVerificationInfo&, IODebugContext* debug) override {
      return Append(data, options, debug);
    }
    IOStatus Sync(const IOOptions& options, IODebugContext* debug) override {
      return Lasting(FSWritableFileOwnerWrapper::Sync(options, debug));
    }
    IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
      return Lasting(FSWritableFileOwnerWrapper::Fsync(options, debug));
    }
    IOStatus Close(const IOOptions& options, IODebugContext* debug) override {
      return Lasting(FSWritableFileOwnerWrapper::Close(options, debug));
    }
  };
  static IOStatus Lasting(IOStatus status) {
    if (status.ok()) return status;
    return IOStatus::IOError(std::string(absl::StripPrefix(status.ToString(), "IO error: ")));
  }
};

class RocksDbStateLog final : public StateLog {
 public:
  RocksDbStateLog(std::string folder, std::shared_ptr<rocksdb::FileSystem> disk)
      : folder_(std::move(folder)),
        env_(rocksdb::NewCompositeEnv(std::make_shared<LastingErrors>(std::move(disk)))) {}

  // Before all else. Errors as OpenRocksDbStateLog.
  absl::Status Open() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return OpenLocked();
  }

  absl::Status Apply(const std::vector<Write>& batch) override ABSL_LOCKS_EXCLUDED(mu_) {
    TESSERA_RETURN_IF_ERROR(Failpoint("master.state_log.apply"));
    rocksdb::WriteOptions options;
    options.sync = true;
    {
      absl::MutexLock lock(&mu_);
      TESSERA_RETURN_IF_ERROR(MakeSound());
      rocksdb::WriteBatch writes;
      for (const Write& write : batch) {
        const rocksdb::Status status = write.value.has_value() ? writes.Put(write.key, *write.value)
                                                               : writes.Delete(write.key);
        TESSERA_RETURN_IF_ERROR(Translate(status, "write to state log", folder_));
      }
      broken_ = Translate(db_->Write(options, &writes), "write to state log", folder_);
      TESSERA_RETURN_IF_ERROR(broken_);
    }
    PassFailpoint("master.state_log.applied");
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Get(const std::string& key) override ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    TESSERA_RETURN_IF_ERROR(MakeSound());
    std::string value;
    TESSERA_RETURN_IF_ERROR(Translate(db_->Get(rocksdb::ReadOptions(), key, &value),
                                      absl::StrCat("read ", key, " from state log"), folder_));
    return value;
  }

  absl::StatusOr<std::map<std::string, std::string>> Scan(const std::string& prefix) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    TESSERA_RETURN_IF_ERROR(MakeSound());
    std::map<std::string, std::string> found;
    std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(rocksdb::ReadOptions()));
    for (it->Seek(prefix); it->Valid() && it->key().starts_with(prefix); it->Next()) {
      found.emplace(it->key().ToString(), it->value().ToString());
    }
    TESSERA_RETURN_IF_ERROR(Translate(it->status(), "scan state log", folder_));
    return found;
  }

 private:
  // A database that has refused a write takes no other: it is closed, and opened again. The batch
  // that it refused may be in it.
  absl::Status MakeSound() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (broken_.ok()) return absl::OkStatus();
    const absl::Duration now = SystemClock().Monotonic();
    if (now < opens_from_) return broken_;
    opens_from_ = now + kBetweenOpens;
    db_ = nullptr;
    broken_ = OpenLocked();
    return broken_;
  }
  absl::Status OpenLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    // RocksDB 7.8 ends the process by an assertion if it has no room for its first files.
    TESSERA_RETURN_IF_ERROR(CheckRoom(PosixFileSystem(), folder_));
    TESSERA_RETURN_IF_ERROR(CheckWals());
    rocksdb::Options options;
    options.env = env_.get();
    options.create_if_missing = true;
    options.info_log = std::make_shared<Warnings>();
    options.write_buffer_size = 4 << 20;
    // Tolerates a torn write at the end of the log, which was never acknowledged. Anything else
    // that is missing is damage, and must not silently drop the writes after it.
    options.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
    options.track_and_verify_wals_in_manifest = true;
    rocksdb::DB* db = nullptr;
    const rocksdb::Status status = rocksdb::DB::Open(options, folder_, &db);
    db_.reset(db);
    if (IsHeldByAnother(status)) {
      return absl::FailedPreconditionError(
          absl::StrCat("data folder ", folder_, " in use by another process (", status.ToString(),
                       "); stop that master, or give this one another --data-dir"));
    }
    return Translate(status, "open state log in data folder", folder_);
  }
  // DATA_LOSS: damage that RocksDB would take for the end of a log.
  absl::Status CheckWals() {
    // While nobody writes; RocksDB says who holds the lock.
    rocksdb::FileLock* lock = nullptr;
    if (!env_->LockFile(absl::StrCat(folder_, "/LOCK"), &lock).ok()) return absl::OkStatus();
    const auto unlock = absl::MakeCleanup([&] { env_->UnlockFile(lock).PermitUncheckedError(); });
    FileSystem& files = PosixFileSystem();
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(folder_));
    for (const std::string& name : names) {
      if (!absl::EndsWith(name, ".log")) continue;
      TESSERA_ASSIGN_OR_RETURN(const std::string bytes,
                               ReadWholeFile(files, absl::StrCat(folder_, "/", name)));
      if (const absl::Status sound = CheckWal(name, bytes); !sound.ok()) {
        return Damaged(
            absl::StrCat("open state log in data folder ", folder_, ": ", sound.message()));
      }
    }
    return absl::OkStatus();
  }

  const std::string folder_;
  const std::unique_ptr<rocksdb::Env> env_;
  absl::Mutex mu_;
  std::unique_ptr<rocksdb::DB> db_ ABSL_GUARDED_BY(mu_);  // null only while broken_
  absl::Status broken_ ABSL_GUARDED_BY(mu_);              // why it takes no write
  absl::Duration opens_from_ ABSL_GUARDED_BY(mu_);        // not opened again before this
};

}  // namespace

absl::StatusOr<std::unique_ptr<StateLog>> OpenRocksDbStateLog(
    const std::string& folder, std::shared_ptr<rocksdb::FileSystem> disk) {
  TESSERA_RETURN_IF_ERROR(PosixFileSystem().CreateFolder(folder));
  if (disk == nullptr) disk = rocksdb::FileSystem::Default();
  auto log = std::make_unique<RocksDbStateLog>(folder, std::move(disk));
  TESSERA_RETURN_IF_ERROR(log->Open());
  return log;
}

}  // namespace tessera::master
