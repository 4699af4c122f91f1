#include "ps/rows/key_groups.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tessera::ps {
namespace {

// As KeyGroups should have it, from a std::map.
void ExpectGroupsOf(const KeyGroups& groups, const std::vector<uint64_t>& keys) {
  std::map<uint64_t, std::vector<uint32_t>> places;
  std::vector<uint64_t> order;
  for (uint32_t i = 0; i < keys.size(); ++i) {
    std::vector<uint32_t>& of_key = places[keys[i]];
    if (of_key.empty()) order.push_back(keys[i]);
    of_key.push_back(i);
  }
  ASSERT_EQ(groups.size(), order.size());
  ASSERT_EQ(std::vector<uint64_t>(groups.keys().begin(), groups.keys().end()), order);
  for (size_t g = 0; g < order.size(); ++g) {
    std::vector<uint32_t> chain;
    for (uint32_t i = groups.First(g); i != KeyGroups::kEnd; i = groups.Next(i)) {
      chain.push_back(i);
      ASSERT_LE(chain.size(), keys.size());
    }
    EXPECT_EQ(chain, places[order[g]]) << "key " << order[g];
  }
}

TEST(KeyGroups, HoldEachKeyOnceWithItsPlacesInOrder) {
  std::mt19937_64 random(7);
  KeyGroups groups;  // kept from list to list, whatever their sizes
  for (const size_t n : {0, 1, 2, 7, 1000, 3, 4096, 999}) {
    for (const uint64_t range : {uint64_t{1}, uint64_t{n / 2 + 1}, UINT64_MAX}) {
      std::vector<uint64_t> keys(n);
      for (uint64_t& key : keys) key = random() % range;
      groups.Build(keys);
      ExpectGroupsOf(groups, keys);
    }
  }
}

TEST(KeyGroups, TakeEveryNumberForAKey) {
  const std::vector<uint64_t> keys = {0, UINT64_MAX, 0, 1, UINT64_MAX, UINT64_MAX - 1};
  KeyGroups groups;
  groups.Build(keys);
  ExpectGroupsOf(groups, keys);
}

}  // namespace
}  // namespace tessera::ps
