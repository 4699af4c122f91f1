// The room that push logs take on their disks: bounds, spare files, full disks.
#include "tests/ps/push_log_testing.h"

namespace tessera::ps {
namespace {

using absl::StatusCode;
using push_log::Kind;

class PushLogRoomTest : public testing::Test, protected PushLogHarness {};

TEST_F(PushLogRoomTest, AFullDiskRefusesTheRecordAndNothingElse) {
  const auto log = Create();
  ASSERT_OK(Append(*log, 0));
  for (const uint64_t room : {0, 20, 50, 60}) {
    files_.SetCapacity(UsedBytes() + room);
    EXPECT_FAILS(Append(*log, 4), StatusCode::kResourceExhausted, "no space left");
    EXPECT_FAILS(Append(*log, 4), StatusCode::kResourceExhausted, "No space left for a record");
    files_.Repair();
    EXPECT_EQ(*Read(), Texts(0, 1)) << room;
    ASSERT_OK(log->Cut(Head("a")));  // it looks how much there is
  }
  ASSERT_OK(Append(*log, 1));
  ASSERT_OK(Append(*log, 2));
  EXPECT_EQ(*Read(), Texts(0, 3));
}

TEST_F(PushLogRoomTest, KeepsItsBoundAndSaysHowToMakeRoom) {
  const auto log = Create(/*fsync=*/false, /*max_bytes=*/400);
  int n = 0;
  absl::Status status;
  for (; status.ok(); ++n) status = Append(*log, 0);
  EXPECT_FAILS(status, StatusCode::kResourceExhausted, "of 400 bytes; it shrinks with every");
  EXPECT_LE(log->bytes(), 400);
  EXPECT_GT(n, 3);
  ASSERT_OK(log->Cut(Head("step-1")));
  log->Forget("step-1");
  EXPECT_OK(Append(*log, 0));
}

TEST_F(PushLogRoomTest, SaysHowMuchOfItsRoomItTakes) {
  const std::string bulk(64 << 10, 'b');
  const auto append = [&bulk](PushLog& log, int times) {
    for (int i = 0; i < times; ++i) ASSERT_OK(log.Append(Kind::kPush, "push", bulk));
  };
  const auto unbounded = Create();
  append(*unbounded, 1);
  EXPECT_EQ(unbounded->share(), 0) << "this disk does not say what it has";
  const auto bounded = Create(false, 4 << 20);
  append(*bounded, 16);
  EXPECT_NEAR(bounded->share(), 0.25, 0.01);
  // Of a disk it asks again after a MiB.
  files_.SetCapacity(UsedBytes() + (5 << 20));
  append(*bounded, 16);
  EXPECT_NEAR(bounded->share(), 0.5, 0.01) << "the disk would let it have more";
  files_.SetCapacity(UsedBytes() + (1 << 20) + (1 << 19));
  append(*bounded, 17);
  EXPECT_NEAR(bounded->share(), 3.06 / 3.5, 0.02);
  // What no checkpoint needs makes room at once, and its file counts as room.
  ASSERT_OK(bounded->Cut(Head("a")));
  bounded->Forget("a");
  EXPECT_LT(bounded->share(), 0.01);
  append(*bounded, 28);
  EXPECT_NEAR(bounded->share(), 0.5, 0.02);
}

// A file that was written over keeps its size: nobody writes over the rest of one that has ended.
TEST_F(PushLogRoomTest, WhatIsLeftOfAnOldFileIsRoomOnlyWhileItIsWrittenOver) {
  const std::string bulk(64 << 10, 'b');
  const auto log = Create(false, 4 << 20);
  const auto append = [&](int times) {
    for (int i = 0; i < times; ++i) ASSERT_OK(log->Append(Kind::kPush, "push", bulk));
  };
  append(24);
  ASSERT_OK(log->Cut(Head("a")));
  log->Forget("a");  // its file is the spare
  ASSERT_OK(log->Cut(Head("b")));
  append(2);
  EXPECT_NEAR(log->share(), 2 / 64.0, 0.01);
  ASSERT_OK(log->Cut(Head("c")));
  EXPECT_NEAR(log->share(), 24 / 64.0, 0.01);
  absl::Status status;
  while (status.ok() && log->share() < 1) {
    status = log->Append(Kind::kPush, "push", bulk);
    if (!status.ok()) break;
  }
  EXPECT_FAILS(status, StatusCode::kResourceExhausted, "it shrinks with every checkpoint");
  EXPECT_GT(log->share(), 0.97) << "it is full, and says so";
}

TEST_F(PushLogRoomTest, TellsOfEachTwentiethFromAHalfOn) {
  int told = 0;
  PushLog::Options options = Options(false, 4 << 20);
  options.on_fuller = [&told] { ++told; };
  const auto log = PushLog::Create(std::move(options), Head(""));
  ASSERT_OK(log);
  const std::string bulk(64 << 10, 'b');
  const auto append_until = [&](float share) {
    while ((*log)->share() < share) ASSERT_OK((*log)->Append(Kind::kPush, "push", bulk));
  };
  append_until(0.48f);
  EXPECT_EQ(told, 0);
  append_until(0.5f);
  EXPECT_EQ(told, 1);
  append_until(0.76f);
  EXPECT_EQ(told, 6);
  ASSERT_OK((*log)->Cut(Head("a")));
  (*log)->Forget("a");
  append_until(0.3f);
  EXPECT_EQ(told, 6);
  append_until(0.52f);
  EXPECT_EQ(told, 7) << "it has been short meanwhile";
}

TEST_F(PushLogRoomTest, ADiskThatOthersFillLeavesItNoRoom) {
  const auto log = Create();
  files_.SetCapacity(UsedBytes() + (64 << 20));
  ASSERT_OK(log->Cut(Head("a")));
  EXPECT_LT(log->share(), 0.01);
  files_.SetCapacity(UsedBytes() + 10);
  EXPECT_FAILS(Append(*log, 1), StatusCode::kResourceExhausted, "no space left");
  EXPECT_GT(log->share(), 0.8);
}

TEST_F(PushLogRoomTest, KeepsNoFileThatWasHardlyUsed) {
  const auto log = Create();
  for (int n = 0; n < 20; ++n) ASSERT_OK(Append(*log, n));
  ASSERT_OK(log->Cut(Head("step-1")));
  log->Forget("step-1");
  const size_t large = files_.Content(Spare()).size();
  ASSERT_OK(log->Cut(Head("step-2")));
  ASSERT_EQ(files_.Content(Path(3)).size(), large);
  ASSERT_OK(log->Cut(Head("step-3")));
  log->Forget("step-3");
  EXPECT_FALSE(files_.Exists(Path(3)));
  EXPECT_LT(files_.Content(Spare()).size(), large);
}

TEST_F(PushLogRoomTest, KeepsNoFileWhereItsBoundIsNear) {
  const auto log = Create(/*fsync=*/false, /*max_bytes=*/1000);
  for (int n = 0; n < 4; ++n) ASSERT_OK(Append(*log, 0));
  ASSERT_OK(log->Cut(Head("step-1")));
  log->Forget("step-1");
  EXPECT_TRUE(files_.Exists(Spare()));
  while (Append(*log, 0).ok()) {
    EXPECT_LE(UsedBytes(), 1000);
  }
  EXPECT_FALSE(files_.Exists(Spare()));
  ASSERT_OK(log->Cut(Head("step-2")));
  log->Forget("step-2");
  EXPECT_FALSE(files_.Exists(Spare()));
}

// Checkpoints are cut when it says that it is half full, and take a while.
TEST_F(PushLogRoomTest, ADiskOfItsOwnNeverFills) {
  PushLog::Options options = Options();
  options.kept_free = PushLog::Options().kept_free;
  files_.SetCapacity(24 << 20);
  const auto log = PushLog::Create(options, Head(""));
  ASSERT_OK(log);
  const std::string bulk(64 << 10, 'b');
  for (int cut = 0; cut < 10; ++cut) {
    while ((*log)->share() < 0.5) ASSERT_OK((*log)->Append(Kind::kPush, "push", bulk));
    const std::string name = absl::StrCat("step-", cut);
    ASSERT_OK((*log)->Cut(Head(name.c_str())));
    for (int n = 0; n < 40; ++n) ASSERT_OK((*log)->Append(Kind::kPush, "push", bulk));
    (*log)->Forget(name);
  }
}

// So that no log fills a disk on which others have not come to a half, and cut no checkpoint.
TEST_F(PushLogRoomTest, SeveralOnADiskHaveEachItsPartOfWhatIsFree) {
  std::atomic<uint32_t> logs = 0;
  files_.SetCapacity(24 << 20);
  const auto create = [&](const char* folder) {
    PushLog::Options options = Options();
    options.folder = folder;
    options.logs = &logs;
    return *PushLog::Create(options, Head(""));
  };
  const std::string bulk(64 << 10, 'b');
  const auto append_until = [&bulk](PushLog& log, float share) {
    while (log.share() < share) ASSERT_OK(log.Append(Kind::kPush, "push", bulk));
  };
  auto first = create("logs/job-1/1");
  {
    const auto second = create("logs/job-2/1");
    for (float share = 0.1f; share < 0.51f; share += 0.1f) {
      append_until(*first, share);
      append_until(*second, share);
    }
    EXPECT_LE(UsedBytes(), 15u << 20);
    EXPECT_EQ(logs, 2u);
  }
  const uint64_t before = first->bytes();
  ASSERT_OK(files_.Remove("logs/job-2"));
  for (int n = 0; n < 17; ++n) ASSERT_OK(first->Append(Kind::kPush, "push", bulk));
  EXPECT_LT(first->share(), 0.35) << "it has looked again";
  append_until(*first, 0.5);
  EXPECT_GT(first->bytes(), before + (4 << 20));
  first.reset();
  EXPECT_EQ(logs, 0u);
}

TEST_F(PushLogRoomTest, OnAFullDiskACheckpointCanStillBeginAndMakeRoom) {
  PushLog::Options options = Options();
  options.kept_free = 64 << 10;
  files_.SetCapacity(1 << 20);
  const auto log = PushLog::Create(options, Head(""));
  ASSERT_OK(log);
  const std::string bulk(8 << 10, 'b');
  for (int cut = 0; cut < 3; ++cut) {
    absl::Status status;
    while (status.ok()) status = (*log)->Append(Kind::kPush, "push", bulk);
    EXPECT_FAILS(status, StatusCode::kResourceExhausted, "of which the push log keeps 65536");
    EXPECT_GE(files_.FreeBytes(kLogFolder), 64u << 10);
    EXPECT_GT((*log)->share(), 0.9);
    const std::string name = absl::StrCat("step-", cut);
    ASSERT_OK((*log)->Cut(Head(name.c_str())));
    (*log)->Forget(name);
  }
}

TEST_F(PushLogRoomTest, GivesItsSpareFileUpWhereOthersFillTheDisk) {
  const auto log = Create();
  files_.SetCapacity(16 << 20);
  const std::string bulk(64 << 10, 'b');
  for (int n = 0; n < 20; ++n) ASSERT_OK(log->Append(Kind::kPush, "push", bulk));
  ASSERT_OK(log->Cut(Head("a")));
  log->Forget("a");
  ASSERT_TRUE(files_.Exists(Spare()));
  files_.SetCapacity(UsedBytes() + (100 << 10));
  // Of the first it may find out by the error of the disk.
  int refused = 0;
  for (int n = 0; n < 20; ++n) refused += log->Append(Kind::kPush, "push", bulk).ok() ? 0 : 1;
  EXPECT_LE(refused, 1);
  EXPECT_FALSE(files_.Exists(Spare()));
  EXPECT_OK(log->Cut(Head("b")));
}

}  // namespace
}  // namespace tessera::ps
