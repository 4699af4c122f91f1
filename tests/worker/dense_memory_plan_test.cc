#include "worker/dense/memory_plan.h"

#include <algorithm>

#include "common/random.h"
#include "gtest/gtest.h"
#include "worker/dense/buffer.h"

namespace tessera::worker {
namespace {

struct Use {
  size_t block, floats;
  uint32_t first, last;
};

TEST(MemoryPlan, GivesBlocksThatAreInUseTogetherPlacesOfTheirOwn) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    uint64_t draw = 0;
    MemoryPlan plan;
    std::vector<Use> uses;
    size_t most_at_once = 0, all = 0;
    for (int i = 0; i < 40; ++i) {
      Use use;
      use.floats = RandomBits(seed, draw++) % 1000;
      use.first = static_cast<uint32_t>(RandomBits(seed, draw++) % 30);
      use.last = use.first + static_cast<uint32_t>(RandomBits(seed, draw++) % 6);
      if (i % 10 == 0) use = {0, use.floats, 0, MemoryPlan::kAlways};
      use.block = plan.Add(use.floats, {use.first, use.last});
      uses.push_back(use);
      all += Buffer::RoundUp(use.floats);
    }
    plan.Place();
    for (const Use& a : uses) {
      EXPECT_EQ(plan.at(a.block) % Buffer::kAlignFloats, 0u);
      EXPECT_LE(plan.at(a.block) + a.floats, plan.floats());
      for (const Use& b : uses) {
        if (a.block == b.block || a.last < b.first || b.last < a.first) continue;
        const size_t begin = std::max(plan.at(a.block), plan.at(b.block));
        const size_t end = std::min(plan.at(a.block) + a.floats, plan.at(b.block) + b.floats);
        EXPECT_LE(end, begin) << "seed " << seed;
      }
    }
    for (uint32_t moment = 0; moment < 40; ++moment) {
      size_t now = 0;
      for (const Use& use : uses) {
        if (use.first <= moment && moment <= use.last) now += Buffer::RoundUp(use.floats);
      }
      most_at_once = std::max(most_at_once, now);
    }
    EXPECT_GE(plan.floats(), most_at_once);
    EXPECT_LE(plan.floats(), 1.3 * static_cast<double>(most_at_once)) << "seed " << seed;
    EXPECT_LT(plan.floats(), all);
  }
}

TEST(MemoryPlan, ChainsOfEqualBlocksTakeTwo) {
  MemoryPlan plan;
  for (uint32_t i = 0; i < 10; ++i) plan.Add(100, {i, i + 1});
  plan.Place();
  EXPECT_EQ(plan.floats(), 2 * Buffer::RoundUp(100));
}

TEST(MemoryPlan, OfNothingIsEmpty) {
  MemoryPlan plan;
  plan.Place();
  EXPECT_EQ(plan.floats(), 0u);
  const size_t none = plan.Add(0, {0, MemoryPlan::kAlways});
  plan.Place();
  EXPECT_EQ(plan.at(none), 0u);
}

}  // namespace
}  // namespace tessera::worker
