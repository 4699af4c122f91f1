#include "common/train_unit.h"

#include "gtest/gtest.h"

namespace tessera {
namespace {

TEST(TrainUnit, BatchesThatAreSetAsideAreNotTrained) {
  v1::Train unit;
  unit.set_batch_begin(2);
  unit.set_batch_end(6);
  unit.set_batch_size(10);
  unit.set_first_step(100);
  // The last batch is half as large.
  EXPECT_EQ(RecordsToTrain(unit, 55), 35u);
  unit.add_set_aside(101);
  unit.add_set_aside(103);
  EXPECT_EQ(RecordsToTrain(unit, 55), 20u);
  EXPECT_FALSE(IsSetAside(unit, 2));
  EXPECT_TRUE(IsSetAside(unit, 3));
  EXPECT_TRUE(IsSetAside(unit, 5));
  // However often it is said.
  unit.add_set_aside(101);
  unit.add_set_aside(103);
  EXPECT_EQ(RecordsToTrain(unit, 55), 20u);
  EXPECT_FALSE(AllSetAside(unit));
  unit.add_set_aside(100);
  unit.add_set_aside(102);
  EXPECT_TRUE(AllSetAside(unit));
  EXPECT_EQ(RecordsToTrain(unit, 55), 0u);
}

}  // namespace
}  // namespace tessera
