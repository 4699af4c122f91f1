#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "common/hash.h"
#include "common/partition.h"
#include "common/process/freed_memory.h"
#include "common/process/resident.h"
#include "ps/tables/spill.h"
#include "ps/tables/table_tier.h"
#include "tests/ps/failing_memory.h"
#include "tests/ps/ps_testing.h"

// The budget of a process is about the pages that it has, whatever its tables do.
namespace tessera::ps {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kBudget = 256 * kMiB;
constexpr uint32_t kDim = 64;
constexpr size_t kBatch = 4096;

// The largest resident size of this process while it lives.
class Watch {
 public:
  Watch() : thread_([this] { Look(); }) {}
  ~Watch() { Stop(); }
  uint64_t Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return most_;
  }

 private:
  void Look() {
    while (!stop_) {
      most_ = std::max(most_, ResidentBytes());
      absl::SleepFor(absl::Milliseconds(5));
    }
  }
  std::atomic<bool> stop_ = false;
  uint64_t most_ = 0;  // read after the thread has ended
  std::thread thread_;
};

class ResidentTest : public testing::Test {
 protected:
  // One of the tables that share the budget.
  struct SpilledTable {
    SpilledTable(Spill& spill, const PartitionSet* partitions)
        : store(Template(), partitions), values(kBatch * kDim), statuses(kBatch) {
      ColdStore::Options options;
      options.folder = spill.NewFolder();
      options.readers = &spill.readers();
      cold = *ColdStore::Open(
          options, {{.name = "t", .record_bytes = TableTier::RecordBytes(store.layout())}});
      TableTier::Options of_tier;
      of_tier.cold = cold.get();
      of_tier.budget = &spill.budget();
      of_tier.evictor = &spill.evictor();
      of_tier.eviction_bytes = 4 * kMiB;
      tier = std::make_unique<TableTier>(of_tier, partitions, *Expiry::New({}, "t"), &store);
    }
    // Makes rows that have never been there.
    void Fill(uint64_t bytes) {
      std::vector<uint64_t> keys(kBatch);
      const uint64_t end = next + bytes / TableTier::RecordBytes(store.layout());
      while (next < end) {
        for (uint64_t& key : keys) key = Mix64(next++);
        EXPECT_OK(tier->FindOrCreate(keys, values.data(), statuses.data()));
      }
    }
    // Whether rows that Fill has made, from first to last, are there as they were made.
    void ExpectRows() {
      std::vector<uint64_t> keys(kBatch);
      std::vector<float> expected(kDim);
      for (uint64_t first = 0; first < next; first += 32 * kBatch) {
        for (size_t i = 0; i < kBatch; ++i) keys[i] = Mix64(first + i);
        const auto counts = tier->Find(keys, values.data(), statuses.data());
        ASSERT_OK(counts);
        ASSERT_EQ(counts->absent, 0);
        for (size_t i = 0; i < kBatch; ++i) {
          store.FillInitial(keys[i], absl::MakeSpan(expected));
          ASSERT_TRUE(std::equal(expected.begin(), expected.end(), values.data() + i * kDim));
        }
      }
    }

    RowStore store;
    std::unique_ptr<ColdStore> cold;
    std::unique_ptr<TableTier> tier;
    std::vector<float> values;
    std::vector<uint8_t> statuses;
    uint64_t next = 0;
  };

  void SetUp() override {
    if (ResidentBytes() > kBudget / 3) {
      GTEST_SKIP() << "other tests have left this process with " << (ResidentBytes() >> 20)
                   << " MiB; ctest gives each test a process of its own";
    }
    SKIP_WITHOUT_FAILING_MEMORY();  // a sanitizer takes memory of its own
    KeepFreedMemoryWithin(kBudget);
    Spill::Options options;
    options.folder = folder_;
    options.memory_bytes = kBudget;
    options.of_process = true;
    options.room_limit = absl::Seconds(60);
    std::filesystem::create_directories(folder_);
    spill_ = *Spill::Open(options);
  }
  void TearDown() override {
    spill_ = nullptr;
    std::filesystem::remove_all(folder_);
  }

  static RowTemplate Template() {
    v1::InitializerSpec spec;
    spec.mutable_normal()->set_stddev(1);
    return {.layout = RowLayout(kDim, 0, 0),
            .initializer = *Initializer::New(spec, 5, "t"),
            .slots = {}};
  }
  static PartitionSet All() {
    std::vector<uint32_t> all(kDefaultPartitions);
    for (uint32_t p = 0; p < kDefaultPartitions; ++p) all[p] = p;
    return *PartitionSet::New(kDefaultPartitions, all);
  }

  const std::string folder_ = testing::TempDir() + "/resident-" + std::to_string(::getpid());
  const PartitionSet partitions_ = All();
  std::unique_ptr<Spill> spill_;
};

TEST_F(ResidentTest, RowsOfAnotherTableGetThePagesOfTheFirst) {
  SpilledTable first(*spill_, &partitions_);
  SpilledTable second(*spill_, &partitions_);
  first.Fill(kBudget);
  const uint64_t first_bytes = first.tier->row_bytes();
  Watch watch;
  second.Fill(kBudget);
  EXPECT_LT(first.tier->row_bytes(), first_bytes / 2);
  first.Fill(kBudget / 4);
  const uint64_t most = watch.Stop();
  EXPECT_LE(most, kBudget);
  first.ExpectRows();
  second.ExpectRows();
}

TEST_F(ResidentTest, WhatRisesBesideRowsGetsTheirPages) {
  SpilledTable table(*spill_, &partitions_);
  table.Fill(kBudget);
  constexpr uint64_t kRise = 48 * kMiB;
  const auto beside = std::make_unique<char[]>(kRise);
  std::fill_n(beside.get(), kRise, 1);
  uint64_t now = ResidentBytes();
  for (const absl::Time end = absl::Now() + absl::Seconds(15); absl::Now() < end;) {
    now = ResidentBytes();
    if (now <= kBudget) break;
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_LE(now, kBudget);
  EXPECT_EQ(beside[kRise - 1], 1);
  table.ExpectRows();
}

}  // namespace
}  // namespace tessera::ps
