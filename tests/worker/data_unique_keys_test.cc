#include <map>

#include "common/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/unique_keys.h"

namespace tessera::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

SparseColumn Column(std::vector<uint64_t> keys) {
  SparseColumn column;
  column.offsets = {0, static_cast<uint32_t>(keys.size())};
  column.keys = std::move(keys);
  return column;
}

TEST(UniqueKeysTest, KeysStandInTheOrderOfTheirFirstOccurrenceOverAllColumns) {
  const SparseColumn a = Column({5, 3, 5});
  const SparseColumn b = Column({3, 9});
  KeyDeduplicator deduplicator;
  UniqueKeys unique;
  deduplicator.Run({&a, &b}, &unique);
  EXPECT_THAT(unique.keys, ElementsAre(5, 3, 9));
  EXPECT_THAT(unique.inverse, ElementsAre(0, 1, 0, 1, 2));
}

TEST(UniqueKeysTest, NoKeysGiveNone) {
  const SparseColumn none = Column({});
  KeyDeduplicator deduplicator;
  UniqueKeys unique = {{1, 2}, {3}};
  deduplicator.Run({&none}, &unique);
  EXPECT_THAT(unique.keys, IsEmpty());
  EXPECT_THAT(unique.inverse, IsEmpty());
  deduplicator.Run({}, &unique);
  EXPECT_THAT(unique.keys, IsEmpty());
}

TEST(UniqueKeysTest, EveryBitPatternIsAKey) {
  const SparseColumn column = Column({0, ~uint64_t{0}, 0, uint64_t{1} << 63, ~uint64_t{0}});
  KeyDeduplicator deduplicator;
  UniqueKeys unique;
  for (int batch = 0; batch < 3; ++batch) {
    deduplicator.Run({&column}, &unique);
    EXPECT_THAT(unique.keys, ElementsAre(0, ~uint64_t{0}, uint64_t{1} << 63));
    EXPECT_THAT(unique.inverse, ElementsAre(0, 1, 0, 2, 1));
  }
}

// Batches of many sizes through one deduplicator, against a std::map; also where the numbers of
// keys come to their end among them.
TEST(UniqueKeysTest, AgreesWithAMapOverManyBatches) {
  constexpr uint64_t kStream = StreamKey(RandomFor::kGenerator, 17);
  for (const uint32_t first_number : {1u, UINT32_MAX, UINT32_MAX - 70'000}) {
    KeyDeduplicator deduplicator(first_number);
    UniqueKeys unique;
    uint64_t draw = 0;
    for (const uint64_t size : {1u, 7u, 511u, 512u, 513u, 10000u, 3u, 1025u, 20000u, 9u}) {
      for (const uint64_t spread : {uint64_t{1}, uint64_t{100}, uint64_t{1} << 20, ~uint64_t{0}}) {
        std::vector<SparseColumn> columns;
        for (int c = 0; c < 3; ++c) {
          std::vector<uint64_t> keys(size);
          // Multiples of a power of two: what a weak hash would map to few slots.
          for (uint64_t& key : keys) {
            key = RandomBelow(kStream, ++draw, spread) << (c == 2 ? 20 : 0);
          }
          columns.push_back(Column(std::move(keys)));
        }
        deduplicator.Run({&columns[0], &columns[1], &columns[2]}, &unique);

        std::map<uint64_t, uint32_t> expected;
        size_t at = 0;
        ASSERT_EQ(unique.inverse.size(), 3 * size);
        for (const SparseColumn& column : columns) {
          for (const uint64_t key : column.keys) {
            const auto it = expected.emplace(key, static_cast<uint32_t>(expected.size())).first;
            ASSERT_EQ(unique.inverse[at], it->second);
            ASSERT_EQ(unique.keys[unique.inverse[at]], key);
            ++at;
          }
        }
        ASSERT_EQ(unique.keys.size(), expected.size());
      }
    }
  }
}

}  // namespace
}  // namespace tessera::worker
