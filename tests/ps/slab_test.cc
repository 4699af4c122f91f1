#include "ps/slab.h"

#include <cstdint>
#include <cstring>
#include <set>

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

}  // namespace
}  // namespace tessera::ps
