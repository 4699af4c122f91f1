#include "ps/tables/admission.h"

#include <map>
#include <random>

#include "common/hash.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

v1::AdmissionSpec After(uint32_t sightings) {
  v1::AdmissionSpec spec;
  spec.set_after_sightings(sightings);
  return spec;
}
v1::AdmissionSpec WithProbability(float probability) {
  v1::AdmissionSpec spec;
  spec.set_probability(probability);
  return spec;
}

PartitionSet AllOf(uint32_t partitions) {
  std::vector<uint32_t> owned;
  for (uint32_t p = 0; p < partitions; ++p) owned.push_back(p);
  return *PartitionSet::New(partitions, owned);
}

std::vector<uint64_t> Sight(Admission& admission, std::vector<uint64_t> keys) {
  absl::MutexLock lock(&admission.mu);
  return admission.Sight(std::move(keys));
}

TEST(SightingFilter, CountsAsAMapDoesWhileItGrowsAndForgets) {
  SightingFilter filter(1 << 16);
  std::map<uint32_t, uint32_t> twin;
  std::mt19937 random(5);
  for (int i = 0; i < 200000; ++i) {
    // Few distinct numbers, close together: long runs of neighbours, and many repeats.
    const uint32_t fingerprint = (random() % 8000) * 100003u;
    if (random() % 4 == 0) {
      filter.Forget(fingerprint);
      twin.erase(fingerprint);
    } else {
      filter.Add(fingerprint);
      twin[fingerprint] = std::min(twin[fingerprint] + 1, SightingFilter::kMost);
    }
    ASSERT_EQ(filter.size(), twin.size());
  }
  for (uint32_t i = 0; i < 8000; ++i) {
    const auto found = twin.find(i * 100003u);
    ASSERT_EQ(filter.Count(i * 100003u), found == twin.end() ? 0 : found->second);
  }
}

TEST(SightingFilter, KeepsItsBoundInBytesAndThenCountsTooOftenNeverTooRarely) {
  SightingFilter filter(64);
  for (uint32_t i = 0; i < 1000; ++i) filter.Add(i * 0x9E3779B9u);
  EXPECT_EQ(filter.bytes(), 64 * SightingFilter::kSlotBytes);
  EXPECT_EQ(filter.size(), 56u);
  for (uint32_t i = 0; i < 1000; ++i) EXPECT_GE(filter.Count(i * 0x9E3779B9u), 1u);
  EXPECT_EQ(filter.Count(999 * 0x9E3779B9u), SightingFilter::kMost);
}

TEST(SightingFilter, StopsCountingAtItsMost) {
  SightingFilter filter(64);
  for (int i = 0; i < 1000; ++i) filter.Add(7);
  EXPECT_EQ(filter.Count(7), SightingFilter::kMost);
}

TEST(Admission, AdmitsAKeyAtItsNthSightingOnceAnUpdate) {
  const PartitionSet partitions = AllOf(8);
  const auto admission = *Admission::New(After(3), 1, "t", &partitions);
  EXPECT_FALSE(admission->AtPull(5));
  EXPECT_EQ(Sight(*admission, {5, 5, 5, 6}), std::vector<uint64_t>{});
  EXPECT_EQ(Sight(*admission, {5}), std::vector<uint64_t>{});
  EXPECT_EQ(Sight(*admission, {9, 6, 5, 5}), std::vector<uint64_t>{5});
  EXPECT_EQ(Sight(*admission, {5, 6}), std::vector<uint64_t>{6}) << "5 starts anew";
}

TEST(Admission, ErrsForFewKeysWhenMillionsArePending) {
  // The stated error: pending keys of a partition / 2^32 for each key.
  const PartitionSet partitions = AllOf(4);
  const auto admission = *Admission::New(After(2), 1, "t", &partitions);
  constexpr uint64_t kKeys = 1 << 20;
  std::vector<uint64_t> keys(kKeys);
  for (uint64_t i = 0; i < kKeys; ++i) keys[i] = i;
  // 2^20 keys in 4 partitions: 2^18 * 2^20 / 2 / 2^32 = 32 pairs are expected.
  const size_t wrong = Sight(*admission, keys).size();
  EXPECT_LT(wrong, 150u);
  EXPECT_LT(admission->bytes(), kKeys * 12);
  EXPECT_GE(Sight(*admission, keys).size(), kKeys - wrong);
}

TEST(Admission, ChoosesTheSameShareOfTheKeysEverywhere) {
  const PartitionSet all = AllOf(64);
  const PartitionSet some = *PartitionSet::New(64, {1, 5, 9});
  const auto a = *Admission::New(WithProbability(0.3f), 7, "t", &all);
  const auto b = *Admission::New(WithProbability(0.3f), 7, "t", &some);
  const auto other_table = *Admission::New(WithProbability(0.3f), 7, "u", &all);
  int chosen = 0, same = 0;
  for (uint64_t key = 0; key < 20000; ++key) {
    EXPECT_EQ(a->AtPull(key), b->AtPull(key));
    chosen += a->AtPull(key);
    same += a->AtPull(key) == other_table->AtPull(key);
  }
  EXPECT_NEAR(chosen, 6000, 300);  // 4.6 standard deviations
  EXPECT_NEAR(same, 20000 * 0.58, 350);
}

TEST(Admission, CountsOnlyChosenKeys) {
  const PartitionSet partitions = AllOf(1);
  v1::AdmissionSpec spec = WithProbability(0.5f);
  spec.set_after_sightings(2);
  const auto both = *Admission::New(spec, 3, "t", &partitions);
  const auto chosen = *Admission::New(WithProbability(0.5f), 3, "t", &partitions);
  std::vector<uint64_t> keys, want;
  for (uint64_t key = 0; key < 100; ++key) {
    keys.push_back(key);
    if (chosen->AtPull(key)) want.push_back(key);
    EXPECT_FALSE(both->AtPull(key));
  }
  EXPECT_TRUE(Sight(*both, keys).empty());
  EXPECT_EQ(Sight(*both, keys), want);
}

TEST(Admission, IsLeftOutWhereEveryKeyGetsARowAndNamesWhatIsWrong) {
  const PartitionSet partitions = AllOf(1);
  for (const v1::AdmissionSpec& spec : {v1::AdmissionSpec(), After(1), WithProbability(1)}) {
    EXPECT_EQ(*Admission::New(spec, 1, "t", &partitions), nullptr);
  }
  EXPECT_FAILS(Admission::New(After(256), 1, "t", &partitions), absl::StatusCode::kInvalidArgument,
               "table t: admission.after_sightings is 256, expected at most 255");
  EXPECT_FAILS(Admission::New(WithProbability(0), 1, "t", &partitions),
               absl::StatusCode::kInvalidArgument, "admission.probability is 0");
  EXPECT_FAILS(Admission::New(WithProbability(1.5f), 1, "t", &partitions),
               absl::StatusCode::kInvalidArgument, "admission.probability is 1.5");
}

class AdmittingShard : public testing::Test {
 protected:
  std::shared_ptr<JobShard> Open(const v1::AdmissionSpec& spec) {
    v1::PsTable table = SgdTable("t", 2, v1::SYNC);
    table.mutable_spec()->mutable_initializer()->mutable_constant()->set_value(0.5f);
    *table.mutable_spec()->mutable_admission() = spec;
    JobShard::Options options;
    options.clock = &clock_;
    options.files = &files_;
    options.checkpoint_root = "root";
    auto shard = JobShard::Open(Whole(Job({table}, 2)), options);
    EXPECT_OK(shard);
    return *std::move(shard);
  }

  HandClock clock_;
  FaultFileSystem files_;
};

TEST_F(AdmittingShard, AnswersInitialValuesUntilAKeyIsAdmittedAndDropsItsGradients) {
  const auto shard = Open(After(2));
  const std::vector<float> initial = {0.5f, 0.5f};
  for (uint64_t step = 0; step < 3; ++step) {
    const PendingPull pull(*shard, PullOf(0, step, {{0, {7}}}));
    ASSERT_OK(pull.status());
    if (step < 2) {
      EXPECT_EQ(pull.values(), initial) << step;
      EXPECT_EQ(pull.status_bytes(), std::string(1, v1::ROW_NOT_ADMITTED));
    } else {
      // The gradients of step 1, of both ranks; those of step 0 are lost.
      EXPECT_EQ(pull.values(), (std::vector<float>{0.5f - 3, 0.5f}));
      EXPECT_TRUE(pull.response().tables(0).statuses().empty()) << "a hit";
    }
    EXPECT_EQ(shard->rows(), step < 2 ? 0u : 1u);
    ASSERT_OK(PushAll(*shard, PushOf(0, step, {{0, {7}, {1, 0}}})));
    ASSERT_OK(PushAll(*shard, PushOf(1, step, {{0, {7}, {2, 0}}})));
  }
  const v1::TableStats stats = shard->Stats().tables(0);
  EXPECT_EQ(stats.not_admitted(), 2u);
  EXPECT_EQ(stats.dropped_gradients(), 2u);
  EXPECT_EQ(stats.rows(), 1u);
}

TEST_F(AdmittingShard, AppliesTheGradientsAroundThoseThatItDrops) {
  const auto shard = Open(After(2));
  ASSERT_OK(PushAll(*shard, PushOf(0, 0, {{0, {1, 3, 4}, {9, 9, 9, 9, 9, 9}}})));
  ASSERT_OK(PushAll(*shard, PushOf(1, 0, {})));
  ASSERT_OK(PushAll(
      *shard,
      PushOf(0, 1, {{0, {0, 1, 2, 3, 4, 5}, {10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15}}})));
  ASSERT_OK(PushAll(*shard, PushOf(1, 1, {{0, {4, 0}, {1, 1, 1, 1}}})));
  const PendingPull pull(*shard, PullOf(0, 2, {{0, {0, 1, 2, 3, 4, 5}}}));
  EXPECT_EQ(pull.values(), (std::vector<float>{0.5f, 0.5f, -10.5f, -10.5f, 0.5f, 0.5f, -12.5f,
                                               -12.5f, -14.5f, -14.5f, 0.5f, 0.5f}));
  EXPECT_EQ(shard->Stats().tables(0).dropped_gradients(), 3u + 4);
}

TEST_F(AdmittingShard, MakesRowsOfChosenKeysAtTheirFirstPullAndOfNoOthers) {
  const auto shard = Open(WithProbability(0.5f));
  std::vector<uint64_t> keys;
  for (uint64_t key = 0; key < 100; ++key) keys.push_back(key);
  const PendingPull look(*shard, PullOf(0, 0, {{0, keys}}, /*read_only=*/true));
  EXPECT_EQ(look.status_bytes(), std::string(100, v1::ROW_ABSENT));
  EXPECT_EQ(shard->rows(), 0u);
  const PendingPull pull(*shard, PullOf(0, 0, {{0, keys}}));
  const std::string statuses = pull.status_bytes();
  const uint64_t rows = std::count(statuses.begin(), statuses.end(), v1::ROW_CREATED);
  EXPECT_EQ(std::count(statuses.begin(), statuses.end(), v1::ROW_NOT_ADMITTED), 100 - int(rows));
  EXPECT_GT(rows, 20u);
  EXPECT_LT(rows, 80u);
  EXPECT_EQ(shard->rows(), rows);
  ASSERT_OK(PushAll(*shard, PushOf(0, 0, {{0, keys, std::vector<float>(200, 1.0f)}})));
  ASSERT_OK(PushAll(*shard, PushOf(1, 0, {})));
  EXPECT_EQ(shard->rows(), rows);
  const v1::TableStats stats = shard->Stats().tables(0);
  EXPECT_EQ(stats.created(), rows);
  EXPECT_EQ(stats.not_admitted(), 100 - rows);
  EXPECT_EQ(stats.dropped_gradients(), 100 - rows);
}

TEST_F(AdmittingShard, AKeyThatComesTwiceIsCreatedOnce) {
  const auto shard = Open(WithProbability(0.99f));
  std::vector<uint64_t> keys;
  for (uint64_t key = 0; key < 100; ++key) keys.insert(keys.end(), {key, key});
  const PendingPull pull(*shard, PullOf(0, 0, {{0, keys}}));
  ASSERT_OK(pull.status());
  EXPECT_EQ(pull.values(), std::vector<float>(400, 0.5f));
  const std::string statuses = pull.status_bytes();
  const uint64_t rows = shard->rows();
  EXPECT_GT(rows, 80u);
  EXPECT_EQ(std::count(statuses.begin(), statuses.end(), v1::ROW_CREATED), int(rows));
  EXPECT_EQ(std::count(statuses.begin(), statuses.end(), v1::ROW_HIT), int(rows));
  const v1::TableStats stats = shard->Stats().tables(0);
  EXPECT_EQ(stats.created(), rows);
  EXPECT_EQ(stats.hits(), rows);
  EXPECT_EQ(stats.not_admitted(), 200 - 2 * rows);
}

}  // namespace
}  // namespace tessera::ps
