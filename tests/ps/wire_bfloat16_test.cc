#include <cmath>
#include <limits>
#include <random>

#include "tests/ps/ps_testing.h"

// Tables whose rows and gradients cross the wire as bfloat16.
namespace tessera::ps {
namespace {

constexpr uint32_t kWireDim = 5;

v1::PsTable HalfWire(v1::PsTable table) {
  table.mutable_spec()->set_wire_type(v1::BFLOAT16);
  return table;
}

std::vector<float> Rounded(std::vector<float> values) {
  for (float& x : values) x = math::FromBfloat16(math::NearestBfloat16(x));
  return values;
}

// Keys from a small range, so that ranks share some.
Block RandomBlock(uint64_t seed, v1::FloatType wire_type) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Block block = {.table = 0, .keys = {}, .values = {}, .wire_type = wire_type};
  for (uint64_t key = 0; key < 100; ++key) {
    if (random() % 2 == 0) block.keys.push_back(key);
  }
  for (size_t i = 0; i < block.keys.size() * kWireDim; ++i) block.values.push_back(normal(random));
  return block;
}

class WireBfloat16Test : public testing::TestWithParam<v1::FloatType> {
 protected:
  // Of rows of the test's type.
  v1::PsTable RowsOf(v1::PsTable table) const {
    table.mutable_spec()->set_row_type(GetParam());
    return table;
  }

  HandClock clock_;
  FaultFileSystem files_;
};

TEST_P(WireBfloat16Test, RowsArePulledAsTheNearestAndKeptAsTheyAre) {
  ShardedJob wide(Job({RowsOf(AdamTable("t", kWireDim, v1::SYNC))}), 1, files_, clock_);
  ShardedJob half(Job({RowsOf(HalfWire(AdamTable("t", kWireDim, v1::SYNC)))}), 1, files_, clock_);
  const std::vector<uint64_t> keys = {7, 3, 1ull << 63, 0};
  for (const bool read_only : {true, false, false}) {
    const PendingPull expected(wide.shard(0), PullOf(0, 0, {{0, keys}}, read_only));
    const PendingPull pull(half.shard(0), PullOf(0, 0, {{0, keys}}, read_only));
    ASSERT_OK(pull.status());
    EXPECT_EQ(pull.response().tables(0).values().size(), keys.size() * kWireDim * 2);
    EXPECT_EQ(pull.values(0, v1::BFLOAT16), Rounded(expected.values()));
    EXPECT_EQ(pull.statuses(), expected.statuses());
  }
  EXPECT_EQ(half.Rows(0), wide.Rows(0));
}

TEST_P(WireBfloat16Test, AStepIsThatOfTheRoundedGradientsAddedUpInFloat32) {
  constexpr uint32_t kRanks = 3;
  for (const v1::Consistency consistency : {v1::SYNC, v1::ASYNC}) {
    const v1::PsTable table = RowsOf(AdamTable("t", kWireDim, consistency));
    ShardedJob wide(Job({table}, kRanks), 2, files_, clock_);
    ShardedJob half(Job({HalfWire(table)}, kRanks), 2, files_, clock_);
    for (uint64_t step = 0; step < 6; ++step) {
      for (uint32_t rank = 0; rank < kRanks; ++rank) {
        Block block = RandomBlock(10 * step + rank, v1::BFLOAT16);
        half.Push(rank, step, {block});
        block.values = Rounded(block.values);
        block.wire_type = v1::FLOAT32;
        wide.Push(rank, step, {block});
      }
    }
    const uint64_t steps = consistency == v1::SYNC ? 6 : 0;
    const SavedRows rows = wide.Rows(steps);
    EXPECT_EQ(rows.size(), 100u);
    EXPECT_EQ(half.Rows(steps), rows);
  }
}

TEST_P(WireBfloat16Test, AKeyThatComesTwiceInAPushCountsTwice) {
  ShardedJob job(Job({RowsOf(HalfWire(SgdTable("t", 1, v1::ASYNC)))}), 1, files_, clock_);
  job.Push(0, 0, {{0, {4, 9, 4, 4}, {1, 2, 0.5f, 0.25f}, v1::BFLOAT16}});
  const SavedRows rows = job.Rows(0);
  EXPECT_EQ(rows.at({0, 4}).floats, std::vector<float>{-1.75f});
  EXPECT_EQ(rows.at({0, 9}).floats, std::vector<float>{-2});
}

TEST_P(WireBfloat16Test, ValuesAreAssignedAsTheyCome) {
  ShardedJob job(Job({RowsOf(HalfWire(SgdTable("t", 2, v1::ASYNC)))}), 1, files_, clock_);
  job.Assign({{0, {4}, {1.5f, 1.0f / 3}, v1::BFLOAT16}});
  EXPECT_EQ(job.Rows(0).at({0, 4}).floats, Rounded({1.5f, 1.0f / 3}));
}

TEST_P(WireBfloat16Test, WhatIsOfAnotherSizeOrNotFiniteIsRefusedWhole) {
  v1::PsTable table = RowsOf(HalfWire(SgdTable("t", 2, v1::ASYNC)));
  table.mutable_spec()->mutable_optimizer()->set_clip_value(3.2e38f);  // any size is taken
  ShardedJob job(Job({table}), 1, files_, clock_);
  // As a client would that has not read the table's type.
  EXPECT_FAILS(job.shard(0).Push(CallOf(PushOf(0, 0, {{0, {4}, {1, 2}, v1::FLOAT32}}))),
               absl::StatusCode::kInvalidArgument,
               "table t: block of values has 8 bytes, expected 4 (1 keys of dim 2, bfloat16)");
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::nanf(""), std::numeric_limits<float>::max()}) {  // which is nearest to infinity
    EXPECT_FAILS(
        job.shard(0).Push(CallOf(PushOf(0, 0, {{0, {4, 5}, {1, 2, 3, bad}, v1::BFLOAT16}}))),
        absl::StatusCode::kInvalidArgument, "table t: key 5, element 1: value is ");
  }
  EXPECT_EQ(job.Rows(0).size(), 0u);
  job.Push(0, 0, {{0, {4}, {3e38f, -3e38f}, v1::BFLOAT16}});
  EXPECT_EQ(job.Rows(0).at({0, 4}).floats, Rounded({-3e38f, 3e38f}));
}

INSTANTIATE_TEST_SUITE_P(Rows, WireBfloat16Test, testing::Values(v1::FLOAT32, v1::BFLOAT16),
                         [](const auto& info) { return v1::FloatType_Name(info.param); });

}  // namespace
}  // namespace tessera::ps
