#include "ps/slab.h"

#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace tessera::ps {
namespace {

TEST(SlabPool, HandsOutAlignedBlocksThatDoNotOverlap) {
  SlabPool pool(144);
  std::set<std::byte*> blocks;
  for (int i = 0; i < 100000; ++i) {
    auto* block = static_cast<std::byte*>(pool.Allocate());
    std::memset(block, i, 144);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % 16, 0u);
    blocks.insert(block);
  }
  std::byte* end = nullptr;
  for (std::byte* const block : blocks) {
    ASSERT_GE(block, end);
    end = block + 144;
  }
  EXPECT_EQ(blocks.size(), 100000u);
  EXPECT_GE(pool.bytes(), 100000u * 144);
  EXPECT_LE(pool.bytes(), 100000u * 144 + (4u << 20));
}

TEST(SlabPool, HandsOutTheLastFreedBlockFirstAndGrowsOnlyWhenNoneIsFree) {
  SlabPool pool(32);
  void* const a = pool.Allocate();
  void* const b = pool.Allocate();
  void* const c = pool.Allocate();
  const size_t bytes = pool.bytes();
  pool.Free(a);
  pool.Free(c);
  EXPECT_EQ(pool.bytes(), bytes);
  EXPECT_EQ(pool.Allocate(), c);
  EXPECT_EQ(pool.Allocate(), a);
  void* const d = pool.Allocate();
  EXPECT_TRUE(d != a && d != b && d != c);
}

TEST(SlabPool, UsesWhatAPoolThatItAdoptedHadLeftBeforeItGrows) {
  SlabPool pool(32);
  std::set<void*> in_use;
  const auto allocate = [&in_use](SlabPool& from) {
    void* const block = from.Allocate();
    EXPECT_TRUE(in_use.insert(block).second);
    std::memset(block, 0x5a, 32);
    return block;
  };
  for (int i = 0; i < 10; ++i) allocate(pool);
  {
    SlabPool other(32);
    std::vector<void*> blocks;
    for (int i = 0; i < 1000; ++i) blocks.push_back(allocate(other));
    for (int i = 0; i < 300; ++i) {
      in_use.erase(blocks[static_cast<size_t>(i)]);
      other.Free(blocks[static_cast<size_t>(i)]);
    }
    pool.Adopt(other);
    EXPECT_EQ(other.bytes(), 0u);
    std::memset(other.Allocate(), 0, 32);  // of a slab of its own, which goes with it
  }
  const size_t bytes = pool.bytes();
  while (in_use.size() < bytes / 32) allocate(pool);
  EXPECT_EQ(pool.bytes(), bytes);
  allocate(pool);
  EXPECT_GT(pool.bytes(), bytes);
}

}  // namespace
}  // namespace tessera::ps
