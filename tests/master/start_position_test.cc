#include "master/plan/start_position.h"

#include "gtest/gtest.h"

namespace tessera::master {
namespace {

class StartPositionTest : public testing::Test {
 protected:
  StartPositionTest() {
    job_.set_task(v1::TRAIN);
    job_.set_bad_records(9);
    job_.set_set_aside_records(8);
    v1::Position& at = *manifest_.mutable_position();
    at.set_epoch(2);
    at.set_step(70);
    at.set_next_push(140);
    at.set_has_best(true);
    at.set_best(0.8);
    at.set_best_checkpoint("other-1/step-000000000050");
    at.set_stop_misses(1);
    at.set_plateau_misses(1);
    at.set_evaluated_step(70);
    at.set_bad_records(5);
    at.set_set_aside_records(4);
  }
  v1::Position Start(StartOf of) { return StartPosition(job_, manifest_, of); }

  v1::JobStatus job_;
  v1::CheckpointManifest manifest_;
};

TEST_F(StartPositionTest, AJobGoesOnFromItsOwnWithAllOfIt) {
  const v1::Position own = Start(StartOf::kOwn);
  EXPECT_EQ(own.step(), 70);
  EXPECT_EQ(own.next_push(), 70) << "of another mode, which counts otherwise";
  EXPECT_EQ(own.best_checkpoint(), "other-1/step-000000000050");
  EXPECT_EQ(own.stop_misses(), 1);
  EXPECT_EQ(own.bad_records(), 5);
  job_.mutable_spec()->mutable_consistency()->set_sparse(v1::ASYNC);
  job_.mutable_spec()->mutable_consistency()->set_dense(v1::ASYNC);
  EXPECT_EQ(Start(StartOf::kOwn).next_push(), 140);
}

TEST_F(StartPositionTest, OfAnotherJobItTakesUpWhereTrainingStood) {
  const v1::Position other = Start(StartOf::kOther);
  EXPECT_EQ(other.step(), 70);
  EXPECT_EQ(other.data_epoch(), 2);
  EXPECT_FALSE(other.has_best());
  EXPECT_EQ(other.best_checkpoint(), "");
  EXPECT_EQ(other.stop_misses() + other.plateau_misses(), 0);
  EXPECT_EQ(other.evaluated_step(), 0);
  EXPECT_EQ(other.bad_records() + other.set_aside_records(), 0);
}

TEST_F(StartPositionTest, AWarmStartBeginsAtTheBeginning) {
  job_.mutable_spec()->mutable_start()->set_warm(true);
  EXPECT_EQ(Start(StartOf::kOther).SerializeAsString(), "");
  EXPECT_EQ(Start(StartOf::kOwn).step(), 70) << "only its first run begins so";
}

TEST_F(StartPositionTest, BadRecordsOfTrainingAreNotThoseOfATaskOnOtherFiles) {
  job_.set_task(v1::PREDICT);
  EXPECT_EQ(Start(StartOf::kOwn).bad_records(), 0);
}

TEST_F(StartPositionTest, TheFinalModelIsMeasuredWithTheCountsOfAllTraining) {
  const v1::Position final = Start(StartOf::kFinal);
  EXPECT_EQ(final.step(), 70);
  EXPECT_EQ(final.bad_records(), 9);
  EXPECT_EQ(final.set_aside_records(), 8);
}

}  // namespace
}  // namespace tessera::master
