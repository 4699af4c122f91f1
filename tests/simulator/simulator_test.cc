#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/simulator/simulation.h"

namespace tessera::simulator {
namespace {

using testing::HasSubstr;

// What happened in the scenarios of the seeds from 1 on, each of which must be right.
Happened RunAll(Scenario (*scenario_of)(uint64_t seed), uint64_t seeds) {
  Happened all;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const Scenario scenario = scenario_of(seed);
    const Outcome outcome = Simulate(scenario);
    EXPECT_TRUE(outcome.status.ok()) << scenario.ToString() << "\n" << outcome.status;
    all += outcome;
  }
  return all;
}

TEST(SimulatorTest, EverySampleCountsOnceWhateverDies) {
  const Happened all = RunAll(&Scenario::Of, 60);
  // Something did happen.
  EXPECT_GT(all.kills, 60u);
  EXPECT_GT(all.restarts, 10u);
  EXPECT_GT(all.set_aside, 0u);
  EXPECT_GT(all.lost_steps, 0u);
  EXPECT_GT(all.moves, 10u);
  EXPECT_GT(all.suspensions, 10u);
  EXPECT_GT(all.rescales, 10u);
  EXPECT_GT(all.evaluations, 30u);
  EXPECT_GT(all.compared, 10u);
}

// Each has shown a mistake once.
TEST(SimulatorTest, SeedsThatFailedOnceDoNotAgain) {
  for (const uint64_t seed :
       {30174,  502282, 503337, 503752, 504364,  506770,  509379,  509882, 515542,
        518093, 520131, 521430, 521445, 524954,  525979,  526248,  529249, 532742,
        539404, 543204, 557057, 571654, 579216,  590965,  608738,  615579, 619128,
        627110, 811247, 859196, 966597, 1007551, 1314865, 1507270, 1574921}) {
    const Scenario scenario = Scenario::Of(seed);
    const Outcome outcome = Simulate(scenario);
    EXPECT_TRUE(outcome.status.ok()) << scenario.ToString() << "\n" << outcome.status;
  }
}

TEST(SimulatorTest, HarshSeedsThatFailedOnceDoNotAgain) {
  for (const uint64_t seed : {3854, 15767}) {
    const Scenario scenario = Scenario::Harsh(seed);
    const Outcome outcome = Simulate(scenario);
    EXPECT_TRUE(outcome.status.ok()) << scenario.ToString() << "\n" << outcome.status;
  }
}

TEST(SimulatorTest, ASpillingSeedThatFailedOnceDoesNotAgain) {
  const Scenario scenario = Scenario::Spilling(20437);
  const Outcome outcome = Simulate(scenario);
  EXPECT_TRUE(outcome.status.ok()) << scenario.ToString() << "\n" << outcome.status;
}

TEST(SimulatorTest, WhereNothingFailsNoJobReturnsToACheckpoint) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    ASSERT_TRUE(Scenario::Calm(seed).NothingFails());
  }
  const Happened all = RunAll(&Scenario::Calm, 40);
  EXPECT_GT(all.moves, 40u);
  EXPECT_GT(all.suspensions, 40u);
  EXPECT_GT(all.rescales, 10u);
}

TEST(SimulatorTest, NoFaultChangesWhichRowsExpire) {
  const Happened all = RunAll(&Scenario::Expiring, 40);
  EXPECT_GT(all.moves, 5u);
  EXPECT_GT(all.suspensions, 5u);
  EXPECT_GT(all.restarts, 5u);
  EXPECT_GT(all.compared, 10u);
}

TEST(SimulatorTest, NoFaultChangesWhichRowsAreAdmitted) {
  const Happened all = RunAll(&Scenario::Admitting, 40);
  EXPECT_GT(all.moves, 5u);
  EXPECT_GT(all.suspensions, 5u);
  EXPECT_GT(all.restarts, 5u);
  EXPECT_GT(all.compared, 10u);
}

TEST(SimulatorTest, RowsMayLeaveMemoryAtAnyMoment) {
  const Happened all = RunAll(&Scenario::Spilling, 12);
  EXPECT_GT(all.evicted_bytes, 100'000u);
  EXPECT_GT(all.moves, 2u);
  EXPECT_GT(all.suspensions, 2u);
  EXPECT_GT(all.restarts, 2u);
}

// It does the same again, event by event, and another does not.
void ExpectTheSame(const Scenario& scenario, const Scenario& another) {
  const Outcome once = Simulate(scenario);
  const Outcome again = Simulate(scenario);
  EXPECT_EQ(once.digest, again.digest) << scenario.seed;
  EXPECT_EQ(once.events, again.events) << scenario.seed;
  EXPECT_EQ(once.evicted_bytes, again.evicted_bytes) << scenario.seed;
  ASSERT_EQ(once.models.size(), again.models.size()) << scenario.seed;
  for (size_t i = 0; i < once.models.size(); ++i) {
    EXPECT_EQ(once.models[i].rows, again.models[i].rows) << scenario.seed;
  }
  EXPECT_NE(once.digest, Simulate(another).digest);
}

TEST(SimulatorTest, ASeedAlwaysDoesTheSame) {
  for (uint64_t seed = 101; seed <= 106; ++seed) {
    ExpectTheSame(Scenario::Of(seed), Scenario::Of(seed + 1000));
  }
  ExpectTheSame(Scenario::Spilling(101), Scenario::Spilling(102));
}

TEST(CountingJobTest, TheDenseBlockLacksNoMoreThanTheLostStepsHad) {
  Scenario scenario;
  scenario.job.consistency = v1::ASYNC;
  const CountingJob job(scenario.job);
  CountingJob::Model model = Simulate(scenario).models.at(0);
  model.rows.at(0).first -= 2 * static_cast<float>(scenario.job.batch);
  EXPECT_TRUE(job.Check(model, 2).ok()) << job.Check(model, 2);
  EXPECT_THAT(job.Check(model, 1).ToString(), HasSubstr("key 0 counts"));
}

// What the simulator is for: a worker with the mistake is caught.
class SimulatorMistakeTest : public testing::Test {
 protected:
  // Of seeds, the first message about one that is not right.
  static std::string Caught(Mistake mistake, v1::Consistency mode) {
    for (uint64_t seed = 1; seed <= 40; ++seed) {
      Scenario scenario = Scenario::Of(seed);
      if (scenario.job.consistency != mode) continue;
      scenario.mistake = mistake;
      const Outcome outcome = Simulate(scenario);
      if (!outcome.status.ok()) return outcome.status.ToString();
    }
    return "none";
  }
};

TEST_F(SimulatorMistakeTest, APushThatLacksWhatItHeldIsCaught) {
  // The second: where batches were set aside, whose counts may lack.
  EXPECT_THAT(Caught(Mistake::kEmptiesPush, v1::ASYNC),
              testing::AnyOf(HasSubstr("rows are wrong"), HasSubstr("the rows lack")));
}

// The ps find it out, and the job goes back to its checkpoint.
TEST_F(SimulatorMistakeTest, APushThatIsLostIsMadeGoodWhereTheNextOneSaysWhatWentBefore) {
  EXPECT_EQ(Caught(Mistake::kLosesPush, v1::ASYNC), "none");
}

TEST_F(SimulatorMistakeTest, APushThatCountsTwiceIsCaught) {
  EXPECT_THAT(Caught(Mistake::kDoublesPush, v1::ASYNC), HasSubstr("rows are wrong"));
}

TEST_F(SimulatorMistakeTest, ScoresThatHaveNotSeenTheRowsAreCaught) {
  EXPECT_THAT(Caught(Mistake::kBlindScores, v1::ASYNC), HasSubstr("an evaluation (validation, "));
  EXPECT_THAT(Caught(Mistake::kBlindScores, v1::SYNC), HasSubstr("an evaluation (validation, "));
}

TEST_F(SimulatorMistakeTest, ARowThatIsNotThatOfItsStepIsCaught) {
  EXPECT_THAT(Caught(Mistake::kStaleRows, v1::SYNC), HasSubstr("where nothing disturbs"));
}

}  // namespace
}  // namespace tessera::simulator
