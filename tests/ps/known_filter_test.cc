#include "ps/cold/known_filter.h"

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "common/hash.h"
#include "gtest/gtest.h"

namespace tessera::ps {
namespace {

std::vector<uint64_t> Keys(uint64_t begin, uint64_t end) {
  std::vector<uint64_t> keys;
  for (uint64_t k = begin; k < end; ++k) keys.push_back(k);
  return keys;
}
size_t Ones(const KnownFilter& filter, const std::vector<uint64_t>& keys) {
  std::vector<uint8_t> may(keys.size(), 2);
  const size_t ones = filter.MayContain(keys, may.data());
  size_t counted = 0;
  for (const uint8_t m : may) {
    EXPECT_LE(m, 1);
    counted += m;
  }
  EXPECT_EQ(ones, counted);
  return ones;
}

TEST(KnownFilterTest, AnEmptyFilterKnowsNothingAndTakesNoMemory) {
  const KnownFilter filter;
  EXPECT_EQ(Ones(filter, Keys(0, 100)), 0);
  EXPECT_EQ(filter.bytes(), 0);
}

TEST(KnownFilterTest, KnowsEveryKeyThatWasAddedAndFewOfTheOthers) {
  KnownFilter filter;
  // Four generations, the last one partly filled.
  const uint64_t n = KnownFilter::kFirstCapacity * 9;
  for (uint64_t k = 0; k < n; k += 1000) filter.Add(Keys(k, std::min(k + 1000, n)));
  EXPECT_EQ(Ones(filter, Keys(0, n)), n);
  const uint64_t others = 1000000;
  EXPECT_LT(Ones(filter, Keys(n, n + others)), others * 4 / 1000);
  EXPECT_LE(filter.bytes(), n * 32 / 8);
}

TEST(KnownFilterTest, ALookDoesNotWaitForManyKeysThatAreAdded) {
  const std::vector<uint64_t> keys = Keys(0, 2'000'000);
  bool seen_halfway = false;
  // A busy machine may let this thread look only before and after.
  for (int attempt = 0; attempt < 20 && !seen_halfway; ++attempt) {
    KnownFilter filter;
    std::atomic<bool> added = false;
    std::thread adds([&] {
      filter.Add(keys);
      added = true;
    });
    while (!added && !seen_halfway) {
      seen_halfway = Ones(filter, {keys.front()}) == 1 && Ones(filter, {keys.back()}) == 0;
    }
    adds.join();
    EXPECT_EQ(Ones(filter, keys), keys.size());
  }
  EXPECT_TRUE(seen_halfway);
}

TEST(KnownFilterTest, KeysOfOnePartitionSpreadLikeOthers) {
  // They share the highest bits of their hashes.
  std::vector<uint64_t> keys;
  for (uint64_t k = 0; keys.size() < 60000; ++k) {
    if (Mix64(k) >> 60 == 7) keys.push_back(k);
  }
  KnownFilter filter;
  filter.Add(absl::MakeSpan(keys).first(30000));
  EXPECT_LT(Ones(filter, {keys.begin() + 30000, keys.end()}), 30);
}

TEST(KnownFilterTest, AddingAKeyAgainTakesNoRoom) {
  KnownFilter filter;
  for (int i = 0; i < 10; ++i) filter.Add(Keys(0, 50000));
  EXPECT_LE(filter.keys(), 50000);
  EXPECT_GT(filter.keys(), 49900);
  EXPECT_EQ(filter.bytes(), KnownFilter::kFirstCapacity * KnownFilter::kBitsPerKey / 8);
}

TEST(KnownFilterTest, KeysAreAddedWhileOthersAreLookedUp) {
  KnownFilter filter;
  filter.Add(Keys(0, 1000));
  std::thread adds([&] {
    for (uint64_t k = 1000; k < 300000; k += 1000) filter.Add(Keys(k, k + 1000));
  });
  for (int i = 0; i < 200; ++i) EXPECT_EQ(Ones(filter, Keys(0, 1000)), 1000);
  adds.join();
  EXPECT_EQ(Ones(filter, Keys(0, 300000)), 300000);
}

TEST(KnownFilterTest, ARenewedFilterKnowsWhatWasKeptAndWhatCameMeanwhile) {
  KnownFilter filter;
  filter.Keep(Keys(0, 10));
  filter.EndRenewal();
  EXPECT_EQ(filter.bytes(), 0) << "none has begun";
  const uint64_t n = KnownFilter::kFirstCapacity * 3;
  filter.Add(Keys(0, n));
  const uint64_t bytes = filter.bytes();
  filter.BeginRenewal();
  filter.Keep(Keys(5000, 6000));
  filter.BeginRenewal();
  filter.Keep(Keys(0, 2000));
  filter.Add(Keys(n, n + 3000));
  // All are known until it ends.
  EXPECT_EQ(Ones(filter, Keys(0, n + 3000)), n + 3000);
  EXPECT_GT(filter.bytes(), bytes);
  filter.EndRenewal();
  EXPECT_EQ(Ones(filter, Keys(0, 2000)), 2000);
  EXPECT_EQ(Ones(filter, Keys(n, n + 3000)), 3000);
  EXPECT_LT(Ones(filter, Keys(2000, n)), n / 250);
  EXPECT_LE(filter.keys(), 5000);
  EXPECT_EQ(filter.bytes(), KnownFilter::kFirstCapacity * KnownFilter::kBitsPerKey / 8);
}

TEST(KnownFilterTest, NoKeyIsMissedWhileTheFilterIsRenewed) {
  KnownFilter filter;
  filter.Add(Keys(0, 1000));
  std::atomic<uint64_t> added = 1000;
  std::thread adds([&] {
    for (uint64_t k = 1000; k < 300000; k += 1000) {
      filter.Add(Keys(k, k + 1000));
      added = k + 1000;
    }
  });
  while (added < 300000) {
    // As of the beginning, all that was added before.
    filter.BeginRenewal();
    const uint64_t before = added;
    filter.Keep(Keys(0, before));
    filter.EndRenewal();
    EXPECT_EQ(Ones(filter, Keys(0, before)), before);
  }
  adds.join();
}

}  // namespace
}  // namespace tessera::ps
