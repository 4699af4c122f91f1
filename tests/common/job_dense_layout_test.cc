#include "common/job/dense_layout.h"

#include <algorithm>
#include <set>
#include <vector>

#include "common/partition.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

constexpr uint64_t kBlock = kDenseBlockFloats;

TEST(DenseLayout, FlatNumbersItsBlocks) {
  EXPECT_TRUE(DenseLayout::Flat(0).blocks().empty());
  const DenseLayout layout = DenseLayout::Flat(2 * kBlock + 5);
  ASSERT_EQ(layout.blocks().size(), 3u);
  for (uint64_t b = 0; b < 3; ++b) {
    EXPECT_EQ(layout.blocks()[b].key, b);
    EXPECT_FALSE(DenseLayout::IsOfTensor(b));
    EXPECT_EQ(layout.blocks()[b].begin, b * kBlock);
    EXPECT_EQ(layout.blocks()[b].floats, b == 2 ? 5u : kBlock);
  }
  EXPECT_EQ(layout.floats(), 2 * kBlock + 5);
}

// Numbers that are in checkpoints: they never change.
TEST(DenseLayout, OfTensorsKeepsItsKeys) {
  const DenseLayout layout = DenseLayout::ByTensor({1, kBlock + 1});
  ASSERT_EQ(layout.blocks().size(), 3u);
  for (const uint64_t i : {0u, 1u, 2u}) {
    const uint64_t tensor = i == 0 ? 0 : 1, place = i == 2 ? 1 : 0;
    EXPECT_EQ(Mix64(layout.blocks()[i].key),
              (Mix64(tensor) & 0xFFFFFF0000000000ull) | tensor << 24 | place);
  }
}

TEST(DenseLayout, OfTensorsCutsAtTheirEndsAndKeepsEachInOnePartition) {
  std::vector<uint64_t> tensors = {1, 0, kBlock - 1, kBlock, kBlock + 1, 700 * kBlock + 3};
  for (uint64_t i = 0; i < 500; ++i) tensors.push_back(i * 37 % 3000);
  const DenseLayout layout = DenseLayout::ByTensor(tensors);
  for (const uint32_t partitions : {64u, 100u, kDefaultPartitions}) {
    std::set<uint64_t> keys;
    std::set<uint64_t> marks;
    std::set<uint32_t> used;
    size_t b = 0;
    uint64_t begin = 0;
    for (const uint64_t floats : tensors) {
      if (floats == 0) continue;
      const uint64_t mark = DenseLayout::TensorOf(layout.blocks()[b].key);
      const PartitionId home = PartitionOf(layout.blocks()[b].key, partitions);
      EXPECT_TRUE(marks.insert(mark).second) << "two tensors have one mark";
      used.insert(home.value());
      for (uint64_t place = 0; place * kBlock < floats; ++place, ++b) {
        const DenseLayout::Block& block = layout.blocks()[b];
        EXPECT_EQ(block.begin, begin + place * kBlock);
        EXPECT_EQ(block.floats, std::min(kBlock, floats - place * kBlock));
        EXPECT_EQ(DenseLayout::TensorOf(block.key), mark);
        EXPECT_TRUE(DenseLayout::IsOfTensor(block.key));
        EXPECT_EQ(DenseLayout::PlaceOf(block.key), place);
        EXPECT_EQ(PartitionOf(block.key, partitions), home);
        EXPECT_TRUE(keys.insert(block.key).second);
      }
      begin += floats;
    }
    EXPECT_EQ(b, layout.blocks().size());
    EXPECT_EQ(begin, layout.floats());
    // Tensors are spread over the partitions.
    EXPECT_GT(used.size(), std::min(partitions, 500u) / 2);
  }
}

}  // namespace
}  // namespace tessera
