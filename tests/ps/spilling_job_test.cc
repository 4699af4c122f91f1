#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <numeric>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/digest.h"
#include "common/checkpoint/manifest.h"
#include "ps/memory/memory_budget.h"
#include "ps/service/ps_metrics.h"
#include "ps/tables/evictor.h"
#include "ps/tables/row_limit.h"
#include "ps/tables/spill.h"
#include "ps/tables/table.h"
#include "tests/common/metric_value.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

constexpr uint32_t kWorkers = 3;
constexpr uint64_t kSteps = 15;
constexpr uint64_t kKeys = 6000;

// Names the first rows that differ.
testing::AssertionResult SameRows(const SavedRows& rows, const SavedRows& expected) {
  constexpr int kNamed = 8;
  testing::AssertionResult differ = testing::AssertionFailure();
  int named = 0;
  for (const auto& [key, row] : expected) {
    const auto it = rows.find(key);
    if (it != rows.end() && it->second == row) continue;
    if (++named > kNamed) continue;
    differ << "\ntable " << key.first << ", key " << key.second << ":\n  ";
    if (it == rows.end()) {
      differ << "no row";
    } else {
      differ << it->second;
    }
    differ << "\n  expected " << row;
  }
  if (named == 0 && rows.size() == expected.size()) return testing::AssertionSuccess();
  return differ << "\n"
                << named << " rows differ; " << rows.size() << " rows, expected "
                << expected.size();
}

class SpillingJobTest : public testing::Test {
 protected:
  SpillingJobTest()
      : folder_(testing::TempDir() + "/spill-" + std::to_string(::getpid()) + "-" +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {}
  ~SpillingJobTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Spill> OpenSpill(uint64_t memory_bytes) {
    Spill::Options options;
    options.folder = folder_;
    options.memory_bytes = memory_bytes;
    options.reader_threads = 4;
    auto spill = Spill::Open(options);
    EXPECT_OK(spill);
    return spill.ok() ? *std::move(spill) : nullptr;
  }
  static v1::OpenJobRequest TestJob() {
    v1::PsTable adagrad = AdamTable("adagrad", 3, v1::SYNC);
    adagrad.mutable_spec()->mutable_optimizer()->mutable_adagrad();
    adagrad.mutable_spec()->set_row_type(v1::BFLOAT16);
    adagrad.mutable_spec()->set_wire_type(v1::BFLOAT16);
    v1::PsTable every_row = AdamTable("every_row", 2, v1::SYNC);
    every_row.mutable_spec()->set_update(v1::EVERY_ROW);
    v1::PsTable admitted = AdamTable("admitted", 4, v1::SYNC);
    admitted.mutable_spec()->mutable_admission()->set_after_sightings(3);
    admitted.mutable_spec()->mutable_admission()->set_probability(0.8f);
    return Job({AdamTable("adam", 8, v1::SYNC), adagrad, every_row, admitted}, kWorkers);
  }
  // Bytes of all rows of tables that spill.
  static uint64_t AllRowBytes() {
    return kKeys * ((16 + 4 * (3 * 8 + 1)) + (16 + 2 * 4 + 4 * 3) + 2 * 12) +
           kKeys * 8 / 10 * (16 + 4 * (3 * 4 + 1) + 12);
  }
  static std::vector<Block> Gradients(uint32_t rank, uint64_t step) {
    std::mt19937_64 random(1000 * step + rank);
    std::normal_distribution<float> normal;
    std::vector<Block> blocks;
    const uint32_t dims[] = {8, 3, 2, 4};
    for (uint32_t t = 0; t < 4; ++t) {
      Block& block = blocks.emplace_back();
      block.table = t;
      block.wire_type = t == 1 ? v1::BFLOAT16 : v1::FLOAT32;
      for (uint64_t key = 0; key < (t == 2 ? 50 : kKeys); ++key) {
        if (random() % 8 == 0) block.keys.push_back(key);
      }
      for (size_t i = 0; i < block.keys.size() * dims[t]; ++i)
        block.values.push_back(normal(random));
    }
    return blocks;
  }
  static std::vector<std::pair<uint32_t, std::vector<uint64_t>>> KeysOf(
      const std::vector<Block>& blocks) {
    std::vector<std::pair<uint32_t, std::vector<uint64_t>>> keys;
    for (const Block& block : blocks) keys.push_back({block.table, block.keys});
    return keys;
  }
  static void Step(ShardedJob& cluster, uint64_t step) {
    std::vector<std::thread> ranks;
    for (uint32_t rank = 0; rank < kWorkers; ++rank) {
      ranks.emplace_back([&cluster, rank, step] {
        const std::vector<Block> gradients = Gradients(rank, step);
        const std::vector<Block> next = Gradients(rank, step + 1);
        for (size_t i = 0; i < cluster.size(); ++i) {
          const std::vector<Block> part = cluster.PartFor(i, gradients);
          PendingPull pull(cluster.shard(i), PullOf(rank, step, KeysOf(part)));
          // Of two ranks, so that what comes is partly new, and its order by chance.
          const v1::PullRequest to_come = PullOf(rank, step + 1, KeysOf(cluster.PartFor(i, next)));
          if (rank > 0) EXPECT_OK(cluster.shard(i).LookAhead(CallOf(to_come)));
          EXPECT_OK(cluster.shard(i).Push(CallOf(PushOf(rank, step, part))));
          EXPECT_TRUE(pull.answered());
          EXPECT_OK(pull.status());
        }
        cluster.ConfirmAt(rank, step + 1);
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }
  // All rows of the first table.
  static void PullAll(JobShard& shard) {
    std::vector<uint64_t> keys(kKeys);
    std::iota(keys.begin(), keys.end(), 0);
    PendingPull pull(shard, PullOf(0, 0, {{0, keys}}));
    EXPECT_OK(pull.status());
  }
  // Rows that are seldom used go, and may come again.
  static v1::OpenJobRequest ExpiringJob() {
    v1::OpenJobRequest job = TestJob();
    v1::ExpirySpec by_age;
    by_age.set_after_steps(2);
    *job.mutable_tables(0)->mutable_spec()->mutable_expiry() = by_age;
    v1::ExpirySpec by_use = by_age;
    by_use.set_min_frequency(3);
    by_use.set_min_norm(1);
    *job.mutable_tables(3)->mutable_spec()->mutable_expiry() = by_use;
    return job;
  }
  // With a checkpoint after each third step and the last, in "saved".
  SavedRows Train(const v1::OpenJobRequest& job, uint32_t ps, Spill* spill, FileSystem& files) {
    ShardedJob cluster(job, ps, files, clock_, spill);
    EXPECT_OK(cluster.status());
    std::string last;
    for (uint64_t step = 0; step < kSteps; ++step) {
      Step(cluster, step);
      const std::string folder = step + 1 < kSteps ? absl::StrCat("step-", step + 1) : "saved";
      if (step % 3 != 2) continue;
      EXPECT_OK(cluster.Checkpoint(step + 1, folder, last));
      // The manifest counts rows wherever they are.
      if (spill != nullptr) EXPECT_OK(DigestCheckpoint(files, "root/" + folder).status());
      last = folder;
    }
    uint64_t evicted = 0;
    for (size_t i = 0; i < cluster.size(); ++i) {
      const v1::StatsResponse stats = cluster.shard(i).Stats();
      for (const v1::TableStats& table : stats.tables()) {
        EXPECT_EQ(table.rows(), table.memory_rows() + table.cold_rows());
        EXPECT_TRUE(table.name() != "every_row" || table.cold_rows() == 0);
        evicted += table.evicted_rows();
      }
    }
    EXPECT_EQ(evicted > kKeys, spill != nullptr) << evicted;
    return cluster.Rows(kSteps);
  }

  // A disk with nothing on it.
  FileSystem& Files() {
    files_ = std::make_unique<FaultFileSystem>();
    return *files_;
  }

  const std::string folder_;
  HandClock clock_;
  std::unique_ptr<FaultFileSystem> files_;
};

TEST_F(SpillingJobTest, InSyncATenthOfTheMemoryGivesTheSameBits) {
  const SavedRows in_memory = Train(TestJob(), 1, nullptr, Files());
  EXPECT_GT(in_memory.size(), 2 * kKeys - 100);
  const std::unique_ptr<Spill> spill = OpenSpill(AllRowBytes() / 10);
  EXPECT_TRUE(SameRows(Train(TestJob(), 1, spill.get(), Files()), in_memory));
  EXPECT_TRUE(SameRows(Train(TestJob(), 3, spill.get(), Files()), in_memory));
}

TEST_F(SpillingJobTest, RowsExpireWhereverTheyAre) {
  const SavedRows in_memory = Train(ExpiringJob(), 1, nullptr, Files());
  const auto rows_of = [](const SavedRows& rows, uint32_t table) {
    return std::count_if(rows.begin(), rows.end(),
                         [table](const auto& row) { return row.first.first == table; });
  };
  EXPECT_LT(rows_of(in_memory, 0), kKeys - 500);
  EXPECT_GT(rows_of(in_memory, 0), 500);
  EXPECT_GT(rows_of(in_memory, 3), 500);
  const std::unique_ptr<Spill> spill = OpenSpill(AllRowBytes() / 10);
  EXPECT_TRUE(SameRows(Train(ExpiringJob(), 2, spill.get(), Files()), in_memory));
  // What the last checkpoint has, layers over others, is what there is.
  v1::OpenJobRequest job = ExpiringJob();
  job.set_checkpoint("saved");
  job.set_first_step(kSteps);
  ShardedJob restored(job, 2, *files_, clock_);
  ASSERT_OK(restored.status());
  EXPECT_TRUE(SameRows(restored.Rows(kSteps), in_memory));
}

TEST_F(SpillingJobTest, CheckpointsThatWriteWhatChangedHaveTheSameRows) {
  FaultFileSystem files;
  const std::unique_ptr<Spill> spill = OpenSpill(AllRowBytes() / 10);
  ShardedJob cluster(TestJob(), 2, files, clock_, spill.get());
  ASSERT_OK(cluster.status());
  uint64_t step = 0;
  for (; step < kSteps; ++step) Step(cluster, step);
  ASSERT_OK(cluster.Checkpoint(step, "whole"));
  const auto written_bytes = [&](const std::string& folder) {
    uint64_t bytes = 0;
    const v1::CheckpointManifest manifest = *ReadManifest(files, "root/" + folder);
    for (const v1::CheckpointFile& file : manifest.files()) {
      bytes += file.bytes();
    }
    return bytes;
  };
  std::string base = "whole";
  for (int n = 0; n < 2; ++n) {
    // A few rows of each table change, one at a time on their way through the memory.
    const std::vector<Block> all = Gradients(n, step);
    std::vector<Block> few(2);
    for (uint32_t t = 0; t < 2; ++t) {
      few[t].table = t;
      few[t].wire_type = all[t].wire_type;
      const size_t dim = all[t].values.size() / all[t].keys.size();
      few[t].keys.assign(all[t].keys.begin(), all[t].keys.begin() + 20);
      few[t].values.assign(all[t].values.begin(), all[t].values.begin() + 20 * dim);
    }
    for (uint32_t rank = 0; rank < kWorkers; ++rank) {
      cluster.Push(rank, step, rank == 0 ? few : std::vector<Block>{});
    }
    ++step;
    // Reading others makes them leave.
    for (uint64_t first = 0; first < kKeys; first += 500) {
      std::vector<uint64_t> keys;
      for (uint64_t k = first; k < first + 500; ++k) keys.push_back(k);
      for (size_t i = 0; i < cluster.size(); ++i) {
        std::vector<uint64_t> owned;
        for (const uint64_t k : keys) {
          if (cluster.OwnerOf(k) == i) owned.push_back(k);
        }
        PendingPull pull(cluster.shard(i), PullOf(0, step, {{0, owned}, {1, owned}}));
        ASSERT_OK(pull.status());
      }
    }
    const std::string folder = absl::StrCat("increment-", n);
    ASSERT_OK(cluster.Checkpoint(step, folder, base));
    EXPECT_LT(written_bytes(folder), written_bytes(base) * 5 / 4) << "of rows that changed alone";
    EXPECT_OK(DigestCheckpoint(files, "root/" + folder).status());
    // The same on ps that have all rows in memory.
    v1::OpenJobRequest job = TestJob();
    job.set_checkpoint(folder);
    job.set_first_step(step);
    ShardedJob restored(job, 3, files, clock_);
    ASSERT_OK(restored.status());
    EXPECT_TRUE(SameRows(restored.Rows(step), cluster.Rows(step)));
    // Rows() has written checkpoints of its own: what changed since is not known for `folder`.
    ASSERT_OK(cluster.Checkpoint(step, absl::StrCat("base-", n)));
    base = absl::StrCat("base-", n);
  }
}

TEST_F(SpillingJobTest, ACheckpointIsRestoredIntoLessMemoryThanItsRows) {
  FaultFileSystem files;
  const SavedRows rows = Train(TestJob(), 1, nullptr, files);
  const std::unique_ptr<Spill> spill = OpenSpill(AllRowBytes() / 10);
  v1::OpenJobRequest job = TestJob();
  job.set_checkpoint("saved");
  job.set_first_step(kSteps);
  ShardedJob cluster(job, 2, files, clock_, spill.get());
  ASSERT_OK(cluster.status());
  EXPECT_TRUE(SameRows(cluster.Rows(kSteps), rows));
  uint64_t cold = 0;
  for (size_t i = 0; i < 2; ++i) {
    const v1::StatsResponse stats = cluster.shard(i).Stats();
    for (const v1::TableStats& table : stats.tables()) cold += table.cold_rows();
  }
  EXPECT_GT(cold, kKeys);
}

TEST_F(SpillingJobTest, APullFindsInMemoryWhatThePsWasToldAhead) {
  FaultFileSystem files;
  const std::unique_ptr<Spill> spill = OpenSpill(AllRowBytes() / 2);
  ShardedJob cluster(TestJob(), 1, files, clock_, spill.get());
  ASSERT_OK(cluster.status());
  JobShard& shard = cluster.shard(0);
  const auto pull = [](uint64_t first, uint64_t step) {
    std::vector<uint64_t> keys(50);
    std::iota(keys.begin(), keys.end(), first);
    return PullOf(0, step, {{0, std::move(keys)}});
  };
  const auto stats = [&shard] { return shard.Stats().tables(0); };
  {
    PendingPull before(shard, pull(0, 0));
    ASSERT_OK(before.status());
    EXPECT_FALSE(before.response().has_cold_rows());
  }
  ASSERT_OK(shard.LookAhead(CallOf(pull(0, 0))));  // all is in memory
  EXPECT_EQ(stats().cold_reads(), 0);
  // Others, so many that half of the rows leave.
  for (uint64_t step = 0; step < kSteps; ++step) Step(cluster, step);
  // Rows may leave at any time, those among them that a ps was told of. In a try in which none
  // did, and half of the tries are such, what was told is there.
  const auto try_from = [&](uint64_t first) {
    const auto begin = stats();
    EXPECT_OK(shard.LookAhead(CallOf(pull(first, kSteps))));
    const auto ahead = stats();
    const uint64_t rows = stats().rows();
    EXPECT_OK(shard.LookAhead(CallOf(PullOf(0, 0, {{0, {1'000'000}}}))));
    const uint64_t after_unseen = stats().rows();
    PendingPull told(shard, pull(first, kSteps));
    EXPECT_OK(told.status());
    EXPECT_TRUE(told.response().has_cold_rows());
    const auto end = stats();
    if (end.evicted_rows() != begin.evicted_rows() || ahead.cold_reads() == begin.cold_reads()) {
      return false;
    }
    EXPECT_EQ(end.cold_reads(), ahead.cold_reads()) << "keys from " << first;
    EXPECT_EQ(after_unseen, rows) << "no row is made of one that nobody has seen";
    return true;
  };
  bool tried = false;
  for (uint64_t first = 0; first < kKeys && !tried; first += 50) tried = try_from(first);
  EXPECT_TRUE(tried) << "rows left all the time";

  v1::PullRequest elsewhere = pull(0, 0);
  elsewhere.mutable_header()->set_map_version(77);
  EXPECT_FAILS(shard.LookAhead(CallOf(elsewhere)), absl::StatusCode::kAborted, "map");
  EXPECT_FAILS(shard.LookAhead(CallOf(PullOf(0, 0, {{9, {1}}}))),
               absl::StatusCode::kInvalidArgument, "table 9 does not exist");
  shard.Close(absl::AbortedError("gone"));
  EXPECT_FAILS(shard.LookAhead(CallOf(pull(0, kSteps))), absl::StatusCode::kAborted, "gone");
}

TEST_F(SpillingJobTest, MetricsSayWhatIsInMemoryAndWhatTheDiskDoes) {
  FaultFileSystem files;
  const std::unique_ptr<Spill> spill = OpenSpill(AllRowBytes() / 10);
  JobShard::Options options;
  options.files = &files;
  options.clock = &clock_;
  options.spill = spill.get();
  Jobs jobs(options);
  TaskQueue requests("requests", 1, 1 << 20);
  SharedRegions regions(1 << 20);
  MetricsRegistry registry;
  const auto collector = AddPsCollector(registry, jobs, requests, regions, &spill->budget());
  const auto value = [&registry](const std::string& sample) {
    return MetricValue(registry.Text(), sample);
  };
  v1::OpenJobRequest job = TestJob();
  for (uint32_t p = 0; p < job.partition_count(); ++p) job.add_partitions(p);
  const auto opened = jobs.Open(job);
  ASSERT_OK(opened);
  const std::shared_ptr<JobShard> shard = *opened;
  const std::string adam = "{job=\"" + shard->request().job_id() + "\",table=\"adam\"}";
  for (int i = 0; i < 3; ++i) PullAll(*shard);
  EXPECT_EQ(value("tessera_ps_memory_bytes{of=\"limit\"}"), AllRowBytes() / 10);
  EXPECT_GT(value("tessera_ps_memory_bytes{of=\"rows\"}"), 0);
  EXPECT_LE(value("tessera_ps_memory_bytes{of=\"rows\"}"), AllRowBytes());
  EXPECT_EQ(value("tessera_ps_table_rows" + adam), kKeys);
  const v1::TableStats stats = shard->Stats().tables(0);
  EXPECT_EQ(value("tessera_ps_table_disk_reads_total" + adam), stats.cold_reads());
  EXPECT_GE(value("tessera_ps_table_evicted_total" + adam), 1);
  const std::string of_job = "{job=\"" + shard->request().job_id() + "\"}";
  EXPECT_GT(value("tessera_ps_spill_bytes" + of_job), 0);
  const std::string moment = registry.Text();
  EXPECT_GE(MetricValue(moment, "tessera_ps_spill_written_bytes_total" + of_job),
            MetricValue(moment, "tessera_ps_spill_bytes" + of_job));
  shard->Close(absl::AbortedError("done"));
}

// A limit of what stays in memory beside rows that spill. It measures when it is told to.
std::unique_ptr<RowLimit> LimitBesideRows(uint64_t memory) {
  RowLimit::Options options;
  options.bytes = memory;
  options.spilling_bytes = memory / 2;
  options.look = absl::InfiniteDuration();
  return std::make_unique<RowLimit>(options);
}

TEST_F(SpillingJobTest, RowsThatStayInMemoryAreRefusedWhereTheyDoNotFitBesideTheHalfOfOthers) {
  constexpr uint64_t kMemory = 4 << 20;
  constexpr uint32_t kDim = 64;
  const std::unique_ptr<Spill> spill = OpenSpill(kMemory);
  const auto limit = LimitBesideRows(kMemory);
  v1::PsTable every_row = SgdTable("every_row", kDim, v1::ASYNC);
  every_row.mutable_spec()->set_update(v1::EVERY_ROW);
  FaultFileSystem files;
  const auto shard = JobShard::Open(Whole(Job({every_row, SgdTable("spills", kDim, v1::ASYNC)})),
                                    {.clock = &clock_,
                                     .files = &files,
                                     .checkpoint_root = "root",
                                     .spill = spill.get(),
                                     .limit = limit.get()});
  ASSERT_OK(shard);
  std::vector<uint64_t> keys(1000);
  uint64_t next = 0;
  const auto pull = [&](uint32_t table) {
    std::iota(keys.begin(), keys.end(), next);
    next += keys.size();
    const absl::Status status = PendingPull(**shard, PullOf(0, 0, {{table, keys}})).status();
    limit->Weigh();
    return status;
  };
  // Three times the memory, in the table that spills.
  for (int i = 0; i < 45; ++i) ASSERT_OK(pull(1));
  absl::Status refused;
  for (int i = 0; i < 15 && refused.ok(); ++i) refused = pull(0);
  EXPECT_FAILS(refused, absl::StatusCode::kResourceExhausted,
               "table every_row: no memory for 1000 rows");
  EXPECT_THAT(refused.message(), testing::HasSubstr("what stays in the memory of this ps takes "));
  EXPECT_GT(limit->rows(), kMemory / 4);
  EXPECT_LE(limit->rows(), kMemory / 2 + kMemory / 8) << "slabs come whole";
  const v1::StatsResponse stats = (*shard)->Stats();
  EXPECT_GT(stats.tables(0).rows(), 0);
  EXPECT_EQ(stats.tables(1).rows(), 45000);
  // So is a push; that of rows that are there is not.
  const auto push = [&](uint64_t first) {
    std::iota(keys.begin(), keys.end(), first);
    return (*shard)->Push(
        CallOf(PushOf(0, 0, {{0, keys, std::vector<float>(keys.size() * kDim, 1)}})));
  };
  EXPECT_FAILS(push(next), absl::StatusCode::kResourceExhausted, "table every_row: no memory for");
  EXPECT_OK(push(45000));
}

TEST_F(SpillingJobTest, RowsAreRefusedWhenFiltersAndIndicesOfThoseOnDiskTakeTheOtherHalf) {
  constexpr uint64_t kMemory = 8 << 20;
  const std::unique_ptr<Spill> spill = OpenSpill(kMemory);
  FaultFileSystem files;
  const auto limit = LimitBesideRows(kMemory);
  const auto opened =
      JobShard::Open(Whole(Job({SgdTable("t", 1, v1::ASYNC)})), {.clock = &clock_,
                                                                 .files = &files,
                                                                 .checkpoint_root = "root",
                                                                 .spill = spill.get(),
                                                                 .limit = limit.get()});
  ASSERT_OK(opened);
  JobShard& shard = **opened;
  std::vector<uint64_t> keys(5000);
  const auto pull = [&](uint64_t first) {
    std::iota(keys.begin(), keys.end(), first);
    return PendingPull(shard, PullOf(0, 0, {{0, keys}})).status();
  };
  absl::Status refused;
  uint64_t rows = 0;
  for (; rows < 2000000; rows += keys.size()) {
    refused = pull(rows);
    if (!refused.ok()) break;
    limit->Weigh();
  }
  EXPECT_FAILS(refused, absl::StatusCode::kResourceExhausted,
               "table t: no memory for 5000 rows of 8 bytes that stay more than the ");
  EXPECT_THAT(refused.message(), testing::HasSubstr(" for filters and indices of rows on disk"));
  EXPECT_EQ(shard.rows(), rows);
  EXPECT_GT(rows, 200000);
  EXPECT_LE(limit->rows(), kMemory / 2 + kMemory / 8) << "filters grow in steps";
  EXPECT_LE(shard.cold_stats()->memory_bytes, kMemory / 2 + kMemory / 8);
  // Rows that are there are read and updated, wherever they are.
  const auto push = [&](uint64_t first) {
    std::iota(keys.begin(), keys.end(), first);
    return shard.Push(CallOf(PushOf(0, 0, {{0, keys, std::vector<float>(keys.size(), 1)}})));
  };
  for (uint64_t first = 0; first < rows; first += keys.size()) ASSERT_OK(pull(first));
  EXPECT_FAILS(push(rows), absl::StatusCode::kResourceExhausted,
               "table t: no memory for 5000 rows");
  EXPECT_OK(push(0));
}

TEST_F(SpillingJobTest, ACheckpointWithMoreRowsThanThereIsRoomForOnDiskIsRefused) {
  v1::OpenJobRequest job = Job({SgdTable("t", 1, v1::ASYNC)});
  FaultFileSystem files;
  {
    ShardedJob in_memory(job, 1, files, clock_);
    std::vector<uint64_t> keys(10000);
    for (uint64_t i = 0; i < 10; ++i) {
      std::iota(keys.begin(), keys.end(), i * keys.size());
      in_memory.Push(0, i, {{0, keys, std::vector<float>(keys.size(), 1)}});
    }
    ASSERT_OK(in_memory.Checkpoint(0, "step-1"));
  }
  job.set_checkpoint("step-1");
  constexpr uint64_t kMemory = 8 << 20;
  const std::unique_ptr<Spill> spill = OpenSpill(kMemory);
  const auto open = [&](uint64_t memory) {
    const auto limit = LimitBesideRows(memory);
    return JobShard::Open(Whole(job), {.clock = &clock_,
                                       .files = &files,
                                       .checkpoint_root = "root",
                                       .spill = spill.get(),
                                       .limit = limit.get()})
        .status();
  };
  EXPECT_OK(open(kMemory));
  EXPECT_FAILS(open(kMemory / 8), absl::StatusCode::kResourceExhausted,
               "checkpoint step-1: job job-1, table t: no memory for ");
}

TEST_F(SpillingJobTest, SightingsAreRefusedWhereTheyDoNotFit) {
  constexpr uint64_t kMemory = 2 << 20;
  const std::unique_ptr<Spill> spill = OpenSpill(kMemory);
  const auto limit = LimitBesideRows(kMemory);
  v1::PsTable table = SgdTable("t", 1, v1::ASYNC);
  table.mutable_spec()->mutable_admission()->set_after_sightings(3);
  FaultFileSystem files;
  const auto shard = JobShard::Open(Whole(Job({table})), {.clock = &clock_,
                                                          .files = &files,
                                                          .checkpoint_root = "root",
                                                          .spill = spill.get(),
                                                          .limit = limit.get()});
  ASSERT_OK(shard);
  std::vector<uint64_t> keys(1000);
  absl::Status refused;
  uint64_t pushed = 0;
  for (; pushed < 500; ++pushed) {
    std::iota(keys.begin(), keys.end(), pushed * keys.size());
    refused =
        (*shard)->Push(CallOf(PushOf(0, pushed, {{0, keys, std::vector<float>(keys.size(), 1)}})));
    if (!refused.ok()) break;
    limit->Weigh();
  }
  EXPECT_FAILS(refused, absl::StatusCode::kResourceExhausted, "table t: no memory for 1000 rows");
  EXPECT_THAT(refused.message(), testing::HasSubstr(" for sightings of keys without a row"));
  EXPECT_GT(pushed, 30);
  // There is room for a cut's copies.
  EXPECT_LE(limit->rows(), kMemory / 4 + 65536);
}

TEST_F(SpillingJobTest, RowsThatLeaveOrComeCountOnceMeanwhile) {
  FaultFileSystem files;
  const std::unique_ptr<Spill> spill = OpenSpill(AllRowBytes() / 10);
  ShardedJob cluster(TestJob(), 1, files, clock_, spill.get());
  ASSERT_OK(cluster.status());
  JobShard& shard = cluster.shard(0);
  PullAll(shard);
  std::atomic<bool> done = false;
  std::thread pulls([&] {
    for (int i = 0; i < 5; ++i) PullAll(shard);
    done = true;
  });
  uint64_t reads = 0;
  for (; !done; ++reads) {
    const v1::TableStats stats = shard.Stats().tables(0);
    EXPECT_EQ(stats.rows(), kKeys) << "read " << reads;
    EXPECT_EQ(stats.memory_rows() + stats.cold_rows(), kKeys) << "read " << reads;
  }
  pulls.join();
  EXPECT_GT(shard.Stats().tables(0).evicted_rows(), kKeys) << "in " << reads << " reads";
}

TEST_F(SpillingJobTest, AJobThatEndsGivesItsMemoryAndItsFolderBack) {
  FaultFileSystem files;
  const std::unique_ptr<Spill> spill = OpenSpill(AllRowBytes() / 10);
  const auto found = [this] {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      count += entry.path().filename() != "LOCK";
    }
    return count;
  };
  {
    ShardedJob cluster(TestJob(), 2, files, clock_, spill.get());
    ASSERT_OK(cluster.status());
    for (uint64_t step = 0; step < 3; ++step) Step(cluster, step);
    EXPECT_GT(spill->budget().rows(), 0);
    EXPECT_GT(found(), 0);
  }
  EXPECT_EQ(spill->budget().rows(), 0);
  EXPECT_EQ(found(), 0);
}

TEST_F(SpillingJobTest, AJobForWhichTheDiskIsTooFullLeavesNoFolder) {
  FaultFileSystem files;
  const std::unique_ptr<Spill> spill = OpenSpill(1 << 20);
  // There is room for files, but not for a byte in them.
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  const absl::Status status = ShardedJob(TestJob(), 1, files, clock_, spill.get()).status();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, before);
  EXPECT_FAILS(status, absl::StatusCode::kResourceExhausted, "/job-0/LOCK");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/job-0"));
  EXPECT_OK(ShardedJob(TestJob(), 1, files, clock_, spill.get()).status());
}

TEST_F(SpillingJobTest, WhatAnEarlierProcessLeftInTheFolderIsWiped) {
  std::filesystem::create_directories(folder_ + "/job-3/db");
  const std::unique_ptr<Spill> spill = OpenSpill(1 << 20);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/job-3"));
  Spill::Options options;
  options.folder = folder_;
  EXPECT_FAILS(Spill::Open(options), absl::StatusCode::kFailedPrecondition, folder_);
}

}  // namespace
}  // namespace tessera::ps
