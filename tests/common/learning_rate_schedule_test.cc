#include "common/learning_rate_schedule.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

TEST(ScheduleValue, IsOneWithoutASchedule) {
  for (uint64_t step : {uint64_t{0}, uint64_t{1} << 40, ~uint64_t{0}}) {
    EXPECT_EQ(ScheduleValue({}, step), 1);
  }
}

TEST(ScheduleValue, RisesFromOneStepsShareToOneDuringWarmUp) {
  v1::ScheduleSpec spec;
  spec.set_warmup_steps(4);
  std::vector<double> values;
  for (uint64_t step = 0; step < 6; ++step) values.push_back(ScheduleValue(spec, step));
  EXPECT_THAT(values, testing::ElementsAre(0.25, 0.5, 0.75, 1, 1, 1));
}

TEST(ScheduleValue, DecaysAsAPolynomialToItsEndAndStaysThere) {
  v1::ScheduleSpec spec;
  spec.set_decay_start(10);
  spec.set_decay_steps(4);
  EXPECT_EQ(ScheduleValue(spec, 9), 1);
  EXPECT_EQ(ScheduleValue(spec, 10), 1);
  EXPECT_DOUBLE_EQ(ScheduleValue(spec, 11), 0.75 * 0.75);  // the power is 2 unless it is set
  EXPECT_DOUBLE_EQ(ScheduleValue(spec, 13), 0.25 * 0.25);
  EXPECT_EQ(ScheduleValue(spec, 14), 0);
  EXPECT_EQ(ScheduleValue(spec, ~uint64_t{0}), 0);
  spec.set_power(1);
  spec.set_end(0.5f);
  EXPECT_DOUBLE_EQ(ScheduleValue(spec, 11), 0.5 + 0.5 * 0.75);
  EXPECT_EQ(ScheduleValue(spec, 14), 0.5);
  EXPECT_EQ(ScheduleValue(spec, 1000), 0.5);
}

TEST(ScheduleValue, MultipliesWarmUpAndDecayWhereTheyMeet) {
  v1::ScheduleSpec spec;
  spec.set_warmup_steps(4);
  spec.set_decay_steps(4);
  spec.set_power(1);
  EXPECT_DOUBLE_EQ(ScheduleValue(spec, 1), 0.5 * 0.75);
}

TEST(ScheduleValue, FallsAlongACosine) {
  v1::ScheduleSpec spec;
  spec.set_decay(v1::COSINE);
  spec.set_decay_start(10);
  spec.set_decay_steps(6);
  EXPECT_EQ(ScheduleValue(spec, 10), 1);
  EXPECT_DOUBLE_EQ(ScheduleValue(spec, 12), 0.75);  // cos(pi / 3) = 1 / 2
  EXPECT_DOUBLE_EQ(ScheduleValue(spec, 13), 0.5);
  EXPECT_DOUBLE_EQ(ScheduleValue(spec, 14), 0.25);
  EXPECT_EQ(ScheduleValue(spec, 16), 0);
  EXPECT_EQ(ScheduleValue(spec, 1000), 0);
  spec.set_end(0.5f);
  EXPECT_DOUBLE_EQ(ScheduleValue(spec, 12), 0.875);
  EXPECT_EQ(ScheduleValue(spec, 16), 0.5);
}

TEST(ScheduleValue, FallsInStairsAtEveryNthStep) {
  v1::ScheduleSpec spec;
  spec.mutable_step()->set_every(3);
  spec.mutable_step()->set_factor(0.5f);
  std::vector<double> values;
  for (uint64_t step = 0; step < 7; ++step) values.push_back(ScheduleValue(spec, step));
  EXPECT_THAT(values, testing::ElementsAre(1, 1, 1, 0.5, 0.5, 0.5, 0.25));
  EXPECT_EQ(ScheduleValue(spec, ~uint64_t{0}), 0);
}

TEST(ScheduleValue, FallsInStairsAtTheStepsNamed) {
  v1::ScheduleSpec spec;
  spec.set_warmup_steps(2);
  spec.mutable_step()->set_factor(0.25f);
  spec.mutable_step()->add_at(2);
  spec.mutable_step()->add_at(5);
  std::vector<double> values;
  for (uint64_t step = 0; step < 7; ++step) values.push_back(ScheduleValue(spec, step));
  EXPECT_THAT(values, testing::ElementsAre(0.5, 1, 0.25, 0.25, 0.25, 0.0625, 0.0625));
}

}  // namespace
}  // namespace tessera
