#include "ps/jobs/jobs.h"

#include "tests/common/thread_limit.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

using absl::StatusCode;

class JobsTest : public testing::Test {
 protected:
  JobsTest() : jobs_({.clock = &clock_, .files = &watched_, .checkpoint_root = "root"}) {}

  static v1::OpenJobRequest Request(uint64_t generation, const std::string& checkpoint = "") {
    v1::OpenJobRequest job = Whole(Job({SgdTable("t", 1, v1::SYNC)}, 2));
    job.set_generation(generation);
    job.set_checkpoint(checkpoint);
    return job;
  }
  absl::Status Open(uint64_t generation, const std::string& checkpoint = "") {
    return jobs_.Open(Request(generation, checkpoint)).status();
  }
  void SaveCheckpoint(const std::string& folder) {
    ShardedJob job(Job({SgdTable("t", 1, v1::SYNC)}, 2), 1, files_, clock_);
    job.Push(0, 0, {{0, {1, 2, 3}, {1, 1, 1}}});
    job.Push(1, 0, {});
    ASSERT_OK(job.Checkpoint(1, folder));
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
  WatchedFiles watched_{files_};
  Jobs jobs_;
};

TEST_F(JobsTest, OpeningAgainAtTheSameGenerationChangesNothing) {
  ASSERT_OK(Open(3));
  Create(3, {1, 2});
  ASSERT_OK(Open(3));
  EXPECT_EQ(RowsOf(3), 2u);
}

// A log does not have which incarnations have called: the master says so where a ps comes back.
TEST_F(JobsTest, CallsOfWorkersThatTheMasterHasReplacedAreRefused) {
  v1::OpenJobRequest request = Request(3, "");
  request.add_incarnations(7);
  ASSERT_OK(jobs_.Open(request));
  const auto shard = *jobs_.Find("job-1", 3);
  v1::PushRequest push = PushOf(0, 0, {});
  push.mutable_header()->set_incarnation(5);
  EXPECT_FAILS(shard->Push(CallOf(push)), StatusCode::kAborted, "rank 0 is incarnation 7 now");
  push.mutable_header()->set_incarnation(7);
  EXPECT_OK(shard->Push(CallOf(push)));
}

TEST_F(JobsTest, ANewerGenerationReplacesTheOlderAndEndsItsCalls) {
  ASSERT_OK(Open(3));
  Create(3, {1, 2});
  auto old = *jobs_.Find("job-1", 3);
  ASSERT_OK(old->Push(CallOf(PushOf(0, 0, {}))));
  PendingPull waiting(*old, PullOf(0, 1, {{0, {1}}}));
  ASSERT_OK(Open(4));
  EXPECT_FAILS(waiting.status(), StatusCode::kAborted, "generation 4 is current");
  EXPECT_FAILS(old->Push(CallOf(PushOf(0, 0, {}))), StatusCode::kAborted,
               "generation 4 is current");
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
  EXPECT_FAILS(jobs_.Find("job-1", 3), StatusCode::kUnavailable, "not open on this ps");
  EXPECT_FAILS(jobs_.Find("job-1"), StatusCode::kNotFound, "job-1");
  EXPECT_FAILS(Open(3), StatusCode::kAborted, "generation 3 has ended");
  EXPECT_OK(Open(4));
}

TEST_F(JobsTest, RefusesIdsThatAreNoNamesOfFolders) {
  for (const char* id : {"../other", "a/b", ".", ""}) {
    EXPECT_FAILS(jobs_.Close(id, 1), StatusCode::kInvalidArgument, "job_id");
  }
}

TEST_F(JobsTest, AJobThatIsClosedWhileItLoadsIsNotOpened) {
  SaveCheckpoint("c");
  watched_.on_open = [&](const std::string&) { EXPECT_OK(jobs_.Close("job-1", 3)); };
  EXPECT_FAILS(Open(3, "c"), StatusCode::kAborted, "generation 3 has ended");
  EXPECT_TRUE(jobs_.All().empty());
  watched_.on_open = [&](const std::string&) {
    jobs_.CloseAll(absl::AbortedError("lost the master"));
  };
  EXPECT_FAILS(Open(4, "c"), StatusCode::kAborted, "closed while it was opened");
  EXPECT_TRUE(jobs_.All().empty());
  watched_.on_open = [](const std::string&) {};
  ASSERT_OK(Open(4, "c"));
  EXPECT_EQ(RowsOf(4), 3u);
}

TEST_F(JobsTest, AJobThatLoadsHoldsUpNoOtherAndIsLoadedOnce) {
  SaveCheckpoint("c");
  bool once = true;
  watched_.on_open = [&](const std::string&) {
    if (!std::exchange(once, false)) return;
    v1::OpenJobRequest other = Request(1);
    other.set_job_id("job-2");
    EXPECT_OK(jobs_.Open(other));
    const auto keep_going = [] { return absl::CancelledError("the caller has hung up"); };
    EXPECT_FAILS(jobs_.Open(Request(3, "c"), keep_going), StatusCode::kCancelled, "hung up");
  };
  ASSERT_OK(Open(3, "c"));
  EXPECT_EQ(jobs_.All().size(), 2u);
  EXPECT_EQ(RowsOf(3), 3u);
}

TEST_F(JobsTest, ALoadEndsWhenItsCallerHangsUp) {
  SaveCheckpoint("c");
  const auto keep_going = [] { return absl::CancelledError("the caller has hung up"); };
  EXPECT_FAILS(jobs_.Open(Request(3, "c"), keep_going), StatusCode::kCancelled, "hung up");
  EXPECT_TRUE(jobs_.All().empty());
}

TEST_F(JobsTest, ALoadWithoutMemoryIsAnAnswer) {
  SaveCheckpoint("c");
  watched_.on_open = [](const std::string&) { throw std::bad_alloc(); };
  EXPECT_FAILS(Open(3, "c"), StatusCode::kResourceExhausted,
               "no memory for 1 tables in 64 of 64 partitions with the rows of c");
}

using JobsDeathTest = JobsTest;
TEST_F(JobsDeathTest, WithoutThreadsALoadTakesLongerAndACheckpointIsNotWritten) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  SaveCheckpoint("c");
  const auto load_and_write = [&] {
    LimitThreads(0);
    if (!Open(3, "c").ok() || RowsOf(3) != 3) _exit(1);
    v1::WriteCheckpointRequest write;
    write.set_folder("d");
    write.set_parts(1);
    const auto shard = *jobs_.Find("job-1", 3);
    const absl::Status status = shard->WriteCheckpoint(write, clock_.Monotonic()).status();
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    if (files_.Exists("root/d/rows-g3-00000-of-00001")) _exit(2);
    UnlimitThreads();
    _exit(shard->WriteCheckpoint(write, clock_.Monotonic()).ok() ? 0 : 3);
  };
  EXPECT_EXIT(load_and_write(), testing::ExitedWithCode(0), "RESOURCE_EXHAUSTED: no thread for");
}

TEST_F(JobsTest, WhatWasClosedIsForgottenWithTheMaster) {
  ASSERT_OK(Open(3));
  EXPECT_OK(jobs_.Close("job-1", 3));
  jobs_.CloseAll(absl::AbortedError("lost the master"));
  EXPECT_OK(Open(1));
}

TEST_F(JobsTest, LeavesNoFolderOfAJobThatIsOver) {
  Jobs jobs({.clock = &clock_, .files = &files_, .checkpoint_root = "root", .log_root = "logs"});
  v1::OpenJobRequest request = Whole(Job({SgdTable("t", 1, v1::ASYNC)}));
  request.set_push_log(v1::RecoverySpec::ASYNC);
  ASSERT_OK(jobs.Open(request));
  EXPECT_THAT(jobs.Logged(), testing::ElementsAre("job-1"));
  jobs.RemoveLogs("job-1");
  EXPECT_THAT(jobs.Logged(), testing::ElementsAre("job-1")) << "it is open";
  // As a ps that is killed, and comes back when the job has ended.
  jobs.CloseAll(absl::UnavailableError("killed"));
  EXPECT_THAT(jobs.Logged(), testing::ElementsAre("job-1"));
  jobs.RemoveLogs("../logs");
  jobs.RemoveLogs("job-1");
  EXPECT_THAT(jobs.Logged(), testing::IsEmpty());
  request.set_generation(request.generation() + 1);
  ASSERT_OK(jobs.Open(request));
  ASSERT_OK(jobs.Close("job-1", request.generation()));
  EXPECT_THAT(jobs.Logged(), testing::IsEmpty());
  EXPECT_THAT(files_.Files(), testing::IsEmpty());
}

TEST_F(JobsTest, LogsOfJobsThatTheMasterHasForgottenGoAndThoseOfOtherClustersStay) {
  Jobs jobs({.clock = &clock_, .files = &files_, .checkpoint_root = "root", .log_root = "logs"});
  const auto log = [&](const std::string& id, const std::string& cluster) {
    v1::OpenJobRequest request = Whole(Job({SgdTable("t", 1, v1::ASYNC)}));
    request.set_job_id(id);
    request.set_push_log(v1::RecoverySpec::ASYNC);
    request.set_cluster(cluster);
    ASSERT_OK(jobs.Open(request));
  };
  log("a-7", "ours");
  log("a-b-8", "ours");
  log("a-9", "ours");
  log("b-7", "theirs");
  log("c-7", "");  // as an earlier version did
  log("open-6", "ours");
  jobs.RemoveForgotten("ours", 9);
  EXPECT_EQ(jobs.Logged().size(), 6u) << "they are open";
  jobs.CloseAll(absl::UnavailableError("killed"));
  log("open-6", "ours");
  ASSERT_OK(files_.CreateFolder("logs/d-5/1"));
  ASSERT_OK(files_.Create("logs/d-5/1/00000001.log"));  // it cannot be read
  jobs.RemoveForgotten("", 9);
  jobs.RemoveForgotten("ours", 0);
  EXPECT_EQ(jobs.Logged().size(), 7u);
  jobs.RemoveForgotten("ours", 9);
  EXPECT_THAT(jobs.Logged(), testing::UnorderedElementsAre("a-9", "b-7", "c-7", "d-5", "open-6"));
}

TEST_F(JobsTest, AGenerationThatBeginsWhileTheOneBeforeIsRemovedKeepsItsLog) {
  Jobs jobs({.clock = &clock_, .files = &watched_, .checkpoint_root = "root", .log_root = "logs"});
  v1::OpenJobRequest request = Whole(Job({SgdTable("t", 1, v1::ASYNC)}));
  request.set_push_log(v1::RecoverySpec::ASYNC);
  request.set_generation(1);
  ASSERT_OK(jobs.Open(request));
  request.set_generation(2);
  bool opens = true;
  watched_.on_remove = [&](const std::string& path) {
    if (path == "logs/job-1/1" && std::exchange(opens, false)) EXPECT_OK(jobs.Open(request));
  };
  ASSERT_OK(jobs.Close("job-1", 1));
  EXPECT_TRUE(files_.Exists("logs/job-1/2/00000001.log"));
}

TEST_F(JobsTest, RemembersTheNewestThousandThatWereClosed) {
  EXPECT_OK(jobs_.Close("job-1", 3));
  for (int i = 0; i < 999; ++i) EXPECT_OK(jobs_.Close(absl::StrCat("other-", i), 1));
  EXPECT_FAILS(Open(3), StatusCode::kAborted, "generation 3 has ended");
  EXPECT_OK(jobs_.Close("one-more", 1));
  EXPECT_OK(Open(3));
}

TEST_F(JobsTest, RefusesIdsOfNoOrOfExcessiveLength) {
  v1::OpenJobRequest job = Request(1);
  for (const size_t bytes : {0, 257}) {
    job.set_job_id(std::string(bytes, 'j'));
    EXPECT_FAILS(jobs_.Open(job), StatusCode::kInvalidArgument, "expected 1 to 256");
    EXPECT_FAILS(jobs_.Close(job.job_id(), 1), StatusCode::kInvalidArgument, "expected 1 to 256");
  }
}

TEST_F(JobsTest, AShutdownEndsWhatWaitsAndOpensNothingMore) {
  ASSERT_OK(Open(3));
  auto shard = *jobs_.Find("job-1", 3);
  ASSERT_OK(shard->Push(CallOf(PushOf(0, 0, {}))));
  PendingPull waiting(*shard, PullOf(0, 1, {{0, {1}}}));
  jobs_.Shutdown(absl::UnavailableError("stopping"));
  EXPECT_FAILS(waiting.status(), StatusCode::kUnavailable, "stopping");
  EXPECT_FAILS(Open(4), StatusCode::kUnavailable, "stopping");
  EXPECT_TRUE(jobs_.All().empty());
}

}  // namespace
}  // namespace tessera::ps
