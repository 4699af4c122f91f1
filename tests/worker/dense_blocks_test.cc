#include "worker/parameters/dense_blocks.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/job/optimizer.h"
#include "common/partition.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/optimizers.h"
#include "tests/worker/dense_job_testing.h"

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
      DenseBlocks blocks(7, DenseLayout::Flat(floats), RouterOver(ps));
      blocks.CopyIn(in);
      // A ps that gives back what it was given.
      const TableGradients pushed = blocks.Write();
      const TableRows pulled = blocks.Read();
      ASSERT_TRUE(floats == 0 || pushed.gradients != pulled.rows)
          << "a push and a pull may be under way at once";
      std::copy_n(pushed.gradients, pushed.keys->keys.size() * kDenseBlockFloats, pulled.rows);
      EXPECT_TRUE(blocks.CopyOut(absl::MakeSpan(out)).ok());
      EXPECT_EQ(in, out) << floats << " floats, " << ps << " ps";
      EXPECT_EQ(blocks.Read().table, 7u);
      EXPECT_EQ(blocks.Read().keys->keys.size(),
                (floats + kDenseBlockFloats - 1) / kDenseBlockFloats);
    }
  }
}

TEST(DenseBlocks, SomeBlocksLeaveTheOthersAlone) {
  const uint64_t floats = 5 * kDenseBlockFloats + 3;
  std::vector<float> in(floats), out(floats, -1);
  std::iota(in.begin(), in.end(), 1.0f);
  const DenseLayout layout = DenseLayout::Flat(floats);
  DenseBlocks blocks(7, absl::MakeSpan(layout.blocks()).subspan(2, 2), RouterOver(3));
  blocks.CopyIn(in);
  const TableGradients pushed = blocks.Write();
  EXPECT_THAT(pushed.keys->keys, ::testing::UnorderedElementsAre(2u, 3u));
  std::copy_n(pushed.gradients, 2 * kDenseBlockFloats, blocks.Read().rows);
  EXPECT_TRUE(blocks.CopyOut(absl::MakeSpan(out)).ok());
  for (uint64_t i = 0; i < floats; ++i) {
    const uint64_t block = i / kDenseBlockFloats;
    ASSERT_EQ(out[i], block == 2 || block == 3 ? in[i] : -1) << i;
  }
  EXPECT_TRUE(DenseBlocks(7, DenseLayout(), RouterOver(3)).Write().keys->keys.empty());
}

TEST(DenseBlocks, PadTheLastBlockWithZeros) {
  DenseBlocks blocks(0, DenseLayout::Flat(kDenseBlockFloats + 2), RouterOver(1));
  blocks.CopyIn(std::vector<float>(kDenseBlockFloats + 2, 5.0f));
  const TableGradients write = blocks.Write();
  ASSERT_EQ(write.keys->keys.size(), 2u);
  const size_t last = write.keys->keys[0] == 1 ? 0 : 1;
  const float* row = write.gradients + last * kDenseBlockFloats;
  EXPECT_EQ(row[1], 5.0f);
  for (size_t i = 2; i < kDenseBlockFloats; ++i) ASSERT_EQ(row[i], 0.0f);
}

TEST(DenseBlocks, OfTensorsReturnWhatWasPutInAndPadEachWithZeros) {
  const std::vector<uint64_t> tensors = {3, 0, 2 * kDenseBlockFloats + 1, kDenseBlockFloats, 1};
  uint64_t floats = 0;
  for (const uint64_t size : tensors) floats += size;
  for (int ps : {1, 2, 5}) {
    const DenseLayout layout = DenseLayout::ByTensor(tensors);
    DenseBlocks blocks(7, layout, RouterOver(ps));
    std::vector<float> in(floats), out(floats, -1);
    std::iota(in.begin(), in.end(), 1.0f);
    blocks.CopyIn(in);
    const TableGradients pushed = blocks.Write();
    ASSERT_EQ(pushed.keys->keys.size(), 6u);
    // A block's floats are those of the one with its key; behind them are zeros.
    for (size_t i = 0; i < pushed.keys->keys.size(); ++i) {
      const auto block =
          std::find_if(layout.blocks().begin(), layout.blocks().end(),
                       [&](const DenseLayout::Block& b) { return b.key == pushed.keys->keys[i]; });
      ASSERT_NE(block, layout.blocks().end());
      for (size_t j = 0; j < kDenseBlockFloats; ++j) {
        ASSERT_EQ(pushed.gradients[i * kDenseBlockFloats + j],
                  j < block->floats ? in[block->begin + j] : 0.0f);
      }
    }
    std::copy_n(pushed.gradients, pushed.keys->keys.size() * kDenseBlockFloats, blocks.Read().rows);
    EXPECT_TRUE(blocks.CopyOut(absl::MakeSpan(out)).ok());
    EXPECT_EQ(in, out);
  }
}

// Of the same number of blocks, so that nothing else tells.
TEST(DenseBlocks, RefuseThoseOfAModelOfMoreParameters) {
  const auto pulled = [](const DenseLayout& before, const DenseLayout& layout, float value) {
    DenseBlocks trained(7, before, RouterOver(2)), blocks(7, layout, RouterOver(2));
    trained.CopyIn(std::vector<float>(before.floats(), value));
    const TableGradients pushed = trained.Write();
    EXPECT_EQ(pushed.keys->keys, blocks.Read().keys->keys);
    std::copy_n(pushed.gradients, pushed.keys->keys.size() * kDenseBlockFloats, blocks.Read().rows);
    std::vector<float> out(layout.floats());
    return blocks.CopyOut(absl::MakeSpan(out));
  };
  const DenseLayout flat = DenseLayout::Flat(kDenseBlockFloats + 20);
  const absl::Status fewer = pulled(flat, DenseLayout::Flat(kDenseBlockFloats + 17), 0.25f);
  EXPECT_EQ(fewer.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(fewer.message(), ::testing::HasSubstr("block 1 of the dense parameters has 0.25 as "
                                                    "number 18, expected zeros behind the 17 "));
  EXPECT_EQ(
      pulled(DenseLayout::ByTensor({3, 2000, 5}), DenseLayout::ByTensor({2, 2000, 5}), 1).code(),
      absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(pulled(flat, flat, 0.25f).ok());
  EXPECT_TRUE(pulled(flat, DenseLayout::Flat(kDenseBlockFloats + 17), std::nanf("")).ok())
      << "training has diverged, which others name";
}

TEST(TrainedLayout, IsByTensorWhereATensorIsAWhole) {
  v1::JobSpec spec = testing::Job("dnn", 2, 1);
  testing::SetOptions(spec, testing::SmallMlp());
  const std::unique_ptr<Model> model = testing::MakeModel(spec);
  for (const std::string& kind : KindsOfOptimizers()) {
    v1::OptimizerSpec& optimizer = *spec.mutable_model()->mutable_optimizer();
    optimizer = OptimizerNamed(kind);
    EXPECT_EQ(TrainedLayout(spec.model(), *model).blocks().size() > 1, StepsByWhole(optimizer))
        << kind;
  }
  spec.mutable_model()->mutable_optimizer()->mutable_lamb();
  const DenseLayout layout = TrainedLayout(spec.model(), *model);
  EXPECT_EQ(layout.floats(), model->trained_floats());
  size_t i = 0;
  for (const GraphParameter& parameter : model->graph().parameters()) {
    if (!parameter.spec.trained) continue;
    ASSERT_LT(i, layout.blocks().size());
    EXPECT_EQ(layout.blocks()[i].begin, parameter.offset) << parameter.name;
    EXPECT_EQ(layout.blocks()[i++].floats, parameter.floats) << parameter.name;
  }
  EXPECT_EQ(i, layout.blocks().size());
}

}  // namespace
}  // namespace tessera::worker
