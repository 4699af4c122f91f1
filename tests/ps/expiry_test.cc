#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

v1::PsTable ExpiringTable(v1::Consistency mode, uint64_t after_steps) {
  v1::PsTable table = SgdTable("t", 1, mode);
  table.mutable_spec()->mutable_expiry()->set_after_steps(after_steps);
  return table;
}

// Gradients of 1 for the keys below `keys`.
Block Ones(uint64_t keys) {
  Block block = {.table = 0, .keys = {}, .values = std::vector<float>(keys, 1.0f)};
  for (uint64_t key = 0; key < keys; ++key) block.keys.push_back(key);
  return block;
}

TEST(ExpiringShard, DropsRowsAtTheCutAfterADryRunThatOnlyCounts) {
  HandClock clock;
  FaultFileSystem files;
  v1::PsTable table = ExpiringTable(v1::SYNC, 2);
  table.mutable_spec()->mutable_initializer()->mutable_constant()->set_value(2);
  ShardedJob job(Job({table, SgdTable("kept", 1, v1::SYNC)}), 1, files, clock);
  job.Push(0, 0, {{0, {1, 2}, {1, 1}}, {1, {1}, {1}}});
  job.Push(0, 1, {{0, {2}, {1}}});
  job.Push(0, 2, {{0, {3}, {1}}});
  JobShard& shard = job.shard(0);
  v1::StatsResponse stats = shard.Stats();
  ASSERT_OK(shard.CountExpirable(stats));
  EXPECT_EQ(stats.tables(0).would_expire(), 1u);
  EXPECT_EQ(stats.tables(1).would_expire(), 0u);
  EXPECT_EQ(shard.rows(), 4u) << "nothing goes but at a cut";
  const SavedRows rows = job.Rows(3);
  EXPECT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows.count({0, 1}), 0u);
  EXPECT_EQ(rows.at({0, 2}).floats, std::vector<float>{0});
  EXPECT_EQ(shard.Stats().tables(0).expired(), 1u);
  EXPECT_EQ(shard.rows(), 3u);
  // As if it had never been.
  const PendingPull pull(shard, PullOf(0, 3, {{0, {1}}}));
  EXPECT_EQ(pull.values(), std::vector<float>{2});
  EXPECT_EQ(pull.status_bytes(), std::string(1, v1::ROW_CREATED));
}

TEST(ExpiringShard, DropsNothingAtACutThatTheJobHasNotAskedFor) {
  HandClock clock;
  FaultFileSystem files;
  ShardedJob job(Job({ExpiringTable(v1::SYNC, 2)}), 1, files, clock);
  job.Push(0, 0, {{0, {1, 2}, {1, 1}}});
  job.Push(0, 1, {{0, {2}, {1}}});
  job.Push(0, 2, {{0, {2}, {1}}});
  v1::WriteCheckpointRequest request;
  request.set_step(3);
  request.set_folder("early");
  request.set_parts(1);
  request.set_early(true);
  ASSERT_OK(job.shard(0).WriteCheckpoint(request, absl::InfiniteDuration()));
  EXPECT_EQ(job.shard(0).rows(), 2u);
  EXPECT_EQ(job.Rows(3).size(), 1u) << "the next one drops it";
}

TEST(ExpiringShard, DropsRowsAtACutThatTheDiskRefuses) {
  HandClock clock;
  FaultFileSystem files;
  ShardedJob job(Job({ExpiringTable(v1::SYNC, 2)}), 1, files, clock);
  job.Push(0, 0, {Ones(500)});
  ASSERT_OK(job.Checkpoint(1, "first"));
  job.Push(0, 1, {{0, {7}, {1}}});
  job.Push(0, 2, {{0, {8}, {1}}});
  const auto manifest = ReadManifest(files, "root/first");
  ASSERT_OK(manifest.status());
  // The name of a file that the increment would link.
  ASSERT_OK(files.CreateFolder("root/second"));
  files.SetContent(absl::StrCat("root/second/", manifest->files(0).name()), "in the way");
  EXPECT_FALSE(job.Checkpoint(3, "second", "first").ok());
  EXPECT_EQ(job.shard(0).rows(), 2u);
}

TEST(ExpiringShard, TakesRowsOutOfAnIncrementAndOfWhatIsRestoredFromIt) {
  HandClock clock;
  FaultFileSystem files;
  const v1::OpenJobRequest job = Job({ExpiringTable(v1::SYNC, 2)});
  ShardedJob before(job, 2, files, clock);
  before.Push(0, 0, {Ones(500)});
  ASSERT_OK(before.Checkpoint(1, "first"));
  before.Push(0, 1, {{0, {7}, {1}}});
  before.Push(0, 2, {{0, {8}, {1}}});
  ASSERT_OK(before.Checkpoint(3, "second", "first"));
  const auto manifest = ReadManifest(files, "root/second");
  ASSERT_OK(manifest.status());
  EXPECT_EQ(manifest->tables(0).rows(), 2u);
  EXPECT_EQ(manifest->files(1).layer(), 1u) << "an increment";
  v1::OpenJobRequest resumed = job;
  resumed.set_checkpoint("second");
  resumed.set_first_step(3);
  ShardedJob after(resumed, 3, files, clock);
  ASSERT_OK(after.status());
  const SavedRows rows = after.Rows(3);
  EXPECT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows, before.Rows(3));
}

TEST(ExpiringShard, CountsTheAgeOfAsyncRowsInPushes) {
  HandClock clock;
  FaultFileSystem files;
  ShardedJob job(Job({ExpiringTable(v1::ASYNC, 2)}), 1, files, clock);
  for (uint64_t push = 0; push < 4; ++push) job.Push(0, push, {{0, {push}, {1}}});
  v1::StatsResponse stats = job.shard(0).Stats();
  ASSERT_OK(job.shard(0).CountExpirable(stats));
  EXPECT_EQ(stats.tables(0).would_expire(), 2u);
  EXPECT_EQ(job.Rows(4).size(), 2u);
}

// Numbers of pushes go on, and so does the age of rows: a job that is resumed is no older.
TEST(ExpiringShard, AsyncRowsAreAsOldAfterARestoreAsBefore) {
  HandClock clock;
  FaultFileSystem files;
  v1::OpenJobRequest job = Job({ExpiringTable(v1::ASYNC, 3)}, /*workers=*/2);
  ShardedJob before(job, 1, files, clock);
  for (uint64_t push = 0; push < 4; ++push) {
    before.Push(0, push, {{0, {push}, {1}}});
    before.Push(1, push, {{0, {10 + push}, {1}}});
  }
  ASSERT_OK(before.Checkpoint(8, "saved"));
  const SavedRows saved = before.Rows(8);
  EXPECT_EQ(saved.size(), 6u) << "those of the first push are gone";
  job.set_checkpoint("saved");
  job.set_first_step(4);
  ShardedJob after(job, 1, files, clock);
  ASSERT_OK(after.status());
  EXPECT_EQ(after.Rows(8), saved);
  // What was pushed before is not pushed again, and counts as done.
  after.Push(1, 3, {{0, {99}, {1}}});
  EXPECT_EQ(after.Rows(8), saved);
  after.Push(1, 4, {{0, {20}, {1}}});
  const SavedRows rows = after.Rows(9);
  EXPECT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows.count({0, 1}) + rows.count({0, 11}), 0u);
  EXPECT_EQ(rows.count({0, 20}), 1u);
}

// Its steps are more than a rank of the async job made pushes.
TEST(ExpiringShard, ASyncJobGoesOnWithTheRowsOfAnAsyncOneAtTheirAge) {
  HandClock clock;
  FaultFileSystem files;
  v1::OpenJobRequest job = Job({ExpiringTable(v1::ASYNC, 3)}, /*workers=*/2);
  ShardedJob before(job, 1, files, clock);
  for (uint64_t push = 0; push < 4; ++push) before.Push(0, push, {{0, {push}, {1}}});
  ASSERT_OK(before.Checkpoint(8, "saved"));
  v1::CheckpointManifest manifest = *ReadManifest(files, "root/saved");
  manifest.mutable_position()->set_step(8);
  manifest.mutable_position()->set_next_push(4);
  ASSERT_OK(WriteManifest(files, "root/saved", manifest));
  job = Job({ExpiringTable(v1::SYNC, 3)});
  job.set_checkpoint("saved");
  job.set_first_step(8);
  ShardedJob after(job, 1, files, clock);
  ASSERT_OK(after.status());
  SavedRows rows = after.Rows(8);
  EXPECT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows.at({0, 3}).last_step, 7u);
  after.Push(0, 8, {{0, {3}, {1}}});
  EXPECT_EQ(after.Rows(9).size(), 2u);
}

}  // namespace
}  // namespace tessera::ps
