#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/hash.h"
#include "common/partition.h"
#include "ps/tables/spill.h"
#include "ps/tables/table_tier.h"
#include "tests/bench/bench.h"
#include "tests/bench/raw_file.h"
#include "tests/bench/zipf.h"

// A table with memory for a tenth of its rows: pulls and pushes of Zipf's law through memory and
// disk, and what leaves memory.
namespace tessera::bench {
namespace {

using ps::ColdStore;
using ps::TableTier;

constexpr uint32_t kDim = 16;
constexpr uint32_t kBatch = 16384;
constexpr int kInFlight = 64;
constexpr uint64_t kPlenty = uint64_t{1} << 40;

void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  std::exit(1);
}
double CpuSeconds() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}
uint64_t KeyOf(uint64_t item) { return Mix64(item + 1); }

std::vector<std::vector<uint32_t>> Draw(uint64_t items, uint32_t batches, bool unique,
                                        uint64_t seed) {
  return DrawZipf(
      {.items = items, .batches = batches, .batch = kBatch, .unique = unique, .seed = seed});
}

// A table of rows 0 to rows - 1 of dim 16 with Adagrad's slot.
class SpillingTable {
 public:
  SpillingTable(const std::string& folder, uint64_t memory_bytes)
      : partitions_(All()),
        store_(Template(), &partitions_),
        values_(kBatch * kDim),
        statuses_(kBatch) {
    ps::Spill::Options options;
    options.folder = folder;
    options.memory_bytes = memory_bytes;
    options.room_limit = absl::Seconds(60);
    auto spill = ps::Spill::Open(options);
    Must(spill.status());
    spill_ = *std::move(spill);
    ColdStore::Options cold;
    cold.folder = spill_->NewFolder();
    cold.readers = &spill_->readers();
    auto opened = ColdStore::Open(
        cold, {{.name = "rows", .record_bytes = TableTier::RecordBytes(store_.layout())}});
    Must(opened.status());
    cold_ = *std::move(opened);
    TableTier::Options tier;
    tier.cold = cold_.get();
    tier.budget = &spill_->budget();
    tier.evictor = &spill_->evictor();
    tier.room_limit = options.room_limit;
    tier_ = std::make_unique<TableTier>(tier, &partitions_, *Expiry::New({}, "rows"), &store_);
  }

  static uint64_t RecordBytes() { return TableTier::RecordBytes(Template().layout); }
  static uint64_t RowBytes() { return RecordBytes() + 12; }
  ps::RowStore& store() { return store_; }
  ColdStore& cold() { return *cold_; }
  TableTier& tier() { return *tier_; }

  void Pull(const std::vector<uint32_t>& items) {
    Must(tier_->FindOrCreate(Keys(items), values_.data(), statuses_.data()).status());
  }
  void Push(const std::vector<uint32_t>& items) {
    Must(tier_->Update(Keys(items),
                       [&](absl::Span<ps::Row* const> rows, absl::Span<const uint32_t>) {
                         for (ps::Row* const row : rows) {
                           row->Touch(1);
                           for (uint32_t d = 0; d < kDim; ++d)
                             store_.layout().Embedding(row)[d] += 1e-3f;
                         }
                       }));
  }
  // The first visit of the hand finds rows that just came and lets them be; the second takes them.
  void EvictAll() {
    for (int visit = 0; visit < 2; ++visit) Must(tier_->Evict(kPlenty).status());
    if (store_.rows() != 0) Must(absl::InternalError("rows did not leave"));
  }
  void Load(uint64_t rows) {
    std::vector<uint32_t> items;
    for (uint64_t i = 0; i < rows; i += items.size()) {
      items.resize(std::min<uint64_t>(kBatch, rows - i));
      std::iota(items.begin(), items.end(), static_cast<uint32_t>(i));
      Pull(items);
    }
  }

 private:
  static ps::PartitionSet All() {
    std::vector<uint32_t> all(kDefaultPartitions);
    std::iota(all.begin(), all.end(), 0);
    return *ps::PartitionSet::New(kDefaultPartitions, all);
  }
  static ps::RowTemplate Template() {
    v1::InitializerSpec constant;
    constant.mutable_constant()->set_value(0.01f);
    return {.layout = ps::RowLayout(kDim, 1, 0),
            .initializer = *ps::Initializer::New(constant, 1, "rows"),
            .slots = std::vector<float>(kDim, 0.1f)};
  }
  const std::vector<uint64_t>& Keys(const std::vector<uint32_t>& items) {
    keys_.clear();
    for (const uint32_t item : items) keys_.push_back(KeyOf(item));
    return keys_;
  }

  const ps::PartitionSet partitions_;
  ps::RowStore store_;
  std::vector<float> values_;
  std::vector<uint8_t> statuses_;
  std::vector<uint64_t> keys_;
  std::unique_ptr<ps::Spill> spill_;
  std::unique_ptr<ColdStore> cold_;
  std::unique_ptr<TableTier> tier_;
};

// Bytes written to the device once no merge of files is under way: what was written before and
// waits to be merged counts there.
uint64_t SettledBytesWritten(const ColdStore& cold) {
  constexpr int kQuietRounds = 10;
  uint64_t bytes = cold.stats().device_bytes_written;
  for (int quiet = 0; quiet < kQuietRounds; ++quiet) {
    absl::SleepFor(absl::Milliseconds(50));
    const uint64_t now = cold.stats().device_bytes_written;
    if (now != std::exchange(bytes, now)) quiet = -1;
  }
  return bytes;
}

// What the tier keeps in memory of so many rows on disk.
uint64_t TierBytes(const std::string& folder, uint64_t rows) {
  SpillingTable table(folder + "/sizes", kPlenty);
  table.Load(rows);
  table.EvictAll();
  return table.cold().stats().memory_bytes;
}

// is[i]: item i is among the `most` most frequent.
std::vector<bool> MostFrequent(uint64_t items, uint64_t most, uint32_t batches) {
  std::vector<uint32_t> counts(items);
  for (const auto& batch : Draw(items, batches, false, 77)) {
    for (const uint32_t item : batch) ++counts[item];
  }
  std::vector<uint32_t> order(items);
  std::iota(order.begin(), order.end(), 0);
  std::nth_element(order.begin(), order.begin() + most, order.end(),
                   [&](uint32_t a, uint32_t b) { return counts[a] > counts[b]; });
  std::vector<bool> is(items);
  for (uint64_t i = 0; i < most; ++i) is[order[i]] = true;
  return is;
}

void ZipfTraining(benchmark::State& state, const std::string& folder, uint64_t rows,
                  uint32_t warm_batches, uint32_t batches) {
  const uint64_t tenth = rows / 10;
  const auto frequent = MostFrequent(rows, tenth, warm_batches * 8);
  const auto warm = Draw(rows, warm_batches, true, 5);
  const auto measured = Draw(rows, batches, true, 6);
  SpillingTable table(folder + "/zipf",
                      tenth * SpillingTable::RowBytes() + TierBytes(folder, rows));
  table.Load(rows);
  for (const auto& batch : warm) {
    table.Pull(batch);
    table.Push(batch);
  }
  const RawFile raw(folder + "/raw", table.cold().stats().folder_bytes);
  uint64_t static_misses = 0;
  std::vector<double> rates, device, pulls, pushes;
  const TableTier::Stats before = table.tier().stats();
  const uint64_t written_before = SettledBytesWritten(table.cold());
  for (const auto& batch : measured) {
    for (const uint32_t item : batch) static_misses += !frequent[item];
    pulls.push_back(Seconds([&] { table.Pull(batch); }));
    pushes.push_back(Seconds([&] { table.Push(batch); }));
    rates.push_back(kBatch / (pulls.back() + pushes.back()));
    device.push_back(raw.RandomReads(kInFlight, 2048, rates.size()));
  }
  const TableTier::Stats after = table.tier().stats();
  const double keys = double(batches) * kBatch;
  // A push finds what its pull has brought in, or reads it again.
  const double misses = double(after.cold_reads - before.cold_reads) / keys;
  Report(state, {.metric = "hit rate",
                 .value = 100 * (1 - misses),
                 .unit = "%",
                 .limit_name = "best static choice, less 3 points",
                 .limit = 100 * (1 - double(static_misses) / keys) - 3,
                 .bar = ">= 1"});
  // Pulls and pushes of a key are one key here: it is read from disk once.
  Report(state, {.metric = "pull and push",
                 .value = Median(rates),
                 .unit = "keys/s",
                 .limit_name = "device reads/s over the miss rate",
                 .limit = Median(device) / misses,
                 .bar = ">= 0.5"});
  ReportTimes(state, absl::StrCat("pull of ", kBatch), pulls);
  ReportTimes(state, absl::StrCat("push of ", kBatch), pushes);
  Report(state, {.metric = "rows in memory",
                 .value = double(table.store().rows()),
                 .unit = "rows",
                 .limit_name = "a tenth",
                 .limit = double(tenth),
                 .bar = "<= 1.05"});
  Report(state, {.metric = "memory of rows and maps",
                 .value = double(table.store().bytes()) / 1e6,
                 .unit = "MB",
                 .limit_name = "counted",
                 .limit = double(table.tier().row_bytes()) / 1e6,
                 .bar = ""});
  Report(state, {.metric = "rows read again",
                 .value = double(after.repeated_reads - before.repeated_reads) / keys,
                 .unit = "of the keys",
                 .limit_name = "",
                 .bar = ""});
  // The same pushes written at once, as they come.
  const double written = double(SettledBytesWritten(table.cold()) - written_before);
  ColdStore::Options options;
  options.folder = folder + "/through";
  TaskPool readers(1);
  options.readers = &readers;
  auto through = ColdStore::Open(
      options, {{.name = "rows", .record_bytes = uint32_t(SpillingTable::RecordBytes())}});
  Must(through.status());
  const std::vector<char> bytes(SpillingTable::RecordBytes());
  const auto write = [&](const std::vector<uint32_t>& items) {
    std::vector<ps::ColdRecord> records;
    for (const uint32_t item : items) {
      records.push_back({.key = {.partition = PartitionOf(KeyOf(item), kDefaultPartitions).value(),
                                 .key = KeyOf(item)},
                         .bytes = bytes.data()});
    }
    std::sort(records.begin(), records.end(),
              [](const auto& a, const auto& b) { return a.key < b.key; });
    Must((*through)->Write(0, records));
  };
  for (const auto& batch : warm) write(batch);
  const uint64_t through_before = SettledBytesWritten(**through);
  for (const auto& batch : measured) write(batch);
  const double dirtied = keys * double(SpillingTable::RecordBytes());
  Report(state, {.metric = "bytes written over bytes dirtied",
                 .value = written / dirtied,
                 .unit = "times",
                 .limit_name = "write-through",
                 .limit = double(SettledBytesWritten(**through) - through_before) / dirtied,
                 .bar = "<= 1"});
}

void Eviction(benchmark::State& state, const std::string& folder, uint64_t rows) {
  SpillingTable table(folder + "/evict", kPlenty);
  table.Load(rows);
  const double cpu = CpuSeconds();
  const double seconds = Seconds([&] { table.EvictAll(); });
  const double cpu_used = CpuSeconds() - cpu;
  Report(state, {.metric = "changed rows",
                 .value = double(rows) / cpu_used / 1e6,
                 .unit = "million rows/s of a core",
                 .limit_name = "the bar",
                 .limit = 1,
                 .bar = ">= 1"});
  Report(state, {.metric = "changed rows, by the clock",
                 .value = double(rows) / seconds / 1e6,
                 .unit = "million rows/s",
                 .limit_name = "",
                 .bar = ""});
}

}  // namespace

void RegisterBenchmarks(const Options& options) {
  const bool is_short = options.short_run;
  Register("tier/evict", [=](benchmark::State& state) {
    Eviction(state, options.work_folder, is_short ? 200'000 : 2'000'000);
  });
  Register("tier/zipf", [=](benchmark::State& state) {
    ZipfTraining(state, options.work_folder, is_short ? 200'000 : 2'000'000, is_short ? 16 : 200,
                 is_short ? 8 : 100);
  });
}

}  // namespace tessera::bench
