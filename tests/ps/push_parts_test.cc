// Pushes that come in several messages.
#include <algorithm>
#include <random>

#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

using absl::StatusCode;

class PushPartsTest : public testing::Test {
 protected:
  void Open(v1::OpenJobRequest job) { shard_ = NewShard(std::move(job)); }
  std::shared_ptr<JobShard> NewShard(v1::OpenJobRequest job, ByteBudget* room = nullptr) {
    auto shard = JobShard::Open(
        Whole(std::move(job)),
        {.clock = &clock_, .files = &files_, .checkpoint_root = "root", .held_pushes = room});
    EXPECT_OK(shard);
    return *std::move(shard);
  }
  // One message for each of `parts`, all of one push.
  static std::vector<v1::PushRequest> Parts(uint32_t rank, uint64_t sequence,
                                            const std::vector<std::vector<Block>>& parts) {
    std::vector<v1::PushRequest> requests;
    uint64_t bytes = 0;
    for (const std::vector<Block>& part : parts) {
      v1::PushRequest& request = requests.emplace_back(PushOf(rank, sequence, part));
      request.set_part(static_cast<uint32_t>(requests.size() - 1));
      request.set_parts(static_cast<uint32_t>(parts.size()));
      for (const auto& block : request.tables()) {
        bytes += block.keys().size() + block.gradients().size();
      }
    }
    for (v1::PushRequest& request : requests) request.set_bulk_bytes(bytes);
    return requests;
  }
  absl::Status Push(const v1::PushRequest& request) { return shard_->Push(CallOf(request)); }
  std::vector<float> Look(uint32_t table, const std::vector<uint64_t>& keys) {
    PendingPull pull(*shard_, PullOf(1000, 0, {{table, keys}}, /*read_only=*/true));
    EXPECT_OK(pull.status());
    return pull.status().ok() ? pull.values() : std::vector<float>();
  }

  HandClock clock_;
  FaultFileSystem files_;
  std::shared_ptr<JobShard> shard_;
};

TEST_F(PushPartsTest, NothingIsAppliedUntilAllPartsAreThere) {
  Open(Job({SgdTable("t", 1, v1::ASYNC)}));
  const auto parts = Parts(0, 0, {{{0, {1}, {1}}}, {}, {{0, {2}, {2}}}});
  ASSERT_OK(Push(parts[2]));
  ASSERT_OK(Push(parts[0]));
  EXPECT_EQ(Look(0, {1, 2}), (std::vector<float>{0, 0}));
  ASSERT_OK(Push(parts[1]));
  EXPECT_EQ(Look(0, {1, 2}), (std::vector<float>{-1, -2}));
  EXPECT_EQ(shard_->Stats().applied_steps(), 1u);
}

TEST_F(PushPartsTest, CountsExactlyThroughRepeatsAndReordering) {
  Open(Job({SgdTable("count", 1, v1::ASYNC)}, 2));
  std::mt19937_64 random(3);
  std::vector<v1::PushRequest> sends;
  float expected = 0;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    for (uint64_t sequence = 0; sequence < 20; ++sequence) {
      std::vector<std::vector<Block>> parts(1 + random() % 4);
      for (auto& part : parts) part.push_back({0, {7}, {-1}});
      expected += static_cast<float>(parts.size());
      for (const v1::PushRequest& part : Parts(rank, sequence, parts)) {
        for (uint64_t times = 1 + random() % 3; times > 0; --times) sends.push_back(part);
      }
    }
  }
  std::shuffle(sends.begin(), sends.end(), random);
  for (const v1::PushRequest& part : sends) ASSERT_OK(Push(part));
  EXPECT_EQ(Look(0, {7}), std::vector<float>{expected});
  EXPECT_EQ(shard_->Stats().applied_steps(), 40u);
}

TEST_F(PushPartsTest, AStepInPartsHasTheBitsOfTheSameStepInOneMessage) {
  std::vector<std::vector<float>> results;
  for (const uint64_t seed : {1u, 2u, 3u}) {
    Open(Job({SgdTable("t", 1, v1::SYNC)}, 3));
    std::vector<v1::PushRequest> sends;
    for (uint32_t rank = 0; rank < 3; ++rank) {
      // Sums that depend on the order in which they are made.
      const Block a = {0, {1, 2}, {1e8f * (rank == 1 ? -1 : 1), 0.1f * rank}};
      const Block b = {0, {3, 1}, {0.3f + rank, 1.0f / (rank + 3)}};
      if (seed == 1) {
        sends.push_back(PushOf(rank, 0, {a, b}));
      } else {
        for (const auto& part : Parts(rank, 0, {{a}, {b}})) sends.push_back(part);
      }
    }
    std::mt19937_64 random(seed);
    std::shuffle(sends.begin(), sends.end(), random);
    for (const auto& send : sends) ASSERT_OK(Push(send));
    EXPECT_EQ(shard_->Stats().applied_steps(), 0u) << "no rank has said that all ps have it";
    for (uint32_t rank = 0; rank < 3; ++rank) ASSERT_OK(Confirm(*shard_, rank, 1));
    EXPECT_EQ(shard_->Stats().applied_steps(), 1u);
    results.push_back(Look(0, {1, 2, 3}));
  }
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

TEST_F(PushPartsTest, ABadPartIsRefusedAndMayComeAgainWhole) {
  Open(Job({SgdTable("t", 1, v1::ASYNC)}));
  auto parts = Parts(0, 0, {{{0, {1}, {1}}}, {{0, {2}, {2}}}});
  ASSERT_OK(Push(parts[0]));
  v1::PushRequest bad = PushOf(0, 0, {{0, {2}, {std::nanf("")}}});
  bad.set_part(1);
  bad.set_parts(2);
  bad.set_bulk_bytes(parts[0].bulk_bytes());
  EXPECT_FAILS(Push(bad), StatusCode::kInvalidArgument, "key 2");
  EXPECT_EQ(Look(0, {1, 2}), (std::vector<float>{0, 0}));
  ASSERT_OK(Push(parts[1]));
  EXPECT_EQ(Look(0, {1, 2}), (std::vector<float>{-1, -2}));
}

TEST_F(PushPartsTest, RefusesPartsThatMakeNoSense) {
  Open(Job({SgdTable("t", 1, v1::ASYNC)}));
  auto parts = Parts(0, 0, {{{0, {1}, {1}}}, {{0, {2}, {2}}}});
  v1::PushRequest part = parts[0];
  part.set_part(2);
  EXPECT_FAILS(Push(part), StatusCode::kInvalidArgument, "part 2 of 2");
  part = parts[0];
  part.set_parts(1 << 30);
  EXPECT_FAILS(Push(part), StatusCode::kInvalidArgument, "expected at most 16384 parts");
  part = parts[0];
  part.set_bulk_bytes(uint64_t{1} << 40);
  EXPECT_FAILS(Push(part), StatusCode::kInvalidArgument, "at most 1073741824 are allowed");
  part.set_bulk_bytes(11);
  EXPECT_FAILS(Push(part), StatusCode::kInvalidArgument, "brings 12 bytes");
  part = parts[1];
  part.set_bulk_bytes(25);
  v1::PushRequest of_more = parts[0];
  of_more.set_bulk_bytes(25);
  of_more.mutable_header()->set_incarnation(2);
  ASSERT_OK(Push(of_more));
  part.mutable_header()->set_incarnation(2);
  EXPECT_FAILS(Push(part), StatusCode::kInvalidArgument, "and is the last one");
  for (v1::PushRequest& next : parts) next.mutable_header()->set_incarnation(3);
  ASSERT_OK(Push(parts[0]));
  part = parts[1];
  part.set_parts(3);
  EXPECT_FAILS(Push(part), StatusCode::kInvalidArgument, "an earlier part of it is one of 2");
  part = parts[1];
  part.set_learning_rate_scale(2);
  EXPECT_FAILS(Push(part), StatusCode::kInvalidArgument, "an earlier part of it is one of 2");
  EXPECT_EQ(shard_->rows(), 0u);
  ASSERT_OK(Push(parts[1]));
  EXPECT_EQ(shard_->rows(), 2u);
}

TEST_F(PushPartsTest, RoomIsHeldForAWholePushSoThatTwoNeverBlockEachOther) {
  ByteBudget room(30);
  shard_ = NewShard(Job({SgdTable("t", 1, v1::ASYNC)}, 3), &room);
  std::vector<std::vector<v1::PushRequest>> pushes;  // of 24 bytes each
  for (const uint32_t rank : {0u, 1u, 2u}) {
    pushes.push_back(Parts(rank, 0, {{{0, {1}, {1}}}, {{0, {2}, {2}}}}));
  }
  ASSERT_OK(Push(pushes[0][0]));
  ASSERT_OK(Push(pushes[1][0]));  // one push beyond the bound
  EXPECT_FAILS(Push(pushes[2][0]), StatusCode::kResourceExhausted,
               "no room for push 0 of 24 bytes: 24 of 30 are held on this ps");
  ASSERT_OK(Push(pushes[0][1]));
  for (const v1::PushRequest& part : pushes[2]) ASSERT_OK(Push(part));
  ASSERT_OK(Push(pushes[1][1]));
  EXPECT_EQ(Look(0, {1, 2}), (std::vector<float>{-3, -6}));
  EXPECT_EQ(room.bytes(), 0u);
}

TEST_F(PushPartsTest, AJobOverItsLoadLeavesWhatAllJobsHoldBelowTheBoundAndLetsTheOthersGoOn) {
  ByteBudget room(200);
  const auto sync = NewShard(Job({SgdTable("t", 1, v1::SYNC)}, 2), &room);
  shard_ = NewShard(Job({SgdTable("t", 1, v1::ASYNC)}, 40), &room);
  int held = 0;
  for (uint32_t rank = 0; rank < 40; ++rank) {
    const absl::Status pushed = Push(Parts(rank, 0, {{{0, {1}, {1}}}, {{0, {2}, {2}}}})[0]);
    held += pushed.ok() ? 1 : 0;
    EXPECT_TRUE(pushed.ok() || absl::IsResourceExhausted(pushed)) << pushed;
  }
  EXPECT_EQ(held, 200 / 24 + 1) << "one beyond the bound";
  EXPECT_EQ(room.bytes(), 192u);
  // The other job's next step waits for room, the step that all its ranks wait for does not.
  const auto push = [&](uint32_t rank, uint64_t step) {
    return sync->Push(CallOf(PushOf(rank, step, {{0, {1}, {1}}})));
  };
  EXPECT_FAILS(push(0, 1), StatusCode::kResourceExhausted, "rank 0: no room for push 1 of");
  for (const uint64_t step : {0u, 1u, 2u}) {
    for (const uint32_t rank : {0u, 1u}) ASSERT_OK(push(rank, step));
    EXPECT_GT(room.bytes(), 192u);
    for (const uint32_t rank : {0u, 1u}) ASSERT_OK(Confirm(*sync, rank, step + 1));
    EXPECT_EQ(room.bytes(), 192u) << "what is applied is held no more";
  }
  EXPECT_EQ(sync->Stats().applied_steps(), 3u);
  shard_.reset();
  EXPECT_EQ(room.bytes(), 0u);
}

TEST_F(PushPartsTest, PartsOfAnIncarnationThatIsGoneAreDropped) {
  ByteBudget room(30);
  shard_ = NewShard(Job({SgdTable("t", 1, v1::ASYNC)}), &room);
  ASSERT_OK(Push(Parts(0, 0, {{{0, {1}, {1}}}, {{0, {2}, {2}}}})[0]));
  for (v1::PushRequest& part : Parts(0, 0, {{{0, {1}, {10}}}, {{0, {2}, {20}}}})) {
    part.mutable_header()->set_incarnation(2);
    ASSERT_OK(Push(part));
  }
  EXPECT_EQ(Look(0, {1, 2}), (std::vector<float>{-10, -20}));
  EXPECT_EQ(room.bytes(), 0u);
}

TEST_F(PushPartsTest, OneRankHasABoundedNumberOfPushesUnderWay) {
  Open(Job({SgdTable("t", 1, v1::ASYNC)}));
  absl::Status status;
  uint64_t sequence = 0;
  for (; status.ok() && sequence < 1000; ++sequence) status = Push(Parts(0, sequence, {{}, {}})[0]);
  EXPECT_FAILS(status, StatusCode::kResourceExhausted, "pushes of which parts are missing");
  EXPECT_EQ(sequence, 65u);
  EXPECT_OK(Push(Parts(0, 0, {{}, {}})[1]));
  EXPECT_OK(Push(Parts(0, 64, {{}, {}})[0]));
}

}  // namespace
}  // namespace tessera::ps
