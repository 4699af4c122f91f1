#include "worker/card/row_slots.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "common/random.h"
#include "gtest/gtest.h"

namespace tessera::worker {
namespace {

using Place = RowSlots::Place;
using Use = RowSlots::Use;

// Distinct keys, the r-th most frequent of `items` with a weight near 1/r.
std::vector<uint64_t> ZipfKeys(uint64_t seed, size_t draws, double items) {
  std::set<uint64_t> keys;
  for (size_t i = 0; i < draws; ++i) {
    keys.insert(static_cast<uint64_t>(std::exp(RandomUniform(seed, i) * std::log(items))));
  }
  return {keys.begin(), keys.end()};
}

TEST(RowSlots, FindsARowWhereItWasPutUntilAnotherKeyHasItsSlot) {
  RowSlots slots(200);
  ASSERT_EQ(slots.slots(), 208u);
  std::map<uint32_t, uint64_t> held;  // by slot
  std::vector<Place> places;
  size_t found = 0, put = 0, without = 0;
  for (uint64_t batch = 0; batch < 300; ++batch) {
    const std::vector<uint64_t> keys = ZipfKeys(batch, 150, 2000);
    slots.Find(keys, 1000, &places);
    ASSERT_EQ(places.size(), keys.size());
    std::set<uint32_t> of_batch;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (places[i].slot == RowSlots::kNoSlot) {
        EXPECT_FALSE(places[i].kept);
        ++without;
        continue;
      }
      ASSERT_LT(places[i].slot, slots.slots());
      ASSERT_EQ(places[i].evicts, !places[i].kept && held.contains(places[i].slot) &&
                                      held.at(places[i].slot) != keys[i]);
      EXPECT_TRUE(of_batch.insert(places[i].slot).second);
      if (places[i].kept) {
        ASSERT_EQ(held.at(places[i].slot), keys[i]);
        ++found;
      }
    }
    // Only now: none is found in a slot that the same batch gives away.
    for (size_t i = 0; i < keys.size(); ++i) {
      if (places[i].slot == RowSlots::kNoSlot || places[i].kept) continue;
      held[places[i].slot] = keys[i];
      ++put;
    }
  }
  EXPECT_GT(found, 1000u);
  EXPECT_GT(put, slots.slots() * 2);
  EXPECT_GT(without, 100u);
}

TEST(RowSlots, ARowOfACertainAgeIsPutAnew) {
  RowSlots slots(64);
  std::vector<Place> places;
  std::vector<bool> kept;
  std::vector<uint32_t> ages;
  uint32_t slot = 0;
  for (int batch = 0; batch < 9; ++batch) {
    slots.Find({7}, 3, &places);
    kept.push_back(places[0].kept);
    ages.push_back(places[0].age);
    if (batch == 0) slot = places[0].slot;
    EXPECT_EQ(places[0].slot, slot);
  }
  EXPECT_EQ(kept, (std::vector<bool>{false, true, true, true, false, true, true, true, false}));
  EXPECT_EQ(ages, (std::vector<uint32_t>{0, 1, 2, 3, 0, 1, 2, 3, 0}));
  slots.Forget();
  slots.Find({7}, 3, &places);
  EXPECT_FALSE(places[0].kept);
}

TEST(RowSlots, SaysWhichRowsBatchesHaveChanged) {
  RowSlots slots(16);  // one set
  std::vector<Place> places;
  const auto find = [&](const std::vector<uint64_t>& keys, Use use, uint32_t max_age = 1000) {
    slots.Find(keys, max_age, &places, nullptr, use);
  };
  const auto changed = [&] {
    std::map<uint64_t, uint32_t> keys;
    for (const RowSlots::Changed& row : slots.TakeChanged()) keys[row.key] = row.slot;
    return keys;
  };
  find({1, 2}, Use::kTrain);
  EXPECT_FALSE(places[0].changed) << "nothing was in its slot";
  const uint32_t slot = places[0].slot;
  find({3}, Use::kRead);
  EXPECT_EQ(changed(), (std::map<uint64_t, uint32_t>{{1, slot}, {2, slot + 1}}));
  EXPECT_TRUE(changed().empty()) << "they have been taken";
  find({1}, Use::kTrain);
  find({1}, Use::kRead);
  EXPECT_EQ(changed(), (std::map<uint64_t, uint32_t>{{1, slot}})) << "who reads it changes nothing";
  // Found once more, and pulled again.
  find({1}, Use::kTrain);
  EXPECT_FALSE(places[0].changed) << "a row that is kept need not go";
  find({1, 3}, Use::kTrain, /*max_age=*/0);
  EXPECT_TRUE(places[0].changed);
  EXPECT_FALSE(places[0].evicts);
  EXPECT_FALSE(places[1].changed) << "the batch before only read it";
  EXPECT_EQ(changed().size(), 2u);
  // Others take all places, of which two have been changed meanwhile.
  find({1, 2}, Use::kTrain);
  std::set<uint64_t> left;
  for (uint64_t batch = 0; batch < 60; ++batch) {
    std::vector<uint64_t> keys(16);
    std::iota(keys.begin(), keys.end(), 100 + 16 * batch);
    find(keys, Use::kRead);
    for (const Place& place : places) {
      if (!place.changed) continue;
      EXPECT_TRUE(place.evicts);
      EXPECT_TRUE(left.insert(place.left).second);
    }
  }
  EXPECT_EQ(left, (std::set<uint64_t>{1, 2}));
  EXPECT_TRUE(changed().empty());
  find({5}, Use::kTrain);
  slots.Forget();
  EXPECT_TRUE(changed().empty());
}

// The push of a batch brings what was made of rows that left for it, and gradients of those without
// a slot; before that they are not to be asked for whole.
TEST(RowSlots, ARowThatIsPushedGetsASlotWhenItsPsHasThat) {
  RowSlots slots(64);  // four sets
  std::vector<Place> places;
  std::map<uint64_t, uint64_t> pushed_at;  // by key
  size_t evicted = 0, back = 0, refused = 0, awaited = 0;
  for (uint64_t batch = 1; batch <= 1000; ++batch) {
    const std::vector<uint64_t> keys = ZipfKeys(batch, 40, 300);
    slots.Find(keys, 1000, &places, nullptr, Use::kTrain);
    std::map<uint64_t, uint64_t> pushed;
    for (size_t i = 0; i < keys.size(); ++i) {
      const bool has_slot = places[i].slot != RowSlots::kNoSlot;
      if (!places[i].kept && pushed_at.contains(keys[i])) {
        const uint64_t since = batch - pushed_at.at(keys[i]);
        refused += !has_slot && since <= RowSlots::kLeavingBatches;
        back += has_slot;
        if (has_slot && since <= RowSlots::kLeavingBatches) {
          EXPECT_TRUE(places[i].awaits);
        }
      }
      if (places[i].awaits) {
        EXPECT_EQ(batch % RowSlots::kAwaitingBatches, 0u);
        ++awaited;
      }
      if (!has_slot) pushed[keys[i]] = batch;
      if (!places[i].evicts) continue;
      EXPECT_TRUE(places[i].changed) << "all are trained";
      EXPECT_EQ(std::count(keys.begin(), keys.end(), places[i].left), 0);
      pushed[places[i].left] = batch;
      ++evicted;
    }
    for (const auto& [key, at] : pushed) pushed_at[key] = at;
  }
  EXPECT_GT(evicted, 200u);
  EXPECT_GT(back, 50u);
  EXPECT_GT(refused, 50u);
  EXPECT_GT(awaited, 5u);
}

TEST(RowSlots, AChangedRowThatNoBatchHasLeavesInTime) {
  constexpr uint32_t kAge = 4;
  RowSlots slots(320);  // 20 sets
  std::vector<Place> places;
  std::vector<RowSlots::Changed> unused;
  std::map<uint64_t, uint64_t> used_at, left_at;  // of rows that have changed
  size_t left = 0;
  for (uint64_t batch = 1; batch < 300; ++batch) {
    const std::vector<uint64_t> keys = ZipfKeys(batch, 60, 2000);
    slots.Find(keys, kAge, &places, nullptr, Use::kTrain, &unused);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (places[i].evicts) used_at.erase(places[i].left);
      if (places[i].slot == RowSlots::kNoSlot) continue;
      if (!places[i].kept && left_at.contains(keys[i]) && !places[i].awaits) {
        EXPECT_GT(batch - left_at.at(keys[i]), RowSlots::kLeavingBatches);
      }
      used_at[keys[i]] = batch;
    }
    for (const RowSlots::Changed& row : unused) {
      EXPECT_EQ(std::count(keys.begin(), keys.end(), row.key), 0);
      ASSERT_TRUE(used_at.contains(row.key));
      EXPECT_GT(batch - used_at.at(row.key), kAge / 2);
      EXPECT_LE(batch - used_at.at(row.key), kAge);
      used_at.erase(row.key);
      left_at[row.key] = batch;
      ++left;
    }
    for (const auto& [key, at] : used_at) EXPECT_LT(batch - at, kAge) << key;
  }
  EXPECT_GT(left, 500u);
  for (const RowSlots::Changed& row : slots.TakeChanged()) EXPECT_EQ(used_at.erase(row.key), 1u);
  EXPECT_TRUE(used_at.empty());
}

TEST(RowSlots, AChangedRowLeavesInTimeAlsoWhereBatchesHaveNoKeys) {
  constexpr uint32_t kAge = 4;
  RowSlots slots(320);
  std::vector<Place> places;
  std::vector<RowSlots::Changed> unused;
  const std::vector<uint64_t> keys = ZipfKeys(1, 60, 2000);
  slots.Find(keys, kAge, &places, nullptr, Use::kTrain, &unused);
  size_t left = 0;
  for (uint32_t batch = 0; batch < kAge; ++batch) {
    EXPECT_LT(left, keys.size());
    slots.Find({}, kAge, &places, nullptr, Use::kTrain, &unused);
    left += unused.size();
  }
  EXPECT_EQ(left, keys.size());
}

TEST(RowSlots, AKeyOfEveryBatchGetsASlotInTime) {
  RowSlots slots(16);
  std::vector<Place> places;
  std::vector<uint64_t> keys(17);
  std::iota(keys.begin(), keys.end(), 1);
  slots.Find(keys, UINT32_MAX, &places, nullptr, Use::kTrain);
  const auto without = std::find_if(places.begin(), places.end(), [](const Place& place) {
    return place.slot == RowSlots::kNoSlot;
  });
  ASSERT_NE(without, places.end());
  const uint64_t key = keys[static_cast<size_t>(without - places.begin())];
  uint32_t batches = 1;
  do {
    slots.Find({key}, UINT32_MAX, &places, nullptr, Use::kTrain);
    ++batches;
  } while (!places[0].kept && batches < 1000);
  EXPECT_LE(batches, 2 * RowSlots::kAwaitingBatches + 1);
}

// What follows from the keys follows from those of any batch: also of one that is much larger.
TEST(RowSlots, ALargerBatchForgetsNothingThatIsOnItsWay) {
  RowSlots slots(16);
  std::vector<Place> places;
  std::vector<uint64_t> keys(64);
  std::iota(keys.begin(), keys.end(), 1);
  slots.Find(keys, UINT32_MAX, &places, nullptr, Use::kTrain);
  std::set<uint64_t> pushed;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (places[i].slot == RowSlots::kNoSlot) pushed.insert(keys[i]);
  }
  std::reverse(keys.begin(), keys.end());
  for (uint64_t key = 1000; key < 5000; ++key) keys.push_back(key);
  slots.Find(keys, UINT32_MAX, &places, nullptr, Use::kTrain);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (pushed.contains(keys[i])) {
      EXPECT_EQ(places[i].slot, RowSlots::kNoSlot);
    }
  }
}

TEST(RowSlots, AnyNumberOfThreadsGivesTheSamePlaces) {
  constexpr size_t kKeys = 100'000;  // of a batch; worth several threads
  TaskPool pool(3);
  RowSlots alone(50'000), shared(50'000);
  std::vector<Place> expected, found;
  for (uint64_t batch = 0; batch < 4; ++batch) {
    std::vector<uint64_t> keys(kKeys);
    for (size_t i = 0; i < kKeys; ++i) keys[i] = i * (batch % 2 + 1);
    alone.Find(keys, UINT32_MAX, &expected);
    shared.Find(keys, UINT32_MAX, &found, &pool);
    ASSERT_EQ(found.size(), expected.size());
    size_t kept = 0, evicts = 0;
    for (size_t i = 0; i < kKeys; ++i) {
      ASSERT_EQ(found[i].slot, expected[i].slot) << "key " << keys[i];
      ASSERT_EQ(found[i].kept, expected[i].kept);
      ASSERT_EQ(found[i].evicts, expected[i].evicts);
      ASSERT_EQ(found[i].age, expected[i].age);
      kept += found[i].kept;
      evicts += found[i].evicts;
    }
    EXPECT_EQ(kept > 0 && evicts > 0, batch > 0);
  }
}

TEST(RowSlots, ABatchThatIsLargerThanAllSlotsLeavesSomeWithout) {
  RowSlots slots(16);
  std::vector<uint64_t> keys(1000);
  std::iota(keys.begin(), keys.end(), 5);
  std::vector<Place> places;
  for (int batch = 0; batch < 3; ++batch) {
    slots.Find(keys, 1000, &places);
    const auto with = std::count_if(places.begin(), places.end(),
                                    [](const Place& p) { return p.slot != RowSlots::kNoSlot; });
    EXPECT_LE(with, 16);
    EXPECT_GT(with, 8);
  }
}

// The best choice is made in hindsight.
TEST(RowSlots, FindsNearlyAsManyAsTheBestChoiceOfKeysWould) {
  constexpr size_t kSlots = 10000;
  RowSlots slots(kSlots);
  std::map<uint64_t, uint64_t> batches_of;
  std::vector<Place> places;
  uint64_t looked_up = 0, kept = 0;
  constexpr uint64_t kBatches = 400, kWarm = 200;
  for (uint64_t batch = 0; batch < kBatches; ++batch) {
    const std::vector<uint64_t> keys = ZipfKeys(batch, 4000, 100000);
    slots.Find(keys, UINT32_MAX, &places);
    if (batch < kWarm) continue;
    for (size_t i = 0; i < keys.size(); ++i) {
      ++batches_of[keys[i]];
      ++looked_up;
      kept += places[i].kept;
    }
  }
  std::vector<uint64_t> counts;
  for (const auto& [key, count] : batches_of) counts.push_back(count);
  std::sort(counts.rbegin(), counts.rend());
  const uint64_t best = std::accumulate(counts.begin(), counts.begin() + kSlots, uint64_t{0});
  const double rate = static_cast<double>(kept) / static_cast<double>(looked_up);
  const double best_rate = static_cast<double>(best) / static_cast<double>(looked_up);
  RecordProperty("kept", std::to_string(rate));
  RecordProperty("best", std::to_string(best_rate));
  EXPECT_GT(rate, best_rate - 0.06) << "the best " << best_rate;
}

}  // namespace
}  // namespace tessera::worker
