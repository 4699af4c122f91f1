#include "ps/rows/slab.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "ps/rows/row_layout.h"

namespace tessera::ps {
namespace {

TEST(SlabPool, HandsOutAlignedBlocksThatDoNotOverlap) {
  SlabPool pool(152);
  std::set<std::byte*> blocks;
  for (int i = 0; i < 100000; ++i) {
    auto* block = static_cast<std::byte*>(pool.Allocate());
    std::memset(block, i, 152);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % RowLayout::kAlignment, 0u);
    blocks.insert(block);
  }
  std::byte* end = nullptr;
  for (std::byte* const block : blocks) {
    ASSERT_GE(block, end);
    end = block + 152;
  }
  EXPECT_EQ(blocks.size(), 100000u);
  EXPECT_GE(pool.bytes(), 100000u * 152);
  EXPECT_LE(pool.bytes(), 100000u * 152 * 101 / 100 + (256u << 10));
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

// Blocks by address, and what is written all over each.
class EmptiedPool {
 public:
  static constexpr size_t kBlock = 48;
  explicit EmptiedPool(std::shared_ptr<HugePageMemory> memory) : pool(kBlock, std::move(memory)) {}

  void Add() {
    auto* const block = static_cast<unsigned char*>(pool.Allocate());
    const auto mark = static_cast<unsigned char>(1 + next_++ % 250);
    std::memset(block, mark, kBlock);
    ASSERT_TRUE(blocks.emplace(block, mark).second);
  }
  void Remove(unsigned char* block) {
    blocks.erase(block);
    pool.Free(block);
  }
  bool Empty(const std::byte* slab) {
    return pool.Empty(slab, [&](void* from, void* to) {
      const auto found = blocks.find(static_cast<unsigned char*>(from));
      if (found == blocks.end()) return false;
      std::memcpy(to, from, kBlock);
      EXPECT_TRUE(blocks.emplace(static_cast<unsigned char*>(to), found->second).second);
      blocks.erase(found);
      return true;
    });
  }
  void Check() const {
    for (const auto& [block, mark] : blocks) {
      ASSERT_EQ(std::count(block, block + kBlock, mark), static_cast<ptrdiff_t>(kBlock));
    }
  }

  std::map<unsigned char*, unsigned char> blocks;
  SlabPool pool;

 private:
  uint64_t next_ = 0;
};

TEST(SlabPool, GivesASlabBackOnceItsBlocksHaveMoved) {
  std::mt19937 random(9);
  const auto memory = std::make_shared<HugePageMemory>();
  EmptiedPool twin(memory);
  for (int round = 0; round < 60; ++round) {
    for (int i = 0; i < 2000; ++i) twin.Add();
    std::vector<unsigned char*> leave;
    for (const auto& [block, mark] : twin.blocks) {
      if (random() % 3 != 0) leave.push_back(block);
    }
    for (unsigned char* const block : leave) twin.Remove(block);
    std::vector<SlabPool::Use> slabs;
    size_t used = 0;
    twin.pool.ForEachSlab([&](const SlabPool::Use& slab) {
      slabs.push_back(slab);
      used += slab.used_bytes;
    });
    ASSERT_EQ(used, twin.blocks.size() * EmptiedPool::kBlock);
    std::shuffle(slabs.begin(), slabs.end(), random);
    for (const SlabPool::Use& slab : slabs) {
      const SlabPool::Use now = twin.pool.FirstIn(slab.begin, slab.begin + 1);
      ASSERT_EQ(now.begin, slab.begin);
      if (!now.fits) continue;
      const size_t bytes = twin.pool.bytes();
      ASSERT_TRUE(twin.Empty(slab.begin));
      ASSERT_EQ(twin.pool.bytes(), bytes - slab.bytes);
    }
    twin.Check();
    // Those whose blocks do not fit elsewhere are few.
    EXPECT_LE(twin.pool.bytes(),
              twin.blocks.size() * EmptiedPool::kBlock * 17 / 16 + 2 * (size_t{64} << 10));
  }
  // If the others have no room, there is another one.
  while (!twin.blocks.empty()) twin.Remove(twin.blocks.begin()->first);
  for (int i = 0; i < 100; ++i) twin.Add();
  std::vector<const std::byte*> all;
  twin.pool.ForEachSlab([&](const SlabPool::Use& slab) { all.push_back(slab.begin); });
  for (const std::byte* const slab : all) ASSERT_TRUE(twin.Empty(slab));
  EXPECT_EQ(twin.blocks.size(), 100u);
  twin.Check();
}

TEST(SlabPool, KeepsSlabsThatItHasAdopted) {
  EmptiedPool other(nullptr);
  for (int i = 0; i < 10; ++i) other.Add();
  SlabPool pool(EmptiedPool::kBlock);
  pool.Adopt(other.pool);
  const auto none_moves = [](void*, void*) { return false; };
  pool.ForEachSlab([&](const SlabPool::Use& slab) {
    EXPECT_TRUE(slab.adopted);
    EXPECT_FALSE(pool.Empty(slab.begin, none_moves));
  });
  // Another pool of the store that has taken it over may have its blocks.
  SlabPool same(EmptiedPool::kBlock);
  for (const auto& [block, mark] : other.blocks) same.Free(block);
  std::set<void*> again;
  for (size_t i = 0; i < other.blocks.size(); ++i) again.insert(same.Allocate());
  EXPECT_EQ(again.size(), other.blocks.size());
  EXPECT_EQ(same.bytes(), 0u);
}

}  // namespace
}  // namespace tessera::ps
