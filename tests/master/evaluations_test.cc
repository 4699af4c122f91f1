#include "master/run/evaluations.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::master {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class EvaluationsTest : public testing::Test {
 protected:
  EvaluationsTest() {
    v1::JobSpec& spec = *record_.mutable_status()->mutable_spec();
    spec.mutable_evaluation()->add_metrics("auc");
    spec.mutable_train()->mutable_early_stopping()->set_patience(2);
  }
  static v1::Evaluation Measured(uint64_t step, double auc) {
    v1::Evaluation evaluation;
    evaluation.set_split("validation");
    evaluation.set_step(step);
    (*evaluation.mutable_metrics())["auc"] = auc;
    return evaluation;
  }
  Evaluations::Added Add(uint64_t step, double auc, const std::string& before = "") {
    position_.set_step(step);
    return evaluations_.Add(Measured(step, auc), before, position_);
  }
  // Steps of those that are marked.
  std::vector<uint64_t> Best() const {
    std::vector<uint64_t> steps;
    for (const v1::Evaluation& evaluation : evaluations_.all()) {
      if (evaluation.best()) steps.push_back(evaluation.step());
    }
    return steps;
  }

  v1::JobRecord record_;
  v1::Position position_;
  Evaluations evaluations_ = Evaluations(&record_);
};

TEST_F(EvaluationsTest, MarksTheBestAndFollowsTheRules) {
  EXPECT_TRUE(Add(10, 0.6).outcome.improved);
  const Evaluations::Added better = Add(20, 0.7);
  EXPECT_TRUE(better.outcome.improved);
  EXPECT_EQ(better.text, "step 20: validation auc 0.700000 (best so far)");
  EXPECT_THAT(Best(), ElementsAre(20));
  EXPECT_FALSE(Add(30, 0.65).outcome.stop);
  EXPECT_EQ(position_.stop_misses(), 1u);
  EXPECT_TRUE(Add(40, 0.69).outcome.stop);
  EXPECT_THAT(Best(), ElementsAre(20));
  EXPECT_EQ(position_.best(), 0.7);
}

TEST_F(EvaluationsTest, SaysOnceThatTheMetricIsUndefined) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(Add(10, 0.6).undefined);
  const Evaluations::Added first = Add(20, nan);
  EXPECT_TRUE(first.undefined);
  EXPECT_FALSE(first.outcome.improved);
  EXPECT_FALSE(Add(30, nan).undefined);
  EXPECT_THAT(Best(), ElementsAre(10));
}

TEST_F(EvaluationsTest, ForgetsTheOldestButTheBest) {
  Add(1, 0.9);
  for (uint64_t step = 2; step <= 1200; ++step) Add(step, 0.5);
  ASSERT_EQ(evaluations_.all().size(), 1000u);
  EXPECT_EQ(evaluations_.all().front().step(), 1u);
  EXPECT_EQ(evaluations_.all()[1].step(), 202u);
  EXPECT_EQ(evaluations_.all().back().step(), 1200u);
}

TEST_F(EvaluationsTest, AndTheOneThatIsLeftIfTheBestIsLost) {
  const std::string first = "job-1/step-000000000001";
  Add(1, 0.9);
  position_.set_best_checkpoint(first);
  for (uint64_t step = 2; step <= 1000; ++step) Add(step, 0.5);
  EXPECT_TRUE(Add(1001, 0.95).best);
  EXPECT_EQ(evaluations_.all().front().step(), 1u) << "no checkpoint has the model of step 1001";
  // Nor yet, while it is being written.
  position_.set_best_checkpoint("job-1/step-000000001001");
  Add(1002, 0.5, first);
  ASSERT_EQ(evaluations_.all().size(), 1000u);
  EXPECT_THAT(evaluations_.LoseBest(1001, first, false, "no room", position_).text,
              HasSubstr("the best that is left is of step 1, auc 0.900000"));
  EXPECT_THAT(Best(), ElementsAre(1));
  EXPECT_FALSE(Add(1003, 0.8).best);
}

TEST_F(EvaluationsTest, WhereTheBestIsLostTheOneBeforeIs) {
  Add(10, 0.6);
  Add(20, 0.7);
  position_.set_best_checkpoint("job-1/step-000000000020");
  const Evaluations::Left left =
      evaluations_.LoseBest(20, "job-1/step-000000000010", false, "no room", position_);
  EXPECT_EQ(left.text,
            "the best model so far, of step 20, auc 0.700000, is lost: no room; the best that is "
            "left is of step 10, auc 0.600000");
  EXPECT_FALSE(left.at_barrier);
  EXPECT_THAT(Best(), ElementsAre(10));
  EXPECT_EQ(position_.best(), 0.7) << "the rules go by what was seen";
  EXPECT_EQ(position_.best_checkpoint(), "job-1/step-000000000010");
}

TEST_F(EvaluationsTest, OrTheOneAtTheBarrierIfThatIsBetter) {
  Add(10, 0.6);
  Add(20, 0.7);
  Add(30, 0.65);
  EXPECT_FALSE(
      evaluations_.LoseBest(20, "job-1/step-000000000010", false, "", position_).at_barrier);
  EXPECT_THAT(Best(), ElementsAre(10)) << "that of step 30 has no checkpoint, nor will";
  EXPECT_TRUE(evaluations_.LoseBest(20, "job-1/step-000000000010", true, "", position_).at_barrier);
  EXPECT_THAT(Best(), ElementsAre(30));
  EXPECT_EQ(position_.best(), 0.7);
}

TEST_F(EvaluationsTest, WhereNoneIsLeftTheNextIsTheBest) {
  Add(20, 0.7);
  EXPECT_THAT(evaluations_.LoseBest(20, "", false, "no room", position_).text,
              HasSubstr("none is left"));
  EXPECT_THAT(Best(), ElementsAre());
  const Evaluations::Added next = Add(30, 0.1);
  EXPECT_TRUE(next.best);
  EXPECT_EQ(next.text, "step 30: validation auc 0.100000 (best that is left)");
  EXPECT_THAT(Best(), ElementsAre(30));
}

TEST_F(EvaluationsTest, TheRulesGoOnAsIfTheBestWereNotLost) {
  v1::PlateauSpec& plateau = *record_.mutable_status()
                                  ->mutable_spec()
                                  ->mutable_train()
                                  ->mutable_schedule()
                                  ->mutable_plateau();
  plateau.set_factor(0.5f);
  plateau.set_patience(1);
  for (const std::string before : {"job-1/step-000000000010", ""}) {
    SCOPED_TRACE(before);
    position_.Clear();
    evaluations_.Set({});
    Add(10, 0.6);
    Add(20, 0.7);
    evaluations_.LoseBest(20, before, false, "no room", position_);
    const Evaluations::Added worse = Add(30, 0.65);
    EXPECT_TRUE(worse.best);
    EXPECT_FALSE(worse.outcome.improved);
    EXPECT_TRUE(worse.outcome.cut);
    EXPECT_EQ(position_.plateau_scale(), 0.5);
    EXPECT_EQ(position_.stop_misses(), 1u);
    const Evaluations::Added worse_still = Add(40, 0.64);
    EXPECT_FALSE(worse_still.best);
    EXPECT_TRUE(worse_still.outcome.stop);
    EXPECT_THAT(Best(), ElementsAre(30));
    EXPECT_EQ(position_.best(), 0.7);
  }
}

}  // namespace
}  // namespace tessera::master
