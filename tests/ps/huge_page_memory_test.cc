#include "ps/memory/huge_page_memory.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tessera::ps {
namespace {

constexpr size_t kPage = 2 << 20;

TEST(HugePageMemory, GivesBlocksOfCacheLinesThatNeverOverlap) {
  HugePageMemory memory;
  std::mt19937 random(3);
  std::vector<std::pair<unsigned char*, size_t>> blocks;
  for (int i = 0; i < 2000; ++i) {
    if (!blocks.empty() && random() % 2 == 0) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      const auto [block, bytes] = blocks.back();
      blocks.pop_back();
      // Nobody else has written into it.
      ASSERT_TRUE(std::all_of(block, block + bytes,
                              [first = block[0]](unsigned char c) { return c == first; }));
      memory.Free(block, bytes);
      continue;
    }
    const size_t bytes = 64 * (1 + random() % 1000);
    auto* const block = static_cast<unsigned char*>(memory.Allocate(bytes));
    ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u);
    std::fill_n(block, bytes, static_cast<unsigned char>(i % 255 + 1));
    blocks.emplace_back(block, bytes);
  }
  for (const auto& [block, bytes] : blocks) memory.Free(block, bytes);
}

TEST(HugePageMemory, JoinsWhatIsFreeSoThatLargerBlocksFit) {
  HugePageMemory memory;
  std::vector<void*> blocks;
  for (size_t taken = 0; taken < kPage; taken += HugePageMemory::kSmall) {
    blocks.push_back(memory.Allocate(HugePageMemory::kSmall));
  }
  EXPECT_EQ(memory.free_bytes(), 0u);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(5));
  for (void* const block : blocks) memory.Free(block, HugePageMemory::kSmall);
  EXPECT_EQ(memory.free_bytes(), kPage);
  void* const whole = memory.Allocate(kPage);
  EXPECT_EQ(memory.free_bytes(), 0u);  // no page was added
  memory.Free(whole, kPage);
}

TEST(HugePageMemory, TakesSmallBlocksFromTheHeap) {
  HugePageMemory memory;
  void* const block = memory.Allocate(HugePageMemory::kSmall - 64);
  EXPECT_EQ(memory.free_bytes(), 0u);
  memory.Free(block, HugePageMemory::kSmall - 64);
  EXPECT_EQ(memory.free_bytes(), 0u);
}

TEST(HugePageMemory, GivesBlocksLargerThanAPage) {
  HugePageMemory memory;
  void* const block = memory.Allocate(kPage + 64);
  EXPECT_EQ(memory.free_bytes(), kPage - 64);
  memory.Free(block, kPage + 64);
  EXPECT_EQ(memory.free_bytes(), 2 * kPage);
}

TEST(HugePageMemory, GivesBackAClosedChunkThatIsFree) {
  HugePageMemory memory;
  constexpr size_t kHalf = kPage / 2;
  auto* const first = static_cast<char*>(memory.Allocate(kHalf));
  auto* const second = static_cast<char*>(memory.Allocate(kHalf));
  std::fill_n(first, kHalf, 'a');
  std::fill_n(second, kHalf, 'b');
  ASSERT_EQ(memory.chunks().size(), 1u);
  memory.Free(second, kHalf);
  EXPECT_EQ(memory.chunks()[0].free_bytes, kHalf);
  // Not all of it is free: it opens again.
  memory.Close(first);
  EXPECT_EQ(memory.GiveBack(), 0u);
  EXPECT_EQ(memory.Allocate(kHalf), second);
  memory.Free(second, kHalf);
  // Nothing comes from it while it is closed.
  memory.Close(first);
  auto* const elsewhere = static_cast<char*>(memory.Allocate(kHalf));
  EXPECT_TRUE(elsewhere < first || elsewhere >= first + kPage);
  memory.Free(first, kHalf);
  EXPECT_EQ(memory.free_bytes(), kPage + kHalf);
  EXPECT_EQ(memory.GiveBack(), kPage);
  EXPECT_EQ(memory.free_bytes(), kHalf);
  EXPECT_EQ(memory.chunks().size(), 1u);
  // Its pages are gone, its addresses serve the next chunk.
  memory.Allocate(kHalf);
  EXPECT_EQ(memory.free_bytes(), 0u);
  EXPECT_EQ(memory.Allocate(kHalf), first);
  EXPECT_TRUE(std::all_of(first, first + kHalf, [](char c) { return c == 0; }));
}

}  // namespace
}  // namespace tessera::ps
