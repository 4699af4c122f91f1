#include "ps/jobs/job_checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/task_pool.h"
#include "ps/memory/memory_budget.h"
#include "ps/tables/evictor.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

using absl::StatusCode;

// A cut that is written at once.
absl::StatusOr<WrittenPart> WriteTables(FileSystem& files, const std::string& folder,
                                        const CheckpointPart& part, const WrittenPart* base,
                                        const PartitionSet& partitions, const Tables& tables,
                                        KeepGoing keep_going) {
  absl::StatusOr<PartCut> cut = PrepareCut(files, folder, part, base);
  if (!cut.ok()) return cut.status();
  CutTables(tables, *cut);
  return WriteCut(files, *std::move(cut), partitions, tables, keep_going);
}

class CheckpointTest : public testing::Test {
 protected:
  static v1::OpenJobRequest TestJob(uint32_t partitions = 64) {
    return Job({AdamTable("adam", 6, v1::ASYNC), SgdTable("linear", 1, v1::ASYNC),
                DenseTable("dense", 16, v1::ASYNC)},
               1, partitions);
  }
  static v1::OpenJobRequest From(v1::OpenJobRequest job, const std::string& folder,
                                 bool warm = false) {
    job.set_checkpoint(folder);
    job.set_warm(warm);
    return job;
  }

  // Trains a little on `ps` ps and commits a checkpoint; returns every row of it.
  SavedRows Save(uint32_t ps, const std::string& folder) {
    ShardedJob job(TestJob(), ps, files_, clock_);
    job.Assign({{2, {0, 1, 2}, std::vector<float>(48, 0.25f)}});
    std::mt19937_64 random(5);
    for (uint64_t sequence = 0; sequence < 10; ++sequence) {
      Block adam = {.table = 0, .keys = {}, .values = {}};
      for (int i = 0; i < 100; ++i) adam.keys.push_back(random() >> (random() % 64));
      for (int i = 0; i < 600; ++i) adam.values.push_back(static_cast<float>(random() % 100));
      Block linear = {.table = 1, .keys = adam.keys, .values = std::vector<float>(100, 0.5f)};
      job.Push(0, sequence, {adam, linear, {2, {1}, std::vector<float>(16, 1)}});
    }
    EXPECT_OK(job.Checkpoint(0, folder));
    return job.Rows(0);
  }

  HandClock clock_;
  FaultFileSystem files_;
};

TEST_F(CheckpointTest, ComesBackWholeOnAnyNumberOfPs) {
  const SavedRows saved = Save(2, "step-1");
  EXPECT_GT(saved.size(), 500u);
  EXPECT_TRUE(files_.Exists("root/step-1/rows-g1-00000-of-00002"));
  EXPECT_TRUE(files_.Exists("root/step-1/rows-g1-00001-of-00002"));
  for (const uint32_t ps : {1u, 2u, 3u, 5u}) {
    ShardedJob job(From(TestJob(), "step-1"), ps, files_, clock_);
    ASSERT_OK(job.status());
    EXPECT_EQ(job.Rows(0), saved) << ps << " ps";
  }
}

// Rows of table 1 that come (or move, where they are there) with one push.
Block Moved(uint64_t begin, uint64_t end) {
  Block block = {.table = 1, .keys = {}, .values = std::vector<float>(end - begin, 0.5f)};
  for (uint64_t key = begin; key < end; ++key) block.keys.push_back(key * 1234567891);
  return block;
}

TEST_F(CheckpointTest, AnIncrementHoldsWhatChangedAndComesBackWholeOnAnyNumberOfPs) {
  ShardedJob job(TestJob(), 2, files_, clock_);
  job.Push(0, 0, {Moved(0, 10000)});
  ASSERT_OK(job.Checkpoint(0, "step-1"));
  job.Push(0, 1, {Moved(9950, 10050)});
  ASSERT_OK(job.Checkpoint(0, "step-2", "step-1"));
  job.Push(0, 2, {Moved(0, 50)});
  ASSERT_OK(job.Checkpoint(0, "step-3", "step-2"));

  const auto manifest = ReadManifest(files_, "root/step-3");
  ASSERT_OK(manifest.status());
  EXPECT_EQ(manifest->tables(1).rows(), 10050u);
  uint64_t rows[3] = {};
  uint64_t bytes[3] = {};
  for (const v1::CheckpointFile& file : manifest->files()) {
    rows[file.layer()] += file.rows(1);
    bytes[file.layer()] += file.bytes();
  }
  EXPECT_EQ(rows[0], 10000u);
  EXPECT_EQ(rows[1], 100u);
  EXPECT_EQ(rows[2], 50u);
  EXPECT_LT(bytes[1], bytes[0] / 10);
  // The earlier ones are not needed any more.
  ASSERT_OK(files_.Remove("root/step-1"));
  ASSERT_OK(files_.Remove("root/step-2"));
  const SavedRows live = job.Rows(0);
  for (const uint32_t ps : {1u, 2u, 3u}) {
    ShardedJob restored(From(TestJob(), "step-3"), ps, files_, clock_);
    ASSERT_OK(restored.status());
    EXPECT_EQ(restored.Rows(0), live) << ps << " ps";
  }
}

TEST_F(CheckpointTest, TablesWhoseRowsAllChangeAreWrittenFirst) {
  const PartitionSet all = *PartitionSet::New(8, {0, 1, 2, 3, 4, 5, 6, 7});
  v1::PsTable every_row = SgdTable("every row", 1, v1::ASYNC);
  every_row.mutable_spec()->set_update(v1::EVERY_ROW);
  Tables tables;
  tables.push_back(*Table::New(SgdTable("some rows", 1, v1::ASYNC), 1, &all));
  tables.push_back(*Table::New(every_row, 1, &all));
  std::vector<uint64_t> keys(1000);
  std::iota(keys.begin(), keys.end(), 0);
  std::vector<float> values(keys.size());
  std::vector<uint8_t> statuses(keys.size());
  for (const auto& table : tables) {
    ASSERT_OK(table->Pull(keys, false, values.data(), statuses.data()));
  }
  const uint64_t unread = tables[0]->store().layout().block_bytes() * keys.size();
  int looks = 0;
  const auto look = [&] {
    if (tables[0]->store().copies_rows() && tables[0]->store().unread_bytes() < unread) {
      EXPECT_EQ(tables[1]->store().unread_bytes(), 0u);
      ++looks;
    }
    return absl::OkStatus();
  };
  auto first = WriteTables(files_, "root/a", {.generation = 1}, nullptr, all, tables, look);
  ASSERT_OK(first.status());
  EXPECT_GT(looks, 0);
}

TEST_F(CheckpointTest, AnIncrementTakesErasedRowsAway) {
  const PartitionSet all = *PartitionSet::New(8, {0, 1, 2, 3, 4, 5, 6, 7});
  Tables tables;
  tables.push_back(*Table::New(SgdTable("t", 1, v1::ASYNC), 1, &all));
  const auto open = [] { return absl::OkStatus(); };
  const std::vector<uint64_t> keys = {1, 2, 3, 4, 5, 1 << 20};
  std::vector<float> values(keys.size());
  std::vector<uint8_t> statuses(keys.size());
  ASSERT_OK(tables[0]->Pull(keys, false, values.data(), statuses.data()));
  auto first = WriteTables(files_, "root/a", {.generation = 1}, nullptr, all, tables, open);
  ASSERT_OK(first.status());
  EXPECT_EQ(EraseKeys(tables[0]->store(), 8, {2, 5}), 2u);
  ASSERT_OK(tables[0]->Pull({5}, false, values.data(), statuses.data()));
  EXPECT_EQ(first->rows, std::vector<uint64_t>{6});
  auto second = WriteTables(files_, "root/b", {.generation = 1}, &*first, all, tables, open);
  ASSERT_OK(second.status());
  ASSERT_EQ(second->files.size(), 2u);
  EXPECT_EQ(second->rows, std::vector<uint64_t>{5});
  v1::CheckpointManifest manifest;
  manifest.set_partition_count(8);
  *manifest.add_tables()->mutable_spec() = tables[0]->spec().spec();
  for (const v1::CheckpointFile& file : second->files) *manifest.add_files() = file;
  const auto reader = CheckpointReader::Open(files_, "root/b", manifest);
  ASSERT_OK(reader.status());
  std::set<uint64_t> found;
  for (uint32_t p = 0; p < 8; ++p) {
    const auto rows = (*reader)->Read(TableIndex(0), PartitionId(p));
    ASSERT_OK(rows.status());
    for (uint64_t i = 0; i < rows->rows(); ++i) found.insert(rows->key(i));
  }
  EXPECT_EQ(found, (std::set<uint64_t>{1, 3, 4, 5, 1 << 20}));
}

TEST_F(CheckpointTest, AllRowsAreWrittenWhereTooManyHaveLeftSinceItWasPrepared) {
  const PartitionSet all = *PartitionSet::New(1, {0});
  Tables tables;
  for (const char* name : {"stays", "leaves"}) {
    tables.push_back(*Table::New(SgdTable(name, 1, v1::ASYNC), 1, &all));
  }
  const std::string folder = absl::StrCat(testing::TempDir(), "/checkpoint-", ::getpid(), "-left");
  TaskPool readers(1);
  auto cold = *ColdStore::Open({.folder = folder, .readers = &readers},
                               {{"leaves", TableTier::RecordBytes(tables[1]->store().layout())}});
  MemoryBudget budget(1 << 30);
  Evictor evictor(&budget);
  TableTier* tier = tables[1]->Attach(
      {.cold = cold.get(), .cold_table = 0, .budget = &budget, .evictor = &evictor});
  std::vector<uint64_t> keys;
  for (uint64_t key = 0; key < 1000; ++key) keys.push_back(key);
  const std::vector<float> ones(keys.size(), 1);
  const auto push = [&](uint64_t step) {
    const Table::Gradients gradients[] = {{.keys = keys, .values = ones.data()}};
    for (const auto& table : tables) ASSERT_OK(table->Apply(gradients, step, 1));
  };
  const auto open = [] { return absl::OkStatus(); };
  push(0);
  auto whole = WriteTables(files_, "root/a", {.generation = 1}, nullptr, all, tables, open);
  ASSERT_OK(whole.status());
  ASSERT_TRUE(IsIncrementWorth(*whole, tables));
  auto cut = PrepareCut(files_, "root/b", {.generation = 1}, &*whole);
  ASSERT_OK(cut.status());
  EXPECT_FALSE(cut->all);
  push(1);
  for (int i = 0; i < 100 && tables[1]->store().rows() > 0; ++i) ASSERT_OK(tier->Evict(1 << 30));
  EXPECT_FALSE(tables[1]->store().keeps_left());
  CutTables(tables, *cut);
  auto written = WriteCut(files_, *std::move(cut), all, tables, open);
  ASSERT_OK(written.status());
  EXPECT_EQ(written->rows, (std::vector<uint64_t>{1000, 1000}));
  EXPECT_EQ(written->files.size(), 2u);
  EXPECT_EQ(written->first_files, 2u);
  v1::CheckpointManifest manifest;
  manifest.set_partition_count(1);
  for (const auto& table : tables) *manifest.add_tables()->mutable_spec() = table->spec().spec();
  for (const v1::CheckpointFile& file : written->files) *manifest.add_files() = file;
  const auto reader = CheckpointReader::Open(files_, "root/b", manifest);
  ASSERT_OK(reader.status());
  for (uint32_t t = 0; t < 2; ++t) {
    const auto rows = (*reader)->Read(TableIndex(t), PartitionId(0));
    ASSERT_OK(rows.status());
    EXPECT_EQ(rows->rows(), 1000u);
  }
  tables.clear();
  cold = nullptr;
  std::filesystem::remove_all(folder);
}

TEST_F(CheckpointTest, AllRowsAreWrittenWhereTheBaseIsNotWhatThisPsWroteLast) {
  ShardedJob job(TestJob(), 1, files_, clock_);
  job.Push(0, 0, {Moved(0, 1000)});
  ASSERT_OK(job.Checkpoint(0, "step-1"));
  const auto layers = [&](const std::string& folder) {
    uint32_t highest = 0;
    const auto manifest = ReadManifest(files_, "root/" + folder);
    for (const v1::CheckpointFile& file : manifest->files()) {
      highest = std::max(highest, file.layer());
    }
    return highest + 1;
  };
  job.Push(0, 1, {Moved(0, 10)});
  ASSERT_OK(job.Checkpoint(0, "step-2", "elsewhere"));
  EXPECT_EQ(layers("step-2"), 1u);
  // A try that fails has taken the marks of what changed.
  job.Push(0, 2, {Moved(0, 10)});
  files_.SetCapacity(0);
  EXPECT_FAILS(job.Checkpoint(0, "step-3", "step-2"), StatusCode::kResourceExhausted, "");
  files_.Repair();
  ASSERT_OK(job.Checkpoint(0, "step-4", "step-2"));
  EXPECT_EQ(layers("step-4"), 1u);
  job.Push(0, 3, {Moved(0, 10)});
  ASSERT_OK(job.Checkpoint(0, "step-5", "step-4"));
  EXPECT_EQ(layers("step-5"), 2u);
  // Increments that have grown to half of the whole end in a whole one.
  job.Push(0, 4, {Moved(0, 600)});
  ASSERT_OK(job.Checkpoint(0, "step-6", "step-5"));
  EXPECT_EQ(layers("step-6"), 3u);
  job.Push(0, 5, {Moved(0, 1)});
  ASSERT_OK(job.Checkpoint(0, "step-7", "step-6"));
  EXPECT_EQ(layers("step-7"), 1u);
}

TEST_F(CheckpointTest, AllRowsAreWrittenWhereSomebodyHasRemovedFilesOfTheBase) {
  ShardedJob job(TestJob(), 1, files_, clock_);
  const auto files = [&](const std::string& folder) {
    return ReadManifest(files_, "root/" + folder)->files();
  };
  job.Push(0, 0, {Moved(0, 1000)});
  ASSERT_OK(job.Checkpoint(0, "step-1"));
  job.Push(0, 1, {Moved(0, 10)});
  ASSERT_OK(job.Checkpoint(0, "step-2", "step-1"));
  // Two of each layer: of the dense table, and of the others.
  ASSERT_EQ(files("step-2").size(), 4);
  // The first of them can be linked still.
  ASSERT_OK(files_.Remove("root/step-2/" + files("step-2")[3].name()));
  job.Push(0, 2, {Moved(0, 10)});
  ASSERT_OK(job.Checkpoint(0, "step-3", "step-2"));
  ASSERT_EQ(files("step-3").size(), 2);
  ShardedJob again(From(TestJob(), "step-3"), 2, files_, clock_);
  EXPECT_EQ(again.Rows(0), job.Rows(0));
}

TEST_F(CheckpointTest, AFolderThatIsRemovedMeanwhileIsNoLostJob) {
  ShardedJob job(TestJob(), 1, files_, clock_);
  job.Push(0, 0, {Moved(0, 1000)});
  v1::WriteCheckpointRequest request;
  request.set_phase(v1::WriteCheckpointRequest::CUT);
  request.set_folder("step-1");
  request.set_parts(1);
  ASSERT_OK(job.shard(0).WriteCheckpoint(request, clock_.Monotonic()));
  ASSERT_OK(files_.Remove("root/step-1"));
  request.set_phase(v1::WriteCheckpointRequest::WRITE);
  EXPECT_FAILS(job.shard(0).WriteCheckpoint(request, clock_.Monotonic()), StatusCode::kUnavailable,
               "no such folder");
  EXPECT_OK(job.Checkpoint(0, "step-1"));
}

TEST_F(CheckpointTest, ComesBackWithAnotherNumberOfPartitions) {
  const SavedRows saved = Save(2, "step-1");
  ShardedJob job(From(TestJob(24), "step-1"), 3, files_, clock_);
  ASSERT_OK(job.status());
  EXPECT_EQ(job.Rows(0), saved);
}

TEST_F(CheckpointTest, AWarmStartTakesEmbeddingsAndFreshSlots) {
  const SavedRows saved = Save(2, "step-1");
  v1::OpenJobRequest other = TestJob();
  // Another optimizer, and a table that the checkpoint does not have.
  other.mutable_tables(0)->mutable_spec()->mutable_optimizer()->mutable_adagrad();
  *other.add_tables() = SgdTable("new", 2, v1::ASYNC);
  EXPECT_FAILS(ShardedJob(From(other, "step-1"), 1, files_, clock_).status(),
               StatusCode::kFailedPrecondition, "table adam has 13 optimizer floats");
  ShardedJob job(From(other, "step-1", /*warm=*/true), 3, files_, clock_);
  ASSERT_OK(job.status());
  const SavedRows rows = job.Rows(0);
  ASSERT_EQ(rows.size(), saved.size());
  for (const auto& [key, row] : rows) {
    const SavedRow& before = saved.at(key);
    const uint32_t dim = key.first == 0 ? 6 : key.first == 1 ? 1 : 16;
    EXPECT_TRUE(std::equal(row.floats.begin(), row.floats.begin() + dim, before.floats.begin()));
    for (size_t i = dim; i < row.floats.size(); ++i) EXPECT_EQ(row.floats[i], 0.1f);
    EXPECT_EQ(row.frequency, 0u);
    EXPECT_EQ(row.last_step, 0u);
  }
}

TEST_F(CheckpointTest, ATableWithoutRowsComesBackEmpty) {
  ShardedJob empty(TestJob(), 2, files_, clock_);
  EXPECT_OK(empty.Checkpoint(0, "step-0"));
  EXPECT_EQ(ReadManifest(files_, "root/step-0")->tables(0).slot_floats(), 13u);
  ShardedJob job(From(TestJob(), "step-0"), 3, files_, clock_);
  ASSERT_OK(job.status());
  EXPECT_TRUE(job.Rows(0).empty());
}

TEST_F(CheckpointTest, RefusesTablesOfAnotherShape) {
  Save(1, "step-1");
  v1::OpenJobRequest wide = TestJob();
  wide.mutable_tables(0)->mutable_spec()->set_dim(7);
  EXPECT_FAILS(ShardedJob(From(wide, "step-1"), 1, files_, clock_).status(),
               StatusCode::kFailedPrecondition, "table adam has dim 6 in the checkpoint and 7");
  v1::OpenJobRequest renamed = TestJob();
  renamed.mutable_tables(1)->mutable_spec()->set_name("lines");
  EXPECT_FAILS(ShardedJob(From(renamed, "step-1"), 1, files_, clock_).status(),
               StatusCode::kFailedPrecondition, "the checkpoint has no table lines");
}

TEST_F(CheckpointTest, EveryDamagedByteIsFoundBeforeAnythingIsUsed) {
  Save(2, "step-1");
  const std::string path = "root/step-1/rows-g1-00001-of-00002";
  const std::string sound = files_.Content(path);
  std::mt19937_64 random(7);
  for (int i = 0; i < 60; ++i) {
    std::string damaged = sound;
    damaged[random() % damaged.size()] ^= static_cast<char>(1 << (random() % 8));
    files_.SetContent(path, damaged);
    EXPECT_FAILS(ShardedJob(From(TestJob(), "step-1"), 1, files_, clock_).status(),
                 StatusCode::kDataLoss, path);
  }
  files_.SetContent(path, sound.substr(0, sound.size() / 2));
  EXPECT_FAILS(ShardedJob(From(TestJob(), "step-1"), 1, files_, clock_).status(),
               StatusCode::kDataLoss, path);
  EXPECT_OK(files_.Remove(path));
  EXPECT_FAILS(ShardedJob(From(TestJob(), "step-1"), 1, files_, clock_).status(),
               StatusCode::kDataLoss, "missing");
  files_.SetContent(path, sound);
  EXPECT_OK(ShardedJob(From(TestJob(), "step-1"), 1, files_, clock_).status());
}

TEST_F(CheckpointTest, WithoutAManifestThereIsNone) {
  Save(1, "step-1");
  EXPECT_OK(files_.Remove("root/step-1/MANIFEST.json"));
  EXPECT_FAILS(ShardedJob(From(TestJob(), "step-1"), 1, files_, clock_).status(),
               StatusCode::kNotFound, "step-1");
  EXPECT_FAILS(ShardedJob(From(TestJob(), "../elsewhere"), 1, files_, clock_).status(),
               StatusCode::kInvalidArgument, "lies outside");
}

TEST_F(CheckpointTest, AFullDiskLeavesNoFileAndTheServerGoesOn) {
  ShardedJob job(TestJob(), 1, files_, clock_);
  job.Push(0, 0, {{1, {1, 2, 3}, {1, 2, 3}}});
  const SavedRows before = job.Rows(0);
  files_.SetCapacity(40);
  EXPECT_FAILS(job.Checkpoint(0, "step-1"), StatusCode::kResourceExhausted,
               "rows-g1-00000-of-00001");
  EXPECT_THAT(files_.Files(), testing::IsEmpty());
  files_.Repair();
  job.Push(0, 1, {{1, {1}, {1}}});
  EXPECT_EQ(job.Rows(0).at({1, 1}).floats, std::vector<float>{-2});
  EXPECT_EQ(job.Rows(0).size(), before.size());
}

TEST_F(CheckpointTest, AFailedSyncIsAnError) {
  ShardedJob job(TestJob(), 1, files_, clock_);
  files_.FailSyncsAfter(0);
  EXPECT_FAILS(job.Checkpoint(0, "step-1"), StatusCode::kUnavailable, "");
  EXPECT_THAT(files_.Files(), testing::IsEmpty());
}

TEST_F(CheckpointTest, EndsWithoutAFileWhenTheJobIsClosedOrTheCallerHangsUp) {
  WatchedFiles watched(files_);
  ShardedJob job(TestJob(), 1, watched, clock_);
  job.Push(0, 0, {{1, {1, 2, 3}, {1, 2, 3}}});
  v1::WriteCheckpointRequest request;
  request.set_folder("step-1");
  request.set_parts(1);
  int pieces = 0;
  const auto hang_up = [&] {
    return ++pieces < 5 ? absl::OkStatus() : absl::CancelledError("the caller has hung up");
  };
  EXPECT_FAILS(job.shard(0).WriteCheckpoint(request, clock_.Monotonic(), hang_up),
               StatusCode::kCancelled, "hung up");
  EXPECT_EQ(pieces, 5);
  EXPECT_THAT(files_.Files(), testing::IsEmpty());
  watched.on_create = [&](const std::string&) {
    job.shard(0).Close(absl::UnavailableError("the ps is stopping"));
  };
  EXPECT_FAILS(job.shard(0).WriteCheckpoint(request, clock_.Monotonic()), StatusCode::kUnavailable,
               "the ps is stopping");
  EXPECT_THAT(files_.Files(), testing::IsEmpty());
}

TEST_F(CheckpointTest, OfAnOlderGenerationLeavesThatOfTheNewerAlone) {
  v1::OpenJobRequest newer = TestJob();
  newer.set_generation(2);
  ShardedJob late(TestJob(), 1, files_, clock_), current(newer, 1, files_, clock_);
  v1::WriteCheckpointRequest request;
  request.set_folder("step-0");
  request.set_parts(1);
  ASSERT_OK(current.shard(0).WriteCheckpoint(request, clock_.Monotonic()));
  const std::string path = "root/step-0/rows-g2-00000-of-00001";
  const std::string written = files_.Content(path);
  EXPECT_FALSE(written.empty());
  late.Push(0, 0, {{1, {1, 2, 3}, {1, 2, 3}}});
  ASSERT_OK(late.shard(0).WriteCheckpoint(request, clock_.Monotonic()));
  EXPECT_EQ(files_.Content(path), written);
}

TEST_F(CheckpointTest, OfASyncJobIsCutAtItsStepOnly) {
  ShardedJob job(Job({SgdTable("t", 1, v1::SYNC)}, 2), 1, files_, clock_);
  job.Push(0, 0, {{0, {1}, {1}}});
  v1::WriteCheckpointRequest request;
  request.set_folder("step-1");
  request.set_parts(1);
  request.set_step(1);
  EXPECT_FAILS(job.shard(0).WriteCheckpoint(request, clock_.Monotonic()), StatusCode::kAborted,
               "this ps lacks the push of rank 1 of step 0");
  job.Push(1, 0, {});
  EXPECT_OK(job.shard(0).WriteCheckpoint(request, clock_.Monotonic()));
  request.set_step(0);
  EXPECT_FAILS(job.shard(0).WriteCheckpoint(request, clock_.Monotonic()),
               StatusCode::kFailedPrecondition, "1 steps are applied already");
  request.set_part(1);
  EXPECT_FAILS(job.shard(0).WriteCheckpoint(request, clock_.Monotonic()),
               StatusCode::kInvalidArgument, "part 1 of 1");
  request.set_part(0);
  request.set_folder("/etc");
  EXPECT_FAILS(job.shard(0).WriteCheckpoint(request, clock_.Monotonic()),
               StatusCode::kInvalidArgument, "lies outside");
}

}  // namespace
}  // namespace tessera::ps
