// Several jobs at once: what they share, what they have for themselves, and who waits for whom.
#include "master/core/core.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "master/run/run_state.h"
#include "tests/master/core_harness.h"

namespace tessera::master {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

class CoreJobsTest : public testing::Test, protected CoreHarness {
 protected:
  static v1::JobSpec Named(const std::string& name, uint32_t epochs = 3, int32_t priority = 0) {
    v1::JobSpec spec = SmallJob();
    spec.set_name(name);
    spec.set_priority(priority);
    spec.mutable_train()->set_epochs(epochs);
    return spec;
  }
  std::vector<std::string> NodesOf(const std::string& id, v1::NodeKind kind) {
    std::vector<std::string> names;
    const v1::JobStatus job = Job(id);
    for (const v1::NodeStatus& node : job.nodes()) {
      if (node.kind() == kind) names.push_back(node.name());
    }
    return names;
  }
  std::string StateOf(const std::string& id) { return v1::JobState_Name(Job(id).state()); }
  // Long enough that running jobs may be pre-empted.
  void Age() {
    for (int i = 0; i < 20; ++i) Advance(absl::Seconds(1));
  }
};

TEST_F(CoreJobsTest, TrainAtOnceOnTheSamePsWithWorkersOfTheirOwn) {
  JoinAll(2, 4);
  const std::string a = Submit(Named("a"), 2, 2);
  const std::string b = Submit(Named("b"), 2, 2);
  RunUntilStep(a, 5);
  RunUntilStep(b, 5);
  EXPECT_EQ(StateOf(a), "RUNNING");
  EXPECT_EQ(StateOf(b), "RUNNING");
  EXPECT_THAT(NodesOf(a, v1::WORKER), ElementsAre("worker-0", "worker-1"));
  EXPECT_THAT(NodesOf(b, v1::WORKER), ElementsAre("worker-2", "worker-3"));
  EXPECT_THAT(NodesOf(a, v1::PS), UnorderedElementsAre("ps-0", "ps-1"));
  EXPECT_THAT(NodesOf(b, v1::PS), UnorderedElementsAre("ps-0", "ps-1"));
  const v1::ClusterStatus cluster = core_->Cluster();
  for (const v1::NodeStatus& node : cluster.nodes()) {
    EXPECT_EQ(node.job_id(), node.kind() == v1::PS      ? a + ", " + b
                             : node.name() < "worker-2" ? a
                                                        : b);
  }
  RunUntil(a, v1::SUCCEEDED);
  RunUntil(b, v1::SUCCEEDED);
  for (const std::string& id : {a, b}) {
    EXPECT_EQ(Job(id).samples(), 3 * kTrain);
    EXPECT_EQ(Job(id).restarts(), 0u);
  }
}

TEST_F(CoreJobsTest, WhoLacksFreeWorkersWaitsAndIsNotOvertaken) {
  JoinAll(1, 3);
  const std::string a = Submit(Named("a"), 2, 1);
  const std::string b = Submit(Named("b"), 2, 1);
  const std::string c = Submit(Named("c"), 1, 1);
  RunUntilStep(a, 5);
  EXPECT_EQ(StateOf(b), "CREATED");
  EXPECT_EQ(Job(b).message(),
            "waits for a-1, and is number 1 in the queue; it needs 2 workers, and 1 of 3 are free");
  // It would fit, and b would wait the longer for such as it.
  EXPECT_EQ(StateOf(c), "CREATED");
  EXPECT_EQ(Job(c).message(), "waits for a-1, and is number 2 in the queue");
  RunUntil(a, v1::SUCCEEDED);
  Round();
  EXPECT_EQ(StateOf(b), "RUNNING");
  EXPECT_EQ(StateOf(c), "RUNNING");
  RunUntil(b, v1::SUCCEEDED);
  RunUntil(c, v1::SUCCEEDED);
}

TEST_F(CoreJobsTest, PsOfFewJobsComeFirst) {
  JoinAll(3, 3);
  const std::string a = Submit(Named("a"), 1, 1);
  const std::string b = Submit(Named("b"), 1, 1);
  const std::string c = Submit(Named("c"), 1, 2);
  Round();
  EXPECT_THAT(NodesOf(a, v1::PS), ElementsAre("ps-0"));
  EXPECT_THAT(NodesOf(b, v1::PS), ElementsAre("ps-1"));
  EXPECT_THAT(NodesOf(c, v1::PS), ElementsAre("ps-2", "ps-0"));
}

TEST_F(CoreJobsTest, AFreeWorkerTakesOverInWhicheverJobLosesOne) {
  JoinAll(1, 3);
  const std::string a = Submit(Named("a"), 1, 1);
  const std::string b = Submit(Named("b"), 1, 1);
  RunUntilStep(a, 5);
  RunUntilStep(b, 5);
  Kill("worker-1");
  EXPECT_THAT(Events(b), Contains(HasSubstr("worker-2 takes over rank 0")));
  RunUntil(a, v1::SUCCEEDED);
  RunUntil(b, v1::SUCCEEDED);
  EXPECT_EQ(Job(a).restarts() + Job(b).restarts(), 0u);
}

TEST_F(CoreJobsTest, APsThatIsLostIsLostToAllItsJobs) {
  JoinAll(2, 2);
  const std::string a = Submit(Named("a"), 1, 2);
  const std::string b = Submit(Named("b"), 1, 2);
  const std::string c = Submit(Named("c"), 1, 2);
  RunUntilStep(a, 5);
  RunUntilStep(b, 5);
  Kill("ps-1");
  EXPECT_EQ(StateOf(a), "RESTARTING");
  EXPECT_EQ(StateOf(b), "RESTARTING");
  // Its turn has not come: they go on as soon as there is a ps.
  EXPECT_EQ(StateOf(c), "CREATED");
  Join(v1::PS, "ps-1");
  for (const std::string& id : {a, b, c}) {
    RunUntil(id, v1::SUCCEEDED);
    EXPECT_EQ(Job(id).samples(), 3 * kTrain);
    EXPECT_EQ(Job(id).restarts(), id == c ? 0u : 1u);
  }
}

TEST_F(CoreJobsTest, OneThatEndsLeavesTheOthersAlone) {
  JoinAll(1, 3);
  const std::string a = Submit(Named("a", 20), 1, 1);
  const std::string b = Submit(Named("b", 20), 1, 1);
  const std::string c = Submit(Named("c", 20), 1, 1);
  RunUntilStep(c, 10);
  ASSERT_TRUE(core_->Cancel(b, now_).ok());
  ASSERT_TRUE(core_->Suspend(c, now_).ok());
  RunUntil(c, v1::SUSPENDED);
  Round();
  EXPECT_EQ(last_close_.request.job_id(), c);
  RunUntil(a, v1::SUCCEEDED);
  EXPECT_EQ(Job(a).restarts(), 0u);
  EXPECT_EQ(Job(a).samples(), 20 * kTrain);
  ASSERT_TRUE(core_->Resume(c, now_).ok());
  RunUntil(c, v1::SUCCEEDED);
  EXPECT_EQ(Job(c).samples(), 20 * kTrain);
}

TEST_F(CoreJobsTest, WhatOneWaitsForOutsideHoldsUpNoOther) {
  JoinAll(1, 2);
  const std::string a = Submit(Named("a"), 1, 1);
  const std::string b = Submit(Named("b"), 1, 1);
  const std::optional<Action> first = core_->TakeAction(Lane::kForeground);
  const std::optional<Action> second = core_->TakeAction(Lane::kForeground);
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_NE(first->id, second->id);
  EXPECT_FALSE(core_->TakeAction(Lane::kForeground).has_value());
  EXPECT_EQ(core_->AssignmentFor(alive_.at("worker-1")).job_id(), "");
  core_->ActionDone(second->id, {}, now_);
  EXPECT_EQ(core_->AssignmentFor(alive_.at("worker-1")).job_id(), b);
  EXPECT_EQ(core_->AssignmentFor(alive_.at("worker-0")).job_id(), "");
  RunUntil(b, v1::SUCCEEDED);
  core_->ActionDone(first->id, {}, now_);
  RunUntil(a, v1::SUCCEEDED);
}

TEST_F(CoreJobsTest, AMasterThatRestartsTakesAllOfThemUp) {
  JoinAll(2, 4);
  const std::string a = Submit(Named("a", 6), 2, 2);
  const std::string b = Submit(Named("b", 6), 1, 1);
  RunUntilStep(a, 12);
  RunUntilStep(b, 12);
  RestartMasterAlone({"worker-1"});
  for (int i = 0; i < 300; ++i) Advance(absl::Milliseconds(100));
  RunUntil(a, v1::SUCCEEDED);
  RunUntil(b, v1::SUCCEEDED);
  for (const std::string& id : {a, b}) {
    EXPECT_EQ(Job(id).restarts(), 0u) << id;
    EXPECT_EQ(Job(id).samples(), 6 * kTrain);
    EXPECT_THAT(Events(id), Contains(HasSubstr("the master restarted; the job goes on at step")));
  }
  EXPECT_THAT(Events(a), Contains(HasSubstr("takes over rank 1")));
  for (const auto& [key, value] : log_) EXPECT_THAT(key, Not(testing::StartsWith(kRunPrefix)));
}

TEST_F(CoreJobsTest, AnUrgentOnePreemptsAsManyAsItNeedsTheLeastUrgentFirst) {
  for (const uint32_t needs : {1u, 2u, 3u}) {
    SCOPED_TRACE(needs);
    RestartMaster();
    JoinAll(1, 3);
    const std::string low = Submit(Named("low", 30), 1, 1);
    const std::string lower = Submit(Named("lower", 30, -1), 1, 1);
    const std::string high = Submit(Named("high", 30, 5), 1, 1);
    RunUntilStep(low, 10);
    Age();
    const std::string urgent = Submit(Named("urgent", 1, 3), needs, 1);
    RunUntil(urgent, v1::SUCCEEDED, needs == 3 ? 5000 : 1000);
    EXPECT_THAT(Events(high), testing::Not(Contains(HasSubstr("to be pre-empted"))));
    // Three are never there for it: all wait for the one that does not give way.
    const auto gave_way = [this, &urgent](const std::string& id) {
      const std::vector<std::string> events = Events(id);
      return std::any_of(events.begin(), events.end(), [&](const std::string& event) {
        return absl::StrContains(event, "to be pre-empted by " + urgent);
      });
    };
    EXPECT_EQ(gave_way(lower), needs < 3);
    EXPECT_EQ(gave_way(low), needs == 2);
    for (const std::string& id : {low, lower, high}) {
      RunUntil(id, v1::SUCCEEDED);
      EXPECT_EQ(Job(id).samples(), 30 * kTrain);
      EXPECT_EQ(Job(id).restarts(), 0u);
    }
  }
}

TEST_F(CoreJobsTest, WorkersThatArePromisedToARunningJobAreTakenByNoOther) {
  JoinAll(1, 2);
  v1::JobSpec spec = Named("a", 20);
  spec.mutable_checkpoint()->set_every_steps(1000000);
  const std::string a = Submit(spec, 1, 1);
  RunUntilStep(a, 20);
  ASSERT_TRUE(ScaleWorkers(a, 2).ok());
  const std::string b = Submit(Named("b"), 1, 1);
  EXPECT_EQ(StateOf(b), "CREATED");
  RunUntil(a, v1::SUCCEEDED);
  EXPECT_THAT(Events(a), Contains(HasSubstr("goes from 1 to 2 workers")));
  EXPECT_EQ(Job(a).samples(), 20 * kTrain);
  RunUntil(b, v1::SUCCEEDED);
}

// gRPC's clients take 4 MB by themselves.
constexpr size_t kWhatAnyClientTakes = 4'000'000;

// As many as a job may have, of long names.
v1::JobSpec WithHundredsOfMetrics(uint32_t epochs) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(epochs);
  v1::TaskSpec& task = *spec.mutable_model()->add_tasks();
  task.set_name(std::string(63, 'x'));
  task.set_label("label");
  spec.mutable_evaluation()->set_group_by("user");
  for (int k = 1; k <= 1000; ++k) {
    spec.mutable_evaluation()->add_metrics(absl::StrCat("ndcg@", k));
  }
  spec.mutable_evaluation()->set_every_steps(1);
  return spec;
}

TEST_F(CoreJobsTest, AStatusOfManyEvaluationsWithHundredsOfMetricsFitsAMessage) {
  JoinAll(1, 1);
  aucs_ = {0.9};
  const std::string id = Submit(WithHundredsOfMetrics(/*epochs=*/6), 1, 1);
  RunUntil(id, v1::SUCCEEDED);
  const v1::JobStatus job = Job(id);
  EXPECT_LT(job.ByteSizeLong(), kWhatAnyClientTakes);
  // The best one, and the newest.
  ASSERT_GT(job.evaluations_size(), 8);
  EXPECT_EQ(job.evaluations(0).step(), 1u);
  EXPECT_TRUE(job.evaluations(0).best());
  for (int i = 1; i < job.evaluations_size(); ++i) {
    EXPECT_EQ(job.evaluations(i).step(), 60u - job.evaluations_size() + 1 + i);
    EXPECT_EQ(job.evaluations(i).metrics_size(), 1000);
  }
}

TEST_F(CoreJobsTest, AListOfJobsWithHundredsOfMetricsFitsAMessage) {
  JoinAll(1, 1);
  for (int i = 0; i < 15; ++i) {
    RunUntil(Submit(WithHundredsOfMetrics(/*epochs=*/1), 1, 1), v1::SUCCEEDED);
  }
  size_t bytes = 0;
  const std::vector<v1::JobStatus> jobs = core_->ListJobs(now_);
  ASSERT_EQ(jobs.size(), 15u);
  for (const v1::JobStatus& job : jobs) {
    bytes += job.ByteSizeLong();
    EXPECT_EQ(job.state(), v1::SUCCEEDED);
  }
  EXPECT_LT(bytes, kWhatAnyClientTakes);
  EXPECT_EQ(jobs.front().final_metrics().at("test").metrics_size(), 1000);
  EXPECT_EQ(jobs.front().evaluations_size(), 1);
}

TEST_F(CoreJobsTest, APsThatComesBackLearnsWhichOfItsPushLogsNobodyWillAskFor) {
  JoinAll(1, 1);
  const std::string done = Submit(SmallJob(), 1, 1);
  RunUntil(done, v1::SUCCEEDED);
  const std::string runs = Submit(SmallJob(), 1, 1);
  RunUntilStep(runs, 4);
  v1::Hello hello = HelloOf(v1::PS, "ps-7");
  for (const std::string& id : {done, runs, std::string("other-9")}) hello.add_logged_jobs(id);
  const auto welcome = core_->Join(hello, now_);
  ASSERT_TRUE(welcome.ok());
  EXPECT_THAT(welcome->ended_jobs(), testing::ElementsAre(done));
}

TEST_F(CoreJobsTest, APsLearnsWhichJobsAreForgottenAndWhoseItsLogsAre) {
  options_.cluster = "00c1a55e00c1a55e";
  StartMaster();
  std::vector<std::string> ids;
  for (size_t i = 0; i < JobTable::kFinishedKept + 2; ++i) {
    ids.push_back(Submit(SmallJob(), 1, 1));
    ASSERT_TRUE(core_->Cancel(ids.back(), now_).ok());
    Advance(absl::Milliseconds(1));
  }
  JoinAll(1, 1);
  const std::string runs = Submit(SmallJob(), 1, 1);
  RunUntilStep(runs, 4);
  EXPECT_EQ(opens_.back().calls[0].second.cluster(), options_.cluster);
  v1::Hello hello = HelloOf(v1::PS, "ps-7");
  for (const std::string& id : {ids[0], ids[1], ids[2], runs}) hello.add_logged_jobs(id);
  const auto welcome = core_->Join(hello, now_);
  ASSERT_TRUE(welcome.ok());
  EXPECT_EQ(welcome->cluster(), options_.cluster);
  EXPECT_EQ(welcome->forgotten_below(), 3u);
  EXPECT_THAT(welcome->ended_jobs(), testing::ElementsAre(ids[2]));
}

}  // namespace
}  // namespace tessera::master
