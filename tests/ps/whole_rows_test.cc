#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

#include "ps/tables/spill.h"
#include "tests/ps/recovery_harness.h"

// Rows that workers have whole, train, and push the changes of.
namespace tessera::ps {
namespace {

using absl::StatusCode;

constexpr uint32_t kDim = 3;

v1::PsTable AdagradTable(v1::Consistency consistency, bool bfloat16 = false) {
  v1::PsTable table = SgdTable("t", kDim, consistency, 0.1f);
  table.mutable_spec()->mutable_initializer()->mutable_normal()->set_stddev(0.5f);
  table.mutable_spec()->mutable_optimizer()->mutable_adagrad();
  if (!bfloat16) return table;
  table.mutable_spec()->set_row_type(v1::BFLOAT16);
  table.mutable_spec()->set_wire_type(v1::BFLOAT16);
  return table;
}

v1::PullRequest WholePullOf(const std::vector<uint64_t>& keys) {
  v1::PullRequest request = PullOf(0, 0, {{0, keys}});
  request.mutable_tables(0)->set_whole(true);
  return request;
}

v1::PushRequest ChangesOf(uint64_t sequence, const std::vector<uint64_t>& keys,
                          const std::vector<float>& changes) {
  v1::PushRequest request = PushOf(0, sequence, {{.table = 0, .keys = keys, .values = changes}});
  request.mutable_tables(0)->set_changes(true);
  return request;
}

std::vector<float> Normals(uint64_t seed, size_t n) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& x : values) x = normal(random);
  return values;
}

class WholeRowsTest : public testing::Test, protected RecoveryHarness {
 protected:
  // Embedding and slots of each key.
  static std::vector<float> PullWhole(JobShard& shard, const std::vector<uint64_t>& keys) {
    const PendingPull pull(shard, WholePullOf(keys));
    EXPECT_OK(pull.status());
    return pull.values();
  }
};

TEST_F(WholeRowsTest, APullBringsTheSlotsBehindTheEmbedding) {
  ShardedJob job(Job({AdagradTable(v1::ASYNC)}), 1, files_, clock_);
  const std::vector<uint64_t> keys = {7, 3, 1ull << 63, 0};
  const std::vector<float> fresh = PullWhole(job.shard(0), keys);
  ASSERT_EQ(fresh.size(), keys.size() * 2 * kDim);
  job.Push(0, 0, {{.table = 0, .keys = keys, .values = Normals(1, keys.size() * kDim)}});
  const std::vector<float> moved = PullWhole(job.shard(0), keys);
  for (size_t i = 0; i < fresh.size(); ++i) {
    if (i % (2 * kDim) >= kDim) {
      EXPECT_EQ(fresh[i], 0.1f);  // adagrad's initial accumulator
    }
    EXPECT_NE(moved[i], fresh[i]);
  }
  const SavedRows rows = job.Rows(0);
  for (size_t k = 0; k < keys.size(); ++k) {
    EXPECT_EQ(rows.at({0, keys[k]}).floats,
              std::vector<float>(moved.begin() + k * 2 * kDim, moved.begin() + (k + 1) * 2 * kDim));
  }
}

TEST_F(WholeRowsTest, ChangesAreAddedOnceAndBeforeThePushesGradients) {
  ShardedJob job(Job({AdagradTable(v1::ASYNC)}), 1, files_, clock_);
  ShardedJob apart(Job({AdagradTable(v1::ASYNC)}), 1, files_, clock_);
  const std::vector<uint64_t> keys = {5, 6, 7};
  const std::vector<float> before = PullWhole(job.shard(0), keys);
  std::vector<float> changes = Normals(2, before.size());
  for (float& change : changes) change = std::fabs(change);  // sums of squares do not fall
  const std::vector<float> gradients = Normals(3, keys.size() * kDim);
  v1::PushRequest push = PushOf(0, 0, {{.table = 0, .keys = keys, .values = gradients}});
  *push.add_tables() = ChangesOf(0, keys, changes).tables(0);
  // A key that has no row here gets one.
  *push.add_tables() = ChangesOf(0, {99}, Normals(4, 2 * kDim)).tables(0);
  ASSERT_OK(PushAll(job.shard(0), push));
  ASSERT_OK(PushAll(job.shard(0), push));
  ASSERT_EQ(PullWhole(apart.shard(0), keys), before);
  ASSERT_OK(PushAll(apart.shard(0), ChangesOf(0, keys, changes)));
  const std::vector<float> changed = PullWhole(apart.shard(0), keys);
  for (size_t i = 0; i < changed.size(); ++i) EXPECT_EQ(changed[i], before[i] + changes[i]);
  apart.Push(0, 1, {{.table = 0, .keys = keys, .values = gradients}});
  EXPECT_EQ(PullWhole(job.shard(0), keys), PullWhole(apart.shard(0), keys));
  const SavedRows rows = job.Rows(0);
  EXPECT_EQ(rows.at({0, 5}).frequency, 2u);
  EXPECT_EQ(rows.at({0, 99}).frequency, 1u);
}

TEST_F(WholeRowsTest, ChangesThatAddUpToMoreThanAFloatLeaveARowOfFiniteNumbers) {
  for (const bool bfloat16 : {false, true}) {
    SCOPED_TRACE(bfloat16);
    FaultFileSystem files;
    const auto shard = Open(Whole(Job({AdagradTable(v1::ASYNC, bfloat16)})), files);
    ASSERT_OK(shard);
    for (uint64_t sequence = 0; sequence < 3; ++sequence) {
      const v1::PushRequest push = ChangesOf(sequence, {1}, std::vector<float>(2 * kDim, 3e38f));
      ASSERT_OK((*shard)->Push(CallOf(push)));
    }
    for (const float x : PullWhole(**shard, {1})) {
      EXPECT_TRUE(std::isfinite(x));
      EXPECT_GT(x, 3e38f);
    }
  }
}

// Whoever trains a row elsewhere and pushes its changes now and then ends with the row that ps make
// of the gradients, and so do two who take turns with copies of it in SGD.
TEST_F(WholeRowsTest, ChangesOfSeveralCopiesAddUp) {
  v1::PsTable table = AdagradTable(v1::ASYNC);
  table.mutable_spec()->mutable_optimizer()->mutable_sgd();
  ShardedJob job(Job({table}), 1, files_, clock_);
  ShardedJob expected(Job({table}), 1, files_, clock_);
  const std::vector<float> start = PullWhole(job.shard(0), {1});
  std::vector<float> copies[2] = {start, start}, written[2] = {start, start};
  uint64_t sequence = 0;
  for (uint64_t step = 0; step < 20; ++step) {
    const std::vector<float> gradient = Normals(step, kDim);
    expected.Push(0, step, {{.table = 0, .keys = {1}, .values = gradient}});
    std::vector<float>& copy = copies[step % 2];
    for (uint32_t d = 0; d < kDim; ++d) copy[d] -= 0.1f * gradient[d];
    if (step % 5 != 4 && step < 18) continue;
    std::vector<float> change = copy;
    for (uint32_t d = 0; d < kDim; ++d) change[d] -= written[step % 2][d];
    written[step % 2] = copy;
    ASSERT_OK(PushAll(job.shard(0), ChangesOf(sequence++, {1}, change)));
  }
  const std::vector<float> row = PullWhole(job.shard(0), {1});
  const std::vector<float> by_gradients = PullWhole(expected.shard(0), {1});
  for (uint32_t d = 0; d < kDim; ++d) EXPECT_NEAR(row[d], by_gradients[d], 1e-6);
}

TEST_F(WholeRowsTest, RowsOfBfloat16TravelAsFloatsAndMoveByLessThanTheirPrecision) {
  ShardedJob job(Job({AdagradTable(v1::ASYNC, /*bfloat16=*/true)}), 1, files_, clock_);
  std::vector<uint64_t> keys(2000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  const std::vector<float> before = PullWhole(job.shard(0), keys);
  ASSERT_EQ(before.size(), keys.size() * 2 * kDim);
  // A tenth of what parts a number from the next one: on average it moves by that.
  std::vector<float> changes(before.size());
  for (size_t i = 0; i < changes.size(); ++i) {
    const bool is_slot = i % (2 * kDim) >= kDim;
    changes[i] = is_slot ? 0.25f : std::ldexp(0.1f, std::ilogb(before[i]) - 7);
  }
  ASSERT_OK(PushAll(job.shard(0), ChangesOf(0, keys, changes)));
  const std::vector<float> after = PullWhole(job.shard(0), keys);
  double moved = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    if (i % (2 * kDim) >= kDim) {
      EXPECT_EQ(after[i], before[i] + 0.25f);
    } else {
      EXPECT_EQ(after[i], math::FromBfloat16(math::NearestBfloat16(after[i])));
      moved += (after[i] - before[i]) / changes[i];
    }
  }
  EXPECT_NEAR(moved / static_cast<double>(keys.size() * kDim), 1, 0.15);
}

TEST_F(WholeRowsTest, AreRefusedWhereAPsMustSeeTheGradients) {
  v1::PsTable admitted = AdagradTable(v1::ASYNC);
  admitted.mutable_spec()->mutable_admission()->set_after_sightings(2);
  v1::PsTable lamb = DenseTable("t", kDim, v1::ASYNC);
  lamb.mutable_spec()->mutable_optimizer()->mutable_lamb();
  struct Case {
    v1::PsTable table;
    const char* why;
  };
  for (const Case& of :
       {Case{AdagradTable(v1::SYNC), "it is in sync mode"}, Case{lamb, "depend on each other"},
        Case{admitted, "its admission counts"}}) {
    ShardedJob job(Job({of.table}), 1, files_, clock_);
    ASSERT_OK(job.status());
    const PendingPull pull(job.shard(0), WholePullOf({1}));
    EXPECT_FAILS(pull.status(), StatusCode::kInvalidArgument, of.why);
    EXPECT_FAILS(job.shard(0).Push(CallOf(ChangesOf(0, {1}, Normals(1, 2 * kDim)))),
                 StatusCode::kInvalidArgument, of.why);
  }
}

TEST_F(WholeRowsTest, BlocksOfDenseParametersAreWholeRowsToo) {
  v1::PsTable table = DenseTable("dense", kDim, v1::ASYNC);
  table.mutable_spec()->mutable_optimizer()->mutable_adagrad();
  ShardedJob job(Job({table}), 1, files_, clock_);
  const PendingPull early(job.shard(0), WholePullOf({0, 1}));
  EXPECT_FAILS(early.status(), StatusCode::kFailedPrecondition, "block 0 of the dense parameters");
  EXPECT_FAILS(job.shard(0).Push(CallOf(ChangesOf(0, {1}, Normals(1, 2 * kDim)))),
               StatusCode::kFailedPrecondition, "block 1 of the dense parameters");
  job.Assign({{.table = 0, .keys = {0, 1}, .values = {1, 2, 3, 4, 5, 6}}});
  EXPECT_EQ(PullWhole(job.shard(0), {0, 1}),
            (std::vector<float>{1, 2, 3, 0.1f, 0.1f, 0.1f, 4, 5, 6, 0.1f, 0.1f, 0.1f}));
  ASSERT_OK(PushAll(job.shard(0), ChangesOf(0, {1}, {1, 1, 1, 2, 2, 2})));
  EXPECT_EQ(PullWhole(job.shard(0), {1}), (std::vector<float>{5, 6, 7, 2.1f, 2.1f, 2.1f}));
}

TEST_F(WholeRowsTest, WrongSizesAndNumbersAreNamedAndChangeNothing) {
  ShardedJob job(Job({AdagradTable(v1::ASYNC)}), 1, files_, clock_);
  const std::vector<float> before = PullWhole(job.shard(0), {1, 2});
  EXPECT_FAILS(job.shard(0).Push(CallOf(ChangesOf(0, {1, 2}, Normals(1, 2 * kDim)))),
               StatusCode::kInvalidArgument,
               "block of values has 24 bytes, expected 48 (2 keys of dim 3 with 3 slots)");
  std::vector<float> bad = Normals(1, 4 * kDim);
  bad[2 * kDim + 4] = std::numeric_limits<float>::infinity();
  EXPECT_FAILS(job.shard(0).Push(CallOf(ChangesOf(0, {1, 2}, bad))), StatusCode::kInvalidArgument,
               "table t: key 2, element 4: value is inf");
  v1::PullRequest read = WholePullOf({1});
  read.set_read_only(true);
  const PendingPull pull(job.shard(0), read);
  EXPECT_FAILS(pull.status(), StatusCode::kInvalidArgument,
               "a read_only pull cannot have whole rows");
  v1::AssignRequest assign = AssignOf({{.table = 0, .keys = {1}, .values = Normals(1, 2 * kDim)}});
  assign.mutable_tables(0)->set_changes(true);
  EXPECT_FAILS(job.shard(0).Assign(assign), StatusCode::kInvalidArgument, "found changes");
  EXPECT_EQ(PullWhole(job.shard(0), {1, 2}), before);
}

TEST_F(WholeRowsTest, ThePushLogHasThemAlsoInParts) {
  const v1::OpenJobRequest job = Logged(Job({AdagradTable(v1::ASYNC)}));
  auto shard = Open(job, files_);
  ASSERT_OK(shard);
  ShardedJob twin(Job({AdagradTable(v1::ASYNC)}), 1, files_, clock_);
  const auto push = [&](const v1::PushRequest& request) {
    ASSERT_OK((*shard)->Push(CallOf(request)));
    ASSERT_OK(twin.shard(0).Push(CallOf(request)));
  };
  push(ChangesOf(0, {1, 2, 3}, Normals(1, 6 * kDim)));
  v1::PushRequest first = ChangesOf(1, {1}, Normals(2, 2 * kDim));
  first.set_parts(2);
  first.set_bulk_bytes(2 * (8 + 2 * kDim * 4));
  v1::PushRequest second = ChangesOf(1, {3}, Normals(3, 2 * kDim));
  second.set_parts(2);
  second.set_part(1);
  second.set_bulk_bytes(first.bulk_bytes());
  push(second);
  shard = Recover(job);
  ASSERT_OK(shard);
  push(first);
  shard = Recover(job);
  ASSERT_OK(shard);
  EXPECT_EQ(Rows(**shard, files_, 0), twin.Rows(0));
}

TEST_F(WholeRowsTest, RowsOnDiskComeWholeAndTakeChanges) {
  const std::string folder = testing::TempDir() + "/whole-" + std::to_string(::getpid());
  constexpr uint64_t kKeys = 20'000;
  {
    Spill::Options options;
    options.folder = folder;
    // A third of the rows.
    options.memory_bytes = kKeys * (16 + 2 * kDim * 4) / 3;
    options.reader_threads = 4;
    auto spill = Spill::Open(options);
    ASSERT_OK(spill);
    ShardedJob job(Job({AdagradTable(v1::ASYNC)}), 1, files_, clock_, spill->get());
    ShardedJob twin(Job({AdagradTable(v1::ASYNC)}), 1, files_, clock_);
    ASSERT_OK(job.status());
    std::mt19937_64 random(1);
    for (uint64_t step = 0; step < 40; ++step) {
      std::vector<uint64_t> keys;
      for (uint64_t k = 0; k < 1000; ++k) keys.push_back(20 * k + random() % 20);
      ASSERT_EQ(PendingPull(job.shard(0), WholePullOf(keys)).values(),
                PendingPull(twin.shard(0), WholePullOf(keys)).values());
      const v1::PushRequest push = ChangesOf(step, keys, Normals(step, keys.size() * 2 * kDim));
      ASSERT_OK(PushAll(job.shard(0), push));
      ASSERT_OK(PushAll(twin.shard(0), push));
    }
    EXPECT_GT(job.shard(0).Stats().tables(0).cold_reads(), 0u);
    EXPECT_EQ(job.Rows(0), twin.Rows(0));
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tessera::ps
