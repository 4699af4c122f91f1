#include <atomic>
#include <filesystem>
#include <random>
#include <set>
#include <thread>

#include "absl/time/clock.h"

#include "tests/ps/recovery_harness.h"

// A ps that comes back with its push log.
namespace tessera::ps {
namespace {

using absl::StatusCode;

class RecoveryTest : public testing::Test, protected RecoveryHarness {};

TEST_F(RecoveryTest, AnAsyncJobHasAllThatWasAcknowledgedOnce) {
  auto shard = Open(AsyncJob(), files_);
  ASSERT_OK(shard);
  for (uint64_t s = 0; s < 10; ++s) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      ASSERT_OK((*shard)->Push(AsyncPush(rank, s)));
      if ((s + rank) % 4 != 0) continue;
      shard = Recover(AsyncJob());
      ASSERT_OK(shard);
      // The answer may have been lost with the ps.
      ASSERT_OK((*shard)->Push(AsyncPush(rank, s)));
    }
  }
  EXPECT_EQ(Rows(**shard, files_, 0), AsyncTwin(10));
  EXPECT_EQ((*shard)->Stats().applied_steps(), 30);
}

// A power cut, or a damaged disk, takes the end of a log.
TEST_F(RecoveryTest, AnAsyncJobWhoseLogLostItsEndLearnsItFromTheNextPushOfThatRank) {
  const auto push = [](uint32_t rank, uint64_t sequence) {
    PushCall call = AsyncPush(rank, sequence);
    call.request.set_confirmed(sequence);
    return call;
  };
  auto shard = Open(AsyncJob(), files_);
  ASSERT_OK(shard);
  for (uint64_t s = 0; s < 3; ++s) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) ASSERT_OK((*shard)->Push(push(rank, s)));
  }
  shard->reset();
  const std::string path = "logs/job-1/1/00000001.log";
  std::string bytes = files_.Content(path);
  bytes[bytes.size() - 10] ^= 4;  // in the last record
  files_.SetContent(path, bytes);
  shard = Recover(AsyncJob());
  ASSERT_OK(shard);
  EXPECT_EQ((*shard)->Stats().applied_steps(), 8);
  EXPECT_OK((*shard)->Push(push(0, 3)));
  EXPECT_OK((*shard)->Push(push(1, 3)));
  EXPECT_FAILS((*shard)->Push(push(2, 3)), StatusCode::kAborted, "lacks that of number 2");
}

TEST_F(RecoveryTest, OneThatReturnsAloneGoesOnWhereTheRanksStand) {
  FaultFileSystem other;
  const auto twin = Open(AsyncJob(), other);
  ASSERT_OK(twin);
  auto shard = Open(AsyncJob(), files_);
  ASSERT_OK(shard);
  for (uint64_t s = 0; s < 7; ++s) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      ASSERT_OK((*shard)->Push(AsyncPush(rank, s)));
      if (s < 4) ASSERT_OK((*twin)->Push(AsyncPush(rank, s)));
    }
    if (s == 3) Checkpoint(**shard, AsyncJob(), "cut", 12);
  }
  // Pushes 4 and on are lost with it and with its log; all ranks have reported some of them.
  v1::OpenJobRequest alone = AsyncJob();
  alone.set_checkpoint("cut");
  alone.set_first_step(4);
  for (const uint64_t pushed : {5, 6, 7}) alone.add_pushed(pushed);
  shard = Open(alone, files_);
  ASSERT_OK(shard);
  EXPECT_EQ(Rows(**shard, files_, 12), Rows(**twin, other, 12));
  ASSERT_OK((*shard)->Push(AsyncPush(0, 4)));  // late
  EXPECT_EQ(Rows(**shard, files_, 12), Rows(**twin, other, 12));
  const auto both = [&](uint32_t rank, uint64_t sequence) {
    ASSERT_OK((*shard)->Push(AsyncPush(rank, sequence)));
    ASSERT_OK((*twin)->Push(AsyncPush(rank, sequence)));
  };
  both(0, 5);
  both(0, 6);
  both(1, 7);  // its push 6 is lost for good
  // Who takes over the rank does not stand at it for ever.
  const auto next_of = [&](uint32_t rank) {
    v1::ProgressRequest ask;
    *ask.mutable_header() = AsyncPush(rank, 0).request.header();
    const auto progress = (*shard)->GetProgress(ask);
    EXPECT_OK(progress);
    return progress.ok() ? progress->next_push() : 0;
  };
  EXPECT_EQ(next_of(0), 7u);
  EXPECT_EQ(next_of(1), 8u);
  both(2, 7);
  EXPECT_EQ(Rows(**shard, files_, 16), Rows(**twin, other, 16));
  // Its new log begins there.
  shard = Recover(AsyncJob(), "cut", 12);
  ASSERT_OK(shard);
  EXPECT_EQ(next_of(1), 8u);
  ASSERT_OK((*shard)->Push(AsyncPush(2, 7)));
  both(0, 7);
  EXPECT_EQ(Rows(**shard, files_, 17), Rows(**twin, other, 17));
}

TEST_F(RecoveryTest, OneThatReturnsAloneTakesWhatASlowRankPushesBelowTheCutsNumber) {
  FaultFileSystem other;
  const auto twin = Open(AsyncJob(), other);
  ASSERT_OK(twin);
  auto shard = Open(AsyncJob(), files_);
  ASSERT_OK(shard);
  const auto both = [&](uint32_t rank, uint64_t sequence) {
    ASSERT_OK((*shard)->Push(AsyncPush(rank, sequence)));
    ASSERT_OK((*twin)->Push(AsyncPush(rank, sequence)));
  };
  for (uint64_t s = 0; s < 4; ++s) both(0, s);
  both(1, 0);
  Checkpoint(**shard, AsyncJob(), "cut", 5);
  v1::OpenJobRequest alone = AsyncJob();
  alone.set_checkpoint("cut");
  alone.set_first_step(4);
  for (const uint64_t pushed : {4, 1, 0}) alone.add_pushed(pushed);
  shard = Open(alone, files_);
  ASSERT_OK(shard);
  for (uint64_t s = 1; s < 4; ++s) both(1, s);
  for (uint64_t s = 0; s < 4; ++s) both(2, s);
  EXPECT_EQ(Rows(**shard, files_, 12), Rows(**twin, other, 12));
}

TEST_F(RecoveryTest, ReturningAloneNeedsEveryRankAndNoSyncTable) {
  v1::OpenJobRequest job = AsyncJob();
  job.add_pushed(1);
  EXPECT_FAILS(Open(job, files_), StatusCode::kInvalidArgument, "pushed has 1 ranks, expected 3");
  job = SyncJob();
  for (uint32_t rank = 0; rank < kRanks; ++rank) job.add_pushed(1);
  EXPECT_FAILS(Open(job, files_), StatusCode::kInvalidArgument,
               "pushed has 3 ranks, expected 0, since a table is sync");
}

TEST_F(RecoveryTest, ASyncJobGoesOnInTheMiddleOfAStepToTheSameBits) {
  constexpr uint64_t kSteps = 9;
  FaultFileSystem other;
  const auto undisturbed = Open(SyncJob(), other);
  ASSERT_OK(undisturbed);
  ASSERT_OK((*undisturbed)->Assign(Dense()));
  auto shard = Open(SyncJob(), files_);
  ASSERT_OK(shard);
  ASSERT_OK((*shard)->Assign(Dense()));
  std::string checkpoint;
  uint64_t from = 0;
  for (uint64_t step = 0; step < kSteps; ++step) {
    if (step % 4 == 3) {
      // Expiry is part of a cut, and so of both.
      ASSERT_OK(Call(**undisturbed, Request::CUT_AND_WRITE, "twin", step));
      Checkpoint(**shard, SyncJob(), absl::StrCat("step-", step), step);
      if (step == 3) {
        // Committed, but the ps never heard of it, or it did.
        checkpoint = "step-3";
        from = step;
      }
    }
    SyncStep(**undisturbed, step);
    SyncPulls(**shard, step);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      ASSERT_OK((*shard)->Push(SyncPush(rank, step)));
      if ((step + rank) % 2 != 0) continue;
      shard = Recover(SyncJob(), checkpoint, from);
      ASSERT_OK(shard);
      ASSERT_OK((*shard)->Push(SyncPush(rank, step)));
    }
  }
  EXPECT_EQ(Rows(**shard, files_, kSteps), Rows(**undisturbed, other, kSteps));
}

// What ranks confirmed before the loss is not in the log: whatever they do next says it again.
TEST_F(RecoveryTest, AStepThatWasConfirmedBeforeTheLossIsNotWaitedForForEver) {
  for (const char* next : {"pulls", "an evaluation", "a cut"}) {
    SCOPED_TRACE(next);
    auto shard = Open(SyncJob(), files_);
    ASSERT_OK(shard);
    ASSERT_OK((*shard)->Assign(Dense()));
    SyncStep(**shard, 0);
    for (uint32_t rank = 0; rank < kRanks; ++rank) ASSERT_OK(Confirm(**shard, rank, 1));
    ASSERT_EQ((*shard)->Stats().applied_steps(), 1u);
    shard = Recover(SyncJob());
    ASSERT_OK(shard);
    EXPECT_EQ((*shard)->Stats().applied_steps(), 0u);
    for (uint32_t rank = 0; rank < kRanks; ++rank) EXPECT_EQ(*Confirm(**shard, rank, 0), 1u);
    if (next == std::string("pulls")) {
      SyncPulls(**shard, 1);
    } else if (next == std::string("a cut")) {
      ASSERT_OK(Call(**shard, Request::CUT, "step-1", 1));
    } else {
      // Of one rank alone: the others may have no part in it.
      const PendingPull pull(**shard, PullOf(2, 1, {{0, {1}}}, /*read_only=*/true));
      EXPECT_OK(pull.status());
    }
    EXPECT_EQ((*shard)->Stats().applied_steps(), 1u);
  }
}

TEST_F(RecoveryTest, ACommittedCheckpointShortensTheLogAndRemembersWhatWasBeforeIt) {
  auto shard = Open(AsyncJob(), files_);
  ASSERT_OK(shard);
  for (uint64_t s = 0; s < 20; ++s) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) ASSERT_OK((*shard)->Push(AsyncPush(rank, s)));
  }
  const uint64_t before = (*shard)->Stats().log_bytes();
  Checkpoint(**shard, AsyncJob(), "step-20", 20);
  EXPECT_GE((*shard)->Stats().log_bytes(), before);
  ASSERT_OK(Call(**shard, Request::COMMITTED, "step-20", 20));
  EXPECT_LT((*shard)->Stats().log_bytes(), before / 20);
  ASSERT_OK((*shard)->Push(AsyncPush(0, 20)));

  shard = Recover(AsyncJob(), "step-20", 20);
  ASSERT_OK(shard);
  // Repeats that come late, of pushes that only the checkpoint has.
  for (uint32_t rank = 0; rank < kRanks; ++rank) ASSERT_OK((*shard)->Push(AsyncPush(rank, 7)));
  for (uint32_t rank = 1; rank < kRanks; ++rank) ASSERT_OK((*shard)->Push(AsyncPush(rank, 20)));
  EXPECT_EQ(Rows(**shard, files_, 0), AsyncTwin(21));
  EXPECT_FAILS(Recover(AsyncJob()), StatusCode::kFailedPrecondition,
               "no segment that begins at the start of the job");
}

TEST_F(RecoveryTest, APartThatWasAcknowledgedNeedNotComeAgain) {
  const auto part = [](uint32_t number) {
    v1::PushRequest request = PushOf(0, 0, {{.table = 0, .keys = {number}, .values = {1, 2, 3}}});
    request.set_part(number);
    request.set_parts(3);
    request.set_bulk_bytes(3 * (8 + 12));
    return CallOf(request);
  };
  auto shard = Open(AsyncJob(), files_);
  ASSERT_OK(shard);
  ASSERT_OK((*shard)->Push(part(2)));
  ASSERT_OK((*shard)->Push(part(0)));
  ASSERT_OK((*shard)->Push(part(0)));
  shard = Recover(AsyncJob());
  ASSERT_OK(shard);
  ASSERT_OK((*shard)->Push(part(0)));
  EXPECT_EQ((*shard)->Stats().applied_steps(), 0);
  ASSERT_OK((*shard)->Push(part(1)));
  EXPECT_EQ((*shard)->Stats().applied_steps(), 1);
  shard = Recover(AsyncJob());
  ASSERT_OK(shard);
  const SavedRows rows = Rows(**shard, files_, 0);
  ASSERT_EQ(rows.size(), 3);
  for (const auto& [key, row] : rows) EXPECT_THAT(row.floats, testing::ElementsAre(-1, -2, -3));
}

// Whatever length a kill leaves the log at, what comes back is a prefix of what was pushed.
TEST_F(RecoveryTest, ComesBackToAPrefixWhereverTheLogEnds) {
  const std::string path = "logs/job-1/1/00000001.log";
  {
    const auto shard = Open(AsyncJob(), files_);
    ASSERT_OK(shard);
    for (uint64_t s = 0; s < 4; ++s) {
      for (uint32_t rank = 0; rank < kRanks; ++rank) {
        ASSERT_OK((*shard)->Push(AsyncPush(rank, s)));
      }
    }
  }
  const std::string whole = files_.Content(path);
  std::mt19937_64 random(7);
  std::set<uint64_t> seen;
  for (int i = 0; i < 60; ++i) {
    EXPECT_OK(files_.Remove("logs"));
    EXPECT_OK(files_.CreateFolder("logs/job-1/1"));
    files_.SetContent(path, whole.substr(0, whole.size() - random() % (whole.size() / 2)));
    const auto shard = Recover(AsyncJob());
    ASSERT_OK(shard);
    seen.insert((*shard)->Stats().applied_steps());
    // Who was not answered pushes again.
    for (uint64_t s = 0; s < 4; ++s) {
      for (uint32_t rank = 0; rank < kRanks; ++rank) {
        ASSERT_OK((*shard)->Push(AsyncPush(rank, s)));
      }
    }
    ASSERT_EQ(Rows(**shard, files_, 0), AsyncTwin(4));
  }
  EXPECT_GT(seen.size(), 3);
}

TEST_F(RecoveryTest, ADamagedLogIsNamedAndNotReplayed) {
  {
    const auto shard = Open(AsyncJob(), files_);
    ASSERT_OK(shard);
    for (uint64_t s = 0; s < 4; ++s) ASSERT_OK((*shard)->Push(AsyncPush(0, s)));
  }
  const std::string path = "logs/job-1/1/00000001.log";
  std::string bytes = files_.Content(path);
  bytes[bytes.size() / 2] ^= 4;
  files_.SetContent(path, bytes);
  EXPECT_FAILS(Recover(AsyncJob()), StatusCode::kDataLoss, path);
}

TEST_F(RecoveryTest, AFullDiskRefusesThePushUntilThereIsRoom) {
  auto shard = Open(AsyncJob(), files_);
  ASSERT_OK(shard);
  ASSERT_OK((*shard)->Push(AsyncPush(0, 0)));
  files_.SetCapacity((*shard)->Stats().log_bytes() + 100);
  EXPECT_FAILS((*shard)->Push(AsyncPush(1, 0)), StatusCode::kResourceExhausted, "no space left");
  EXPECT_EQ((*shard)->Stats().applied_steps(), 1);
  files_.Repair();
  ASSERT_OK((*shard)->Push(AsyncPush(1, 0)));
  ASSERT_OK((*shard)->Push(AsyncPush(2, 0)));
  shard = Recover(AsyncJob());
  ASSERT_OK(shard);
  EXPECT_EQ(Rows(**shard, files_, 0), AsyncTwin(1));
}

TEST_F(RecoveryTest, AfterAFailedSyncTheShardIsOver) {
  v1::OpenJobRequest job = AsyncJob();
  job.set_push_log(v1::RecoverySpec::FSYNC);
  const auto shard = Open(job, files_);
  ASSERT_OK(shard);
  ASSERT_OK((*shard)->Push(AsyncPush(0, 0)));
  files_.FailSyncsAfter(0);
  EXPECT_FAILS((*shard)->Push(AsyncPush(0, 1)), StatusCode::kAborted, "the push log is broken");
  files_.Repair();
  EXPECT_FAILS((*shard)->Push(AsyncPush(0, 1)), StatusCode::kAborted, "start again from the last");
}

TEST_F(RecoveryTest, WithFsyncWhatWasAcknowledgedOutlivesAPowerCut) {
  v1::OpenJobRequest job = AsyncJob();
  job.set_push_log(v1::RecoverySpec::FSYNC);
  auto shard = Open(job, files_);
  ASSERT_OK(shard);
  for (uint64_t s = 0; s < 6; ++s) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) ASSERT_OK((*shard)->Push(AsyncPush(rank, s)));
    files_.Crash();
    shard = Recover(job);
    ASSERT_OK(shard);
    EXPECT_EQ((*shard)->Stats().applied_steps(), kRanks * (s + 1));
  }
  EXPECT_EQ(Rows(**shard, files_, 0), AsyncTwin(6));
}

TEST_F(RecoveryTest, WithFsyncProgressSaysNothingThatIsNotOnTheDisk) {
  v1::OpenJobRequest job = AsyncJob();
  job.set_push_log(v1::RecoverySpec::FSYNC);
  auto shard = Open(job, files_);
  ASSERT_OK(shard);
  // A push is applied, and its thread waits for the disk; whoever takes its rank over asks.
  files_.HoldSyncs(true);
  std::thread pushes([&] { EXPECT_OK((*shard)->Push(AsyncPush(0, 0))); });
  files_.AwaitHeldSync();
  uint64_t next = 0;
  std::atomic<bool> answered = false;
  std::thread asks([&] {
    v1::ProgressRequest ask;
    *ask.mutable_header() = AsyncPush(0, 0).request.header();
    const auto progress = (*shard)->GetProgress(ask);
    EXPECT_OK(progress);
    if (progress.ok()) next = progress->next_push();
    answered = true;
  });
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_FALSE(answered);
  files_.HoldSyncs(false);
  asks.join();
  pushes.join();
  EXPECT_EQ(next, 1u);
}

// A record that only the operating system had is taken for one that was acknowledged, once its push
// was repeated.
TEST_F(RecoveryTest, WithFsyncWhatAKilledPsHadNotSyncedOutlivesALaterPowerCut) {
  v1::OpenJobRequest job = AsyncJob();
  job.set_push_log(v1::RecoverySpec::FSYNC);
  auto shard = Open(job, files_);
  ASSERT_OK(shard);
  ASSERT_OK((*shard)->Push(AsyncPush(0, 0)));
  files_.FailSyncsAfter(0);
  EXPECT_FAILS((*shard)->Push(AsyncPush(1, 0)), StatusCode::kAborted, "the push log is broken");
  files_.Repair();
  shard = Recover(job);
  ASSERT_OK(shard);
  EXPECT_EQ((*shard)->Stats().applied_steps(), 2);
  ASSERT_OK((*shard)->Push(AsyncPush(1, 0)));
  ASSERT_OK((*shard)->Push(AsyncPush(2, 0)));
  files_.Crash();
  shard = Recover(job);
  ASSERT_OK(shard);
  EXPECT_EQ(Rows(**shard, files_, 0), AsyncTwin(1));
}

// Two messages of one push; `announced` is what both say they have together.
std::vector<v1::PushRequest> TwoParts(uint32_t rank, uint64_t sequence, float value,
                                      uint64_t announced) {
  std::vector<v1::PushRequest> parts;
  for (uint32_t part = 0; part < 2; ++part) {
    v1::PushRequest& request =
        parts.emplace_back(PushOf(rank, sequence, {{1, {uint64_t{part}}, {value}}}));
    request.set_part(part);
    request.set_parts(2);
    request.set_bulk_bytes(announced);
  }
  return parts;
}

TEST_F(RecoveryTest, APushInPartsThatHasNotWhatWasAnnouncedIsNoneForTheLogEither) {
  auto shard = Open(AsyncJob(), files_);
  ASSERT_OK(shard);
  const auto parts = TwoParts(0, 0, 1, 1000);
  ASSERT_OK((*shard)->Push(CallOf(parts[0])));
  EXPECT_FAILS((*shard)->Push(CallOf(parts[1])), StatusCode::kInvalidArgument,
               "brings 12 bytes of keys and gradients, after 12 of 1000 that were announced");
  ASSERT_OK((*shard)->Push(AsyncPush(1, 0)));
  shard = Recover(AsyncJob());
  ASSERT_OK(shard);
  EXPECT_EQ((*shard)->Stats().applied_steps(), 1);
}

TEST_F(RecoveryTest, APartThatIsRefusedHoldsNoRoom) {
  ByteBudget room(30);
  auto shard = Open(AsyncJob(), files_, [&](JobShard::Options& o) { o.held_pushes = &room; });
  ASSERT_OK(shard);
  files_.SetCapacity((*shard)->Stats().log_bytes());
  const auto parts = TwoParts(0, 0, 1, 24);
  for (int i = 0; i < 10; ++i) {
    EXPECT_FAILS((*shard)->Push(CallOf(parts[0])), StatusCode::kResourceExhausted, "o space left");
    EXPECT_EQ(room.bytes(), 0u);
  }
  files_.Repair();
  for (const v1::PushRequest& part : parts) ASSERT_OK((*shard)->Push(CallOf(part)));
  for (const v1::PushRequest& part : TwoParts(1, 0, 1, 24)) {
    ASSERT_OK((*shard)->Push(CallOf(part)));
  }
}

// Another rank may wait for that room, and the next worker for that rank's step.
TEST_F(RecoveryTest, TheNextWorkerOfARankGivesTheRoomOfAHalfPushBackBeforeItPushes) {
  ByteBudget room(30);
  auto shard = Open(AsyncJob(), files_, [&](JobShard::Options& o) { o.held_pushes = &room; });
  ASSERT_OK(shard);
  for (const uint64_t sequence : {0u, 1u}) {
    ASSERT_OK((*shard)->Push(CallOf(TwoParts(0, sequence, 1, 24)[0])));
  }
  const auto parts = TwoParts(1, 0, 1, 24);
  EXPECT_FAILS((*shard)->Push(CallOf(parts[0])), StatusCode::kResourceExhausted, "24 of 30 are");
  v1::ProgressRequest ask;
  *ask.mutable_header() = Header(0, /*incarnation=*/2);
  ASSERT_OK((*shard)->GetProgress(ask));
  for (const v1::PushRequest& part : parts) ASSERT_OK((*shard)->Push(CallOf(part)));
}

TEST_F(RecoveryTest, ALastPartThatWasRefusedIsNotInTheLog) {
  auto shard = Open(AsyncJob(), files_);
  ASSERT_OK(shard);
  const auto first = TwoParts(0, 0, 1, 24);
  ASSERT_OK((*shard)->Push(CallOf(first[0])));
  files_.SetCapacity((*shard)->Stats().log_bytes() + 100);
  EXPECT_FAILS((*shard)->Push(CallOf(first[1])), StatusCode::kResourceExhausted, "no space left");
  files_.Repair();
  // The worker is lost; the next one of its rank has other samples for the same number.
  for (v1::PushRequest& part : TwoParts(0, 0, 5, 24)) {
    part.mutable_header()->set_incarnation(2);
    ASSERT_OK((*shard)->Push(CallOf(part)));
  }
  const SavedRows rows = Rows(**shard, files_, 0);
  shard = Recover(AsyncJob());
  ASSERT_OK(shard);
  EXPECT_EQ(Rows(**shard, files_, 0), rows);
}

// Kills between any two events, checkpoints that come to nothing, commits that the ps hears of
// late.
TEST_F(RecoveryTest, CountsEveryPushOnceUnderRandomKills) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    ASSERT_OK(files_.Remove("logs"));
    ASSERT_OK(files_.Remove("root"));
    auto shard = Open(AsyncJob(), files_);
    ASSERT_OK(shard);
    std::string committed;
    uint64_t next[kRanks] = {};
    for (int event = 0; event < 60; ++event) {
      const uint32_t rank = random() % kRanks;
      switch (random() % 8) {
        case 0:
          shard = Recover(AsyncJob(), committed);
          ASSERT_OK(shard);
          break;
        case 1: {
          const std::string folder = absl::StrCat("cut-", event);
          if (random() % 2 == 0) {
            ASSERT_OK(Call(**shard, Request::CUT, folder, 0));  // nobody writes it
            break;
          }
          Checkpoint(**shard, AsyncJob(), folder, 0);
          committed = folder;
          break;
        }
        case 2:
          if (!committed.empty()) ASSERT_OK(Call(**shard, Request::COMMITTED, committed, 0));
          break;
        case 3:
          // A repeat.
          if (next[rank] > 0) ASSERT_OK((*shard)->Push(AsyncPush(rank, random() % next[rank])));
          break;
        default:
          ASSERT_OK((*shard)->Push(AsyncPush(rank, next[rank]++)));
      }
    }
    const uint64_t most = *std::max_element(next, next + kRanks);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      while (next[rank] < most) ASSERT_OK((*shard)->Push(AsyncPush(rank, next[rank]++)));
    }
    ASSERT_EQ(Rows(**shard, files_, 0), AsyncTwin(most)) << seed;
  }
}

TEST_F(RecoveryTest, RefusesWhatItCannotComeBackTo) {
  EXPECT_FAILS(Recover(AsyncJob()), StatusCode::kFailedPrecondition, "there is no push log here");
  v1::OpenJobRequest unlogged = AsyncJob();
  unlogged.set_push_log(v1::RecoverySpec::OFF);
  EXPECT_FAILS(Recover(unlogged), StatusCode::kFailedPrecondition, "set recovery.push_log");
  EXPECT_FAILS(Open(AsyncJob(), files_, [](JobShard::Options& o) { o.log_root.clear(); }),
               StatusCode::kFailedPrecondition, "start tessera-ps with --data-dir");
  ASSERT_OK(Open(AsyncJob(), files_));
  v1::OpenJobRequest other = AsyncJob();
  other.mutable_tables(0)->mutable_spec()->set_dim(5);
  EXPECT_FAILS(Recover(other), StatusCode::kFailedPrecondition,
               "was written for other tables or another set of ps");
}

TEST_F(RecoveryTest, ANewGenerationDoesAwayWithTheLogOfTheOneBefore) {
  ASSERT_OK(Open(AsyncJob(), files_));
  EXPECT_TRUE(files_.Exists("logs/job-1/1/00000001.log"));
  v1::OpenJobRequest next = AsyncJob();
  next.set_generation(2);
  ASSERT_OK(Open(next, files_));
  EXPECT_FALSE(files_.Exists("logs/job-1/1/00000001.log"));
  EXPECT_TRUE(files_.Exists("logs/job-1/2/00000001.log"));
}

}  // namespace
}  // namespace tessera::ps
