#include "worker/dense_blocks.h"

#include <numeric>

#include "common/job/job_tables.h"
#include "common/partition.h"
#include "gtest/gtest.h"

namespace tessera::worker {
namespace {

KeyRouter RouterOver(int ps) {
  return KeyRouter(NewPartitionMap(1, 64, std::vector<v1::PsAddress>(ps)));
}

TEST(KeyRouter, PutsEveryKeyWithItsOwner) {
  const v1::PartitionMap map = NewPartitionMap(1, 64, std::vector<v1::PsAddress>(3));
  const KeyRouter router(map);
  std::vector<uint64_t> keys(1000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i * 0x9E3779B97F4A7C15ull;
  RoutedKeys routed;
  std::vector<uint32_t> position;
  router.Route(keys, &routed, &position);
  ASSERT_EQ(routed.begin.size(), 4u);
  EXPECT_EQ(routed.begin[3], keys.size());
  for (uint32_t p = 0; p < 3; ++p) {
    for (uint32_t i = routed.begin[p]; i < routed.begin[p + 1]; ++i) {
      EXPECT_EQ(map.owner(PartitionOf(routed.keys[i], 64).value()), p);
    }
  }
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(routed.keys[position[i]], keys[i]);
}

TEST(DenseBlocks, ReturnWhatWasPutInForAnySizeAndNumberOfPs) {
  for (uint64_t floats : {0u, 1u, kDenseBlockFloats - 1, kDenseBlockFloats, kDenseBlockFloats + 1,
                          10 * kDenseBlockFloats + 7}) {
    for (int ps : {1, 2, 5}) {
      std::vector<float> in(floats), out(floats, -1);
      std::iota(in.begin(), in.end(), 1.0f);
      DenseBlocks blocks(7, floats, RouterOver(ps));
      blocks.CopyIn(in);
      // A ps that gives back what it was given.
      const TableGradients pushed = blocks.Write();
      const TableRows pulled = blocks.Read();
      ASSERT_TRUE(floats == 0 || pushed.gradients != pulled.rows)
          << "a push and a pull may be under way at once";
      std::copy_n(pushed.gradients, pushed.keys->keys.size() * kDenseBlockFloats, pulled.rows);
      blocks.CopyOut(absl::MakeSpan(out));
      EXPECT_EQ(in, out) << floats << " floats, " << ps << " ps";
      EXPECT_EQ(blocks.Read().table, 7u);
      EXPECT_EQ(blocks.Read().keys->keys.size(),
                (floats + kDenseBlockFloats - 1) / kDenseBlockFloats);
    }
  }
}

TEST(DenseBlocks, PadTheLastBlockWithZeros) {
  DenseBlocks blocks(0, kDenseBlockFloats + 2, RouterOver(1));
  blocks.CopyIn(std::vector<float>(kDenseBlockFloats + 2, 5.0f));
  const TableGradients write = blocks.Write();
  ASSERT_EQ(write.keys->keys.size(), 2u);
  const size_t last = write.keys->keys[0] == 1 ? 0 : 1;
  const float* row = write.gradients + last * kDenseBlockFloats;
  EXPECT_EQ(row[1], 5.0f);
  for (size_t i = 2; i < kDenseBlockFloats; ++i) ASSERT_EQ(row[i], 0.0f);
}

}  // namespace
}  // namespace tessera::worker
