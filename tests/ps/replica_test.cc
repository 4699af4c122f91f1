#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "ps/jobs/jobs.h"
#include "ps/push_log/log_feed.h"
#include "tests/ps/recovery_harness.h"

// Two ps with the same rows: one that workers call, and one that follows its push log.
namespace tessera::ps {
namespace {

using absl::StatusCode;

class ReplicaTest : public testing::Test, protected RecoveryHarness {
 protected:
  // One that follows as `pair`, from a checkpoint on.
  std::shared_ptr<JobShard> OpenFollower(v1::OpenJobRequest job, uint64_t pair,
                                         const std::string& checkpoint = "", uint64_t step = 0) {
    job.set_follow("ps-0");
    job.set_pair(pair);
    job.set_checkpoint(checkpoint);
    job.set_first_step(step);
    auto shard = Open(job, files_, OtherLogs);
    EXPECT_OK(shard);
    EXPECT_OK((*shard)->OpenLog());
    return *std::move(shard);
  }
  static void OtherLogs(JobShard::Options& options) { options.log_root = "other-logs"; }

  // One answer of `from`; how many records it had.
  absl::StatusOr<int> FeedOnce(JobShard& from, JobShard& to) {
    absl::StatusOr<v1::ReadLogResponse> read = absl::UnknownError("not answered");
    from.ReadLog(to.NextRead(), clock_.Monotonic(), [&](auto answer) { read = std::move(answer); });
    if (!read.ok()) return read.status();
    const int records = read->records_size();
    if (const absl::Status taken = to.Follow(*std::move(read)); !taken.ok()) return taken;
    return records;
  }
  // Until the follower has all.
  void Feed(JobShard& from, JobShard& to) {
    while (true) {
      const absl::StatusOr<int> records = FeedOnce(from, to);
      ASSERT_OK(records);
      if (*records == 0) return;
    }
  }
  // Of a sync job that has just cut "cut-4".
  std::shared_ptr<JobShard> AtCheckpoint(const v1::OpenJobRequest& job) {
    auto shard = *Open(job, files_);
    EXPECT_OK(shard->Assign(Dense()));
    for (uint64_t step = 0; step < 4; ++step) SyncStep(*shard, step);
    SyncPulls(*shard, 4);
    Checkpoint(*shard, job, "cut-4", 4);
    return shard;
  }
  // A call of workers whose answer waits for the follower.
  struct Waiting {
    explicit Waiting(JobShard& shard) {
      // It may be answered when this is gone.
      shard.AwaitFollower([state = state](absl::Status s) { *state = std::move(s); });
    }
    const std::shared_ptr<std::optional<absl::Status>> state =
        std::make_shared<std::optional<absl::Status>>();
    const std::optional<absl::Status>& status = *state;
  };
};

// What it confirmed would count as being with a follower.
TEST_F(ReplicaTest, NobodyReadsALogUnaskedOrBeyondItsEnd) {
  const auto primary = *Open(AsyncJob(), files_);
  ASSERT_OK(primary->Push(AsyncPush(0, 0)));
  v1::ReadLogRequest read;
  absl::Status answer;
  const auto done = [&](const auto& answered) { answer = answered.status(); };
  read.set_next_record(2);
  primary->ReadLog(read, clock_.Monotonic(), done);
  EXPECT_FAILS(answer, StatusCode::kFailedPrecondition, "nobody is to have a copy");
  ASSERT_OK(primary->SetFollower(7, "ps-1"));
  read.set_pair(7);
  read.set_next_record(999);
  primary->ReadLog(read, clock_.Monotonic(), done);
  EXPECT_FAILS(answer, StatusCode::kFailedPrecondition, "record 999 is asked for, the last one is");
  EXPECT_EQ(primary->replica(), 0);
  EXPECT_TRUE(Waiting(*primary).status.has_value());
}

TEST_F(ReplicaTest, WhatIsAcknowledgedIsWithTheFollower) {
  const auto primary = *Open(AsyncJob(), files_);
  for (uint32_t rank = 0; rank < kRanks; ++rank) ASSERT_OK(primary->Push(AsyncPush(rank, 0)));
  EXPECT_TRUE(Waiting(*primary).status.has_value()) << "nobody follows";
  ASSERT_OK(primary->SetFollower(7, "ps-1"));
  const auto follower = OpenFollower(AsyncJob(), 7);
  EXPECT_TRUE(Waiting(*primary).status.has_value()) << "it has nothing yet";
  EXPECT_EQ(primary->replica(), 0);
  Feed(*primary, *follower);
  EXPECT_EQ(primary->replica(), 7);
  for (uint64_t s = 1; s < 10; ++s) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      ASSERT_OK(primary->Push(AsyncPush(rank, s)));
      Waiting push(*primary);
      EXPECT_FALSE(push.status.has_value());
      clock_.Advance(absl::Milliseconds(3));
      EXPECT_EQ(primary->replica_wait(), absl::Milliseconds(3));
      ASSERT_OK(FeedOnce(*primary, *follower));
      EXPECT_FALSE(push.status.has_value()) << "that it has it is said by its next call";
      ASSERT_OK(FeedOnce(*primary, *follower));
      ASSERT_TRUE(push.status.has_value());
      EXPECT_OK(*push.status);
    }
  }
  // One more push, that it does not have, and the ps dies.
  ASSERT_OK(primary->Push(AsyncPush(0, 10)));
  Waiting lost(*primary);
  EXPECT_FALSE(lost.status.has_value());
  ASSERT_OK(follower->StopFollowing());
  EXPECT_EQ(Rows(*follower, files_, 0), AsyncTwin(10));
  // Its worker pushes it again; what was acknowledged counts once.
  EXPECT_EQ(*Confirm(*follower, 0, 0), 10u);
  ASSERT_OK(follower->Push(AsyncPush(1, 9)));
  EXPECT_EQ(Rows(*follower, files_, 0), AsyncTwin(10));
}

TEST_F(ReplicaTest, ASyncJobsFollowerEndsWithTheSameBits) {
  const v1::OpenJobRequest job = SyncJob();
  const std::shared_ptr<JobShard> primary = AtCheckpoint(job);
  for (uint64_t step = 4; step < 6; ++step) SyncStep(*primary, step);
  ASSERT_OK(primary->SetFollower(1, "ps-1"));
  const auto follower = OpenFollower(job, 1, "cut-4", 4);
  Feed(*primary, *follower);
  // Cuts, which drop rows that have expired, come to the follower in their place.
  for (uint64_t step = 6; step < 9; ++step) SyncStep(*primary, step);
  SyncPulls(*primary, 9);
  Checkpoint(*primary, job, "cut-9", 9);
  ASSERT_OK(Call(*primary, Request::COMMITTED, "cut-9", 9));
  for (uint64_t step = 9; step < 12; ++step) SyncStep(*primary, step);
  Feed(*primary, *follower);
  ASSERT_OK(follower->StopFollowing());
  // The last step is confirmed by the pulls of the next.
  SyncPulls(*primary, 12);
  SyncPulls(*follower, 12);
  EXPECT_EQ(Rows(*follower, files_, 12), Rows(*primary, files_, 12));
  // Both go on alike, and the follower's own log brings it back.
  for (JobShard* shard : {primary.get(), follower.get()}) SyncStep(*shard, 12);
  v1::OpenJobRequest again = job;
  again.set_recover(true);
  again.set_checkpoint("cut-9");
  again.set_first_step(9);
  auto back = Open(again, files_, OtherLogs);
  ASSERT_OK(back);
  SyncPulls(**back, 13);
  SyncPulls(*primary, 13);
  EXPECT_EQ(Rows(**back, files_, 13), Rows(*primary, files_, 13));
}

TEST_F(ReplicaTest, TheFollowersLogHasWhatExpiredAtACutThatCameToNothing) {
  const v1::OpenJobRequest job = SyncJob();
  const std::shared_ptr<JobShard> primary = AtCheckpoint(job);
  ASSERT_OK(primary->SetFollower(1, "ps-1"));
  const auto follower = OpenFollower(job, 1, "cut-4", 4);
  for (uint64_t step = 4; step < 9; ++step) SyncStep(*primary, step);
  SyncPulls(*primary, 9);
  ASSERT_OK(Call(*primary, Request::CUT, "cut-9", 9));
  for (uint64_t step = 9; step < 12; ++step) SyncStep(*primary, step);
  Feed(*primary, *follower);
  ASSERT_OK(follower->StopFollowing());
  v1::OpenJobRequest again = job;
  again.set_recover(true);
  again.set_checkpoint("cut-4");
  again.set_first_step(4);
  const auto back = Open(again, files_, OtherLogs);
  ASSERT_OK(back);
  SyncPulls(**back, 12);
  SyncPulls(*primary, 12);
  EXPECT_EQ(Rows(**back, files_, 12), Rows(*primary, files_, 12));
}

TEST_F(ReplicaTest, WhatHasExpiredGoesFromTheFollowersDisk) {
  v1::PsTable table = AdamTable("expiring", 8, v1::SYNC);
  table.mutable_spec()->mutable_expiry()->set_after_steps(2);
  const v1::OpenJobRequest job = Logged(Job({table}, 1));
  const auto primary = *Open(job, files_);
  ASSERT_OK(primary->SetFollower(1, "ps-1"));
  const std::string folder = testing::TempDir() + "/follower-spill-" + std::to_string(::getpid());
  // When nobody writes there any more.
  const absl::Cleanup remove = [&folder] { std::filesystem::remove_all(folder); };
  Spill::Options options;
  options.folder = folder;
  options.memory_bytes = 64 << 10;
  options.reader_threads = 2;
  const auto spill = Spill::Open(options);
  ASSERT_OK(spill);
  v1::OpenJobRequest follows = job;
  follows.set_follow("ps-0");
  follows.set_pair(1);
  const auto follower = *Open(follows, files_, [&](JobShard::Options& shard) {
    OtherLogs(shard);
    shard.spill = spill->get();
  });
  ASSERT_OK(follower->OpenLog());
  constexpr uint64_t kNew = 500;
  for (uint64_t step = 0; step < 40; ++step) {
    Block block = {.table = 0, .keys = {}, .values = std::vector<float>(kNew * 8, 1)};
    for (uint64_t k = 0; k < kNew; ++k) block.keys.push_back(step * kNew + k);
    EXPECT_OK(PendingPull(*primary, PullOf(0, step, {{0, block.keys}})).status());
    ASSERT_OK(primary->Push(CallOf(PushOf(0, step, {block}))));
    if (step % 4 == 3) {
      EXPECT_OK(PendingPull(*primary, PullOf(0, step + 1, {{0, {}}})).status());
      const std::string cut = absl::StrCat("cut-", step);
      Checkpoint(*primary, job, cut, step + 1);
      ASSERT_OK(Call(*primary, Request::COMMITTED, cut, step + 1));
    }
    Feed(*primary, *follower);
  }
  EXPECT_GT(follower->Stats().tables(0).expired(), 10 * kNew) << "on its disk or not";
  EXPECT_EQ(follower->Stats().tables(0).rows(), primary->Stats().tables(0).rows());
  ASSERT_OK(follower->StopFollowing());
  EXPECT_OK(PendingPull(*follower, PullOf(0, 40, {{0, {}}})).status());
  // In files of their own: what is in memory, and what is on disk.
  Checkpoint(*primary, job, "of-primary", 40);
  Checkpoint(*follower, job, "of-follower", 40);
  EXPECT_TRUE(CheckpointRows(files_, "root/of-follower") ==
              CheckpointRows(files_, "root/of-primary"));
}

TEST_F(ReplicaTest, TheFollowersLogShrinksWithCommittedCheckpoints) {
  const v1::OpenJobRequest job = AsyncJob();
  const auto primary = *Open(job, files_);
  ASSERT_OK(primary->SetFollower(1, "ps-1"));
  const auto follower = OpenFollower(job, 1);
  const auto segments = [&] { return files_.List("other-logs/job-1/1")->size(); };
  for (uint64_t s = 0; s < 8; ++s) {
    ASSERT_OK(primary->Push(AsyncPush(0, s)));
    const std::string folder = absl::StrCat("cut-", s);
    Checkpoint(*primary, job, folder, s + 1);
    ASSERT_OK(Call(*primary, Request::COMMITTED, folder, s + 1));
    Feed(*primary, *follower);
    Feed(*primary, *follower);
  }
  EXPECT_LE(segments(), 2u);
}

// As one that hangs, or whose disk is full.
TEST_F(ReplicaTest, AFollowerThatReadsNothingHoldsNoMoreOfTheLogThanItBeginsAt) {
  const v1::OpenJobRequest job = AsyncJob();
  const auto primary = *Open(job, files_);
  const auto segments = [&] {
    std::vector<std::string> names = *files_.List("logs/job-1/1");
    std::erase(names, push_log::kSpare);
    return names;
  };
  uint64_t s = 0;
  const auto checkpoint = [&] {
    ASSERT_OK(primary->Push(AsyncPush(0, s++)));
    const std::string folder = absl::StrCat("cut-", s);
    Checkpoint(*primary, job, folder, s);
    ASSERT_OK(Call(*primary, Request::COMMITTED, folder, s));
  };
  ASSERT_OK(primary->SetFollower(1, "ps-1"));
  checkpoint();
  checkpoint();
  EXPECT_THAT(segments(), testing::SizeIs(3));
  // The next one is opened from the last checkpoint.
  ASSERT_OK(primary->SetFollower(2, "ps-2"));
  EXPECT_THAT(segments(), testing::SizeIs(1));
  checkpoint();
  EXPECT_THAT(segments(), testing::SizeIs(2));
  const auto follower = OpenFollower(job, 2, "cut-2", 2);
  Feed(*primary, *follower);
  EXPECT_THAT(segments(), testing::SizeIs(1)) << "it has read on, and no checkpoint has come since";
  EXPECT_EQ(primary->replica(), 2u);
  ASSERT_OK(primary->SetFollower(3, "ps-3"));
  checkpoint();
  EXPECT_THAT(segments(), testing::SizeIs(2));
  ASSERT_OK(primary->SetFollower(4, ""));
  EXPECT_THAT(segments(), testing::SizeIs(1));
}

TEST_F(ReplicaTest, ACheckpointThatMayBeCommittedIsOneThatTheFollowersLogGoesOnFrom) {
  const v1::OpenJobRequest job = AsyncJob();
  const auto primary = *Open(job, files_);
  ASSERT_OK(primary->SetFollower(1, "ps-1"));
  const auto follower = OpenFollower(job, 1);
  Feed(*primary, *follower);
  ASSERT_OK(primary->Push(AsyncPush(0, 0)));
  Feed(*primary, *follower);
  Checkpoint(*primary, job, "cut-1", 1);
  // What the ps answers with.
  Waiting written(*primary);
  EXPECT_FALSE(written.status.has_value()) << "the follower does not know of the cut";
  Feed(*primary, *follower);
  ASSERT_TRUE(written.status.has_value());
  EXPECT_OK(*written.status);
  // The ps dies, then the follower, which has taken its place.
  ASSERT_OK(follower->StopFollowing());
  ASSERT_OK(follower->Push(AsyncPush(1, 0)));
  v1::OpenJobRequest again = job;
  again.set_recover(true);
  again.set_checkpoint("cut-1");
  auto back = Open(again, files_, OtherLogs);
  ASSERT_OK(back);
  EXPECT_EQ(Rows(**back, files_, 0), Rows(*follower, files_, 0));
}

// As while no master is there to give the follower up.
TEST_F(ReplicaTest, WhoWaitsTooLongForTheFollowerIsToldAndComesAgain) {
  const auto primary = *Open(AsyncJob(), files_);
  ASSERT_OK(primary->SetFollower(1, "ps-1"));
  const auto follower = OpenFollower(AsyncJob(), 1);
  Feed(*primary, *follower);
  for (int time = 1; time <= 3; ++time) {
    ASSERT_OK(primary->Push(AsyncPush(0, 0)));  // a repeat from the second time on
    Waiting push(*primary);
    clock_.Advance(LogFeed::kLongestWait - absl::Milliseconds(1));
    primary->Expire();
    EXPECT_FALSE(push.status.has_value());
    clock_.Advance(absl::Milliseconds(1));
    primary->Expire();
    ASSERT_TRUE(push.status.has_value());
    const std::string why = absl::StrCat("ps-1, which has a copy of the rows, ",
                                         "lacks record 2 of the push log since ", 5 * time, "s");
    EXPECT_FAILS(*push.status, StatusCode::kUnavailable, why);
    // For the master, who gives such a follower up, and for who asks: since the first of them.
    EXPECT_EQ(primary->replica_wait(), time * LogFeed::kLongestWait);
    EXPECT_THAT(primary->Waits(), testing::ElementsAre("job job-1: pushes wait: " + why));
  }
  // The follower is back, and has it once.
  ASSERT_OK(primary->Push(AsyncPush(0, 0)));
  Waiting push(*primary);
  Feed(*primary, *follower);
  ASSERT_TRUE(push.status.has_value());
  EXPECT_OK(*push.status);
  EXPECT_EQ(primary->replica_wait(), absl::ZeroDuration());
  EXPECT_TRUE(primary->Waits().empty());
  ASSERT_OK(follower->StopFollowing());
  EXPECT_EQ(Rows(*follower, files_, 0), Rows(*primary, files_, 0));
  EXPECT_EQ(follower->Stats().applied_steps(), 1u);
}

TEST_F(ReplicaTest, ALaterPairTakesThePlaceOfOneThatDoesNotAnswer) {
  const auto primary = *Open(AsyncJob(), files_);
  ASSERT_OK(primary->SetFollower(3, "ps-1"));
  const auto first = OpenFollower(AsyncJob(), 3);
  Feed(*primary, *first);
  ASSERT_OK(primary->Push(AsyncPush(0, 0)));
  Waiting push(*primary);
  EXPECT_FALSE(push.status.has_value());
  ASSERT_OK(primary->SetFollower(3, "ps-1"));
  EXPECT_FALSE(push.status.has_value()) << "told again";
  EXPECT_FAILS(primary->SetFollower(2, "ps-1"), StatusCode::kAborted, "pair 3 is current");
  ASSERT_OK(primary->SetFollower(4, "ps-1"));
  ASSERT_TRUE(push.status.has_value());
  EXPECT_OK(*push.status);
  EXPECT_EQ(primary->replica(), 0);
  EXPECT_FAILS(FeedOnce(*primary, *first), StatusCode::kAborted, "pair 3 is asked for");
  const auto second = OpenFollower(AsyncJob(), 4);
  Feed(*primary, *second);
  EXPECT_EQ(primary->replica(), 4);
  ASSERT_OK(second->StopFollowing());
  EXPECT_EQ(second->Stats().applied_steps(), 1u);
}

TEST_F(ReplicaTest, AnAnswerThatIsLostIsAskedForAgain) {
  const auto primary = *Open(AsyncJob(), files_);
  ASSERT_OK(primary->SetFollower(1, "ps-1"));
  const auto follower = OpenFollower(AsyncJob(), 1);
  for (uint64_t s = 0; s < 6; ++s) {
    ASSERT_OK(primary->Push(AsyncPush(0, s)));
    primary->ReadLog(follower->NextRead(), clock_.Monotonic(),
                     [](const auto& lost) { EXPECT_OK(lost); });
    ASSERT_OK(FeedOnce(*primary, *follower));
  }
  Feed(*primary, *follower);
  ASSERT_OK(follower->StopFollowing());
  EXPECT_EQ(follower->Stats().applied_steps(), 6u);
}

TEST_F(ReplicaTest, SoIsOneAfterTheSegmentThatTheFollowerBeganAtIsGone) {
  const auto primary = *Open(AsyncJob(), files_);
  ASSERT_OK(primary->SetFollower(1, "ps-1"));
  const auto follower = OpenFollower(AsyncJob(), 1);
  for (uint64_t s = 0; s < 3; ++s) ASSERT_OK(primary->Push(AsyncPush(0, s)));
  Feed(*primary, *follower);
  Checkpoint(*primary, AsyncJob(), "cut-3", 3);
  Feed(*primary, *follower);
  ASSERT_OK(Call(*primary, Request::COMMITTED, "cut-3", 3));
  ASSERT_FALSE(files_.Exists("logs/job-1/1/00000001.log"));
  ASSERT_OK(primary->Push(AsyncPush(0, 3)));
  primary->ReadLog(follower->NextRead(), clock_.Monotonic(),
                   [](const auto& lost) { EXPECT_OK(lost); });
  Feed(*primary, *follower);
  ASSERT_OK(follower->StopFollowing());
  EXPECT_EQ(follower->Stats().applied_steps(), 4u);
}

TEST_F(ReplicaTest, WithFsyncAFollowerSyncsOnceAnAnswer) {
  v1::OpenJobRequest job = AsyncJob();
  job.set_push_log(v1::RecoverySpec::FSYNC);
  const auto primary = *Open(job, files_);
  ASSERT_OK(primary->SetFollower(1, "ps-1"));
  const auto follower = OpenFollower(job, 1);
  Feed(*primary, *follower);
  for (uint64_t s = 0; s < 6; ++s) ASSERT_OK(primary->Push(AsyncPush(0, s)));
  files_.FailSyncsAfter(1);
  const absl::StatusOr<int> records = FeedOnce(*primary, *follower);
  ASSERT_OK(records);
  EXPECT_EQ(*records, 6);
}

TEST_F(ReplicaTest, AReadWaitsForWhatIsPushed) {
  const auto primary = *Open(AsyncJob(), files_);
  ASSERT_OK(primary->SetFollower(1, "ps-1"));
  const auto follower = OpenFollower(AsyncJob(), 1);
  Feed(*primary, *follower);
  std::vector<int> records;
  const auto read = [&] {
    primary->ReadLog(follower->NextRead(), clock_.Monotonic() + absl::Seconds(1),
                     [&](const auto& answer) {
                       if (answer.ok()) records.push_back(answer->records_size());
                     });
  };
  read();
  EXPECT_TRUE(records.empty());
  ASSERT_OK(primary->Push(AsyncPush(0, 0)));
  EXPECT_THAT(records, testing::ElementsAre(1));
  ASSERT_OK(FeedOnce(*primary, *follower));
  read();
  clock_.Advance(absl::Seconds(2));
  primary->Expire();
  EXPECT_THAT(records, testing::ElementsAre(1, 0));
  read();
  read();  // the first one's caller has gone
  EXPECT_THAT(records, testing::ElementsAre(1, 0, 0));
  primary->Close(absl::AbortedError("closed"));
}

TEST_F(ReplicaTest, ALogThatThereIsNoMemoryToReadIsAskedForAgain) {
  WatchedFiles watched(files_);
  const auto primary = *Open(AsyncJob(), watched);
  ASSERT_OK(primary->SetFollower(1, "ps-1"));
  const auto follower = OpenFollower(AsyncJob(), 1);
  absl::Status answer;
  const auto read = [&](const v1::ReadLogRequest& request) {
    answer = absl::UnknownError("not answered");
    primary->ReadLog(request, clock_.Monotonic() + absl::Seconds(1),
                     [&](const auto& records) { answer = records.status(); });
  };
  int files_left = 0;  // that may be opened
  watched.on_open = [&](const std::string&) {
    if (files_left-- == 0) throw std::bad_alloc();
  };
  constexpr char kNoMemory[] = "this ps has no memory for records of a push log";
  read(follower->NextRead());
  EXPECT_FAILS(answer, StatusCode::kResourceExhausted, kNoMemory);
  files_left = -1;
  Feed(*primary, *follower);
  // When it grows.
  read(follower->NextRead());
  Checkpoint(*primary, AsyncJob(), "cut-0", 0);
  files_left = 0;
  ASSERT_OK(primary->Push(AsyncPush(0, 0)));
  EXPECT_FAILS(answer, StatusCode::kResourceExhausted, kNoMemory);
  files_left = -1;
  Feed(*primary, *follower);
  // At the deadline.
  v1::ReadLogRequest other = follower->NextRead();
  other.set_cut("cut-0");
  read(other);
  clock_.Advance(absl::Seconds(2));
  files_left = 0;
  primary->Expire();
  EXPECT_FAILS(answer, StatusCode::kResourceExhausted, kNoMemory);
  // At any of its files, also between two: the first record of a cut's segment comes after that of
  // what has expired.
  other = follower->NextRead();
  other.set_next_record(other.next_record() + 1);
  Checkpoint(*primary, AsyncJob(), "cut-1", 0);
  for (int left = 0; !answer.ok(); ++left) {
    files_left = left;
    read(other);
    if (answer.ok()) break;
    EXPECT_FAILS(answer, StatusCode::kResourceExhausted, kNoMemory);
    files_left = -1;
    read(other);
    ASSERT_OK(answer);
    answer = absl::UnknownError("once more");
  }
  files_left = -1;
  Feed(*primary, *follower);
  ASSERT_OK(follower->StopFollowing());
  EXPECT_EQ(Rows(*follower, files_, 0), Rows(*primary, files_, 0));
}

TEST_F(ReplicaTest, RecordsThatAFullDiskHasRefusedAreNotFed) {
  const auto primary = *Open(AsyncJob(), files_);
  ASSERT_OK(primary->SetFollower(1, "ps-1"));
  const auto follower = OpenFollower(AsyncJob(), 1);
  for (uint64_t s = 0; s < 5; ++s) {
    ASSERT_OK(primary->Push(AsyncPush(0, s)));
    Feed(*primary, *follower);
    files_.SetCapacity(files_.bytes() + 100);
    EXPECT_FAILS(primary->Push(AsyncPush(0, s + 1)), StatusCode::kResourceExhausted, "");
    files_.Repair();
  }
  ASSERT_OK(primary->Push(AsyncPush(0, 5)));
  Feed(*primary, *follower);
  ASSERT_OK(follower->StopFollowing());
  EXPECT_EQ(follower->Stats().applied_steps(), 6u);
  EXPECT_EQ(Rows(*follower, files_, 0), Rows(*primary, files_, 0));
}

TEST_F(ReplicaTest, WhatWasChangedOnItsWayIsRefused) {
  const auto primary = *Open(AsyncJob(), files_);
  ASSERT_OK(primary->SetFollower(1, "ps-1"));
  const auto follower = OpenFollower(AsyncJob(), 1);
  ASSERT_OK(primary->Push(AsyncPush(0, 0)));
  v1::ReadLogResponse response;
  primary->ReadLog(follower->NextRead(), clock_.Monotonic(),
                   [&](auto answer) { response = *std::move(answer); });
  ASSERT_EQ(response.records_size(), 2);  // a head, and the push
  v1::ReadLogResponse changed = response;
  changed.mutable_records(1)->mutable_bulk()->back() ^= 1;
  EXPECT_FAILS(follower->Follow(changed), StatusCode::kDataLoss, "was changed on its way");
  v1::ReadLogResponse hole = response;
  hole.mutable_records(1)->set_number(9);
  EXPECT_FAILS(follower->Follow(hole), StatusCode::kDataLoss, "record 2 was expected");
  response.mutable_records()->DeleteSubrange(0, 1);
  EXPECT_OK(follower->Follow(response));
}

TEST_F(ReplicaTest, WhoHasFollowedNobodyTakesNobodysPlace) {
  const auto follower = OpenFollower(AsyncJob(), 1);
  EXPECT_FAILS(follower->StopFollowing(), StatusCode::kFailedPrecondition, "has followed nobody");
  const auto unlogged = *Open(Whole(Job({SgdTable("a", 3, v1::ASYNC)}, kRanks)), files_);
  EXPECT_FAILS(unlogged->SetFollower(1, "ps-1"), StatusCode::kFailedPrecondition,
               "recovery.push_log");
  EXPECT_TRUE(Waiting(*unlogged).status.has_value());
}

TEST_F(ReplicaTest, WhenThePsIsClosedNobodyWaits) {
  const auto primary = *Open(AsyncJob(), files_);
  ASSERT_OK(primary->SetFollower(1, "ps-1"));
  const auto follower = OpenFollower(AsyncJob(), 1);
  Feed(*primary, *follower);
  ASSERT_OK(primary->Push(AsyncPush(0, 0)));
  Waiting push(*primary);
  primary->Close(absl::AbortedError("the job was closed"));
  ASSERT_TRUE(push.status.has_value());
  EXPECT_FAILS(*push.status, StatusCode::kAborted, "the job was closed");
  EXPECT_FAILS(FeedOnce(*primary, *follower), StatusCode::kAborted, "the job was closed");
}

}  // namespace
}  // namespace tessera::ps
