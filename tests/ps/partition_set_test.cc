#include "ps/rows/partition_set.h"

#include <numeric>

#include "common/partition.h"
#include "ps/rows/key_batch.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

TEST(PartitionSet, NumbersTheOwnedPartitionsInOrder) {
  const auto set = PartitionSet::New(8, {6, 1, 3});
  ASSERT_OK(set);
  EXPECT_EQ(set->IndexOf(PartitionId(1)), 0u);
  EXPECT_EQ(set->IndexOf(PartitionId(3)), 1u);
  EXPECT_EQ(set->IndexOf(PartitionId(6)), 2u);
  EXPECT_EQ(set->IndexOf(PartitionId(0)), PartitionSet::kNotOwned);
  EXPECT_EQ(set->owned().size(), 3u);
}

TEST(PartitionSet, RefusesWhatDoesNotExist) {
  EXPECT_FAILS(PartitionSet::New(0, {}), absl::StatusCode::kInvalidArgument,
               "partition_count is 0");
  EXPECT_FAILS(PartitionSet::New(4u << 20, {}), absl::StatusCode::kInvalidArgument,
               "partition_count is 4194304");
  EXPECT_FAILS(PartitionSet::New(8, {8}), absl::StatusCode::kInvalidArgument,
               "partition 8 does not exist");
  EXPECT_FAILS(PartitionSet::New(8, {2, 2}), absl::StatusCode::kInvalidArgument, "listed twice");
}

TEST(PartitionSet, SharesKeysWithThePartitionsOfAnotherNumberThatHaveThem) {
  std::vector<uint64_t> keys(20000);
  std::iota(keys.begin(), keys.end(), uint64_t{0});
  for (uint32_t here = 1; here <= 13; ++here) {
    for (uint32_t there = 1; there <= 13; ++there) {
      // [here][there]: whether some key lies in both.
      std::vector<std::vector<bool>> share(here, std::vector<bool>(there, false));
      for (const uint64_t key : keys) {
        share[PartitionOf(key, here).value()][PartitionOf(key, there).value()] = true;
      }
      for (uint32_t p = 0; p < here; ++p) {
        const auto one = PartitionSet::New(here, {p});
        ASSERT_OK(one);
        for (uint32_t q = 0; q < there; ++q) {
          EXPECT_EQ(one->SharesKeysWith(PartitionId(q), there), share[p][q])
              << p << " of " << here << " and " << q << " of " << there;
        }
      }
    }
  }
}

TEST(PartitionSet, SharesKeysAmongTheMostPartitionsThatThereCanBe) {
  constexpr uint32_t kMost = PartitionSet::kMaxPartitions;
  const auto last = PartitionSet::New(kMost, {kMost - 1});
  ASSERT_OK(last);
  EXPECT_TRUE(last->SharesKeysWith(PartitionId(kMost - 1), kMost));
  EXPECT_FALSE(last->SharesKeysWith(PartitionId(kMost - 2), kMost));
  EXPECT_TRUE(last->SharesKeysWith(PartitionId(UINT32_MAX - 1), UINT32_MAX));
  EXPECT_FALSE(last->SharesKeysWith(PartitionId(0), UINT32_MAX));
  EXPECT_TRUE(last->SharesKeysWith(PartitionId(0), 1));
}

TEST(KeyBatch, GroupsByStripeAndKeepsTheOrderWithin) {
  std::vector<uint32_t> owned;
  for (uint32_t p = 0; p < 256; p += 2) owned.push_back(p);
  const auto set = PartitionSet::New(256, owned);
  ASSERT_OK(set);
  std::vector<uint64_t> keys;
  for (uint64_t key = 0; keys.size() < 1000; ++key) {
    if (PartitionOf(key, 256).value() % 2 == 0) keys.push_back(key);
  }
  keys.push_back(keys.front());
  KeyBatch batch;
  batch.Group(keys, *set);
  size_t seen = 0;
  for (uint32_t s = 0; s < KeyBatch::kStripes; ++s) {
    int64_t last = -1;
    for (const KeyBatch::Item& item : batch.stripe(s)) {
      EXPECT_GT(int64_t{item.position}, last);
      last = item.position;
      EXPECT_EQ(item.key, keys[item.position]);
      EXPECT_EQ(KeyBatch::StripeOf(set->IndexOf(PartitionOf(item.key, 256))), s);
      ++seen;
    }
  }
  EXPECT_EQ(seen, keys.size());
}

TEST(KeyBatch, FindsTheFirstKeyOfAnotherPs) {
  const auto set = PartitionSet::New(2, {0});
  ASSERT_OK(set);
  std::vector<uint64_t> mine, others;
  for (uint64_t key = 0; key < 100; ++key) {
    (PartitionOf(key, 2).value() == 0 ? mine : others).push_back(key);
  }
  EXPECT_EQ(KeyBatch::FirstNotOwned(mine, *set), mine.size());
  mine[7] = others[0];
  EXPECT_EQ(KeyBatch::FirstNotOwned(mine, *set), 7u);
}

}  // namespace
}  // namespace tessera::ps
