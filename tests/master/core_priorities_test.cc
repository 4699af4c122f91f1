#include <string>
#include <utility>

#include "tests/master/core_suspend_testing.h"

// The order of the queue, and running jobs that make room for others of higher priority.
namespace tessera::master {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

class CorePrioritiesTest : public CoreSuspendTest {
 protected:
  // Long enough that the running job may be pre-empted, while its workers are at a unit.
  void Age() {
    for (int i = 0; i < 20; ++i) Advance(absl::Seconds(1));
  }
  // Two jobs: the first was pre-empted by the second, which runs.
  std::pair<std::string, std::string> Preempted() {
    JoinAll(1, 1);
    const std::string low = Submit(Quiet(), 1, 1);
    RunUntilStep(low, 20);
    Age();
    const std::string high = Submit(Urgent(5), 1, 1);
    RunUntil(high, v1::RUNNING);
    return {low, high};
  }
};

TEST_F(CorePrioritiesTest, TheQueueIsOrderedByPriorityThenByNumber) {
  JoinAll(1, 1);
  v1::JobSpec keeps = Quiet(1);
  keeps.set_preemptible(false);
  const std::string first = Submit(keeps, 1, 1);
  std::vector<std::string> ids;
  for (const int32_t priority : {-1, 0, 5, 0, 5}) ids.push_back(Submit(Urgent(priority), 1, 1));
  std::vector<std::string> order;
  for (int i = 0; i < 3000 && order.size() < ids.size(); ++i) {
    Round();
    for (const std::string& id : ids) {
      const bool seen = std::count(order.begin(), order.end(), id) > 0;
      if (!seen && Job(id).state() == v1::RUNNING) order.push_back(id);
    }
  }
  EXPECT_THAT(order, ElementsAre(ids[2], ids[4], ids[1], ids[3], ids[0]));
}

TEST_F(CorePrioritiesTest, AJobOfHigherPriorityPreemptsTheRunningOneWhichGoesOnByItself) {
  JoinAll(1, 1);
  const std::string low = Submit(Quiet(40), 1, 1);
  RunUntilStep(low, 20);
  const std::string same = Submit(Urgent(0), 1, 1);
  Age();
  for (int i = 0; i < 3; ++i) Round();
  EXPECT_EQ(Job(low).state(), v1::RUNNING);
  EXPECT_FALSE(Job(low).has_suspending());
  const std::string high = Submit(Urgent(5), 1, 1);
  EXPECT_THAT(Events(low), Contains(HasSubstr("to be pre-empted by " + high + ", of priority 5")));
  RunUntil(high, v1::RUNNING);
  EXPECT_EQ(Job(low).state(), v1::SUSPENDED);
  EXPECT_EQ(Job(low).reason(), "Preempted");
  EXPECT_THAT(Job(low).message(), HasSubstr("by " + high));
  EXPECT_THAT(std::string(Resume(low).message()), HasSubstr("goes on by itself"));
  RunUntil(high, v1::SUCCEEDED);
  // It is older than the one of its priority.
  RunUntil(low, v1::RUNNING);
  EXPECT_EQ(Job(same).state(), v1::CREATED);
  RunUntil(low, v1::SUCCEEDED);
  EXPECT_EQ(Job(low).samples(), 40 * kTrain);
  EXPECT_EQ(Job(low).restarts(), 0u);
  RunUntil(same, v1::SUCCEEDED);
}

TEST_F(CorePrioritiesTest, AJobIsNotPreemptedBeforeItHasTrainedForAWhile) {
  JoinAll(1, 1);
  const std::string low = Submit(Quiet(200), 1, 1);
  const std::string high = Submit(Urgent(5), 1, 1);
  // It had not begun when the other came, but has its processes.
  EXPECT_EQ(Job(low).state(), v1::RUNNING);
  for (int i = 0; i < 5; ++i) Round();
  EXPECT_FALSE(Job(low).has_suspending());
  const absl::Duration begun = now_.monotonic;
  RunUntil(high, v1::RUNNING);
  EXPECT_GE(now_.monotonic - begun, absl::Seconds(9));
  EXPECT_GT(Job(low).step(), 0u);
  const uint64_t step = Job(low).step();
  // Each time it is its turn, it gets further.
  RunUntil(low, v1::RUNNING);
  const std::string again = Submit(Urgent(5), 1, 1);
  RunUntil(again, v1::RUNNING);
  EXPECT_GT(Job(low).step(), step);
}

TEST_F(CorePrioritiesTest, AJobThatSaysSoIsNotPreempted) {
  JoinAll(1, 1);
  v1::JobSpec spec = Quiet();
  spec.set_preemptible(false);
  const std::string low = Submit(spec, 1, 1);
  RunUntilStep(low, 20);
  const std::string high = Submit(Urgent(5), 1, 1);
  Age();
  RunUntil(low, v1::SUCCEEDED);
  EXPECT_EQ(Job(low).generation(), 1u);
  RunUntil(high, v1::SUCCEEDED);
}

TEST_F(CorePrioritiesTest, AJobThatCouldNotRunPreemptsNobody) {
  JoinAll(1, 1);
  const std::string low = Submit(Quiet(), 1, 1);
  RunUntilStep(low, 20);
  const std::string high = Submit(Urgent(5), /*workers=*/2, 1);
  Age();
  for (int i = 0; i < 5; ++i) Round();
  EXPECT_EQ(Job(low).state(), v1::RUNNING);
  EXPECT_FALSE(Job(low).has_suspending());
  // Nor does it keep one that has begun from going on.
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  EXPECT_EQ(Job(low).state(), v1::RESTARTING);
  RunUntil(low, v1::RUNNING);
  RunUntilStep(low, 40);
  Age();
  Join(v1::WORKER, "worker-1");
  RunUntil(high, v1::RUNNING);
  RunUntil(low, v1::SUCCEEDED);
  EXPECT_EQ(Job(high).state(), v1::SUCCEEDED);
}

TEST_F(CorePrioritiesTest, APreemptionIsCalledOffWhenItsCauseIsGone) {
  JoinAll(1, 1);
  const std::string low = Submit(Quiet(), 1, 1);
  RunUntilStep(low, 20);
  Age();
  hold_writes_ = true;
  const std::string high = Submit(Urgent(5), 1, 1);
  for (int i = 0; i < 5; ++i) Round();
  EXPECT_EQ(Job(low).suspending().preempted_by(), high);
  ASSERT_TRUE(core_->Cancel(high, now_).ok());
  EXPECT_FALSE(Job(low).has_suspending());
  hold_writes_ = false;
  RunUntil(low, v1::SUCCEEDED);
  EXPECT_THAT(Events(low), Contains(HasSubstr("does not wait for its place any more")));
  ExpectEachStepOnce(200);
}

TEST_F(CorePrioritiesTest, APreemptedJobCanBeSuspendedByAUser) {
  const auto [low, high] = Preempted();
  ASSERT_TRUE(Suspend(low).ok());
  EXPECT_EQ(Job(low).reason(), "Suspended");
  RunUntil(high, v1::SUCCEEDED);
  for (int i = 0; i < 10; ++i) Round();
  EXPECT_EQ(Job(low).state(), v1::SUSPENDED);
  ASSERT_TRUE(Resume(low).ok());
  RunUntil(low, v1::SUCCEEDED);
}

TEST_F(CorePrioritiesTest, ARestartedMasterLetsAPreemptedJobGoOnByItself) {
  const auto [low, high] = Preempted();
  RestartMaster();
  JoinAll(1, 1);
  EXPECT_EQ(Job(low).state(), v1::SUSPENDED);
  RunUntil(high, v1::SUCCEEDED);
  RunUntil(low, v1::SUCCEEDED);
  EXPECT_EQ(Job(low).samples(), 20 * kTrain);
}

TEST_F(CorePrioritiesTest, AJobWithoutRoomPreemptsNobodyAndHasItsTenMinutes) {
  JoinAll(1, 1);
  on_open_ = [](const OpenPs& open) {
    const bool urgent = open.calls[0].second.job_id() == "urgent-1";
    return urgent ? absl::ResourceExhaustedError("no space") : absl::OkStatus();
  };
  const std::string high = Submit(Urgent(5), 1, 1);
  ASSERT_EQ(high, "urgent-1");
  const std::string low = Submit(Quiet(200), 1, 1);
  RunUntilStep(low, 20);
  EXPECT_EQ(Job(high).reason(), "Preempted");
  Age();
  RunUntil(low, v1::SUCCEEDED);
  EXPECT_EQ(Job(low).generation(), 1u);
  EXPECT_GE(opens_.size(), 2u);
  // Of which one is over.
  RunUntil(high, v1::FAILED, 5700);
  EXPECT_EQ(Job(high).reason(), "NoRoom");
}

TEST_F(CorePrioritiesTest, AJobWithoutRoomHoldsBackNobodyAlsoWhereOthersHaveItsWorkers) {
  JoinAll(1, 2);
  on_open_ = [](const OpenPs& open) {
    const bool urgent = open.calls[0].second.job_id() == "urgent-1";
    return urgent ? absl::ResourceExhaustedError("no space") : absl::OkStatus();
  };
  const std::string high = Submit(Urgent(5), 2, 1);
  const std::string low = Submit(Quiet(200), 1, 1);
  RunUntilStep(low, 20);
  EXPECT_EQ(Job(high).reason(), "Preempted");
  // The other worker is free.
  const std::string other = Submit(Quiet(), 1, 1);
  RunUntil(other, v1::SUCCEEDED);
  EXPECT_EQ(Job(low).state(), v1::RUNNING);
  EXPECT_EQ(Job(low).generation(), 1u);
  EXPECT_EQ(Job(high).state(), v1::SUSPENDED);
}

TEST_F(CorePrioritiesTest, AJobThatNobodySuspendsWaitsForRoomBesideAnother) {
  JoinAll(1, 1);
  bool room = true;
  on_open_ = [&room](const OpenPs& open) {
    const bool first = open.calls[0].second.job_id() == "urgent-1";
    return first && !room ? absl::ResourceExhaustedError("no space") : absl::OkStatus();
  };
  v1::JobSpec spec = Urgent(5);
  spec.mutable_train()->set_epochs(20);
  spec.set_preemptible(false);
  const std::string kept = Submit(spec, 1, 1);
  RunUntilStep(kept, 20);
  room = false;
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  // After a minute without room it holds others back no longer.
  const std::string low = Submit(Quiet(200), 1, 1);
  RunUntilStep(low, 20);
  EXPECT_EQ(Job(kept).state(), v1::RESTARTING);
  room = true;
  RunUntil(kept, v1::SUCCEEDED);
}

TEST_F(CorePrioritiesTest, AnInterruptedJobLetsOneOfHigherPriorityGoFirst) {
  JoinAll(1, 1);
  const std::string low = Submit(Quiet(), 1, 1);
  RunUntilStep(low, 20);
  Kill("ps-0");
  EXPECT_EQ(Job(low).state(), v1::RESTARTING);
  const std::string high = Submit(Urgent(5), 1, 1);
  Join(v1::PS, "ps-0");
  RunUntil(high, v1::RUNNING);
  EXPECT_EQ(Job(low).state(), v1::SUSPENDED);
  EXPECT_EQ(Job(low).reason(), "Preempted");
  RunUntil(low, v1::SUCCEEDED);
  EXPECT_EQ(Job(low).samples(), 20 * kTrain);
}

}  // namespace
}  // namespace tessera::master
