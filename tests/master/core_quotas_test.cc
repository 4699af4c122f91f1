// What teams may use: workers, rows and bytes.
#include <fstream>

#include "master/core/core.h"
#include "tests/master/core_harness.h"

namespace tessera::master {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class CoreQuotasTest : public testing::Test, protected CoreHarness {
 protected:
  static v1::JobSpec Of(const std::string& team, const std::string& name, uint32_t epochs = 3) {
    v1::JobSpec spec = SmallJob();
    spec.set_team(team);
    spec.set_name(name);
    spec.mutable_train()->set_epochs(epochs);
    return spec;
  }
  void Start(std::vector<v1::Quota> teams) {
    v1::Quotas spec;
    for (const v1::Quota& team : teams) *spec.add_teams() = team;
    options_.quotas = Quotas::New(spec).value();
    RestartMaster();
  }
  static v1::Quota Workers(const std::string& team, uint32_t workers) {
    v1::Quota quota;
    quota.set_name(team);
    quota.set_workers(workers);
    return quota;
  }
  void SetRows(const std::string& id, uint64_t rows) {
    SetRows("ps-0", id, Job(id).generation(), rows);
  }
  void SetRows(const std::string& ps, const std::string& id, uint64_t generation, uint64_t rows) {
    v1::JobOnPs& job = *heartbeats_[ps].add_jobs();
    job.set_job_id(id);
    job.set_generation(generation);
    job.set_rows(rows);
    job.set_row_bytes(rows * 100);
  }
  std::string StateOf(const std::string& id) { return v1::JobState_Name(Job(id).state()); }
};

TEST_F(CoreQuotasTest, AJobAboveItsTeamsWorkersWaitsAndOthersPassIt) {
  Start({Workers("ads", 2)});
  JoinAll(1, 4);
  const std::string a = Submit(Of("ads", "a"), 1, 1);
  const std::string b = Submit(Of("ads", "b"), 2, 1);
  const std::string c = Submit(Of("ads", "c"), 1, 1);
  const std::string d = Submit(Of("search", "d"), 2, 1);
  RunUntilStep(a, 5);
  EXPECT_EQ(Job(b).reason(), "AboveQuota");
  EXPECT_EQ(Job(b).message(), "team ads has 1 of its 2 workers at work (a-1); the job needs 2");
  EXPECT_EQ(StateOf(c), "CREATED");  // b is older
  EXPECT_EQ(StateOf(d), "RUNNING");
  for (const std::string& id : {a, b, c, d}) RunUntil(id, v1::SUCCEEDED);
}

TEST_F(CoreQuotasTest, AJobThatCanNeverHaveItsWorkersIsRefused) {
  Start({Workers("ads", 2), Workers("*", 1)});
  JoinAll(1, 4);
  v1::SubmitRequest request;
  *request.mutable_spec() = Of("ads", "a");
  request.set_workers(3);
  EXPECT_THAT(std::string(core_->Submit(request, now_).status().message()),
              HasSubstr("team ads may have 2 workers (tessera-master --quotas), and the job is to "
                        "have 3"));
  *request.mutable_spec() = Of("", "b");
  request.set_workers(2);
  EXPECT_THAT(std::string(core_->Submit(request, now_).status().message()),
              HasSubstr("team default may have 1 workers"));
  // One that takes as many as there are takes what it may have.
  const std::string c = Submit(Of("ads", "c"), 0, 0);
  for (int i = 0; i < 30; ++i) Round();
  EXPECT_EQ(opens_.back().calls[0].second.workers(), 2u);
  EXPECT_EQ(ScaleWorkers(c, 3).status().code(), absl::StatusCode::kFailedPrecondition);
  RunUntil(c, v1::SUCCEEDED);
}

TEST_F(CoreQuotasTest, ARunningJobGetsMoreWorkersWhenItsTeamMayHaveThem) {
  Start({Workers("ads", 3)});
  JoinAll(1, 4);
  const std::string a = Submit(Of("ads", "a", 60), 1, 1);
  const std::string b = Submit(Of("ads", "b", 20), 2, 1);
  RunUntilStep(a, 20);
  ASSERT_TRUE(ScaleWorkers(a, 2).ok());
  const auto above =
      HasSubstr(", since team ads has 3 of its 3 workers at work (a-1, b-2); the job needs 1 more");
  EXPECT_THAT(Events(a), Contains(above));
  Round();
  EXPECT_THAT(Waits(a), Contains(above));
  RunUntil(b, v1::SUCCEEDED);
  EXPECT_THAT(Events(a), Not(Contains(HasSubstr("goes from 1 to 2 workers"))));
  RunUntil(a, v1::SUCCEEDED);
  EXPECT_THAT(Events(a), Contains(HasSubstr("goes from 1 to 2 workers")));
}

// Else a job would be pre-empted for it, and begin again in its place, again and again.
TEST_F(CoreQuotasTest, AJobThatItsTeamsQuotaHoldsBackPreemptsNobody) {
  Start({Workers("ads", 4)});
  JoinAll(1, 4);
  const std::string other = Submit(Of("", "other", 400), 2, 1);
  const auto urgent = [](const std::string& name) {
    v1::JobSpec spec = Of("ads", name, 400);
    spec.set_priority(5);
    return spec;
  };
  const std::string running = Submit(urgent("running"), 2, 1);
  RunUntilStep(other, 20);
  const std::string above = Submit(urgent("above"), 4, 1);
  const std::string behind = Submit(urgent("behind"), 2, 1);
  for (int i = 0; i < 100; ++i) {
    Round();
    Advance(absl::Seconds(1));
  }
  EXPECT_EQ(Job(above).reason(), "AboveQuota");
  EXPECT_EQ(StateOf(behind), "CREATED");
  EXPECT_EQ(StateOf(other), "RUNNING");
  EXPECT_THAT(Events(other), Not(Contains(HasSubstr("pre-empted"))));
  // Once the quota allows them, they do.
  ASSERT_TRUE(core_->Cancel(above, now_).ok());
  RunUntil(other, v1::SUSPENDED);
  EXPECT_EQ(StateOf(behind), "RUNNING");
}

TEST_F(CoreQuotasTest, ATeamAboveItsRowsHasItsYoungestJobSuspendedWithoutLoss) {
  v1::Quota rows;
  rows.set_name("ads");
  rows.set_rows(1000);
  Start({rows});
  JoinAll(1, 3);
  const std::string other = Submit(Of("search", "other", 30), 1, 1);
  const std::string old = Submit(Of("ads", "old", 30), 1, 1);
  const std::string young = Submit(Of("ads", "young", 30), 1, 1);
  RunUntilStep(young, 5);
  for (const std::string& id : {other, old, young}) SetRows(id, 501);
  RunUntil(young, v1::SUSPENDED);
  EXPECT_THAT(Events(young), Contains(HasSubstr("team ads has 1002 rows, and may have 1000")));
  EXPECT_THAT(Job(young).message(),
              HasSubstr("; team ads has 1002 rows, and may have 1000 (tessera-master --quotas); "));
  EXPECT_EQ(Job(old).rows(), 501u);
  EXPECT_EQ(Job(old).row_bytes(), 50100u);
  const uint64_t step = Job(young).step();
  heartbeats_.clear();
  RunUntil(old, v1::SUCCEEDED);
  RunUntil(other, v1::SUCCEEDED);
  EXPECT_EQ(StateOf(young), "SUSPENDED");
  ASSERT_TRUE(core_->Resume(young, now_).ok());
  RunUntil(young, v1::SUCCEEDED);
  EXPECT_THAT(Events(young), Contains(HasSubstr(absl::StrCat("goes on from step ", step))));
  EXPECT_EQ(Job(young).samples(), 30 * kTrain);
}

TEST_F(CoreQuotasTest, WhereNoCheckpointCanBeWrittenASuspensionIsTriedOnceAMinute) {
  v1::Quota rows;
  rows.set_name("ads");
  rows.set_rows(1000);
  Start({rows});
  JoinAll(1, 1);
  v1::JobSpec spec = Of("ads", "old", 1000);
  spec.mutable_evaluation()->set_every_epochs(1000);
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 5);
  on_cut_ = [](const CutCheckpoint&) { return absl::ResourceExhaustedError("disk full"); };
  cuts_.clear();
  SetRows(id, 1001);
  Rounds(590);
  EXPECT_EQ(cuts_.size(), 1u);
  EXPECT_EQ(StateOf(id), "RUNNING");
  on_cut_ = nullptr;
  RunUntil(id, v1::SUSPENDED, 30);
}

TEST_F(CoreQuotasTest, RowsThatHaveMovedAreCountedOnce) {
  v1::Quota rows;
  rows.set_name("ads");
  rows.set_rows(1000);
  Start({rows});
  JoinAll(2, 1);
  const std::string id = Submit(Of("ads", "a", 30), 1, 2);
  RunUntilStep(id, 5);
  // ps-0 has not said anything since it gave rows away.
  SetRows("ps-0", id, Job(id).generation() - 1, 900);
  SetRows("ps-1", id, Job(id).generation(), 450);
  for (int i = 0; i < 5; ++i) Round();
  EXPECT_EQ(Job(id).rows(), 450u);
  RunUntil(id, v1::SUCCEEDED);
}

TEST_F(CoreQuotasTest, ATeamAboveItsBytesBeginsNothing) {
  v1::Quota bytes;
  bytes.set_name("*");
  bytes.set_row_bytes(100000);
  Start({bytes});
  JoinAll(1, 3);
  v1::JobSpec predicts = Of("ads", "a", 30);
  const std::string a = Submit(predicts, 1, 1);
  RunUntilStep(a, 5);
  SetRows(a, 2000);
  Advance(absl::Seconds(1));
  const std::string b = Submit(Of("ads", "b"), 1, 1);
  EXPECT_EQ(Job(b).message(),
            "team ads has 200000 bytes of rows, and may have 100000 (a-1); the job needs 1");
  // To resume it does not help by itself.
  RunUntil(a, v1::SUSPENDED);
  EXPECT_THAT(Job(a).message(),
              HasSubstr("may have 100000 (tessera-master --quotas), and this job alone is above: "
                        "raise it first; `tessera resume a-1` queues it again"));
}

TEST(Quotas, MistakesInTheFileAreNamed) {
  const auto load = [](const std::string& text) {
    const std::string path = testing::TempDir() + "/quotas-" + std::to_string(::getpid());
    std::ofstream(path) << text;
    const auto loaded = LoadQuotas(path);
    std::remove(path.c_str());
    return loaded.ok() ? "" : std::string(loaded.status().message());
  };
  EXPECT_EQ(load("teams: [{name: ads, workers: 4, rows: 10}, {name: '*'}]"), "");
  EXPECT_THAT(load("teams: [{name: ads, worker: 4}]"), HasSubstr(":1:21: teams[0].worker: "));
  EXPECT_THAT(load("teams: [{workers: -1}]"), HasSubstr("teams[0].workers"));
  EXPECT_THAT(load("teams: [{workers: 1}]"), HasSubstr(":1: teams[0].name: missing"));
  EXPECT_THAT(load("teams: [{name: a}, {name: a}]"), HasSubstr("found \"a\" twice"));
  EXPECT_THAT(LoadQuotas("/nowhere/quotas.yaml").status().message(), HasSubstr("no such file"));
}

}  // namespace
}  // namespace tessera::master
