#include "ps/cold/cold_store.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/file_system.h"
#include "common/status_macros.h"
#include "ps/cold/background_work.h"
#include "ps/cold/known_filter.h"
#include "ps/cold/rocksdb_options.h"
#include "ps/cold/scratch_files.h"
#include "ps/cold/uring_reads.h"
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/snapshot.h"
#include "rocksdb/sst_file_writer.h"

namespace tessera::ps {
namespace {

// RocksDB's own largest batch within a MultiGet: its reads of one file are handed over together.
constexpr size_t kReadTask = 32;
// Readahead in each file that a scan reads.
constexpr size_t kScanReadahead = 512 << 10;
// How many ingested files compaction may be behind with before writes wait for it, and how long
// they wait.
constexpr uint64_t kMaxRuns = 32;
constexpr absl::Duration kMaxCompactionWait = absl::Seconds(10);
constexpr absl::Duration kBetweenLooks = absl::Milliseconds(100);  // whether anybody waits still
constexpr absl::Duration kEraseCompactionWait = absl::Milliseconds(200);
// Of closing.
constexpr absl::Duration kMaxRecoveryWait = absl::Seconds(30);

class RocksDbSnapshot final : public ColdSnapshot {
 public:
  explicit RocksDbSnapshot(rocksdb::DB* db) : db_(*db), snapshot_(db->GetSnapshot()) {}
  ~RocksDbSnapshot() override { db_.ReleaseSnapshot(snapshot_); }
  // Options for reads as of `at`, which may be null.
  static rocksdb::ReadOptions Options(const ColdSnapshot* at) {
    rocksdb::ReadOptions options;
    if (at != nullptr) {
      options.snapshot = static_cast<const RocksDbSnapshot*>(at)->snapshot_;
    }
    return options;
  }

 private:
  rocksdb::DB& db_;
  const rocksdb::Snapshot* const snapshot_;
};

struct TableState {
  ColdTable spec;
  rocksdb::ColumnFamilyHandle* family = nullptr;  // of the DB
  KnownFilter known;
};

class RocksDbColdStore final : public ColdStore {
 public:
  RocksDbColdStore(const Options& options, std::unique_ptr<FolderLock> lock)
      : options_(options),
        lock_(std::move(lock)),
        files_(std::make_shared<ScratchFiles>(
            options.disk != nullptr ? options.disk : UringReads(rocksdb::FileSystem::Default()),
            options.max_bytes)),
        env_(rocksdb::NewCompositeEnv(files_)),
        compactions_(std::make_shared<Compactions>()),
        recovery_(std::make_shared<Recovery>()),
        rocksdb_options_(ColdOptions(env_.get(), options.page_cache)) {
    rocksdb_options_.listeners = {compactions_, recovery_};
  }

  ~RocksDbColdStore() override {
    for (const auto& table : tables_) {
      if (table->family != nullptr)
        db_->DestroyColumnFamilyHandle(table->family).PermitUncheckedError();
    }
    if (db_ != nullptr) Close();
    db_ = nullptr;
    PosixFileSystem().Remove(options_.folder).IgnoreError();
  }

  absl::Status OpenDb(std::vector<ColdTable> tables) {
    for (const absl::string_view part : {"/db", "/in"}) {
      const std::string folder = absl::StrCat(options_.folder, part);
      TESSERA_RETURN_IF_ERROR(PosixFileSystem().Remove(folder));
      TESSERA_RETURN_IF_ERROR(PosixFileSystem().CreateFolder(folder));
    }
    rocksdb::DB* db = nullptr;
    TESSERA_RETURN_IF_ERROR(Translate(
        rocksdb::DB::Open(rocksdb_options_, absl::StrCat(options_.folder, "/db"), &db), "open"));
    db_.reset(db);
    std::vector<std::string> names;
    for (size_t t = 0; t < tables.size(); ++t) names.push_back(absl::StrCat("table-", t));
    std::vector<rocksdb::ColumnFamilyHandle*> families;
    const rocksdb::Status created = db_->CreateColumnFamilies(rocksdb_options_, names, &families);
    for (size_t t = 0; t < families.size(); ++t) {
      tables_.push_back(std::make_unique<TableState>());
      tables_.back()->spec = std::move(tables[t]);
      tables_.back()->family = families[t];
    }
    return Translate(created, "create tables");
  }

  size_t MayContain(uint32_t table, absl::Span<const uint64_t> keys, uint8_t* may) const override {
    return tables_[table]->known.MayContain(keys, may);
  }

  KnownFilter& Known(uint32_t table) override { return tables_[table]->known; }

  absl::Status Read(uint32_t table, absl::Span<const ColdKey> keys, char* records, uint8_t* found,
                    const ColdSnapshot* at) override {
    absl::Mutex mu;
    absl::Status first;
    const auto read = [&](size_t task) {
      const size_t begin = task * kReadTask;
      const size_t n = std::min(kReadTask, keys.size() - begin);
      const absl::Status status =
          ReadSome(table, keys.subspan(begin, n),
                   records + begin * tables_[table]->spec.record_bytes, found + begin, at);
      if (status.ok()) return;
      absl::MutexLock lock(&mu);
      first.Update(status);
    };
    options_.readers->RunAll((keys.size() + kReadTask - 1) / kReadTask, read);
    return first;
  }

  absl::Status Write(uint32_t table, absl::Span<const ColdRecord> records) override {
    if (records.empty()) return absl::OkStatus();
    TableState& state = *tables_[table];
    const uint64_t bytes = records.size() * (state.spec.record_bytes + cold_record::kKeyBytes +
                                             cold_record::kChecksumBytes);
    if (const uint64_t use = files_->bytes(); use + bytes > MaxBytesOfRows()) {
      return Full(absl::StrCat("a write of ", bytes, " bytes"), state.spec.name);
    }
    // Adds the keys to the filter before the records can be found.
    std::vector<uint64_t> keys(records.size());
    for (size_t i = 0; i < records.size(); ++i) keys[i] = records[i].key.key;
    state.known.Add(keys);
    TESSERA_RETURN_IF_ERROR(WriteFile(
        state, [&](rocksdb::SstFileWriter& file) { return PutAll(table, records, file); }));
    records_written_.fetch_add(records.size(), std::memory_order_relaxed);
    record_bytes_written_.fetch_add(records.size() * state.spec.record_bytes,
                                    std::memory_order_relaxed);
    return absl::OkStatus();
  }

  void AwaitCompactionOfWrites(uint32_t table, const std::atomic<bool>& stopped) override {
    // On a full disk the next write is refused.
    if (files_->bytes() > MaxBytesOfRows()) return;
    const absl::Duration end = SystemClock().Monotonic() + kMaxCompactionWait;
    while (!stopped && SystemClock().Monotonic() < end) {
      if (WaitForCompaction(*tables_[table], kBetweenLooks)) return;
    }
  }

  void AwaitCompactionToErase(uint32_t table) override {
    // On a full disk no compaction ends: then this does not wait, or not again.
    if (files_->bytes() > MaxBytesOfRows()) return;
    const uint64_t ended = compactions_->ended();
    if (stuck_at_.load(std::memory_order_relaxed) == ended) return;
    if (!WaitForCompaction(*tables_[table], kEraseCompactionWait)) {
      stuck_at_.store(compactions_->ended(), std::memory_order_relaxed);
    }
  }

  absl::Status Erase(uint32_t table, absl::Span<const ColdKey> keys) override {
    if (keys.empty()) return absl::OkStatus();
    return WriteFile(*tables_[table], [&](rocksdb::SstFileWriter& file) {
      char key[cold_record::kKeyBytes];
      for (const ColdKey& k : keys) {
        cold_record::EncodeKey(k, key);
        rocksdb::Status status = file.Delete({key, sizeof(key)});
        if (!status.ok()) return status;
      }
      return rocksdb::Status::OK();
    });
  }

  absl::Status ErasePartitions(uint32_t table, absl::Span<const PartitionRange> ranges) override {
    if (ranges.empty()) return absl::OkStatus();
    return WriteFile(*tables_[table], [&](rocksdb::SstFileWriter& file) {
      char begin[cold_record::kKeyBytes];
      char end[cold_record::kKeyBytes];
      for (const PartitionRange& range : ranges) {
        cold_record::EncodeKey({.partition = range.first, .key = 0}, begin);
        cold_record::EncodeKey({.partition = range.last + 1, .key = 0}, end);
        rocksdb::Status status = file.DeleteRange({begin, sizeof(begin)}, {end, sizeof(end)});
        if (!status.ok()) return status;
      }
      return rocksdb::Status::OK();
    });
  }

  absl::Status VisitPartition(
      uint32_t table, uint32_t partition,
      absl::FunctionRef<absl::Status(uint64_t, const char*)> visit) override {
    // Each file may have little of this partition: RocksDB reads ahead as it finds more.
    return Pass(*this, table, nullptr, /*readahead=*/0).Visit(partition, visit);
  }

  std::unique_ptr<ColdScan> Scan(uint32_t table, const ColdSnapshot* at) override {
    return std::make_unique<Pass>(*this, table, at, kScanReadahead);
  }

  std::unique_ptr<ColdSnapshot> TakeSnapshot() override {
    return std::make_unique<RocksDbSnapshot>(db_.get());
  }

  Stats stats() const override {
    Stats stats = {.records_written = records_written_.load(std::memory_order_relaxed),
                   .record_bytes_written = record_bytes_written_.load(std::memory_order_relaxed),
                   .device_bytes_written = files_->bytes_written(),
                   .folder_bytes = files_->bytes()};
    for (uint32_t t = 0; t < tables_.size(); ++t) {
      stats.known_keys += tables_[t]->known.keys();
      stats.memory_bytes += MemoryBytes(t);
    }
    return stats;
  }

  uint64_t MemoryBytes(uint32_t table) const override {
    const TableState& state = *tables_[table];
    uint64_t sum = state.known.bytes();
    for (const std::string* property : {&rocksdb::DB::Properties::kEstimateTableReadersMem,
                                        &rocksdb::DB::Properties::kCurSizeAllMemTables}) {
      uint64_t bytes = 0;
      if (db_->GetIntProperty(state.family, *property, &bytes)) sum += bytes;
    }
    return sum;
  }

 private:
  // Rows leave a part of the cap free for what makes room: compactions, and erasing, which writes
  // before it frees anything.
  uint64_t MaxBytesOfRows() const { return options_.max_bytes - options_.max_bytes / 16; }

  // An iterator that only goes forward: records that a snapshot does not see are passed once, not
  // once for every partition before them.
  class Pass final : public ColdScan {
   public:
    Pass(const RocksDbColdStore& store, uint32_t table, const ColdSnapshot* at, size_t readahead)
        : store_(store), table_(table) {
      rocksdb::ReadOptions options = RocksDbSnapshot::Options(at);
      options.fill_cache = false;
      options.readahead_size = readahead;
      rows_.reset(store.db_->NewIterator(options, store.tables_[table]->family));
    }

    absl::Status Visit(uint32_t partition,
                       absl::FunctionRef<absl::Status(uint64_t, const char*)> visit) override {
      const TableState& state = *store_.tables_[table_];
      char first[cold_record::kKeyBytes];
      char last[cold_record::kKeyBytes];
      cold_record::EncodeKey({.partition = partition, .key = 0}, first);
      cold_record::EncodeKey({.partition = partition, .key = UINT64_MAX}, last);
      if (!begun_ || (rows_->Valid() && rows_->key().compare({first, sizeof(first)}) < 0)) {
        rows_->Seek({first, sizeof(first)});
        begun_ = true;
      }
      for (; rows_->Valid(); rows_->Next()) {
        if (rows_->key().compare({last, sizeof(last)}) > 0) break;
        const uint64_t key = cold_record::DecodeKey(rows_->key().data()).key;
        const absl::string_view record = cold_record::Verify(
            table_, key, {rows_->value().data(), rows_->value().size()}, state.spec.record_bytes);
        if (record.empty()) return store_.Damaged(state, key);
        TESSERA_RETURN_IF_ERROR(visit(key, record.data()));
      }
      return store_.Translate(rows_->status(), absl::StrCat("read partition ", partition, " of"),
                              state.spec.name);
    }

   private:
    const RocksDbColdStore& store_;
    const uint32_t table_;
    std::unique_ptr<rocksdb::Iterator> rows_;
    bool begun_ = false;
  };

  absl::Status ReadSome(uint32_t table, absl::Span<const ColdKey> keys, char* records,
                        uint8_t* found, const ColdSnapshot* at) {
    const TableState& state = *tables_[table];
    std::array<std::array<char, cold_record::kKeyBytes>, kReadTask> encoded;
    std::array<rocksdb::Slice, kReadTask> slices;
    std::array<rocksdb::PinnableSlice, kReadTask> values;
    std::array<rocksdb::Status, kReadTask> statuses;
    for (size_t i = 0; i < keys.size(); ++i) {
      cold_record::EncodeKey(keys[i], encoded[i].data());
      slices[i] = {encoded[i].data(), encoded[i].size()};
    }
    db_->MultiGet(RocksDbSnapshot::Options(at), state.family, keys.size(), slices.data(),
                  values.data(), statuses.data(), /*sorted_input=*/true);
    for (size_t i = 0; i < keys.size(); ++i) {
      found[i] = statuses[i].ok();
      if (statuses[i].IsNotFound()) continue;
      TESSERA_RETURN_IF_ERROR(
          Translate(statuses[i], absl::StrCat("read key ", keys[i].key, " of"), state.spec.name));
      const absl::string_view record = cold_record::Verify(
          table, keys[i].key, {values[i].data(), values[i].size()}, state.spec.record_bytes);
      if (record.empty()) return Damaged(state, keys[i].key);
      std::memcpy(records + i * state.spec.record_bytes, record.data(), record.size());
    }
    return absl::OkStatus();
  }

  rocksdb::Status PutAll(uint32_t table, absl::Span<const ColdRecord> records,
                         rocksdb::SstFileWriter& file) const {
    const size_t record_bytes = tables_[table]->spec.record_bytes;
    char key[cold_record::kKeyBytes];
    std::string value(record_bytes + cold_record::kChecksumBytes, '\0');
    for (const ColdRecord& record : records) {
      cold_record::EncodeKey(record.key, key);
      std::memcpy(value.data(), record.bytes, record_bytes);
      const uint64_t checksum =
          cold_record::ChecksumOf(table, record.key.key, {record.bytes, record_bytes});
      std::memcpy(value.data() + record_bytes, &checksum, sizeof(checksum));
      rocksdb::Status status = file.Put({key, sizeof(key)}, value);
      if (!status.ok()) return status;
    }
    return rocksdb::Status::OK();
  }

  // Every write is a file, however small: RocksDB 7.8 loses the order of files that are ingested
  // while its write buffer holds rows, and then refuses to go on ("force_consistency_checks").
  //
  // A file that overlaps no file of an upper level may sink below it, and then RocksDB before 9
  // numbers its rows as that level's, which may be older than those that they replace further down
  // (facebook/rocksdb#12257): the next compaction of both drops the new ones. While there is a
  // snapshot, files stay on top under a number of their own.
  absl::Status WriteFile(const TableState& state,
                         absl::FunctionRef<rocksdb::Status(rocksdb::SstFileWriter&)> fill) {
    const std::string path = absl::StrCat(options_.folder, "/in/", next_file_.fetch_add(1), ".sst");
    rocksdb::SstFileWriter writer(rocksdb::EnvOptions(), rocksdb_options_, state.family);
    rocksdb::Status status = writer.Open(path);
    if (status.ok()) status = fill(writer);
    if (status.ok()) status = writer.Finish();
    if (status.ok()) {
      rocksdb::IngestExternalFileOptions options;
      options.move_files = true;
      options.write_global_seqno = false;
      const rocksdb::ManagedSnapshot on_top(db_.get());
      status = db_->IngestExternalFile(state.family, {path}, options);
    }
    if (status.ok()) return absl::OkStatus();
    env_->DeleteFile(path).PermitUncheckedError();
    return Translate(status, "write a file of", state.spec.name);
  }

  // RocksDB does not hold back ingested files, and each is one more to look into. False: no
  // compaction has ended within `limit`.
  bool WaitForCompaction(const TableState& state, absl::Duration limit) {
    const absl::Duration end = SystemClock().Monotonic() + limit;
    while (true) {
      const uint64_t seen = compactions_->ended();
      uint64_t runs = 0;
      std::string number;
      if (!db_->GetProperty(state.family, "rocksdb.num-files-at-level0", &number) ||
          !absl::SimpleAtoi(number, &runs) || runs < kMaxRuns) {
        return true;
      }
      if (!compactions_->WaitForMore(seen, end - SystemClock().Monotonic())) return false;
    }
  }

  // RocksDB 7.8 loses the end of a recovery that finds the database being closed, and then waits
  // for it for ever (ErrorHandler::RecoverFromRetryableBGIOError). So recovery, which looks every
  // second whether there is room for records, finds some and ends before that. Only compactions,
  // which end first, begin one when nobody writes.
  void Close() {
    if (files_->DropRecords()) {
      rocksdb::CancelAllBackgroundWork(db_.get(), /*wait=*/true);
      recovery_->AwaitEnd(kMaxRecoveryWait);
    }
    db_->Close().PermitUncheckedError();
  }

  absl::Status Damaged(const TableState& state, uint64_t key) const {
    return absl::DataLossError(
        absl::StrCat(options_.folder, ": table ", state.spec.name, ": the record of key ", key,
                     " does not have its checksum; the disk or the memory of this machine is "
                     "damaged, use another"));
  }
  absl::Status Full(absl::string_view what, absl::string_view table) const {
    return absl::ResourceExhaustedError(
        absl::StrCat(options_.folder, ": no room for ", what, " of table ", table,
                     ": the folder has ", files_->bytes(), " bytes, its cap is ",
                     options_.max_bytes, "; raise the cap, free the disk, or use more ps"));
  }
  // RocksDB's status in our terms; the only place where it is translated.
  absl::Status Translate(const rocksdb::Status& status, absl::string_view what,
                         absl::string_view table = "") const {
    if (status.ok()) return absl::OkStatus();
    const std::string message =
        absl::StrCat(options_.folder, ": ", what, table.empty() ? "" : " table ", table, ": ",
                     status.ToString());
    if (status.IsCorruption()) {
      return absl::DataLossError(absl::StrCat(message, "; the disk is damaged, use another"));
    }
    if (status.IsNoSpace() || status.subcode() == rocksdb::Status::kSpaceLimit) {
      return absl::ResourceExhaustedError(
          absl::StrCat(message, "; the folder has ", files_->bytes(), " bytes, its cap is ",
                       options_.max_bytes, "; raise the cap, free the disk, or use more ps"));
    }
    return absl::UnavailableError(message);
  }

  const Options options_;
  const std::unique_ptr<FolderLock> lock_;
  const std::shared_ptr<ScratchFiles> files_;
  const std::unique_ptr<rocksdb::Env> env_;
  const std::shared_ptr<Compactions> compactions_;
  const std::shared_ptr<Recovery> recovery_;
  rocksdb::Options rocksdb_options_;
  // Constant after OpenDb.
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<std::unique_ptr<TableState>> tables_;

  std::atomic<uint64_t> next_file_ = 0;
  // The Compactions::ended at which AwaitCompactionToErase waited in vain.
  std::atomic<uint64_t> stuck_at_ = UINT64_MAX;
  std::atomic<uint64_t> records_written_ = 0;
  std::atomic<uint64_t> record_bytes_written_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ColdStore>> ColdStore::Open(Options options,
                                                           std::vector<ColdTable> tables) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<FolderLock> lock, FolderLock::Take(options.folder));
  auto store = std::make_unique<RocksDbColdStore>(options, std::move(lock));
  TESSERA_RETURN_IF_ERROR(store->OpenDb(std::move(tables)));
  return store;
}

}  // namespace tessera::ps
