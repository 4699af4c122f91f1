#include "ps/jobs/job_shard.h"

#include <algorithm>
#include <list>
#include <random>

#include "tests/ps/job_shard_testing.h"

namespace tessera::ps {
namespace {

using absl::StatusCode;

TEST_F(JobShardTest, AnswersRowsInTheOrderOfTheKeysAndSaysWhichItMade) {
  Open(Job({AdamTable("t", 4, v1::ASYNC)}));
  PendingPull first(*shard_, PullOf(0, 0, {{0, {7, 3}}}));
  ASSERT_OK(first.status());
  EXPECT_EQ(first.statuses(), (std::vector<uint8_t>{v1::ROW_CREATED, v1::ROW_CREATED}));
  PendingPull second(*shard_, PullOf(0, 0, {{0, {3, 9, 7}}}));
  ASSERT_OK(second.status());
  EXPECT_EQ(second.statuses(), (std::vector<uint8_t>{v1::ROW_HIT, v1::ROW_CREATED, v1::ROW_HIT}));
  const auto a = first.values(), b = second.values();
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 4, b.begin() + 8));
  EXPECT_TRUE(std::equal(a.begin() + 4, a.end(), b.begin()));
  PendingPull third(*shard_, PullOf(0, 0, {{0, {3, 7}}}));
  EXPECT_TRUE(third.response().tables(0).statuses().empty()) << "all rows were hit";
}

TEST_F(JobShardTest, ReadOnlyPullsLeaveEveryRowAsItIs) {
  FaultFileSystem files;
  ShardedJob job(Job({AdamTable("t", 4, v1::ASYNC)}), 1, files, clock_);
  job.Push(0, 0, {{0, {1, 2, 3}, std::vector<float>(12, 0.5f)}});
  const SavedRows before = job.Rows(0);
  PendingPull pull(job.shard(0), PullOf(0, 0, {{0, {1, 2, 3, 4, 5}}}, /*read_only=*/true));
  ASSERT_OK(pull.status());
  EXPECT_EQ(pull.statuses(), (std::vector<uint8_t>{v1::ROW_HIT, v1::ROW_HIT, v1::ROW_HIT,
                                                   v1::ROW_ABSENT, v1::ROW_ABSENT}));
  EXPECT_EQ(job.Rows(0), before);
  EXPECT_EQ(before.size(), 3u);
}

TEST_F(JobShardTest, SumsAKeyThatComesTwiceInOnePush) {
  Open(Job({SgdTable("t", 2, v1::ASYNC)}));
  ASSERT_OK(Push(0, 0, {{0, {5, 6, 5}, {1, 2, 10, 20, 0.5f, 0.25f}}, {0, {5}, {100, 200}}}));
  EXPECT_EQ(Look(0, {5, 6}), (std::vector<float>{-101.5f, -202.25f, -10, -20}));
  const SavedRows rows = [&] {
    v1::WriteCheckpointRequest request;
    request.set_folder("c");
    request.set_parts(1);
    EXPECT_OK(shard_->WriteCheckpoint(request, absl::InfiniteDuration()));
    return ReadRows(files_, "root/c/rows-g1-00000-of-00001");
  }();
  EXPECT_EQ(rows.at({0, 5}).frequency, 1u) << "one update";
}

TEST_F(JobShardTest, MovesEveryRowOfATableThatAsksForIt) {
  v1::PsTable table = SgdTable("t", 1, v1::ASYNC, 0.5f);
  table.mutable_spec()->set_update(v1::EVERY_ROW);
  table.mutable_spec()->mutable_optimizer()->set_l2(0.5f);
  table.mutable_spec()->mutable_initializer()->mutable_constant()->set_value(8);
  Open(Job({table}));
  PendingPull pull(*shard_, PullOf(0, 0, {{0, {1, 2, 3}}}));
  ASSERT_OK(Push(0, 0, {{0, {2}, {4}}}));
  // w - 0.5 * (g + 0.5 w)
  EXPECT_EQ(Look(0, {1, 2, 3}), (std::vector<float>{6, 4, 6}));
  // A push without a key of the table is a step all the same.
  ASSERT_OK(Push(0, 1, {}));
  EXPECT_EQ(Look(0, {1, 2, 3}), (std::vector<float>{4.5f, 3, 4.5f}));
}

TEST_F(JobShardTest, ScalesTheLearningRateButNotOfTablesWithAFixedRate) {
  v1::PsTable fixed = SgdTable("fixed", 1, v1::ASYNC);
  fixed.set_fixed_rate(true);
  Open(Job({SgdTable("t", 1, v1::ASYNC), fixed}));
  v1::PushRequest push = PushOf(0, 0, {{0, {1}, {1}}, {1, {1}, {1}}});
  push.set_learning_rate_scale(0.25);
  ASSERT_OK(shard_->Push(CallOf(push)));
  EXPECT_EQ(Look(0, {1}), std::vector<float>{-0.25f});
  EXPECT_EQ(Look(1, {1}), std::vector<float>{-1});
}

// ---- sync -----------------------------------------------------------------------------------

TEST_F(JobShardTest, AppliesAStepWhenAllRanksHavePushedIt) {
  Open(Job({SgdTable("t", 1, v1::SYNC)}, /*workers=*/2));
  ASSERT_OK(Push(1, 0, {{0, {1}, {2}}}));
  EXPECT_EQ(Look(0, {1}), std::vector<float>{0});
  EXPECT_EQ(shard_->Stats().applied_steps(), 0u);
  ASSERT_OK(Push(0, 0, {{0, {1, 2}, {1, 5}}}));
  EXPECT_EQ(Look(0, {1, 2}), (std::vector<float>{-3, -5}));
  EXPECT_EQ(shard_->Stats().applied_steps(), 1u);
}

TEST_F(JobShardTest, PullsWaitForTheStepsBeforeTheirs) {
  Open(Job({SgdTable("t", 1, v1::SYNC)}, 2));
  PendingPull now(*shard_, PullOf(0, 0, {{0, {1}}}));
  EXPECT_TRUE(now.answered());
  ASSERT_OK(Push(0, 0, {{0, {1}, {1}}}));
  PendingPull next(*shard_, PullOf(0, 1, {{0, {1}}}));
  EXPECT_FALSE(next.answered());
  ASSERT_OK(Push(1, 0, {{0, {1}, {1}}}));
  ASSERT_TRUE(next.answered());
  ASSERT_OK(next.status());
  EXPECT_EQ(next.values(), std::vector<float>{-2});
}

// A push log that ends too early, as a power cut leaves it, is a shard at an earlier step.
TEST_F(JobShardTest, APullThatShowsThatPushesWereLostEndsTheGeneration) {
  Open(Job({SgdTable("t", 1, v1::SYNC)}, 2));
  for (uint64_t step = 0; step < 3; ++step) {
    ASSERT_OK(Push(0, step, {{0, {1}, {1}}}));
    ASSERT_OK(Push(1, step, {{0, {1}, {1}}}));
    EXPECT_OK(PendingPull(*shard_, PullOf(0, step + 1, {{0, {1}}})).status());
    EXPECT_OK(PendingPull(*shard_, PullOf(1, step + 1, {{0, {1}}})).status());
  }
  EXPECT_FAILS(PendingPull(*shard_, PullOf(0, 2, {{0, {1}}})).status(), StatusCode::kAborted,
               "rank 0 is at step 2, and this ps has applied those before step 3 already");
  EXPECT_FAILS(PendingPull(*shard_, PullOf(1, 5, {{0, {1}}})).status(), StatusCode::kAborted,
               "rank 1 is at step 5, and this ps lacks its push of step 3");
  ASSERT_OK(Push(0, 3, {{0, {1}, {1}}}));
  EXPECT_FAILS(PendingPull(*shard_, PullOf(0, 5, {{0, {1}}})).status(), StatusCode::kAborted,
               "this ps lacks its push of step 4");
  // Who only reads stands at no step, but at a barrier: all have pushed those before.
  EXPECT_OK(PendingPull(*shard_, PullOf(0, 1, {{0, {1}}}, /*read_only=*/true)).status());
  const std::string lacks =
      "all ranks have pushed the steps before 4, and this ps lacks the push "
      "of rank 1 of step 3";
  EXPECT_FAILS(PendingPull(*shard_, PullOf(0, 4, {{0, {1}}}, /*read_only=*/true)).status(),
               StatusCode::kAborted, lacks);
  EXPECT_FAILS(shard_->AwaitBarrier(4, clock_.Monotonic()), StatusCode::kAborted, lacks);
}

TEST_F(JobShardTest, PullsThatWaitForTheSameStepAreToldOfOnce) {
  Open(Job({SgdTable("t", 1, v1::SYNC)}, 100));
  std::list<PendingPull> pulls;
  for (uint32_t rank = 0; rank < 50; ++rank) {
    ASSERT_OK(Push(rank, 0, {{0, {1}, {1}}}));
    pulls.emplace_back(*shard_, PullOf(rank, 1, {{0, {1}}}));
    clock_.Advance(absl::Milliseconds(1));
  }
  clock_.Advance(absl::Seconds(2));
  const std::vector<std::string> waits = shard_->Waits();
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_THAT(waits[0], testing::HasSubstr("rank 0's pull of step 1 waits since 2.05s"));
  EXPECT_THAT(waits[0], testing::EndsWith("and 40 more ranks; so do 49 more pulls of it"));
  shard_->Close(absl::AbortedError("the test is over"));
}

TEST_F(JobShardTest, APullThatWaitsTooLongNamesTheRanksItWaitedFor) {
  Open(Job({SgdTable("t", 1, v1::SYNC)}, 3));
  ASSERT_OK(Push(1, 0, {{0, {1}, {1}}}));
  PendingPull pull(*shard_, PullOf(1, 1, {{0, {1}}}), clock_.Monotonic() + absl::Seconds(10));
  clock_.Advance(absl::Seconds(9));
  shard_->Expire();
  EXPECT_FALSE(pull.answered());
  EXPECT_THAT(shard_->Waits(), testing::ElementsAre(testing::AllOf(
                                   testing::HasSubstr("rank 1's pull of step 1 waits since 9s"),
                                   testing::HasSubstr("rank 0"), testing::HasSubstr("rank 2"))));
  clock_.Advance(absl::Seconds(1));
  shard_->Expire();
  ASSERT_TRUE(pull.answered());
  EXPECT_FAILS(pull.status(), StatusCode::kDeadlineExceeded,
               "for the pushes of step 0 from rank 0 (no push since the job was opened 10s ago), "
               "rank 2 (no push");
  EXPECT_TRUE(shard_->Waits().empty());
  // It may be repeated.
  ASSERT_OK(Push(0, 0, {}));
  ASSERT_OK(Push(2, 0, {}));
  PendingPull again(*shard_, PullOf(1, 1, {{0, {1}}}));
  ASSERT_TRUE(again.answered());
  EXPECT_EQ(again.values(), std::vector<float>{-1});
}

TEST_F(JobShardTest, ARepeatedPushOfAStepIsNotAppliedTwice) {
  Open(Job({SgdTable("t", 1, v1::SYNC)}, 2));
  ASSERT_OK(Push(0, 0, {{0, {1}, {1}}}));
  ASSERT_OK(Push(0, 0, {{0, {1}, {1}}}));
  ASSERT_OK(Push(1, 0, {{0, {1}, {1}}}));
  ASSERT_OK(Push(0, 0, {{0, {1}, {1}}}));
  EXPECT_EQ(Look(0, {1}), std::vector<float>{-2});
  EXPECT_FAILS(Push(0, 3, {{0, {1}, {1}}}), StatusCode::kAborted, "rank 0 pushes step 3");
}

TEST_F(JobShardTest, StepsBeforeTheFirstCountAsApplied) {
  v1::OpenJobRequest job = Job({SgdTable("t", 1, v1::SYNC)}, 1);
  job.set_first_step(40);
  Open(job);
  PendingPull pull(*shard_, PullOf(0, 40, {{0, {1}}}));
  EXPECT_TRUE(pull.answered());
  ASSERT_OK(Push(0, 39, {{0, {1}, {1}}}));
  EXPECT_EQ(Look(0, {1}), std::vector<float>{0});
  ASSERT_OK(Push(0, 40, {{0, {1}, {1}}}));
  EXPECT_EQ(Look(0, {1}), std::vector<float>{-1});
}

TEST_F(JobShardTest, AStepWithTooManyWaitingPullsPushesBack) {
  ByteBudget room(200);
  auto shard = JobShard::Open(
      Whole(Job({SgdTable("t", 1, v1::SYNC)}, 2)),
      {.clock = &clock_, .files = &files_, .checkpoint_root = "root", .waiting_pulls = &room});
  ASSERT_OK(shard);
  ASSERT_OK((*shard)->Push(CallOf(PushOf(0, 0, {}))));
  const v1::PullRequest request = PullOf(0, 1, {{0, std::vector<uint64_t>(10, 1)}});
  PendingPull first(**shard, request);
  EXPECT_FALSE(first.answered());
  PendingPull second(**shard, request);
  EXPECT_FAILS(second.status(), StatusCode::kResourceExhausted, "pull again later");
  ASSERT_OK((*shard)->Push(CallOf(PushOf(1, 0, {}))));
  ASSERT_OK(Confirm(**shard, 1, 1));
  EXPECT_OK(first.status());
}

// ---- async and mixed ------------------------------------------------------------------------

TEST_F(JobShardTest, CountsExactlyThroughRepeatsAndReordering) {
  Open(Job({SgdTable("count", 1, v1::ASYNC)}, 3));
  std::mt19937_64 random(11);
  std::map<uint64_t, float> expected;
  std::vector<v1::PushRequest> sends;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    for (uint64_t sequence = 0; sequence < 200; ++sequence) {
      Block block;
      for (int i = 0; i < 20; ++i) {
        const uint64_t key = random() % 50;
        block.keys.push_back(key);
        block.values.push_back(-1);
        expected[key] += 1;
      }
      const v1::PushRequest push = PushOf(rank, sequence, {block});
      for (uint64_t times = 1 + random() % 3; times > 0; --times) sends.push_back(push);
    }
  }
  std::shuffle(sends.begin(), sends.end(), random);
  for (const v1::PushRequest& push : sends) ASSERT_OK(shard_->Push(CallOf(push)));
  for (const auto& [key, count] : expected) EXPECT_EQ(Look(0, {key}), std::vector<float>{count});
  EXPECT_EQ(shard_->Stats().applied_steps(), 600u);
}

TEST_F(JobShardTest, APullWithoutKeysWaitsForItsStepToo) {
  Open(Job({SgdTable("a", 1, v1::ASYNC), SgdTable("s", 1, v1::SYNC)}, 2));
  ASSERT_OK(Push(0, 0, {}));
  PendingPull none(*shard_, PullOf(0, 1, {}));
  PendingPull async(*shard_, PullOf(0, 1, {{0, {1}}}));
  EXPECT_FALSE(none.answered());
  EXPECT_FALSE(async.answered());
  ASSERT_OK(Push(1, 0, {}));
  EXPECT_OK(none.status());
  EXPECT_OK(async.status());
}

TEST_F(JobShardTest, PullsOfStepZeroAndThoseOfAsyncJobsDoNotWait) {
  Open(Job({SgdTable("a", 1, v1::ASYNC)}, 2));
  EXPECT_OK(PendingPull(*shard_, PullOf(0, 9, {{0, {1}}})).status());
  Open(Job({SgdTable("a", 1, v1::ASYNC), SgdTable("s", 1, v1::SYNC)}, 2));
  PendingPull async(*shard_, PullOf(0, 0, {{0, {1}}}));
  EXPECT_TRUE(async.answered());
  ASSERT_OK(Push(0, 0, {}));
  PendingPull both(*shard_, PullOf(0, 1, {{0, {1}}, {1, {1}}}));
  EXPECT_FALSE(both.answered());
  shard_->Close(absl::AbortedError("closed"));
  EXPECT_TRUE(both.answered());
}

TEST_F(JobShardTest, ARankWithManyGapsMayCloseThem) {
  Open(Job({SgdTable("t", 1, v1::ASYNC)}, 1));
  const auto push = [&](uint64_t sequence) {
    return shard_->Push(CallOf(PushOf(0, sequence, {{0, {1}, {1}}})));
  };
  uint64_t next = 0;
  absl::Status status;
  for (; next < 20000; next += 2) {
    status = push(next);
    if (!status.ok()) break;
  }
  EXPECT_FAILS(status, StatusCode::kResourceExhausted, "send what is missing first");
  EXPECT_OK(push(1));
  EXPECT_OK(push(next));  // there is room for one more
  EXPECT_FAILS(push(next + 2), StatusCode::kResourceExhausted, "send what is missing first");
}

// As of a ps that is back without the end of its push log.
TEST_F(JobShardTest, WhatIsKnownToBeOnAllPsAndIsNotHereEndsAnAsyncGeneration) {
  Open(Job({SgdTable("t", 1, v1::ASYNC)}, 2));
  v1::PushRequest push = PushOf(0, 0, {{0, {1}, {1}}});
  for (const uint64_t sequence : {0, 1, 3}) {
    push.set_sequence(sequence);
    push.set_confirmed(std::min<uint64_t>(sequence, 2));
    ASSERT_OK(shard_->Push(CallOf(push)));
  }
  const std::string lacks =
      "all ps have acknowledged the pushes of rank 0 before number 3, and "
      "this ps lacks that of number 2";
  push.set_sequence(4);
  push.set_confirmed(3);
  EXPECT_FAILS(shard_->Push(CallOf(push)), StatusCode::kAborted, lacks);
  push.set_part(0);
  push.set_parts(2);
  push.set_bulk_bytes(100);
  EXPECT_FAILS(shard_->Push(CallOf(push)), StatusCode::kAborted, lacks);
  EXPECT_FAILS(Confirm(*shard_, 0, 3), StatusCode::kAborted, lacks);
  EXPECT_OK(Confirm(*shard_, 0, 2));
  EXPECT_EQ(Look(0, {1}), std::vector<float>{-3}) << "nothing was applied";

  v1::WriteCheckpointRequest cut;
  cut.set_folder("cut");
  cut.set_parts(1);
  cut.set_phase(v1::WriteCheckpointRequest::CUT);
  const auto confirmed = [&](uint64_t first, uint64_t second) {
    cut.clear_confirmed();
    cut.add_confirmed(first);
    cut.add_confirmed(second);
    return shard_->WriteCheckpoint(cut, clock_.Monotonic()).status();
  };
  EXPECT_FAILS(confirmed(3, 0), StatusCode::kAborted, lacks);
  EXPECT_FAILS(confirmed(2, 1), StatusCode::kAborted,
               "all ps have acknowledged the pushes of rank 1 before number 1, and this ps lacks "
               "that of number 0");
  EXPECT_OK(confirmed(2, 0));
}

TEST_F(JobShardTest, AppliesTheAsyncTablesOfAMixedPushOnArrivalAndOnce) {
  Open(Job({SgdTable("a", 1, v1::ASYNC), SgdTable("s", 1, v1::SYNC)}, 2));
  const std::vector<Block> blocks = {{0, {1}, {1}}, {1, {1}, {10}}};
  ASSERT_OK(Push(0, 0, blocks));
  ASSERT_OK(Push(0, 0, blocks));
  EXPECT_EQ(Look(0, {1}), std::vector<float>{-1});
  EXPECT_EQ(Look(1, {1}), std::vector<float>{0});
  ASSERT_OK(Push(1, 0, blocks));
  ASSERT_OK(Push(0, 0, blocks));
  EXPECT_EQ(Look(0, {1}), std::vector<float>{-2});
  EXPECT_EQ(Look(1, {1}), std::vector<float>{-20});
}

TEST_F(JobShardTest, RefusesAnIncarnationThatALaterOneHasReplaced) {
  Open(Job({SgdTable("t", 1, v1::ASYNC)}, 2));
  v1::PushRequest push = PushOf(0, 0, {{0, {1}, {1}}});
  push.mutable_header()->set_incarnation(5);
  ASSERT_OK(shard_->Push(CallOf(push)));
  push.set_sequence(1);
  push.mutable_header()->set_incarnation(4);
  EXPECT_FAILS(shard_->Push(CallOf(push)), StatusCode::kAborted, "rank 0 is incarnation 5 now");
  v1::PullRequest pull = PullOf(0, 0, {{0, {1}}});
  pull.mutable_header()->set_incarnation(4);
  EXPECT_FAILS(PendingPull(*shard_, pull).status(), StatusCode::kAborted, "incarnation 4 is dead");
  push.mutable_header()->set_rank(1);
  EXPECT_OK(shard_->Push(CallOf(push)));
  EXPECT_EQ(Look(0, {1}), std::vector<float>{-2});
}

// ---- bounded staleness ----------------------------------------------------------------------

class BoundedJobTest : public JobShardTest {
 protected:
  void SetUp() override {
    v1::OpenJobRequest job = Job({SgdTable("t", 1, v1::BOUNDED)}, /*workers=*/2);
    job.set_max_lead(1);
    Open(job);
  }
  // The rank's pull for its push of that number.
  static v1::PullRequest Begin(uint32_t rank, uint64_t step) {
    v1::PullRequest pull = PullOf(rank, 0, {{0, {1}}});
    pull.set_begins(step + 1);
    return pull;
  }
  std::unique_ptr<PendingPull> Pull(uint32_t rank, uint64_t step) {
    return std::make_unique<PendingPull>(*shard_, Begin(rank, step),
                                         clock_.Monotonic() + absl::Seconds(10));
  }
};

TEST_F(BoundedJobTest, APullWaitsWhileItsRankWouldRunTooFarAhead) {
  EXPECT_TRUE(Pull(0, 0)->answered());
  EXPECT_TRUE(Pull(1, 0)->answered());
  ASSERT_OK(Push(1, 0, {{0, {1}, {1}}}));
  const auto ahead = Pull(1, 1);
  const auto other_chunk = Pull(1, 1);
  EXPECT_FALSE(ahead->answered());
  EXPECT_FALSE(other_chunk->answered());
  EXPECT_EQ(Look(0, {1}), std::vector<float>{-1}) << "read-only pulls begin nothing";
  ASSERT_OK(Push(0, 0, {{0, {1}, {2}}}));
  ASSERT_TRUE(ahead->answered());
  ASSERT_TRUE(other_chunk->answered());
  EXPECT_EQ(ahead->values(), std::vector<float>{-3});
}

TEST_F(BoundedJobTest, AWaitNamesTheRankThatIsSlowAndItsStep) {
  EXPECT_TRUE(Pull(0, 4)->answered());
  EXPECT_TRUE(Pull(1, 0)->answered());
  const auto ahead = Pull(1, 1);
  clock_.Advance(absl::Seconds(5));
  const std::string who =
      "rank 1's pull of step 1 waits since 5s for rank 0, at its step 4 since 5s, while it has "
      "begun max_lead (1) steps";
  EXPECT_THAT(shard_->Waits(), testing::ElementsAre(testing::HasSubstr(who)));
  clock_.Advance(absl::Seconds(5));
  shard_->Expire();
  EXPECT_FAILS(ahead->status(), StatusCode::kDeadlineExceeded, "for rank 0, at its step 4");
}

TEST_F(BoundedJobTest, ARankThatIsTakenOverHoldsNobodyBack) {
  EXPECT_TRUE(Pull(0, 0)->answered());
  EXPECT_TRUE(Pull(1, 0)->answered());
  const auto ahead = Pull(1, 1);
  EXPECT_FALSE(ahead->answered());
  ASSERT_OK(Confirm(*shard_, 0, 0, /*incarnation=*/2));
  EXPECT_TRUE(ahead->answered());
}

TEST_F(BoundedJobTest, APullThatComesAfterItsPushBeginsNothing) {
  EXPECT_TRUE(Pull(0, 0)->answered());
  ASSERT_OK(Push(0, 0, {{0, {1}, {1}}}));
  EXPECT_TRUE(Pull(0, 0)->answered());
  for (uint64_t step = 0; step < 5; ++step) {
    EXPECT_TRUE(Pull(1, step)->answered()) << step;
    ASSERT_OK(Push(1, step, {}));
  }
}

TEST_F(BoundedJobTest, IsRefusedBesideATableThatIsSyncAndWithoutABound) {
  v1::OpenJobRequest job = Job({SgdTable("t", 1, v1::BOUNDED), SgdTable("u", 1, v1::SYNC)}, 2);
  job.set_max_lead(1);
  EXPECT_FAILS(TryOpen(job), StatusCode::kInvalidArgument, "max_lead is 1 and a table is sync");
  job.set_max_lead(1001);
  EXPECT_FAILS(TryOpen(job), StatusCode::kInvalidArgument, "max_lead is 1001, expected at most");
}

// ---- dense tables ---------------------------------------------------------------------------

TEST_F(JobShardTest, DenseRowsComeByAssignmentAlone) {
  Open(Job({DenseTable("dense", 2, v1::ASYNC)}));
  for (const bool read_only : {false, true}) {
    EXPECT_FAILS(PendingPull(*shard_, PullOf(0, 0, {{0, {0}}}, read_only)).status(),
                 StatusCode::kFailedPrecondition, "table dense: block 0");
  }
  EXPECT_FAILS(Push(0, 0, {{0, {0}, {1, 1}}}), StatusCode::kFailedPrecondition,
               "table dense: block 0");
  ASSERT_OK(shard_->Assign(AssignOf({{0, {0}, {3, 4}}})));
  EXPECT_EQ(Look(0, {0}), (std::vector<float>{3, 4}));
  // Rows that exist stay as they are.
  ASSERT_OK(Push(0, 0, {{0, {0}, {10, 10}}}));
  ASSERT_OK(shard_->Assign(AssignOf({{0, {0, 1}, {7, 7, 8, 8}}})));
  EXPECT_EQ(Look(0, {0, 1}), (std::vector<float>{2, 3, 8, 8}));
}

// ---- what peers may send --------------------------------------------------------------------

TEST_F(JobShardTest, SendsBackKeysOfPartitionsThatItDoesNotOwn) {
  v1::OpenJobRequest job = Job({SgdTable("t", 1, v1::ASYNC)}, 1, 2);
  job.add_partitions(1);
  auto shard = JobShard::Open(job, {.clock = &clock_, .files = &files_, .checkpoint_root = "root"});
  ASSERT_OK(shard);
  uint64_t mine = 0, others = 0;
  while (PartitionOf(mine, 2).value() != 1) ++mine;
  while (PartitionOf(others, 2).value() != 0) ++others;
  EXPECT_OK(PendingPull(**shard, PullOf(0, 0, {{0, {mine}}})).status());
  EXPECT_FAILS(PendingPull(**shard, PullOf(0, 0, {{0, {mine, others}}})).status(),
               StatusCode::kAborted, "partition 0, which this ps does not own");
  EXPECT_FAILS((*shard)->Push(CallOf(PushOf(0, 0, {{0, {others}, {1}}}))), StatusCode::kAborted,
               "table t: key");
  EXPECT_FAILS((*shard)->Assign(AssignOf({{0, {others}, {1}}})), StatusCode::kAborted,
               "table t: key");
}

TEST_F(JobShardTest, SendsBackCallsWithAnotherPartitionMap) {
  Open(Job({SgdTable("t", 1, v1::ASYNC)}));
  v1::PullRequest pull = PullOf(0, 0, {{0, {1}}});
  pull.mutable_header()->set_map_version(2);
  EXPECT_FAILS(PendingPull(*shard_, pull).status(), StatusCode::kAborted, "refresh the map");
  v1::PushRequest push = PushOf(0, 0, {});
  push.mutable_header()->set_map_version(0);
  EXPECT_FAILS(shard_->Push(CallOf(push)), StatusCode::kAborted, "refresh the map");
}

TEST_F(JobShardTest, ACloseEndsWhatWaitsAndAllThatComesLater) {
  Open(Job({SgdTable("t", 1, v1::SYNC)}, 2));
  ASSERT_OK(Push(0, 0, {}));
  PendingPull waiting(*shard_, PullOf(0, 1, {{0, {1}}}));
  shard_->Close(absl::AbortedError("moved on"));
  EXPECT_FAILS(waiting.status(), StatusCode::kAborted, "moved on");
  EXPECT_FAILS(PendingPull(*shard_, PullOf(0, 0, {{0, {1}}})).status(), StatusCode::kAborted,
               "moved on");
  EXPECT_FAILS(Push(1, 0, {}), StatusCode::kAborted, "moved on");
  EXPECT_FAILS(shard_->Assign(AssignOf({})), StatusCode::kAborted, "moved on");
}

TEST_F(JobShardTest, CountsWhatHappened) {
  Open(Job({SgdTable("t", 4, v1::ASYNC)}));
  PendingPull a(*shard_, PullOf(0, 0, {{0, {1, 2, 3}}}));
  PendingPull b(*shard_, PullOf(0, 0, {{0, {1, 2}}}));
  PendingPull c(*shard_, PullOf(0, 0, {{0, {8}}}, /*read_only=*/true));
  const v1::TableStats stats = shard_->Stats().tables(0);
  EXPECT_EQ(stats.name(), "t");
  EXPECT_EQ(stats.rows(), 3u);
  EXPECT_EQ(stats.created(), 3u);
  EXPECT_EQ(stats.hits(), 2u);
  EXPECT_EQ(stats.absent(), 1u);
  EXPECT_GE(stats.bytes(), 3 * RowLayout(4, 0, 0).block_bytes());
}

}  // namespace
}  // namespace tessera::ps
