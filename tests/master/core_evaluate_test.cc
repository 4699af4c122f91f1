// Jobs that evaluate: what they measure, what they leave alone, and what they survive.
#include <string>

#include "tests/master/core_harness.h"

namespace tessera::master {
namespace {

using testing::HasSubstr;

class CoreEvaluateTest : public testing::Test, public CoreHarness {
 protected:
  // A job that evaluates the model of `spec`, which is trained first.
  v1::SubmitRequest Evaluation(v1::JobSpec spec) {
    const std::string first = Submit(spec, 1, 1);
    RunUntil(first, v1::SUCCEEDED);
    trained_step_ = Job(first).step();
    v1::SubmitRequest request;
    *request.mutable_spec() = std::move(spec);
    request.mutable_spec()->mutable_start()->set_checkpoint(Job(first).checkpoint());
    request.set_task(v1::EVALUATE);
    return request;
  }
  void RunUntilPhase(const std::string& id, const std::string& phase) {
    for (int i = 0; i < 1000 && Job(id).phase() != phase; ++i) Step();
    ASSERT_EQ(Job(id).phase(), phase);
  }

  uint64_t trained_step_ = 0;
};

TEST_F(CoreEvaluateTest, MeasuresBothSplitsAndTrainsNothing) {
  JoinAll(1, 2);
  v1::SubmitRequest request = Evaluation(SmallJob());
  const size_t trained = trained_.size(), cuts = cuts_.size();
  for (const bool warm : {false, true}) {
    request.mutable_spec()->mutable_start()->set_warm(warm);
    request.set_workers(2);
    const std::string id = Submit(request);
    RunUntil(id, v1::SUCCEEDED);
    const v1::JobStatus job = Job(id);
    ASSERT_EQ(job.evaluations_size(), 2);
    ASSERT_EQ(job.final_metrics().size(), 2u);
    EXPECT_EQ(job.evaluations(0).split(), "validation");
    EXPECT_EQ(job.final_metrics().at("validation").samples(), kValidation);
    EXPECT_EQ(job.final_metrics().at("test").samples(), kTest);
    EXPECT_EQ(job.final_metrics().at("test").step(), trained_step_);
    EXPECT_EQ(job.final_metrics().at("test").epoch(), 3u);
    EXPECT_EQ(job.checkpoint(), request.spec().start().checkpoint());
  }
  for (const bool test : {false, true}) {
    v1::SubmitRequest one = request;
    v1::DataSpec& data = *one.mutable_spec()->mutable_data();
    test ? data.clear_validation() : data.clear_test();
    const std::string id = Submit(one);
    RunUntil(id, v1::SUCCEEDED);
    ASSERT_EQ(Job(id).final_metrics().size(), 1u);
    EXPECT_EQ(Job(id).final_metrics().count(test ? "test" : "validation"), 1u);
  }
  EXPECT_EQ(trained_.size(), trained);
  EXPECT_EQ(cuts_.size(), cuts);
}

TEST_F(CoreEvaluateTest, CountsItsOwnBadRecordsAlone) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_data()->set_max_bad_records(3);
  JoinAll(1, 1);
  uint64_t bad = 3;
  bool evaluates = false;
  on_unit_ = [&](const std::string&, const v1::NextWorkResponse& unit, v1::UnitResult* result) {
    const bool first = unit.has_train() && unit.train().epoch() == 0 && unit.train().window() == 0;
    const bool test = unit.has_evaluate() && unit.evaluate().split() == "test" && evaluates;
    if (first || test) result->set_bad_records(bad);
  };
  const v1::SubmitRequest request = Evaluation(spec);
  evaluates = true;
  const std::string within = Submit(request);
  RunUntil(within, v1::SUCCEEDED);
  EXPECT_EQ(Job(within).bad_records(), 3u);
  bad = 4;
  const std::string beyond = Submit(request);
  RunUntil(beyond, v1::FAILED);
  EXPECT_EQ(Job(beyond).reason(), "DataError");
  EXPECT_THAT(Job(beyond).message(), HasSubstr("4 bad records, and data.max_bad_records allows 3"));
  EXPECT_TRUE(Job(beyond).final_metrics().empty());
}

TEST_F(CoreEvaluateTest, MeasuresAgainAfterALossAndIsNotSuspended) {
  JoinAll(1, 1);
  v1::JobSpec spec = SmallJob();
  spec.mutable_recovery()->set_push_log(v1::RecoverySpec::ASYNC);
  const v1::SubmitRequest request = Evaluation(spec);
  const std::string id = Submit(request);
  RunUntilPhase(id, "evaluating");
  EXPECT_THAT(std::string(core_->Suspend(id, now_).message()),
              HasSubstr("does not train, and has no checkpoint"));
  v1::ScaleRequest scale;
  scale.set_job_id(id);
  scale.set_ps(2);
  EXPECT_THAT(std::string(core_->Scale(scale, now_).status().message()),
              HasSubstr("does not train, and keeps the ps"));
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 1u);
  EXPECT_EQ(Job(id).evaluations_size(), 2);
  EXPECT_EQ(Job(id).final_metrics().size(), 2u);
}

}  // namespace
}  // namespace tessera::master
