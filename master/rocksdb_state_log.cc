#include <array>
#include <cstdarg>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/failpoint.h"
#include "common/file_system.h"
#include "common/free_space.h"
#include "common/status_macros.h"
#include "master/state_log.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/options.h"
#include "rocksdb/write_batch.h"
#include "spdlog/spdlog.h"

namespace tessera::master {
namespace {

// Translates RocksDB's status; the only place that does.
absl::Status Translate(const rocksdb::Status& status, absl::string_view what,
                       const std::string& folder) {
  if (status.ok()) return absl::OkStatus();
  const std::string message = absl::StrCat(what, " ", folder, ": ", status.ToString());
  if (status.IsNotFound()) return absl::NotFoundError(message);
  if (status.IsCorruption()) {
    return absl::DataLossError(absl::StrCat(
        message, "; move the folder away to start with no jobs (checkpoints are not in it)"));
  }
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(message);
  return absl::UnavailableError(message);
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

class RocksDbStateLog final : public StateLog {
 public:
  RocksDbStateLog(std::unique_ptr<rocksdb::DB> db, std::string folder)
      : folder_(std::move(folder)), db_(std::move(db)) {}

  absl::Status Apply(const std::vector<Write>& batch) override {
    TESSERA_RETURN_IF_ERROR(Failpoint("master.state_log.apply"));
    rocksdb::WriteBatch writes;
    for (const Write& write : batch) {
      const rocksdb::Status status =
          write.value.has_value() ? writes.Put(write.key, *write.value) : writes.Delete(write.key);
      TESSERA_RETURN_IF_ERROR(Translate(status, "write to state log", folder_));
    }
    rocksdb::WriteOptions options;
    options.sync = true;
    TESSERA_RETURN_IF_ERROR(Translate(db_->Write(options, &writes), "write to state log", folder_));
    PassFailpoint("master.state_log.applied");
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Get(const std::string& key) override {
    std::string value;
    TESSERA_RETURN_IF_ERROR(Translate(db_->Get(rocksdb::ReadOptions(), key, &value),
                                      absl::StrCat("read ", key, " from state log"), folder_));
    return value;
  }

  absl::StatusOr<std::map<std::string, std::string>> Scan(const std::string& prefix) override {
    std::map<std::string, std::string> found;
    std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(rocksdb::ReadOptions()));
    for (it->Seek(prefix); it->Valid() && it->key().starts_with(prefix); it->Next()) {
      found.emplace(it->key().ToString(), it->value().ToString());
    }
    TESSERA_RETURN_IF_ERROR(Translate(it->status(), "scan state log", folder_));
    return found;
  }

 private:
  const std::string folder_;
  const std::unique_ptr<rocksdb::DB> db_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StateLog>> OpenRocksDbStateLog(const std::string& folder) {
  TESSERA_RETURN_IF_ERROR(PosixFileSystem().CreateFolder(folder));
  // RocksDB 7.8 ends the process by an assertion if it has no room for its first files.
  TESSERA_RETURN_IF_ERROR(CheckRoom(PosixFileSystem(), folder));
  rocksdb::Options options;
  options.create_if_missing = true;
  options.info_log = std::make_shared<Warnings>();
  options.write_buffer_size = 4 << 20;
  // Tolerates a torn write at the end of the log, which was never acknowledged. Anything else that
  // is missing is damage, and must not silently drop the writes after it.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  options.track_and_verify_wals_in_manifest = true;
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(options, folder, &db);
  std::unique_ptr<rocksdb::DB> owned(db);
  if (status.IsIOError() && absl::StrContains(status.ToString(), "lock")) {
    return absl::FailedPreconditionError(
        absl::StrCat("data folder ", folder, " in use by another process (", status.ToString(),
                     "); stop that master, or give this one another --data-dir"));
  }
  TESSERA_RETURN_IF_ERROR(Translate(status, "open state log in data folder", folder));
  return std::make_unique<RocksDbStateLog>(std::move(owned), folder);
}

}  // namespace tessera::master
