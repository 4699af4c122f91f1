#include "ps/job_checkpoint.h"

#include <random>

#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

using absl::StatusCode;

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
  EXPECT_FAILS(job.shard(0).WriteCheckpoint(request, clock_.Monotonic()),
               StatusCode::kDeadlineExceeded, "it waits for rank 1");
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
