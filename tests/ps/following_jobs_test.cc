#include "ps/jobs/jobs.h"
#include "ps/service/ps_metrics.h"
#include "tests/common/metric_value.h"
#include "tests/ps/ps_testing.h"

// Which pairs a ps follows, and what becomes of that.
namespace tessera::ps {
namespace {

using absl::StatusCode;

class FollowingJobsTest : public testing::Test {
 protected:
  FollowingJobsTest() : jobs_(Options()) {}
  JobShard::Options Options(const std::string& logs = "logs") {
    JobShard::Options options;
    options.clock = &clock_;
    options.files = &files_;
    options.checkpoint_root = "root";
    options.log_root = logs;
    return options;
  }
  static v1::OpenJobRequest Request(uint64_t generation, uint64_t pair) {
    v1::OpenJobRequest job = Whole(Job({SgdTable("a", 1, v1::ASYNC)}));
    job.set_push_log(v1::RecoverySpec::ASYNC);
    job.set_generation(generation);
    if (pair > 0) job.set_follow("ps-0");
    job.set_pair(pair);
    return job;
  }

  HandClock clock_;
  FaultFileSystem files_;
  Jobs jobs_;
};

TEST_F(FollowingJobsTest, OnlyTheLatestPairIsFollowed) {
  EXPECT_TRUE(*jobs_.BeginFollowing(Request(2, 5)));
  EXPECT_FALSE(*jobs_.BeginFollowing(Request(2, 5)));
  EXPECT_FAILS(jobs_.BeginFollowing(Request(2, 4)), StatusCode::kAborted, "pair 4 is over");
  EXPECT_FAILS(jobs_.BeginFollowing(Request(1, 9)), StatusCode::kAborted, "is over");
  ASSERT_OK(jobs_.OpenFollower(Request(2, 5)));
  EXPECT_TRUE(*jobs_.BeginFollowing(Request(2, 6)));
  EXPECT_FAILS(jobs_.CheckFollowing(Request(2, 5)), StatusCode::kAborted, "not to be followed");
  EXPECT_FAILS(jobs_.OpenFollower(Request(2, 5)), StatusCode::kAborted, "not to be followed");
  jobs_.FollowingFailed(Request(2, 6), absl::DataLossError("a hole"));
  ASSERT_EQ(jobs_.Followed().size(), 1u);
  EXPECT_EQ(jobs_.Followed()[0].follows(), 6u);
  EXPECT_EQ(jobs_.Followed()[0].follow_error(), "a hole");
  EXPECT_FAILS(jobs_.Find("job-1", 2), StatusCode::kUnavailable, "not open");
}

TEST_F(FollowingJobsTest, WhatComesLateForAnEarlierPairIsNotLogged) {
  Jobs others(Options("other-logs"));
  const auto primary = *others.Open(Request(2, 0));
  ASSERT_OK(primary->SetFollower(5, "ps-1"));
  EXPECT_TRUE(*jobs_.BeginFollowing(Request(2, 5)));
  const auto before = *jobs_.OpenFollower(Request(2, 5));
  absl::StatusOr<v1::ReadLogResponse> late = absl::UnknownError("not answered");
  primary->ReadLog(before->NextRead(), clock_.Monotonic(), [&](auto read) { late = read; });
  ASSERT_OK(late);
  EXPECT_TRUE(*jobs_.BeginFollowing(Request(2, 6)));
  const auto follower = *jobs_.OpenFollower(Request(2, 6));
  // Its log would lie in the folder of the other.
  EXPECT_FAILS(before->Follow(*std::move(late)), StatusCode::kAborted, "follows nobody");
}

TEST_F(FollowingJobsTest, MetricsSayHowManyRowsAreCopies) {
  Jobs others(Options("other-logs"));
  const auto primary = *others.Open(Request(2, 0));
  ASSERT_OK(primary->SetFollower(5, "ps-1"));
  ASSERT_OK(primary->Push(CallOf(PushOf(0, 0, {{0, {1, 2, 3}, {1, 2, 3}}}))));
  EXPECT_TRUE(*jobs_.BeginFollowing(Request(2, 5)));
  const auto follower = *jobs_.OpenFollower(Request(2, 5));
  absl::StatusOr<v1::ReadLogResponse> records = absl::UnknownError("not answered");
  primary->ReadLog(follower->NextRead(), clock_.Monotonic(), [&](auto read) { records = read; });
  ASSERT_OK(records);
  ASSERT_OK(follower->Follow(*std::move(records)));
  TaskQueue requests("requests", 1, 1 << 20);
  SharedRegions regions(1 << 20);
  MetricsRegistry registry;
  const auto collector = AddPsCollector(registry, jobs_, requests, regions, nullptr);
  EXPECT_EQ(MetricValue(registry.Text(), "tessera_ps_copied_rows{job=\"job-1\"}"), 3);
  EXPECT_GT(MetricValue(registry.Text(), "tessera_ps_copied_row_bytes{job=\"job-1\"}"), 0);
}

TEST_F(FollowingJobsTest, OneThatHasFollowedTakesThePlaceAndOthersDoNot) {
  v1::OpenJobRequest recover = Request(2, 0);
  recover.set_recover(true);
  EXPECT_TRUE(*jobs_.BeginFollowing(Request(2, 5)));
  ASSERT_OK(jobs_.OpenFollower(Request(2, 5)));
  EXPECT_FAILS(jobs_.Open(recover), StatusCode::kFailedPrecondition, "no segment that begins");
  EXPECT_TRUE(jobs_.Followed().empty());
  // From a ps of its own.
  Jobs others(Options("other-logs"));
  const auto primary = *others.Open(Request(2, 0));
  EXPECT_TRUE(*jobs_.BeginFollowing(Request(2, 6)));
  const auto follower = *jobs_.OpenFollower(Request(2, 6));
  ASSERT_OK(primary->SetFollower(6, "ps-1"));
  primary->ReadLog(follower->NextRead(), clock_.Monotonic(),
                   [&](auto read) { EXPECT_OK(follower->Follow(*std::move(read))); });
  const auto opened = jobs_.Open(recover);
  ASSERT_OK(opened);
  EXPECT_EQ(*opened, follower);
  EXPECT_EQ(*jobs_.Find("job-1", 2), follower);
  EXPECT_EQ(*jobs_.Open(recover), follower) << "a repeat";
  EXPECT_FAILS(follower->Follow({}), StatusCode::kAborted, "follows nobody");
  EXPECT_FAILS(jobs_.BeginFollowing(Request(2, 7)), StatusCode::kAborted, "");
}

TEST_F(FollowingJobsTest, OneThatOpensLateTouchesNoLogOfALaterGeneration) {
  ShardedJob before(Job({SgdTable("a", 1, v1::ASYNC)}), 1, files_, clock_);
  before.Push(0, 0, {{0, {1, 2, 3}, {1, 1, 1}}});
  ASSERT_OK(before.Checkpoint(0, "cut"));
  v1::OpenJobRequest follow = Request(1, 5);
  follow.set_checkpoint("cut");
  EXPECT_TRUE(*jobs_.BeginFollowing(follow));
  // While it reads the checkpoint another generation is opened.
  bool opened = false;
  const auto meanwhile = [&] {
    if (!std::exchange(opened, true)) EXPECT_OK(jobs_.Open(Request(2, 0)));
    return absl::OkStatus();
  };
  EXPECT_FAILS(jobs_.OpenFollower(follow, meanwhile), StatusCode::kAborted, "not to be followed");
  ASSERT_TRUE(opened);
  EXPECT_FAILS(jobs_.OpenFollower(follow), StatusCode::kAborted, "not to be followed");
  jobs_.CloseAll(absl::UnavailableError("as if killed"));
  v1::OpenJobRequest recover = Request(2, 0);
  recover.set_recover(true);
  EXPECT_OK(jobs_.Open(recover));
}

TEST_F(FollowingJobsTest, ItEndsWithTheJob) {
  EXPECT_TRUE(*jobs_.BeginFollowing(Request(2, 5)));
  ASSERT_OK(jobs_.OpenFollower(Request(2, 5)));
  ASSERT_OK(jobs_.Close("job-1", 2));
  EXPECT_TRUE(jobs_.Followed().empty());
  EXPECT_FAILS(jobs_.BeginFollowing(Request(2, 6)), StatusCode::kAborted, "has ended");
  EXPECT_TRUE(*jobs_.BeginFollowing(Request(3, 1)));
  jobs_.CloseAll(absl::UnavailableError("given up"));
  EXPECT_TRUE(jobs_.Followed().empty());
  EXPECT_TRUE(*jobs_.BeginFollowing(Request(3, 2)));
  ASSERT_OK(jobs_.Open(Request(4, 0)));
  EXPECT_TRUE(jobs_.Followed().empty());
}

}  // namespace
}  // namespace tessera::ps
