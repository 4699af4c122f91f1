#include <algorithm>
#include <array>
#include <memory>
#include <thread>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "common/partition.h"
#include "common/process/resident.h"
#include "ps/rows/key_groups.h"
#include "ps/tables/table.h"
#include "tests/bench/bench.h"
#include "tests/bench/row_array.h"
#include "tests/bench/zipf.h"

// Tables in one process, without a network: pull and push beside the same work on an array, a table
// that grows, and the repeats of a batch.
namespace tessera::bench {
namespace {

constexpr uint32_t kBatch = 16384;
constexpr uint32_t kGrowthBatch = 4096;
constexpr char kArray[] = "array by index";

uint64_t KeyOf(uint64_t item) { return Mix64(item + 1); }

ps::PartitionSet AllPartitions() {
  std::vector<uint32_t> all(kDefaultPartitions);
  for (uint32_t p = 0; p < all.size(); ++p) all[p] = p;
  return *ps::PartitionSet::New(kDefaultPartitions, all);
}

std::unique_ptr<ps::Table> NewTable(uint32_t dim, const ps::PartitionSet& partitions) {
  v1::PsTable table;
  table.mutable_spec()->set_name("bench");
  table.mutable_spec()->set_dim(dim);
  table.mutable_spec()->mutable_initializer()->mutable_constant()->set_value(0.01f);
  table.mutable_spec()->mutable_optimizer()->set_learning_rate(0.01f);
  table.mutable_spec()->mutable_optimizer()->mutable_adagrad();
  table.set_consistency(v1::ASYNC);
  return *ps::Table::New(table, 1, &partitions);
}

// Batches of keys, and the same as places in an array.
struct Batches {
  std::vector<std::vector<uint32_t>> items;
  std::vector<std::vector<uint64_t>> keys;
};

std::shared_ptr<const Batches> Draw(uint64_t items, uint32_t batches, bool unique) {
  Batches out;
  out.items =
      DrawZipf({.items = items, .batches = batches, .batch = kBatch, .unique = unique, .seed = 1});
  for (const std::vector<uint32_t>& batch : out.items) {
    std::vector<uint64_t>& keys = out.keys.emplace_back();
    for (const uint32_t item : batch) keys.push_back(KeyOf(item));
  }
  return std::make_shared<const Batches>(std::move(out));
}

// A table and an array with the same rows.
class Rows {
 public:
  Rows(uint32_t dim, uint64_t rows)
      : dim_(dim),
        partitions_(AllPartitions()),
        table_(NewTable(dim, partitions_)),
        array_(table_->store().layout(), rows),
        gradients_(size_t{kBatch} * dim, 1e-3f) {
    std::vector<uint64_t> keys;
    std::vector<float> values(size_t{kBatch} * dim);
    std::vector<uint8_t> statuses(kBatch);
    for (uint64_t i = 0; i < rows; i += keys.size()) {
      keys.clear();
      for (uint64_t k = i; k < std::min(rows, i + kBatch); ++k) {
        keys.push_back(KeyOf(k));
        array_.Fill(static_cast<uint32_t>(k), 0.01f, 0.1f);
      }
      (void)table_->Pull(keys, false, values.data(), statuses.data());
    }
  }

  const ps::RowLayout& layout() const { return table_->store().layout(); }
  // Of a processor, of each batch that one thread has pulled or pushed since the last call.
  std::vector<double> TakeSeconds() { return std::exchange(seconds_, {}); }

  // Each in million keys a second.
  double Pull(const Batches& batches, int threads) {
    return Rate(
        batches, threads,
        [&](size_t b, float* values) {
          std::vector<uint8_t> statuses(kBatch);
          (void)table_->Pull(batches.keys[b], false, values, statuses.data());
        },
        &seconds_);
  }
  double Gather(const Batches& batches, int threads) {
    return Rate(batches, threads,
                [&](size_t b, float* values) { array_.Gather(batches.items[b], values); });
  }
  double Push(const Batches& batches, int threads) {
    return Rate(
        batches, threads,
        [&](size_t b, float*) {
          (void)table_->Apply({{.keys = batches.keys[b], .values = gradients_.data()}}, 1, 1);
        },
        &seconds_);
  }
  double Update(const Batches& batches, int threads) {
    // Two threads may meet in a row, as no table would let them: the limit pays for no lock.
    return Rate(batches, threads,
                [&](size_t b, float*) { array_.Adagrad(batches.items[b], gradients_.data()); });
  }

 private:
  // Thread t takes the batches t, t + threads, ... `seconds_of_batches`: where to add the time of
  // each on a processor, if there is one thread.
  double Rate(const Batches& batches, int threads,
              absl::FunctionRef<void(size_t batch, float* values)> work,
              std::vector<double>* seconds_of_batches = nullptr) {
    // Aligned as a server aligns its answers.
    using Line = std::array<float, 16>;
    struct alignas(64) AlignedLine : Line {};
    std::vector<std::vector<AlignedLine>> values(
        threads, std::vector<AlignedLine>(size_t{kBatch} * dim_ / 16));
    const auto run = [&](size_t first) {
      for (size_t b = first; b < batches.keys.size(); b += threads) {
        const auto one = [&] { work(b, values[first].front().data()); };
        if (threads > 1 || seconds_of_batches == nullptr) {
          one();
        } else {
          seconds_of_batches->push_back(CpuSeconds(one));
        }
      }
    };
    const double seconds = threads == 1 ? CpuSeconds([&] { run(0); }) : Seconds([&] {
      std::vector<std::thread> others;
      for (int t = 1; t < threads; ++t) others.emplace_back(run, t);
      run(0);
      for (std::thread& other : others) other.join();
    });
    return static_cast<double>(batches.keys.size() * kBatch) / seconds / 1e6;
  }

  const uint32_t dim_;
  const ps::PartitionSet partitions_;
  const std::unique_ptr<ps::Table> table_;
  RowArray array_;
  const std::vector<float> gradients_;
  std::vector<double> seconds_;
};

void PullAndPush(benchmark::State& state, uint32_t dim, uint64_t rows, int rounds,
                 const Batches& batches) {
  Rows both(dim, rows);
  for (const bool push : {false, true}) {
    Medians alone = {};
    for (const int threads : {1, 2}) {
      const Medians m = Interleave(
          rounds, [&] { return push ? both.Push(batches, threads) : both.Pull(batches, threads); },
          [&] { return push ? both.Update(batches, threads) : both.Gather(batches, threads); });
      const std::string name = push ? "push" : "pull";
      Report(state, {.metric = absl::StrCat(name, "/threads:", threads),
                     .value = m.value,
                     .unit = "million keys/s",
                     .limit_name = kArray,
                     .limit = m.limit,
                     .bar = dim < 16 ? "" : ">= 0.5"});
      if (threads == 1) {
        alone = m;
        // What a pull reads of a row, and what a push reads and writes.
        const double gigabytes = sizeof(float) * (push ? both.layout().floats() : dim) / 1e3;
        Report(state, {.metric = absl::StrCat(name, "/bytes"),
                       .value = m.value * gigabytes,
                       .unit = "GB/s",
                       .limit_name = kArray,
                       .limit = m.limit * gigabytes});
        ReportTimes(state, absl::StrCat(name, "/batch of ", kBatch), both.TakeSeconds());
        continue;
      }
      Report(state, {.metric = absl::StrCat(name, "/two threads to one"),
                     .value = m.value / alone.value,
                     .unit = "times",
                     .limit_name = kArray,
                     .limit = m.limit / alone.limit,
                     .bar = ">= 0.9"});
    }
  }
}

// The repeats of a batch as a worker sends it: 26 keys of each of 2,048 samples.
void Repeats(benchmark::State& state, uint64_t items, int rounds) {
  constexpr uint32_t kKeys = 53248;
  const std::vector<std::vector<uint32_t>> drawn =
      DrawZipf({.items = items, .batches = 16, .batch = kKeys, .unique = false, .seed = 2});
  std::vector<std::vector<uint64_t>> batches;
  for (const std::vector<uint32_t>& batch : drawn) {
    std::vector<uint64_t>& keys = batches.emplace_back();
    for (const uint32_t item : batch) keys.push_back(KeyOf(item));
  }
  const double million_keys = static_cast<double>(batches.size() * kKeys) / 1e6;
  ps::KeyGroups groups;
  size_t distinct = 0;
  size_t distinct_of_map = 0;
  const Medians m = Interleave(
      rounds,
      [&] {
        distinct = 0;
        return million_keys / CpuSeconds([&] {
                 for (const std::vector<uint64_t>& keys : batches) {
                   groups.Build(keys);
                   distinct += groups.size();
                 }
               });
      },
      [&] {
        distinct_of_map = 0;
        absl::flat_hash_map<uint64_t, uint32_t> map;
        return million_keys / CpuSeconds([&] {
                 for (const std::vector<uint64_t>& keys : batches) {
                   map.clear();
                   map.reserve(keys.size());
                   for (uint32_t i = 0; i < keys.size(); ++i) map.try_emplace(keys[i], i);
                   distinct_of_map += map.size();
                 }
               });
      });
  if (distinct != distinct_of_map) state.SkipWithError("the distinct keys differ");
  Report(state, {.metric = "removed",
                 .value = m.value,
                 .unit = "million keys/s",
                 .limit_name = "absl::flat_hash_map, without the places of repeats",
                 .limit = m.limit});
  Report(state, {.metric = "distinct",
                 .value = static_cast<double>(distinct) / (1e4 * million_keys),
                 .unit = "% of the keys",
                 .limit_name = ""});
}

void Growth(benchmark::State& state, uint64_t rows) {
  constexpr uint32_t kDim = 16;
  const ps::PartitionSet partitions = AllPartitions();
  const uint64_t resident = ResidentBytes();
  const std::unique_ptr<ps::Table> table = NewTable(kDim, partitions);
  std::vector<uint64_t> keys(kGrowthBatch);
  std::vector<float> values(size_t{kGrowthBatch} * kDim);
  std::vector<uint8_t> statuses(kGrowthBatch);
  std::vector<double> micros;
  for (uint64_t done = 0; done < rows; done += keys.size()) {
    for (uint64_t i = 0; i < keys.size(); ++i) keys[i] = KeyOf(done + i);
    // On the processor, page faults included: what else the machine runs is no stall of ours.
    micros.push_back(
        1e6 * CpuSeconds([&] { (void)table->Pull(keys, false, values.data(), statuses.data()); }));
  }
  const double median = Median(micros);
  Report(state,
         {.metric = "insert/p50", .value = median, .unit = "us", .limit_name = "", .bar = ""});
  for (const double percent : {99.0, 99.9, 100.0}) {
    Report(state, {.metric = absl::StrCat("insert/p", percent),
                   .value = Percentile(micros, percent),
                   .unit = "us",
                   .limit_name = "p50",
                   .limit = median,
                   .bar = percent == 99.9 ? "<= 20" : ""});
  }
  const ps::RowStore& store = table->store();
  const double n = static_cast<double>(store.rows());
  const double floats = sizeof(float) * store.layout().floats();
  const double entries = static_cast<double>(store.map_bytes()) / n;  // 8 bytes when all are taken
  Report(state, {.metric = "bytes of a row beyond its floats",
                 .value = static_cast<double>(store.bytes()) / n - floats,
                 .unit = "bytes",
                 .limit_name = "24 and the map's free entries",
                 .limit = 24 + entries - 8,
                 .bar = "<= 1"});
  Report(state, {.metric = "resident",
                 .value = static_cast<double>(ResidentBytes() - resident) / 1e6,
                 .unit = "MB",
                 .limit_name = "counted",
                 .limit = static_cast<double>(store.bytes()) / 1e6,
                 .bar = "<= 1.05"});
}

}  // namespace

void RegisterBenchmarks(const Options& options) {
  const uint64_t rows = options.short_run ? 300'000 : 10'000'000;
  const uint32_t count = options.short_run ? 32 : 256;
  const int rounds = options.short_run ? 3 : 9;
  // Before the rest: it measures the whole process.
  Register("store/growth", [=](benchmark::State& state) { Growth(state, rows); });
  Register("store/repeats", [=](benchmark::State& state) { Repeats(state, rows, rounds); });
  for (const bool unique : {false, true}) {
    // Drawn by the first that needs them.
    const auto batches = std::make_shared<std::shared_ptr<const Batches>>();
    const std::string draws = unique ? "zipf without repeats" : "zipf";
    for (const uint32_t dim : {1, 16, 32, 64}) {
      Register(absl::StrCat("store/", draws, "/dim:", dim), [=](benchmark::State& state) {
        if (*batches == nullptr) *batches = Draw(rows, count, unique);
        PullAndPush(state, dim, rows, rounds, **batches);
      });
    }
  }
}

}  // namespace tessera::bench
