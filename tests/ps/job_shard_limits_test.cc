// What a shard refuses, and what its memory and its rows have room for.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/ps/failing_memory.h"
#include "tests/ps/job_shard_testing.h"

namespace tessera::ps {
namespace {

using absl::StatusCode;

TEST_F(JobShardTest, RefusesSizesThatDoNotFit) {
  Open(Job({SgdTable("clicks", 3, v1::ASYNC)}));
  v1::PullRequest pull = PullOf(0, 0, {{0, {1}}});
  pull.mutable_tables(0)->set_keys("1234567");
  EXPECT_FAILS(PendingPull(*shard_, pull).status(), StatusCode::kInvalidArgument,
               "table clicks: block of keys has 7 bytes");
  pull = PullOf(0, 0, {{9, {1}}});
  EXPECT_FAILS(PendingPull(*shard_, pull).status(), StatusCode::kInvalidArgument,
               "table 9 does not exist");
  pull = PullOf(0, 0, {{0, std::vector<uint64_t>((60 << 20) / 12)}});
  EXPECT_FAILS(PendingPull(*shard_, pull).status(), StatusCode::kInvalidArgument,
               "split it by keys");
  EXPECT_FAILS(Push(0, 0, {{0, {1, 2}, std::vector<float>(5)}}), StatusCode::kInvalidArgument,
               "table clicks: block of values has 20 bytes, expected 24 (2 keys of dim 3)");
  EXPECT_FAILS(Push(0, 0, {{1, {1}, {1}}}), StatusCode::kInvalidArgument, "table 1 does not exist");
  EXPECT_FAILS(Push(1, 0, {}), StatusCode::kInvalidArgument, "rank 1 does not exist");
  v1::PushRequest push = PushOf(0, 0, {});
  push.set_learning_rate_scale(std::nan(""));
  EXPECT_FAILS(shard_->Push(CallOf(push)), StatusCode::kInvalidArgument,
               "learning_rate_scale is nan");
  push.set_learning_rate_scale(-1);
  EXPECT_FAILS(shard_->Push(CallOf(push)), StatusCode::kInvalidArgument,
               "learning_rate_scale is -1");
  EXPECT_EQ(shard_->rows(), 0u);
}

TEST_F(JobShardTest, RefusesAPushWithAValueThatIsNotFiniteAndAppliesNothingOfIt) {
  for (const v1::Consistency mode : {v1::ASYNC, v1::SYNC}) {
    Open(Job({SgdTable("a", 1, mode), SgdTable("b", 2, mode)}));
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
      EXPECT_FAILS(Push(0, 0, {{0, {1}, {1}}, {1, {7, 8}, {1, 2, 3, bad}}}),
                   StatusCode::kInvalidArgument, "table b: key 8, element 1");
      EXPECT_FAILS(Push(0, 0, {{0, {1}, {bad}}}), StatusCode::kInvalidArgument,
                   "lower the learning rate or set train.clip; if it fails at once, look for very "
                   "large numbers in the data");
    }
    EXPECT_EQ(shard_->rows(), 0u);
    // The sequence is still free.
    ASSERT_OK(Push(0, 0, {{0, {1}, {1}}}));
    EXPECT_EQ(shard_->rows(), 1u);
  }
  EXPECT_FAILS(shard_->Assign(AssignOf({{0, {2}, {std::nanf("")}}})), StatusCode::kInvalidArgument,
               "table a: key 2");
}

TEST_F(JobShardTest, FiniteGradientsOfAnySizeLeaveFiniteRows) {
  const float largest = std::numeric_limits<float>::max();
  v1::PsTable clipped = SgdTable("clipped", 2, v1::ASYNC);
  clipped.mutable_spec()->mutable_optimizer()->set_clip_norm(5);
  v1::PsTable adagrad = SgdTable("adagrad", 2, v1::ASYNC);
  adagrad.mutable_spec()->mutable_optimizer()->mutable_adagrad();
  Open(Job({clipped, adagrad}));
  // The sum of a key's gradients is no float32.
  ASSERT_OK(Push(0, 0, {{0, {1, 1}, {largest, 0, largest, 0}}}));
  EXPECT_EQ(Look(0, {1}), (std::vector<float>{-5, 0}));
  EXPECT_FAILS(Push(0, 1, {{1, {1}, {0, 2e18f}}}), StatusCode::kInvalidArgument,
               "table adagrad: key 1, element 1: value is 2e+18, expected a finite number of at "
               "most 1e+18");
  ASSERT_OK(Push(0, 1, {{1, {1}, {0, 1e18f}}}));
  EXPECT_EQ(Look(1, {1}), (std::vector<float>{0, -1}));
}

// Each of them may come; that of their sum is no float32.
TEST_F(JobShardTest, ARowMovesOnAfterASumOfGradientsWhoseSquareWouldBeInfinite) {
  std::vector<v1::PsTable> tables(3, SgdTable("", 1, v1::ASYNC));
  tables[0].mutable_spec()->mutable_optimizer()->mutable_adagrad();
  tables[1].mutable_spec()->mutable_optimizer()->mutable_rmsprop();
  tables[2].mutable_spec()->mutable_optimizer()->mutable_ftrl();
  for (uint32_t t = 0; t < 3; ++t) tables[t].mutable_spec()->set_name(absl::StrCat("table", t));
  Open(Job(tables));
  for (uint32_t t = 0; t < 3; ++t) {
    SCOPED_TRACE(tables[t].spec().name());
    const std::vector<uint64_t> repeated(40, 1);
    ASSERT_OK(Push(0, 2 * t, {{t, repeated, std::vector<float>(40, 9e17f)}}));
    const float before = Look(t, {1})[0];
    EXPECT_TRUE(std::isfinite(before));
    EXPECT_LT(before, 0);
    ASSERT_OK(Push(0, 2 * t + 1, {{t, {1}, {-9e17f}}}));
    EXPECT_GT(Look(t, {1})[0], before);
  }
}

TEST_F(JobShardTest, RefusesARateAndANumberThatNoRowHasRoomFor) {
  Open(Job({SgdTable("t", 1, v1::ASYNC, 10)}));
  v1::PushRequest push = PushOf(0, 0, {{0, {1}, {1}}});
  push.set_learning_rate_scale(1e38);
  EXPECT_FAILS(shard_->Push(CallOf(push)), StatusCode::kInvalidArgument,
               "table t: learning_rate_scale is 1e+38, expected a number of at least 0 with which");
  EXPECT_FAILS(Push(0, UINT32_MAX, {{0, {1}, {1}}}), StatusCode::kInvalidArgument,
               "the number of its push is 4294967295, expected less than 4294967295");
  EXPECT_EQ(shard_->rows(), 0u);
  ASSERT_OK(shard_->Push(CallOf(PushOf(0, UINT32_MAX - 1, {{0, {1}, {1}}}))));
}

TEST_F(JobShardTest, AnswersTakeNoMoreMemoryThanTheyMayHave) {
  ByteBudget unsent(100);
  auto shard = JobShard::Open(
      Whole(Job({SgdTable("t", 2, v1::SYNC)}, 2)),
      {.clock = &clock_, .files = &files_, .checkpoint_root = "root", .unsent = &unsent});
  ASSERT_OK(shard);
  ASSERT_OK((*shard)->Push(CallOf(PushOf(0, 0, {}))));
  // As a caller's connection does that is not read.
  std::vector<absl::StatusOr<PullAnswer>> answers;
  const auto pull = [&](uint64_t step, const std::vector<uint64_t>& keys) {
    (*shard)->Pull(
        CallOf(PullOf(0, step, {{0, keys}})), absl::InfiniteDuration(),
        [&](absl::StatusOr<PullAnswer> answer) { answers.push_back(std::move(answer)); });
  };
  const std::vector<uint64_t> ten = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  pull(1, ten);  // waits for its step
  EXPECT_EQ(answers.size(), 0u);
  pull(0, ten);
  pull(0, ten);
  pull(0, {1, 2});
  ASSERT_OK((*shard)->Push(CallOf(PushOf(1, 0, {}))));
  ASSERT_OK(Confirm(**shard, 1, 1));
  ASSERT_EQ(answers.size(), 4u);
  ASSERT_OK(answers[0]);
  EXPECT_FAILS(answers[1], StatusCode::kResourceExhausted,
               "this ps has 80 of 100 bytes of answers to send, and none for the 80 of this one");
  ASSERT_OK(answers[2]);
  EXPECT_FAILS(answers[3], StatusCode::kResourceExhausted, "this ps has 96 of 100 bytes");
  EXPECT_EQ(unsent.bytes(), 96u);
  answers.clear();
  EXPECT_EQ(unsent.bytes(), 0u);
  // Alone, one of any size is answered.
  pull(1, std::vector<uint64_t>(50, 3));
  ASSERT_OK(answers[0]);
}

// Left out under sanitizers (tests/sanitize), which need all addresses.
using JobShardDeathTest = JobShardTest;
TEST_F(JobShardDeathTest, APushThatThereIsNoMemoryForEndsTheJobHereNotThePs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto push_all = [&] {
    Open(Job({SgdTable("t", 4096, v1::ASYNC)}));
    rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = uint64_t{1} << 30;
    setrlimit(RLIMIT_AS, &limit);
    absl::Status status;
    for (uint64_t n = 0; status.ok() && n < 100000; ++n) {
      status = Push(0, n, {{0, {2 * n, 2 * n + 1}, std::vector<float>(2 * 4096, 1)}});
    }
    if (status.ok()) _exit(1);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_AS, &limit);
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    // So is every call from then on.
    _exit(PendingPull(*shard_, PullOf(0, 0, {{0, {1}}})).status().code() == StatusCode::kAborted
              ? 0
              : 2);
  };
  EXPECT_EXIT(push_all(), testing::ExitedWithCode(0),
              "ABORTED.*start again from the last checkpoint: job job-1: no memory for new rows of "
              "table t \\(dim 4096\\), which has [0-9]+ rows here; use more ps");
}

// At each of its allocations, the last of which is made when the rows have moved.
TEST_F(JobShardTest, AStepThatThereIsNoMemoryForIsAppliedLaterOrEndsTheJobHere) {
  SKIP_WITHOUT_FAILING_MEMORY();
  std::string why;
  bool fails = true;
  for (int64_t at = 0; fails; ++at) {
    SCOPED_TRACE(at);
    Open(Job({SgdTable("a", 1, v1::SYNC), SgdTable("b", 1, v1::SYNC)}, 2));
    for (const uint32_t rank : {0, 1}) {
      ASSERT_OK(shard_->Push(CallOf(PushOf(rank, 0, {{0, {1}, {1}}, {1, {1}, {1}}}))));
    }
    ASSERT_OK(Confirm(*shard_, 0, 1));
    std::optional<absl::Status> pulled;
    shard_->Pull(CallOf(PullOf(0, 1, {{0, {1}}})), absl::InfiniteDuration(),
                 [&](const auto& answer) { pulled = answer.status(); });
    ASSERT_FALSE(pulled.has_value());
    fails = failing_memory::FailsAt(at, 1, [&] { (void)Confirm(*shard_, 1, 1); });
    // Its caller comes again.
    if (!pulled.has_value()) (void)Confirm(*shard_, 1, 1);
    ASSERT_TRUE(pulled.has_value());
    if (absl::IsAborted(*pulled)) {
      absl::StrAppend(&why, pulled->message(), "\n");
    } else {
      EXPECT_EQ(Look(0, {1}), std::vector<float>{-2});
      EXPECT_EQ(Look(1, {1}), std::vector<float>{-2});
    }
  }
  EXPECT_THAT(why, testing::HasSubstr("start again from the last checkpoint: this ps has no memory "
                                      "for the pushes of a step"));
}

// Of one table, and of two of which the other waits for all ranks.
TEST_F(JobShardTest, APushThatThereIsNoMemoryForIsAppliedOnceOrEndsTheJobHere) {
  SKIP_WITHOUT_FAILING_MEMORY();
  const v1::PsTable tables[] = {SgdTable("a", 1, v1::ASYNC), SgdTable("b", 1, v1::SYNC)};
  for (const int count : {1, 2}) {
    bool fails = true;
    for (int64_t at = 0; fails; ++at) {
      SCOPED_TRACE(absl::StrCat(count, " tables, allocation ", at));
      Open(Job({tables, tables + count}));
      std::vector<Block> blocks;
      for (uint32_t t = 0; t < uint32_t(count); ++t) blocks.push_back({t, {1}, {1}});
      // Keys far apart are remembered one by one.
      for (uint64_t s = 0; s < (count == 1 ? 8 : 1); ++s) {
        PushCall push = CallOf(PushOf(0, 2 * s, blocks));
        fails = failing_memory::FailsAt(at, 1, [&] { (void)shard_->Push(std::move(push)); });
        const absl::Status again = shard_->Push(CallOf(PushOf(0, 2 * s, blocks)));
        if (absl::IsAborted(again)) break;
        ASSERT_OK(again);
        EXPECT_EQ(Look(0, {1}), std::vector<float>{-1 - float(s)});
      }
    }
  }
}

// Its last part comes again alone, as a worker sends it.
TEST_F(JobShardTest, APushInPartsThatThereIsNoMemoryForIsAppliedOnceOrEndsTheJobHere) {
  SKIP_WITHOUT_FAILING_MEMORY();
  bool fails = true;
  for (int64_t at = 0; fails; ++at) {
    SCOPED_TRACE(absl::StrCat("allocation ", at));
    Open(Job({SgdTable("a", 1, v1::ASYNC)}));
    v1::PushRequest parts[] = {PushOf(0, 0, {{0, {1}, {1}}}), PushOf(0, 0, {{0, {2}, {5}}})};
    for (uint32_t part = 0; part < 2; ++part) {
      parts[part].set_part(part);
      parts[part].set_parts(2);
      parts[part].set_bulk_bytes(2 * (sizeof(uint64_t) + sizeof(float)));
    }
    ASSERT_OK(shard_->Push(CallOf(parts[0])));
    PushCall last = CallOf(parts[1]);
    fails = failing_memory::FailsAt(at, 1, [&] { (void)shard_->Push(std::move(last)); });
    const absl::Status again = shard_->Push(CallOf(parts[1]));
    if (absl::IsAborted(again)) continue;
    ASSERT_OK(again);
    EXPECT_EQ(Look(0, {1, 2}), (std::vector<float>{-1, -5}));
  }
}

TEST_F(JobShardTest, RefusesJobsThatMakeNoSense) {
  EXPECT_FAILS(TryOpen(Job({SgdTable("t", 0, v1::SYNC)})), StatusCode::kInvalidArgument,
               "table t: dim is 0");
  EXPECT_FAILS(TryOpen(Job({SgdTable("t", 4097, v1::SYNC)})), StatusCode::kInvalidArgument,
               "dim is 4097");
  EXPECT_FAILS(TryOpen(Job({SgdTable("t", 1, v1::SYNC, 0)})), StatusCode::kInvalidArgument,
               "learning_rate");
  EXPECT_FAILS(TryOpen(Job({SgdTable("", 1, v1::SYNC)})), StatusCode::kInvalidArgument, "no name");
  EXPECT_FAILS(TryOpen(Job({SgdTable("t", 1, v1::SYNC)}, 0)), StatusCode::kInvalidArgument,
               "workers is 0");
  EXPECT_FAILS(TryOpen(Job({SgdTable("t", 1, v1::SYNC)}, 1, 0)), StatusCode::kInvalidArgument,
               "partition_count is 0");
  EXPECT_FAILS(TryOpen(Job(std::vector(17, SgdTable("t", 1, v1::SYNC)), 1, 1 << 20)),
               StatusCode::kInvalidArgument, "17 tables in 1048576 partitions on this ps");
}

}  // namespace
}  // namespace tessera::ps
