#include "ps/slab.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
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
  EXPECT_LE(pool.bytes(), 100000u * 144 * 101 / 100 + (256u << 10));
}

TEST(SlabPool, SharesHugePagesWithOthersAndGivesThemBack) {
  const auto memory = std::make_shared<HugePageMemory>();
  constexpr size_t kPage = 2 << 20;
  {
    std::vector<std::unique_ptr<SlabPool>> pools;
    std::set<void*> blocks;
    for (int p = 0; p < 16; ++p) {
      pools.push_back(std::make_unique<SlabPool>(128, memory));
      // 1, 2, 4, ... and 64 KiB, of which the last is the first that is as large as they get.
      for (int i = 0; i < 127 * 8; ++i) {
        void* const block = pools.back()->Allocate();
        std::memset(block, p, 128);
        EXPECT_TRUE(blocks.insert(block).second);
      }
      EXPECT_EQ(pools.back()->bytes(), size_t{127} << 10);
    }
    EXPECT_EQ(memory->free_bytes(), kPage - 16 * (64 << 10)) << "of one page";
    pools[0]->Adopt(*pools[1]);
    pools[1].reset();
    EXPECT_EQ(memory->free_bytes(), kPage - 16 * (64 << 10));
    pools[0].reset();
    EXPECT_EQ(memory->free_bytes(), kPage - 14 * (64 << 10));
  }
  EXPECT_EQ(memory->free_bytes(), kPage);
}

TEST(SlabPool, FillsItsPagesWhateverTheSizeOfABlock) {
  for (size_t numbers = 64; numbers <= 64 << 10; numbers *= 2) {
    for (const size_t block : {numbers, numbers + 16, 3 * numbers + 16}) {
      SCOPED_TRACE(block);
      const auto memory = std::make_shared<HugePageMemory>();
      SlabPool pool(block, memory);
      const size_t used = std::max<size_t>(32 << 20, 200 * block);
      for (size_t taken = 0; taken < used; taken += block) pool.Allocate();
      // A slab that is not full, a page that is not, and 1/32 of all at the ends of slabs.
      EXPECT_LE(pool.bytes() + memory->free_bytes(),
                used + used / 32 + std::max<size_t>(64 << 10, 64 * block) + (2 << 20));
    }
  }
}

TEST(SlabPool, WithALimitTakesNoHugePage) {
  const auto memory = std::make_shared<HugePageMemory>();
  SlabPool pool(128, memory);
  pool.LimitSlabs(20 << 10);
  for (int i = 0; i < 100'000; ++i) pool.Allocate();
  EXPECT_EQ(memory->free_bytes(), 0u);
  EXPECT_LE(pool.bytes(), 100'000u * 128 + (20u << 10));
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
