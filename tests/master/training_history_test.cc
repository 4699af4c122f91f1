#include "master/run/training_history.h"

#include <cmath>

#include "gtest/gtest.h"

namespace tessera::master {
namespace {

constexpr absl::Time kBegin = absl::FromUnixSeconds(1'000'000);

v1::UnitResult Unit(uint64_t samples, double mean_loss, double auc = NAN) {
  v1::UnitResult unit;
  unit.set_samples(samples);
  unit.set_loss_sum(mean_loss * static_cast<double>(samples));
  unit.set_auc(auc);
  return unit;
}

TEST(TrainingHistoryTest, APointIsAUnitWhileThereAreFew) {
  v1::JobStatus job;
  TrainingHistory history(job.mutable_history());
  history.Add(Unit(64, 0.5, 0.7), 2, 0.25, kBegin);
  history.Add(Unit(32, 0.25), 3, 0.5, kBegin + absl::Seconds(1));
  ASSERT_EQ(job.history_size(), 2);
  const v1::TrainingPoint& first = job.history(0);
  EXPECT_EQ(first.step(), 2);
  EXPECT_EQ(first.samples(), 64);
  EXPECT_DOUBLE_EQ(first.seconds(), 0.25);
  EXPECT_DOUBLE_EQ(first.loss(), 0.5);
  EXPECT_DOUBLE_EQ(first.auc(), 0.7);
  EXPECT_EQ(first.units(), 1);
  EXPECT_EQ(first.unix_ms(), 1'000'000'000);
  EXPECT_EQ(job.history(1).unix_ms(), 1'000'001'000);
  EXPECT_FALSE(job.history(1).has_auc());
}

TEST(TrainingHistoryTest, WhatIsNotKnownIsNotSetAndCountsInNoMean) {
  v1::JobStatus job;
  TrainingHistory history(job.mutable_history());
  history.Add(Unit(10, NAN, 0.5), 0, 1, kBegin);
  history.Add(Unit(0, 0), 0, 1, kBegin);
  EXPECT_EQ(job.history_size(), 0);
  history.Add(Unit(30, 0.5, 0.9), 4, 1, kBegin);
  ASSERT_EQ(job.history_size(), 1);
  EXPECT_DOUBLE_EQ(job.history(0).loss(), 0.5);
  EXPECT_DOUBLE_EQ(job.history(0).auc(), (10 * 0.5 + 30 * 0.9) / 40);
  EXPECT_EQ(job.history(0).samples(), 40);
  EXPECT_DOUBLE_EQ(job.history(0).seconds(), 3);
  EXPECT_EQ(job.history(0).step(), 4);
}

// A ramp of losses: wherever points were joined, a point's loss is that of the middle of its steps.
TEST(TrainingHistoryTest, HoweverManyUnitsThereAreThePointsAreFewAndWhatTheyWere) {
  for (const int units : {255, 256, 257, 1000, 100'000}) {
    SCOPED_TRACE(units);
    v1::JobStatus job;
    TrainingHistory history(job.mutable_history());
    for (int u = 1; u <= units; ++u) history.Add(Unit(8, u), u, 0.5, kBegin + absl::Seconds(u));
    EXPECT_LE(job.history_size(), TrainingHistory::kMostPoints);
    if (units >= TrainingHistory::kMostPoints) {
      EXPECT_GE(job.history_size(), TrainingHistory::kMostPoints / 2);
    }
    uint64_t step = 0, samples = 0, most = 0;
    double seconds = 0;
    for (const v1::TrainingPoint& point : job.history()) {
      EXPECT_EQ(point.step() - step, point.units());
      EXPECT_DOUBLE_EQ(point.loss(), (static_cast<double>(step + point.step()) + 1) / 2);
      step = point.step();
      samples += point.samples();
      seconds += point.seconds();
      most = std::max<uint64_t>(most, point.units());
    }
    EXPECT_EQ(step, units);
    EXPECT_EQ(samples, 8 * units);
    EXPECT_DOUBLE_EQ(seconds, 0.5 * units);
    EXPECT_EQ(job.history(0).units(), most);
  }
}

// The steps of a unit of two ranks are done when the second one's is.
TEST(TrainingHistoryTest, UnitsAreOfThePointWhoseStepsTheyMade) {
  v1::JobStatus job;
  TrainingHistory history(job.mutable_history());
  for (int u = 0; u < 4; ++u) {
    history.Add(Unit(8, u), 10 * u, 0.5, kBegin);
    history.Add(Unit(8, u), 10 * (u + 1), 0.5, kBegin);
  }
  ASSERT_EQ(job.history_size(), 4);
  for (int u = 0; u < 4; ++u) {
    EXPECT_EQ(job.history(u).step(), 10 * (u + 1));
    EXPECT_EQ(job.history(u).samples(), 16);
    EXPECT_EQ(job.history(u).units(), 2);
    EXPECT_DOUBLE_EQ(job.history(u).seconds(), 1);
    EXPECT_DOUBLE_EQ(job.history(u).loss(), u);
  }
}

TEST(TrainingHistoryTest, WhatIsTrainedAgainTakesThePlaceOfWhatWasThere) {
  v1::JobStatus job;
  {
    TrainingHistory history(job.mutable_history());
    for (int u = 1; u <= 10; ++u) history.Add(Unit(8, 1), 10 * u, 1, kBegin);
    history.Add(Unit(8, 3), 100, 1, kBegin);
    history.Begin(70);
    EXPECT_EQ(job.history_size(), 7);
    history.Add(Unit(8, 2), 80, 1, kBegin);
    ASSERT_EQ(job.history_size(), 8);
    EXPECT_EQ(job.history(7).samples(), 8);
    EXPECT_DOUBLE_EQ(job.history(7).loss(), 2);
  }
  TrainingHistory history(job.mutable_history());
  history.Begin(45);
  EXPECT_EQ(job.history_size(), 4);
  history.Add(Unit(8, 2), 50, 1, kBegin);
  ASSERT_EQ(job.history_size(), 5);
  EXPECT_DOUBLE_EQ(job.history(3).loss(), 1);
  EXPECT_DOUBLE_EQ(job.history(4).loss(), 2);
  history.Begin(0);
  EXPECT_EQ(job.history_size(), 0);
}

}  // namespace
}  // namespace tessera::master
