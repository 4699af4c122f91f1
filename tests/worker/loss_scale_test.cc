#include "worker/dense/loss_scale.h"

#include "gtest/gtest.h"

namespace tessera::worker {
namespace {

TEST(LossScale, IsHalvedByStepsThatAreLeftOutAndDoubledAfterManyThatAreNot) {
  LossScale scale;
  EXPECT_EQ(scale.value(), 65536);
  EXPECT_FALSE(scale.Update(false));
  EXPECT_FALSE(scale.Update(false));
  EXPECT_EQ(scale.value(), 16384);
  for (uint32_t i = 0; i + 1 < LossScale::kGoodSteps; ++i) EXPECT_TRUE(scale.Update(true));
  EXPECT_EQ(scale.value(), 16384);
  EXPECT_TRUE(scale.Update(true));
  EXPECT_EQ(scale.value(), 32768);
  // Good steps are counted from the last change on.
  for (uint32_t i = 0; i + 1 < LossScale::kGoodSteps; ++i) scale.Update(true);
  EXPECT_FALSE(scale.Update(false));
  for (uint32_t i = 0; i + 1 < LossScale::kGoodSteps; ++i) scale.Update(true);
  EXPECT_EQ(scale.value(), 16384);
}

TEST(LossScale, LeavesNoStepOutWhereItIsNotTheScaleThatIsTooLarge) {
  LossScale scale;
  for (int i = 0; i < 16; ++i) EXPECT_FALSE(scale.Update(false));
  EXPECT_EQ(scale.value(), 1);
  EXPECT_TRUE(scale.Update(false));
  EXPECT_EQ(scale.value(), 1);
}

TEST(LossScale, HasABound) {
  LossScale scale;
  for (uint32_t i = 0; i < 20 * LossScale::kGoodSteps; ++i) scale.Update(true);
  EXPECT_EQ(scale.value(), LossScale::kLargest);
}

}  // namespace
}  // namespace tessera::worker
