#include "ps/rows/row_map.h"

#include <deque>
#include <map>
#include <random>
#include <vector>

#include "common/hash.h"
#include "gtest/gtest.h"

namespace tessera::ps {
namespace {

class RowMapTest : public testing::Test {
 protected:
  // Without floats.
  Row* NewRow(uint64_t key) {
    rows_.push_back(Row{.key = key, .last_step = 0, .frequency = 0, .flags = 0});
    return &rows_.back();
  }

  std::deque<Row> rows_;
  RowMap map_{std::make_shared<HugePageMemory>()};
};

TEST_F(RowMapTest, FindsEveryOtherKeyWhateverIsErased) {
  std::mt19937_64 random(7);
  std::map<uint64_t, Row*> twin;
  int shrunk = 0;
  for (int round = 0; round < 200000; ++round) {
    // Grows to about 3000 keys and shrinks again, so that buckets overflow and wrap round.
    const uint64_t key = random() % 4000;
    const uint64_t hash = Mix64(key);
    const auto it = twin.find(key);
    ASSERT_EQ(map_.Find(hash, key), it == twin.end() ? nullptr : it->second) << key;
    const bool growing = round / 20000 % 2 == 0;
    if (it == twin.end() && (growing || random() % 4 == 0)) {
      Row* const row = NewRow(key);
      map_.Insert(hash, row);
      twin[key] = row;
    } else if (it != twin.end() && (!growing || random() % 4 == 0)) {
      ASSERT_EQ(map_.Erase(hash, key), it->second);
      twin.erase(it);
    }
    ASSERT_EQ(map_.size(), twin.size());
    if (round % 1000 != 0) continue;
    if (map_.is_sparse()) {
      const size_t bytes = map_.bytes();
      map_.Shrink();
      ASSERT_LT(map_.bytes(), bytes);
      ++shrunk;
    }
    map_.MoveTable();
    for (const auto& [k, row] : twin) ASSERT_EQ(map_.Find(Mix64(k), k), row) << k;
  }
  EXPECT_GT(shrunk, 5);
  // Every row's place is taken by another one.
  for (auto& [k, row] : twin) {
    Row* const other = NewRow(k);
    EXPECT_FALSE(map_.Replace(Mix64(k), other, other));
    ASSERT_TRUE(map_.Replace(Mix64(k), row, other));
    row = other;
  }
  for (const auto& [k, row] : twin) ASSERT_EQ(map_.Erase(Mix64(k), k), row) << k;
  EXPECT_EQ(map_.size(), 0u);
  map_.Shrink();
  EXPECT_EQ(map_.bytes(), 0u);
  EXPECT_EQ(map_.Find(Mix64(1), 1), nullptr);
  map_.ForEach([](Row* row) { ADD_FAILURE() << row->key; });
}

TEST_F(RowMapTest, ErasingAnAbsentKeyChangesNothing) {
  EXPECT_EQ(map_.Erase(Mix64(1), 1), nullptr);
  Row* const row = NewRow(1);
  map_.Insert(Mix64(1), row);
  EXPECT_EQ(map_.Erase(Mix64(2), 2), nullptr);
  // The same hash, another key.
  EXPECT_EQ(map_.Erase(Mix64(1), 2), nullptr);
  EXPECT_EQ(map_.Find(Mix64(1), 1), row);
  EXPECT_EQ(map_.size(), 1u);
}

TEST_F(RowMapTest, ErasedKeysLeaveNothingBehind) {
  std::vector<uint64_t> keys(100);
  for (size_t i = 0; i < keys.size(); ++i) map_.Insert(Mix64(keys[i] = i), NewRow(i));
  const size_t bytes = map_.bytes();
  for (uint64_t next = keys.size(); next < 20000; ++next) {
    uint64_t& oldest = keys[next % keys.size()];
    ASSERT_NE(map_.Erase(Mix64(oldest), oldest), nullptr);
    map_.Insert(Mix64(next), NewRow(next));
    oldest = next;
  }
  EXPECT_EQ(map_.bytes(), bytes);
  EXPECT_EQ(map_.size(), keys.size());
  for (const uint64_t key : keys) EXPECT_NE(map_.Find(Mix64(key), key), nullptr) << key;
}

}  // namespace
}  // namespace tessera::ps
