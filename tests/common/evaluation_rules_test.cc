#include "common/evaluation_rules.h"

#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class EvaluationRulesTest : public testing::Test {
 protected:
  EvaluationOutcome Evaluate(double metric) {
    const EvaluationOutcome outcome =
        FollowEvaluation(rules_, metric, higher_is_better_, plateau_, stopping_);
    rules_ = outcome.rules;
    return outcome;
  }

  bool higher_is_better_ = true;
  v1::PlateauSpec plateau_;
  v1::EarlyStoppingSpec stopping_;
  EvaluationRules rules_;
};

TEST_F(EvaluationRulesTest, CutToATenthOnEveryMissAndStopAfterTwoInARow) {
  plateau_.set_factor(0.1f);
  plateau_.set_patience(1);
  stopping_.set_patience(2);
  EXPECT_TRUE(Evaluate(0.90).improved);
  EXPECT_TRUE(Evaluate(0.95).improved);
  EvaluationOutcome miss = Evaluate(0.94);
  EXPECT_FALSE(miss.improved);
  EXPECT_TRUE(miss.cut);
  EXPECT_FALSE(miss.stop);
  EXPECT_NEAR(rules_.plateau_scale, 0.1, 1e-8);
  EXPECT_TRUE(Evaluate(0.96).improved);
  EXPECT_NEAR(rules_.plateau_scale, 0.1, 1e-8) << "an improvement does not raise the rate again";
  miss = Evaluate(0.96);  // the same is no improvement
  EXPECT_TRUE(miss.cut);
  EXPECT_FALSE(miss.stop);
  miss = Evaluate(0.955);
  EXPECT_TRUE(miss.stop);
  EXPECT_EQ(rules_.best, 0.96);
}

TEST_F(EvaluationRulesTest, DoNothingUnlessAskedFor) {
  for (double metric : {0.5, 0.4, 0.3, 0.2, 0.1}) {
    const EvaluationOutcome outcome = Evaluate(metric);
    EXPECT_EQ(outcome.improved, metric == 0.5);
    EXPECT_FALSE(outcome.cut || outcome.stop);
  }
  EXPECT_EQ(rules_.plateau_scale, 1);
}

TEST_F(EvaluationRulesTest, WaitForThePatienceBetweenCutsAndKeepTheMinimum) {
  plateau_.set_factor(0.5f);
  plateau_.set_patience(2);
  plateau_.set_minimum(0.2f);
  Evaluate(1);
  std::vector<bool> cuts;
  for (int i = 0; i < 8; ++i) cuts.push_back(Evaluate(0.5).cut);
  EXPECT_THAT(cuts, testing::ElementsAre(false, true, false, true, false, true, false, false));
  EXPECT_NEAR(rules_.plateau_scale, 0.2, 1e-7);
}

TEST_F(EvaluationRulesTest, FollowALossDownwards) {
  higher_is_better_ = false;
  stopping_.set_patience(1);
  EXPECT_TRUE(Evaluate(0.7).improved);
  EXPECT_TRUE(Evaluate(0.6).improved);
  EXPECT_TRUE(Evaluate(0.65).stop);
  EXPECT_EQ(rules_.best, 0.6);
}

TEST_F(EvaluationRulesTest, MeasureSmallStepsAgainstTheBestThatCounted) {
  stopping_.set_min_delta(0.125f);
  EXPECT_TRUE(Evaluate(1).improved);
  EXPECT_FALSE(Evaluate(1.0625).improved);
  EXPECT_TRUE(Evaluate(1.125).improved) << "two steps of half the delta make one";
  EXPECT_FALSE(Evaluate(1.1875).improved);
}

TEST_F(EvaluationRulesTest, CountAnUndefinedMetricNeitherWay) {
  stopping_.set_patience(3);
  plateau_.set_factor(0.5f);
  plateau_.set_patience(2);
  EXPECT_FALSE(Evaluate(kNaN).improved);
  EXPECT_FALSE(rules_.has_best);
  EXPECT_TRUE(Evaluate(0.5).improved);
  for (int i = 0; i < 10; ++i) {
    const EvaluationOutcome outcome = Evaluate(kNaN);
    EXPECT_FALSE(outcome.improved || outcome.cut || outcome.stop);
  }
  EXPECT_EQ(rules_.best, 0.5);
  // What came before goes on to count.
  EXPECT_FALSE(Evaluate(0.5).cut);
  Evaluate(kNaN);
  EXPECT_TRUE(Evaluate(0.5).cut);
  Evaluate(kNaN);
  EXPECT_TRUE(Evaluate(0.5).stop);
}

TEST_F(EvaluationRulesTest, SurviveACheckpoint) {
  plateau_.set_factor(0.5f);
  stopping_.set_patience(5);
  for (double metric : {0.5, 0.4, 0.6, 0.5, 0.5}) Evaluate(metric);
  v1::Position position;
  StoreEvaluationRules(rules_, position);
  const EvaluationRules back = EvaluationRulesFrom(position);
  EXPECT_EQ(back.plateau_scale, 0.125);
  EXPECT_EQ(back.plateau_misses, rules_.plateau_misses);
  EXPECT_EQ(back.stop_misses, 2u);
  EXPECT_TRUE(back.has_best);
  EXPECT_EQ(back.best, 0.6);
  EXPECT_EQ(EvaluationRulesFrom({}).plateau_scale, 1);
}

}  // namespace
}  // namespace tessera
