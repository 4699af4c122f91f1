#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/partition.h"
#include "ps/cold/cold_store.h"
#include "ps/cold/record_format.h"
#include "ps/cold/rocksdb_options.h"
#include "rocksdb/db.h"
#include "tests/bench/bench.h"
#include "tests/bench/raw_file.h"

// Rows on disk: how fast the tier reads rows that are all cold, past every cache, and how fast it
// writes them.
namespace tessera::bench {
namespace {

using ps::ColdKey;
using ps::ColdRecord;
using ps::ColdStore;

constexpr size_t kBatchKeys = 16384;
constexpr int kInFlight = 64;
constexpr int kReaders = 16;                    // as a ps has them (Spill)
constexpr uint32_t kRecordBytes = 16 + 4 * 32;  // dim 16 with Adagrad's slot

// The work folder is missing or the disk is broken: there is nothing to measure.
void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  std::exit(1);
}

std::vector<ColdKey> RandomKeys(uint64_t rows, size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<ColdKey> keys(n);
  for (ColdKey& key : keys) {
    key.key = random() % rows;
    key.partition = PartitionOf(key.key, kDefaultPartitions).value();
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

// A store with rows 0 to rows - 1.
class ColdRows {
 public:
  ColdRows(const std::string& folder, uint64_t rows, size_t write_rows)
      : rows_(rows),
        write_rows_(write_rows),
        readers_(kReaders),
        store_(Open(folder, &readers_)),
        bytes_(kRecordBytes, 'x'),
        records_(kBatchKeys * kRecordBytes),
        found_(kBatchKeys) {}

  ColdStore& store() { return *store_; }

  // Every row once, as evictions bring them: sorted batches of rows from everywhere. Million rows
  // a second of wall time.
  double WriteAll() {
    std::vector<uint64_t> order(rows_);
    for (uint64_t k = 0; k < rows_; ++k) order[k] = k;
    std::shuffle(order.begin(), order.end(), std::mt19937_64(3));
    double seconds = 0;
    for (uint64_t begin = 0; begin < rows_; begin += write_rows_) {
      std::vector<ColdKey> keys;
      for (uint64_t i = begin; i < std::min(rows_, begin + write_rows_); ++i) {
        keys.push_back(
            {.partition = PartitionOf(order[i], kDefaultPartitions).value(), .key = order[i]});
      }
      std::sort(keys.begin(), keys.end());
      seconds += Write(keys);
    }
    return double(rows_) / seconds / 1e6;
  }
  // Device bytes over record bytes while every row is written `times` times more, at random.
  double Rewrite(int times) {
    const ColdStore::Stats before = store_->stats();
    for (uint64_t written = 0; written < times * rows_; written += write_rows_) {
      Write(RandomKeys(rows_, write_rows_, written));
    }
    const ColdStore::Stats after = store_->stats();
    return double(after.device_bytes_written - before.device_bytes_written) /
           double(after.record_bytes_written - before.record_bytes_written);
  }
  // Rows a second of one batch.
  double Read(size_t keys, uint64_t seed) {
    const std::vector<ColdKey> all = RandomKeys(rows_, keys, seed);
    read_seconds_.push_back(
        Seconds([&] { Must(store_->Read(0, all, records_.data(), found_.data())); }));
    if (std::count(found_.begin(), found_.begin() + all.size(), 1) != std::ptrdiff_t(all.size())) {
      Must(absl::DataLossError("a row is missing"));
    }
    return double(all.size()) / read_seconds_.back();
  }
  // Of the batches read since the last call.
  std::vector<double> TakeReadSeconds() { return std::exchange(read_seconds_, {}); }

 private:
  static std::unique_ptr<ColdStore> Open(const std::string& folder, TaskPool* readers) {
    ColdStore::Options options;
    options.folder = folder + "/cold";
    options.readers = readers;
    auto store = ColdStore::Open(options, {{.name = "rows", .record_bytes = kRecordBytes}});
    Must(store.status());
    return *std::move(store);
  }
  // Seconds.
  double Write(const std::vector<ColdKey>& keys) {
    std::vector<ColdRecord> records;
    for (const ColdKey& key : keys) records.push_back({.key = key, .bytes = bytes_.data()});
    return Seconds([&] {
      Must(store_->Write(0, records));
      store_->AwaitCompactionOfWrites(0, /*stopped=*/false);
    });
  }

  const uint64_t rows_;
  const size_t write_rows_;
  TaskPool readers_;
  const std::unique_ptr<ColdStore> store_;
  const std::vector<char> bytes_;
  std::vector<char> records_;
  std::vector<uint8_t> found_;
  std::vector<double> read_seconds_;
};

// The same files, read by one thread's MultiGet of RocksDB as it comes, 32 keys at a time.
class PlainReader {
 public:
  PlainReader(const std::string& folder, uint64_t rows) : rows_(rows) {
    const rocksdb::Options options = ps::ColdOptions(rocksdb::Env::Default(), /*page_cache=*/false);
    const std::string db = folder + "/cold/db";
    const std::vector<rocksdb::ColumnFamilyDescriptor> families = {
        {rocksdb::kDefaultColumnFamilyName, options}, {"table-0", options}};
    rocksdb::DB* opened = nullptr;
    const rocksdb::Status status =
        rocksdb::DB::OpenForReadOnly(options, db, families, &families_, &opened);
    if (!status.ok()) Must(absl::UnavailableError(status.ToString()));
    db_.reset(opened);
  }
  ~PlainReader() {
    for (rocksdb::ColumnFamilyHandle* const family : families_) {
      db_->DestroyColumnFamilyHandle(family).PermitUncheckedError();
    }
  }

  // Rows a second.
  double Read(size_t keys, uint64_t seed) {
    constexpr size_t kBatch = 32;
    const std::vector<ColdKey> all = RandomKeys(rows_, keys, seed);
    std::vector<std::array<char, ps::cold_record::kKeyBytes>> encoded(all.size());
    std::vector<rocksdb::Slice> slices;
    for (size_t i = 0; i < all.size(); ++i) {
      ps::cold_record::EncodeKey(all[i], encoded[i].data());
      slices.emplace_back(encoded[i].data(), encoded[i].size());
    }
    return double(all.size()) / Seconds([&] {
             for (size_t begin = 0; begin < all.size(); begin += kBatch) {
               const size_t n = std::min(kBatch, all.size() - begin);
               std::array<rocksdb::PinnableSlice, kBatch> values;
               std::array<rocksdb::Status, kBatch> statuses;
               db_->MultiGet(rocksdb::ReadOptions(), families_[1], n, &slices[begin], values.data(),
                             statuses.data(), /*sorted_input=*/true);
               for (size_t i = 0; i < n; ++i) {
                 if (!statuses[i].ok()) Must(absl::DataLossError(statuses[i].ToString()));
               }
             }
           });
  }

 private:
  const uint64_t rows_;
  std::vector<rocksdb::ColumnFamilyHandle*> families_;
  std::unique_ptr<rocksdb::DB> db_;
};

void ReportReads(benchmark::State& state, const std::string& when, const std::string& folder,
                 uint64_t count, ColdRows& rows, const RawFile& raw, int rounds) {
  uint64_t seed = 0;
  const Medians m = Interleave(
      rounds, [&] { return rows.Read(kBatchKeys, ++seed); },
      [&] { return raw.RandomReads(kInFlight, kBatchKeys, ++seed); });
  Report(state, {.metric = when + "/batches of 16384",
                 .value = m.value,
                 .unit = "rows/s",
                 .limit_name = "device, 4 KB reads, 64 outstanding",
                 .limit = m.limit,
                 .bar = ">= 0.5"});
  Report(state, {.metric = when + "/bytes of records",
                 .value = m.value * kRecordBytes / 1e6,
                 .unit = "MB/s",
                 .limit_name = "device, 4 KB reads, 64 outstanding, whole",
                 .limit = m.limit * 4096 / 1e6});
  PlainReader plain(folder, count);
  const Medians one = Interleave(
      rounds, [&] { return rows.Read(kBatchKeys, ++seed); },
      [&] { return plain.Read(2048, ++seed); });
  Report(state, {.metric = when + "/batches of 16384 beside MultiGet",
                 .value = one.value,
                 .unit = "rows/s",
                 .limit_name = "one thread's MultiGet",
                 .limit = one.limit,
                 .bar = ">= 5"});
  ReportTimes(state, when + "/batch of 16384", rows.TakeReadSeconds());
}

void Cold(benchmark::State& state, const std::string& folder, uint64_t count, size_t write_rows,
          int rounds) {
  ColdRows rows(folder, count, write_rows);
  const double written = rows.WriteAll();
  const double count_bytes = double(count) * kRecordBytes;
  Report(state, {.metric = absl::StrCat("write/batches of ", write_rows),
                 .value = written,
                 .unit = "million rows/s",
                 .limit_name = "",
                 .bar = ""});
  const RawFile raw(folder + "/raw", rows.store().stats().folder_bytes);
  ::sync();
  ReportReads(state, "read", folder, count, rows, raw, rounds);
  Report(state, {.metric = "rewrite/device bytes",
                 .value = rows.Rewrite(3),
                 .unit = "times the records' bytes",
                 .limit_name = "",
                 .bar = ""});
  ReportReads(state, "read after rewrite", folder, count, rows, raw, rounds);
  const ColdStore::Stats stats = rows.store().stats();
  Report(state, {.metric = "folder",
                 .value = double(stats.folder_bytes) / 1e6,
                 .unit = "MB",
                 .limit_name = "records",
                 .limit = count_bytes / 1e6,
                 .bar = ""});
  Report(state, {.metric = "memory of a row on disk",
                 .value = double(stats.memory_bytes) / double(count),
                 .unit = "bytes",
                 .limit_name = "",
                 .bar = ""});
}

}  // namespace

void RegisterBenchmarks(const Options& options) {
  Register("cold", [=](benchmark::State& state) {
    Cold(state, options.work_folder, options.short_run ? 200'000 : 10'000'000,
         options.short_run ? 50'000 : 200'000, options.short_run ? 3 : 9);
  });
}

}  // namespace tessera::bench
