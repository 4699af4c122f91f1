#include "ps/jobs.h"

#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

using absl::StatusCode;

class JobsTest : public testing::Test {
 protected:
  JobsTest() : jobs_({.clock = &clock_, .files = &files_, .checkpoint_root = "root"}) {}

  absl::Status Open(uint64_t generation, const std::string& checkpoint = "") {
    v1::OpenJobRequest job = Whole(Job({SgdTable("t", 1, v1::SYNC)}, 2));
    job.set_generation(generation);
    job.set_checkpoint(checkpoint);
    return jobs_.Open(job).status();
  }
  uint64_t RowsOf(uint64_t generation) {
    auto shard = jobs_.Find("job-1", generation);
    EXPECT_OK(shard);
    return shard.ok() ? (*shard)->rows() : 0;
  }
  void Create(uint64_t generation, std::vector<uint64_t> keys) {
    auto shard = jobs_.Find("job-1", generation);
    ASSERT_OK(shard);
    EXPECT_OK(PendingPull(**shard, PullOf(0, 0, {{0, keys}})).status());
  }

  HandClock clock_;
  FaultFileSystem files_;
  Jobs jobs_;
};

TEST_F(JobsTest, OpeningAgainAtTheSameGenerationChangesNothing) {
  ASSERT_OK(Open(3));
  Create(3, {1, 2});
  ASSERT_OK(Open(3));
  EXPECT_EQ(RowsOf(3), 2u);
}

TEST_F(JobsTest, ANewerGenerationReplacesTheOlderAndEndsItsCalls) {
  ASSERT_OK(Open(3));
  Create(3, {1, 2});
  auto old = *jobs_.Find("job-1", 3);
  PendingPull waiting(*old, PullOf(0, 1, {{0, {1}}}));
  ASSERT_OK(Open(4));
  EXPECT_FAILS(waiting.status(), StatusCode::kAborted, "generation 4 is current");
  EXPECT_FAILS(old->Push(PushOf(0, 0, {})), StatusCode::kAborted, "generation 4 is current");
  EXPECT_EQ(RowsOf(4), 0u);
  EXPECT_FAILS(jobs_.Find("job-1", 3), StatusCode::kAborted, "generation 3 has ended");
  EXPECT_FAILS(Open(3), StatusCode::kAborted, "generation 3 has ended");
  EXPECT_FAILS(jobs_.Find("job-1", 5), StatusCode::kAborted, "not open on this ps yet");
}

TEST_F(JobsTest, ADamagedCheckpointLeavesWhatIsOpen) {
  ASSERT_OK(Open(3));
  Create(3, {1, 2});
  ASSERT_OK(files_.CreateFolder("root/c"));
  files_.SetContent("root/c/MANIFEST.json", "{ nonsense");
  EXPECT_FAILS(Open(4, "c"), StatusCode::kDataLoss, "root/c");
  EXPECT_EQ(RowsOf(3), 2u);
}

TEST_F(JobsTest, AClosedJobStaysClosed) {
  ASSERT_OK(Open(3));
  EXPECT_FAILS(jobs_.Close("job-1", 2), StatusCode::kAborted, "generation 3 is current");
  EXPECT_OK(jobs_.Close("job-1", 3));
  EXPECT_OK(jobs_.Close("job-1", 3));
  EXPECT_FAILS(jobs_.Find("job-1", 3), StatusCode::kAborted, "not open on this ps");
  EXPECT_FAILS(jobs_.Find("job-1"), StatusCode::kNotFound, "job-1");
  EXPECT_FAILS(Open(3), StatusCode::kAborted, "generation 3 has ended");
  EXPECT_OK(Open(4));
}

TEST_F(JobsTest, AShutdownEndsWhatWaitsAndOpensNothingMore) {
  ASSERT_OK(Open(3));
  auto shard = *jobs_.Find("job-1", 3);
  PendingPull waiting(*shard, PullOf(0, 1, {{0, {1}}}));
  jobs_.Shutdown(absl::UnavailableError("stopping"));
  EXPECT_FAILS(waiting.status(), StatusCode::kUnavailable, "stopping");
  EXPECT_FAILS(Open(4), StatusCode::kUnavailable, "stopping");
  EXPECT_TRUE(jobs_.All().empty());
}

}  // namespace
}  // namespace tessera::ps
