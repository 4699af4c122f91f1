#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/checkpoint/digest.h"
#include "common/math/bfloat16.h"
#include "tests/ps/ps_testing.h"

// Rows whose embedding is of bfloat16.
namespace tessera::ps {
namespace {

v1::PsTable Bfloat16(v1::PsTable table) {
  table.mutable_spec()->set_row_type(v1::BFLOAT16);
  return table;
}

float Rounded(float x) { return math::FromBfloat16(math::NearestBfloat16(x)); }

std::vector<uint64_t> FirstKeys(uint64_t n) {
  std::vector<uint64_t> keys(n);
  std::iota(keys.begin(), keys.end(), 0);
  return keys;
}

class Bfloat16RowsTest : public testing::Test {
 protected:
  std::vector<float> Pull(ShardedJob& job, uint64_t step, const std::vector<uint64_t>& keys,
                          bool read_only = false) {
    const PendingPull pull(job.shard(0), PullOf(0, step, {{0, keys}}, read_only));
    EXPECT_OK(pull.status());
    return pull.values();
  }

  HandClock clock_;
  FaultFileSystem files_;
};

TEST_F(Bfloat16RowsTest, TakeHalfTheMemoryOfAnEmbedding) {
  const RowLayout wide(64, 0, 1), half(64, 0, 1, EmbeddingType::kBfloat16);
  EXPECT_EQ(wide.bytes() - half.bytes(), 64u * 2);
  EXPECT_EQ(half.floats(), wide.floats());
  // An odd one is padded: what follows are floats.
  EXPECT_EQ(RowLayout(3, 1, 1, EmbeddingType::kBfloat16).bytes(), sizeof(Row) + 8 + 4 * 4);
}

TEST_F(Bfloat16RowsTest, StartAndArePulledAsTheNearestToWhatFloatsWouldBe) {
  const std::vector<uint64_t> keys = FirstKeys(50);
  ShardedJob wide(Job({AdamTable("t", 5, v1::SYNC)}), 1, files_, clock_);
  ShardedJob half(Job({Bfloat16(AdamTable("t", 5, v1::SYNC))}), 1, files_, clock_);
  std::vector<float> expected = Pull(wide, 0, keys);
  for (float& x : expected) x = Rounded(x);
  // Before there are rows and after.
  EXPECT_EQ(Pull(half, 0, keys, /*read_only=*/true), expected);
  EXPECT_EQ(Pull(half, 0, keys), expected);
  EXPECT_EQ(Pull(half, 0, keys), expected);
}

TEST_F(Bfloat16RowsTest, MoveOnAverageByWhatIsLessThanTheirPrecision) {
  // From 1 the next number down is 2^-8 away; each of 64 steps is a 32nd of that.
  constexpr uint64_t kKeys = 2000, kSteps = 64;
  v1::PsTable table = Bfloat16(SgdTable("t", 1, v1::SYNC));
  table.mutable_spec()->mutable_initializer()->mutable_constant()->set_value(1);
  ShardedJob job(Job({table}), 1, files_, clock_);
  const std::vector<uint64_t> keys = FirstKeys(kKeys);
  const float move = std::ldexp(1.0f, -13);
  for (uint64_t step = 0; step < kSteps; ++step) {
    job.Push(0, step, {{0, keys, std::vector<float>(kKeys, move)}});
  }
  double sum = 0, squares = 0;
  for (const float x : Pull(job, kSteps, keys)) {
    EXPECT_EQ(x, Rounded(x));
    const double moved = 1 - double{x};
    sum += moved;
    squares += moved * moved;
  }
  const double mean = sum / kKeys;
  const double error = std::sqrt((squares / kKeys - mean * mean) / kKeys);
  EXPECT_NEAR(mean, kSteps * double{move}, 4 * error);
  EXPECT_LT(error, kSteps * double{move} / 20);
}

TEST_F(Bfloat16RowsTest, OfDifferentKeysAndStepsAreRoundedByDrawsOfTheirOwn) {
  // Half way between two numbers: each goes up or down.
  constexpr uint64_t kKeys = 400;
  const std::vector<uint64_t> keys = FirstKeys(kKeys);
  const auto ups = [&](uint64_t first_step) {
    v1::PsTable table = Bfloat16(SgdTable("t", 1, v1::SYNC));
    table.mutable_spec()->mutable_initializer()->mutable_constant()->set_value(1);
    v1::OpenJobRequest job = Job({table});
    job.set_first_step(first_step);
    ShardedJob cluster(job, 1, files_, clock_);
    cluster.Push(0, first_step, {{0, keys, std::vector<float>(kKeys, std::ldexp(1.0f, -9))}});
    std::vector<bool> up;
    for (const float x : Pull(cluster, first_step + 1, keys)) up.push_back(x == 1);
    return up;
  };
  const std::vector<bool> at_0 = ups(0), at_1 = ups(1);
  EXPECT_EQ(ups(0), at_0);
  const auto share = [](const std::vector<bool>& of) {
    return static_cast<double>(std::count(of.begin(), of.end(), true)) / of.size();
  };
  EXPECT_NEAR(share(at_0), 0.5, 0.1);
  std::vector<bool> same(kKeys);
  for (size_t i = 0; i < kKeys; ++i) same[i] = at_0[i] == at_1[i];
  EXPECT_NEAR(share(same), 0.5, 0.1);
}

TEST_F(Bfloat16RowsTest, ComeBackFromACheckpointOnAnotherNumberOfPsAndGoOnWithTheSameBits) {
  const std::vector<uint64_t> keys = FirstKeys(100);
  const v1::OpenJobRequest job = Job({Bfloat16(AdamTable("t", 3, v1::SYNC))});
  const auto step = [&](ShardedJob& on, uint64_t number) {
    std::vector<float> gradients(keys.size() * 3);
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = std::sin(static_cast<float>(i * (number + 1)));
    }
    on.Push(0, number, {{0, keys, gradients}});
  };
  ShardedJob undisturbed(job, 1, files_, clock_);
  step(undisturbed, 0);
  ASSERT_OK(undisturbed.Checkpoint(1, "saved"));
  step(undisturbed, 1);
  v1::OpenJobRequest resumed = job;
  resumed.set_checkpoint("saved");
  resumed.set_first_step(1);
  ShardedJob other(resumed, 3, files_, clock_);
  ASSERT_OK(other.status());
  step(other, 1);
  EXPECT_EQ(other.Rows(2), undisturbed.Rows(2));
  EXPECT_OK(DigestCheckpoint(files_, "root/saved").status());
}

TEST_F(Bfloat16RowsTest, CheckpointsHoldFloatsSoThatAJobMayStartWithTheOtherType) {
  const std::vector<uint64_t> keys = FirstKeys(20);
  ShardedJob wide(Job({AdamTable("t", 4, v1::SYNC)}), 1, files_, clock_);
  wide.Push(0, 0, {{0, keys, std::vector<float>(keys.size() * 4, 0.3f)}});
  ASSERT_OK(wide.Checkpoint(1, "saved"));
  v1::OpenJobRequest job = Job({Bfloat16(AdamTable("t", 4, v1::SYNC))});
  job.set_checkpoint("saved");
  job.set_first_step(1);
  ShardedJob half(job, 2, files_, clock_);
  ASSERT_OK(half.status());
  SavedRows expected = wide.Rows(1);
  for (auto& [place, row] : expected) {
    for (size_t d = 0; d < 4; ++d) row.floats[d] = Rounded(row.floats[d]);
  }
  EXPECT_EQ(half.Rows(1), expected);
}

}  // namespace
}  // namespace tessera::ps
