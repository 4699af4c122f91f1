// Rows that change their owner: marks of what is copied, what is taken over, what is refused.
#include "tests/ps/partition_move_testing.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "common/checkpoint/row_file_reader.h"

namespace tessera::ps {
namespace {

using absl::StatusCode;

TEST_F(PartitionMoveTest, RowsThatAreCopiedWhileTheyChangeArriveAsTheyAreAtTheEnd) {
  std::mt19937_64 random(3);
  ASSERT_OK(old_.Open(Request(1, Partitions(0, kMovePartitions))));
  const auto all = Find(old_, 1);
  uint64_t step = 0;
  while (step < 20) Push(*all, step++, 300, 5000, random);
  const std::vector<uint32_t> moving = Partitions(150, kMovePartitions);
  auto staged = *other_.Stage(TakeOver(1, moving), /*changed=*/false);
  ASSERT_OK(Copy(*all, *staged, moving, /*changed=*/false));
  while (step < 25) Push(*all, step++, 300, 6000, random);
  uint64_t again = 0;
  ASSERT_OK(Copy(*all, *staged, moving, /*changed=*/true, &again));
  EXPECT_GT(again, 0u);
  EXPECT_LT(again, staged->rows());
  while (step < 27) Push(*all, step++, 300, 7000, random);
  ASSERT_OK(Copy(*all, *staged, moving, /*changed=*/true));
  again = 0;
  ASSERT_OK(Copy(*all, *staged, moving, /*changed=*/true, &again));
  EXPECT_EQ(again, 0u);
  const std::map<uint64_t, std::string> before = Rows(*all);
  const uint64_t rows_before = all->rows();
  // The switch.
  ASSERT_OK(other_.Open(TakeOver(1, moving, step)));
  ASSERT_OK(old_.Open(TakeOver(1, Partitions(0, 150), step)));
  const auto kept = Find(old_, 2);
  const auto moved = Find(other_, 2);
  EXPECT_EQ(kept->rows() + moved->rows(), rows_before);
  EXPECT_GT(moved->rows(), 0u);
  EXPECT_EQ(all->rows(), 0u);
  EXPECT_FAILS(all->Push(CallOf(PushOf(0, step, {}))), StatusCode::kAborted, "generation 2");
  std::map<uint64_t, std::string> after = Rows(*kept);
  after.merge(Rows(*moved));
  EXPECT_EQ(after, before);
  // The memory of rows that went serves new ones, and neither harms the others.
  const uint64_t bytes = kept->Stats().tables(0).bytes();
  kept->FinishTakeOver();
  const std::map<uint64_t, std::string> rows_kept = Rows(*kept);
  std::vector<uint64_t> keys;
  for (uint64_t key = 100000; keys.size() < moved->rows() / 2; ++key) {
    if (kept->Owns(PartitionOf(key, kMovePartitions).value())) keys.push_back(key);
  }
  v1::PullRequest pull = PullOf(0, step, {{0, keys}});
  pull.mutable_header()->set_generation(2);
  ASSERT_OK(PendingPull(*kept, pull).status());
  const std::map<uint64_t, std::string> now = Rows(*kept);
  for (const auto& [key, record] : rows_kept) EXPECT_EQ(now.at(key), record);
  EXPECT_LT(kept->Stats().tables(0).bytes(), bytes + (1 << 20));
}

TEST_F(PartitionMoveTest, APartitionWeighsWhatItsRowsTakeAndHowOftenTheyAreUpdated) {
  ASSERT_OK(old_.Open(Request(1, {3, 70, 199})));
  const auto shard = Find(old_, 1);
  std::map<uint32_t, std::vector<uint64_t>> keys;  // of a partition: three
  for (uint64_t key = 0; keys[3].size() < 3 || keys[199].size() < 3; ++key) {
    std::vector<uint64_t>& of = keys[PartitionOf(key, kMovePartitions).value()];
    if (of.size() < 3) of.push_back(key);
  }
  const auto push = [&](uint64_t step, const std::vector<uint64_t>& rows) {
    std::vector<uint64_t> sorted = rows;
    std::sort(sorted.begin(), sorted.end());
    v1::PushRequest request =
        PushOf(0, step, {{0, sorted, std::vector<float>(3 * sorted.size(), 1)}});
    ASSERT_OK(PushAll(*shard, request));
  };
  push(0, {keys[3][0], keys[3][1], keys[3][2]});
  push(1, {keys[3][0], keys[199][0]});
  push(2, {keys[3][0]});
  const v1::WeighPartitionsResponse weights = shard->WeighPartitions();
  EXPECT_THAT(weights.updates(), testing::ElementsAre(5, 0, 1));
  ASSERT_EQ(weights.bytes_size(), 3);
  EXPECT_GE(weights.bytes(2), 4 * shard->FloatsOf(0));
  EXPECT_EQ(weights.bytes(0), 3 * weights.bytes(2));
  EXPECT_EQ(weights.bytes(1), 0u);
}

TEST_F(PartitionMoveTest, NobodyTakesRowsWithTheTicketOfAPsThatHasRestarted) {
  ASSERT_OK(old_.Open(Request(1, Partitions(0, kMovePartitions))));
  std::string records;
  EXPECT_FAILS(Find(old_, 1)->TakeRows(1, 0, 0, /*changed=*/false, records), StatusCode::kAborted,
               "go to another caller");
}

TEST_F(PartitionMoveTest, WhatIsTakenOverIsTrainedAndCheckpointedLikeAnyOther) {
  // The same pushes on a job that stays as it is.
  std::mt19937_64 random(5);
  std::mt19937_64 same(5);
  Jobs still({.clock = &clock_, .files = &files_, .checkpoint_root = "root"});
  ASSERT_OK(still.Open(Request(1, Partitions(0, kMovePartitions))));
  ASSERT_OK(old_.Open(Request(1, Partitions(0, kMovePartitions))));
  uint64_t step = 0;
  const auto checkpoint = [&](JobShard& shard, const std::string& folder) {
    v1::WriteCheckpointRequest request;
    request.set_job_id("job-1");
    request.set_generation(shard.request().generation());
    request.set_step(step);
    request.set_parts(1);
    request.set_folder(folder);
    auto written = shard.WriteCheckpoint(request, clock_.Monotonic() + absl::Seconds(1));
    EXPECT_OK(written);
    return written.ok() ? written->rows(0) : 0;
  };
  // An odd number of cuts before, and every second generation none: bits of cuts differ.
  for (uint64_t generation = 1; generation < 5; ++generation) {
    const auto shard = Find(old_, generation);
    for (int i = 0; i < 5; ++i, ++step) {
      Push(*shard, step, 200, 3000, random);
      Push(*Find(still, 1), step, 200, 3000, same);
    }
    if (generation % 2 == 1) {
      const std::string folder = absl::StrCat("a-", generation);
      EXPECT_EQ(checkpoint(*shard, folder), checkpoint(*Find(still, 1), absl::StrCat(folder, "s")));
    }
    ASSERT_OK(old_.Open(TakeOver(generation, Partitions(0, kMovePartitions), step)));
  }
  EXPECT_EQ(checkpoint(*Find(old_, 5), "last"), Find(still, 1)->rows());
  EXPECT_EQ(Rows(*Find(old_, 5)), Rows(*Find(still, 1)));
}

TEST_F(PartitionMoveTest, ACutThatNobodyWritesEndsWithItsGeneration) {
  std::mt19937_64 random(6);
  ASSERT_OK(old_.Open(Request(1, Partitions(0, kMovePartitions))));
  uint64_t step = 0;
  while (step < 5) Push(*Find(old_, 1), step++, 300, 3000, random);
  v1::WriteCheckpointRequest request;
  request.set_job_id("job-1");
  request.set_generation(1);
  request.set_step(step);
  request.set_parts(1);
  request.set_folder("nobody");
  request.set_phase(v1::WriteCheckpointRequest::CUT);
  ASSERT_OK(Find(old_, 1)->WriteCheckpoint(request, clock_.Monotonic()));
  ASSERT_OK(old_.Open(TakeOver(1, Partitions(0, kMovePartitions), step)));
  const auto shard = Find(old_, 2);
  request.set_generation(2);
  request.set_folder("next");
  request.set_phase(v1::WriteCheckpointRequest::CUT_AND_WRITE);
  const auto written = shard->WriteCheckpoint(request, clock_.Monotonic());
  ASSERT_OK(written);
  uint64_t rows = 0;
  for (const v1::CheckpointFile& file : written->files()) {
    const auto reader = RowFileReader::Open(files_, "root/next/" + file.name());
    ASSERT_OK(reader);
    for (const row_file::IndexEntry& block : (*reader)->blocks()) rows += block.rows;
  }
  EXPECT_EQ(rows, shard->rows());
}

TEST_F(PartitionMoveTest, AStepThatIsNotAppliedIsNotLeftBehind) {
  ASSERT_OK(old_.Open(Request(1, Partitions(0, kMovePartitions))));
  EXPECT_FAILS(old_.Open(TakeOver(1, Partitions(0, kMovePartitions), 1)),
               StatusCode::kFailedPrecondition, "0 steps have been applied here, expected 1");
  // Acknowledged, and nobody says any more that it is so everywhere: the barrier does.
  ASSERT_OK(Find(old_, 1)->Push(CallOf(PushOf(0, 0, {{0, {5}, {1, 2, 3}}}))));
  EXPECT_OK(old_.Open(TakeOver(1, Partitions(0, kMovePartitions), 1)));
  EXPECT_EQ(Rows(*Find(old_, 2)).size(), 1u);
}

TEST_F(PartitionMoveTest, TheLastCopyHasEveryStepBeforeTheBarrier) {
  ASSERT_OK(old_.Open(Request(1, Partitions(0, kMovePartitions))));
  const auto all = Find(old_, 1);
  const std::vector<uint32_t> moving = Partitions(0, kMovePartitions);
  auto staged = *other_.Stage(TakeOver(1, moving), /*changed=*/false);
  ASSERT_OK(Copy(*all, *staged, moving, /*changed=*/false));
  ASSERT_OK(all->Push(CallOf(PushOf(0, 0, {{0, {5}, {1, 2, 3}}}))));
  ASSERT_OK(Copy(*all, *staged, moving, /*changed=*/true));
  EXPECT_EQ(staged->rows(), 0u) << "not confirmed: it may not be everywhere";
  EXPECT_FAILS(all->AwaitBarrier(2, clock_.Monotonic()), StatusCode::kAborted,
               "this ps lacks the push of rank 0 of step 1");
  ASSERT_OK(all->AwaitBarrier(1, clock_.Monotonic()));
  ASSERT_OK(Copy(*all, *staged, moving, /*changed=*/true));
  EXPECT_EQ(staged->rows(), 1u);
}

TEST_F(PartitionMoveTest, ACutOfACheckpointEndsTheMarksOfWhatWasCopied) {
  ASSERT_OK(old_.Open(Request(1, Partitions(0, kMovePartitions))));
  const auto shard = Find(old_, 1);
  EXPECT_FAILS(shard->BeginTake({1}, true, 0), StatusCode::kFailedPrecondition,
               "a checkpoint was cut");
  ASSERT_OK(shard->BeginTake({1}, false, 0));
  const auto ticket = shard->BeginTake({1}, true, 0);
  ASSERT_OK(ticket);
  v1::WriteCheckpointRequest request;
  request.set_job_id("job-1");
  request.set_generation(1);
  request.set_parts(1);
  request.set_folder("cut");
  request.set_phase(v1::WriteCheckpointRequest::CUT);
  ASSERT_OK(shard->WriteCheckpoint(request, clock_.Monotonic() + absl::Seconds(1)));
  EXPECT_FAILS(shard->BeginTake({1}, false, 0), StatusCode::kFailedPrecondition,
               "is being written");
  request.set_phase(v1::WriteCheckpointRequest::WRITE);
  ASSERT_OK(shard->WriteCheckpoint(request, clock_.Monotonic() + absl::Seconds(1)));
  EXPECT_FAILS(shard->BeginTake({1}, true, 0), StatusCode::kFailedPrecondition,
               "a checkpoint was cut");
  // A caller that was slow. With the marks, the next increment would lack the rows.
  std::string records;
  EXPECT_FAILS(shard->TakeRows(*ticket, 0, 1, true, records), StatusCode::kAborted,
               "go to another caller");
}

TEST_F(PartitionMoveTest, WhoHasBeenReplacedTakesNoMarksAnyMore) {
  ASSERT_OK(old_.Open(Request(1, Partitions(0, 100))));
  const auto shard = Find(old_, 1);
  const auto first = shard->BeginTake({1, 2}, false, 0);
  const auto other = shard->BeginTake({3}, false, 0);
  const auto second = shard->BeginTake({2}, false, 0);
  std::string records;
  EXPECT_OK(shard->TakeRows(*first, 0, 1, false, records));
  EXPECT_OK(shard->TakeRows(*other, 0, 3, false, records));
  EXPECT_FAILS(shard->TakeRows(*first, 0, 2, false, records), StatusCode::kAborted, "another");
  EXPECT_OK(shard->TakeRows(*second, 0, 2, false, records));
  EXPECT_FAILS(shard->BeginTake({100}, false, 0), StatusCode::kInvalidArgument, "partition 100");
}

TEST_F(PartitionMoveTest, RowsAreTakenOverByTheSameTablesAlone) {
  const std::vector<uint32_t> all = Partitions(0, kMovePartitions);
  ASSERT_OK(old_.Open(Request(1, all)));
  std::vector<v1::OpenJobRequest> others(4, TakeOver(1, all));
  others[0].mutable_tables(0)->mutable_spec()->set_dim(64);
  others[1].mutable_tables(0)->mutable_spec()->mutable_admission()->set_after_sightings(2);
  others[2].set_seed(others[2].seed() + 1);
  others[3].set_partition_count(2 * kMovePartitions);
  for (const v1::OpenJobRequest& other : others) {
    EXPECT_FAILS(old_.Open(other), StatusCode::kFailedPrecondition,
                 "not those whose rows are here");
    EXPECT_FAILS(old_.Stage(other, /*changed=*/false), StatusCode::kFailedPrecondition,
                 "not those whose rows are here");
  }
  EXPECT_OK(old_.Open(TakeOver(1, all)));
}

TEST_F(PartitionMoveTest, LateCallsOfAMoveThatIsOverChangeNothing) {
  const auto request = [](uint64_t move) {
    v1::OpenJobRequest open = TakeOver(1, Partitions(0, 100));
    open.set_move(move);
    return open;
  };
  // Of the one that is to have the rows.
  const auto staged = *other_.Stage(request(2), /*changed=*/false);
  EXPECT_FAILS(other_.Stage(request(1), false), StatusCode::kAborted,
               "move 1 is over, move 2 has begun");
  EXPECT_FAILS(other_.Stage(request(1), true), StatusCode::kAborted, "move 1 is over");
  other_.DropStaged("job-1", 2, 1);
  // What is late of the generation before this one's takes nothing away.
  EXPECT_OK(other_.Close("job-1", 0));
  EXPECT_EQ(*other_.Stage(request(2), true), staged);
  EXPECT_FAILS(other_.Open(request(3)), StatusCode::kFailedPrecondition, "are not here");
  ASSERT_OK(other_.Open(request(2)));
  EXPECT_FAILS(other_.Stage(request(2), false), StatusCode::kAborted, "generation 2");
  // And of the one that has them: the marks are those of the move of now.
  ASSERT_OK(old_.Open(Request(1, Partitions(0, 100))));
  const auto shard = Find(old_, 1);
  ASSERT_OK(shard->BeginTake({1}, false, 2));
  EXPECT_FAILS(shard->BeginTake({1}, false, 1), StatusCode::kAborted, "move 1 is over");
  EXPECT_FAILS(shard->BeginTake({1}, true, 1), StatusCode::kAborted, "move 1 is over");
  EXPECT_FAILS(shard->BeginTake({1}, true, 3), StatusCode::kFailedPrecondition, "this move");
  ASSERT_OK(shard->BeginTake({1}, true, 2));
}

TEST_F(PartitionMoveTest, PartitionsThatHaveComeFromNowhereAreRefused) {
  ASSERT_OK(old_.Open(Request(1, Partitions(0, 100))));
  EXPECT_FAILS(old_.Open(TakeOver(1, Partitions(50, 150))), StatusCode::kFailedPrecondition,
               "the rows of partition 100 are not here");
  EXPECT_FAILS(old_.Open(TakeOver(7, Partitions(0, 100))), StatusCode::kFailedPrecondition,
               "no generation 7");
  // What is open stays.
  EXPECT_NE(Find(old_, 1), nullptr);
  EXPECT_FAILS(other_.Stage(TakeOver(1, Partitions(0, 9)), /*changed=*/true),
               StatusCode::kFailedPrecondition, "no rows were brought over");
  // Rows that were brought over and then dropped are not here either.
  ASSERT_OK(old_.Stage(TakeOver(1, Partitions(50, 150)), /*changed=*/false));
  old_.DropStaged("job-1", 2, 0);
  EXPECT_FAILS(old_.Open(TakeOver(1, Partitions(50, 150))), StatusCode::kFailedPrecondition,
               "the rows of partition 100 are not here");
}

TEST_F(PartitionMoveTest, RowsThatAreNotWhatTheTableHoldsAreRefused) {
  auto staged = *other_.Stage(TakeOver(1, Partitions(0, 100)), /*changed=*/false);
  v1::RowChunk chunk;
  chunk.set_floats_per_row(staged->FloatsOf(0));
  chunk.set_records(std::string(20 + 4 * staged->FloatsOf(0), '\1'));
  chunk.set_checksum(1);
  EXPECT_FAILS(staged->Receive(chunk), StatusCode::kDataLoss, "damaged on their way");
  chunk.set_checksum(Checksum64Of(chunk.records()));
  chunk.set_table(1);
  EXPECT_FAILS(staged->Receive(chunk), StatusCode::kInvalidArgument, "table 1");
  chunk.set_table(0);
  chunk.mutable_records()->append("x");
  chunk.set_checksum(Checksum64Of(chunk.records()));
  EXPECT_FAILS(staged->Receive(chunk), StatusCode::kInvalidArgument, "bytes of rows");
  std::string foreign(20 + 4 * staged->FloatsOf(0), '\0');
  for (uint64_t key = 0;; ++key) {
    if (staged->Owns(PartitionOf(key, kMovePartitions).value())) continue;
    std::memcpy(foreign.data(), &key, sizeof(key));
    break;
  }
  chunk.set_records(foreign);
  chunk.set_checksum(Checksum64Of(foreign));
  EXPECT_FAILS(staged->Receive(chunk), StatusCode::kAborted, "does not own");
}

}  // namespace
}  // namespace tessera::ps
