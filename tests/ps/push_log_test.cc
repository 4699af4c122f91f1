#include "ps/push_log/push_log.h"

#include <atomic>
#include <cstring>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/checkpoint/checksum.h"
#include "common/failpoint.h"
#include "tests/ps/push_log_testing.h"

namespace tessera::ps {
namespace {

using absl::StatusCode;
using push_log::Kind;

class PushLogTest : public testing::Test, protected PushLogHarness {};

// Heartbeats of a ps ask for it, and so do followers, for all jobs.
TEST_F(PushLogTest, SaysWhereItEndsWhileTheDiskIsWaitedFor) {
  const auto log = Create();
  ASSERT_OK(Append(*log, 0));
  const uint64_t next = log->end().next_record;
  const uint64_t bytes = log->bytes();
  ASSERT_OK(ArmFailpoints("ps.push_log.append=delay:4s@1"));
  std::atomic<bool> appended = false;
  std::thread appends([&] {
    EXPECT_OK(Append(*log, 1));
    appended = true;
  });
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_EQ(log->end().next_record, next);
  EXPECT_EQ(log->bytes(), bytes);
  EXPECT_FALSE(appended);
  appends.join();
  ASSERT_OK(ArmFailpoints(""));
  EXPECT_EQ(log->end().next_record, next + 1);
  EXPECT_GT(log->bytes(), bytes);
}

TEST_F(PushLogTest, GivesBackWhatWasAppended) {
  const auto log = Create();
  for (int n = 0; n < 20; ++n) ASSERT_OK(Append(*log, n));
  const auto reader = PushLogReader::Open(files_, kLogFolder, "");
  ASSERT_OK(reader);
  for (int n = 0; n < 20; ++n) {
    auto record = (*reader)->Next();
    ASSERT_OK(record);
    ASSERT_TRUE(record->has_value());
    EXPECT_EQ((*record)->kind, Kind::kPush);
    EXPECT_EQ((*record)->text, absl::StrCat("text ", n));
    EXPECT_EQ(std::string((*record)->bulk.data(), (*record)->bulk.size()),
              std::string(8 * (n % 5), char('a' + n % 26)));
  }
  EXPECT_FALSE((*reader)->Next()->has_value());
  EXPECT_EQ((*reader)->bytes_behind(), 0);
  EXPECT_EQ(log->bytes(), files_.Content(Path(1)).size());
}

TEST_F(PushLogTest, KeepsItsFormatFromBuildToBuild) {
  // A change of these bytes is a new version.
  const auto log = Create();
  ASSERT_OK(log->Append(Kind::kPush, "text", "bulk 8 b"));
  const std::string bytes = files_.Content(Path(1));
  ASSERT_EQ(bytes.size(), 48 + 8 + 48 + 8 + 8);
  EXPECT_EQ(bytes.substr(0, 32), std::string("TSSRLOG1"
                                             "\x01\0\0\0\0\0\0\0"
                                             "\x01\0\0\0"
                                             "\x02\0\0\0"
                                             "\0\0\0\0\0\0\0\0",
                                             32));
  EXPECT_EQ(bytes.substr(48, 40), std::string("\x12\0\0\0\0\0\0\0"  // a head with an empty cut
                                              "TSSRLOG1"
                                              "\x02\0\0\0\0\0\0\0"
                                              "\x02\0\0\0"
                                              "\x04\0\0\0"
                                              "\x08\0\0\0\0\0\0\0",
                                              40));
  EXPECT_EQ(bytes.substr(104), std::string("text\0\0\0\0bulk 8 b", 16));
  EXPECT_EQ(ChecksumText(Checksum64Of(bytes)), "1ae8a05924f3efc3");
}

TEST_F(PushLogTest, OfAnotherVersionIsRefusedByName) {
  const auto log = Create();
  ASSERT_OK(Append(*log, 0));
  std::string later = files_.Content(Path(1));
  later[7] = '2';
  push_log::RecordHeader header;
  std::memcpy(&header, later.data(), sizeof(header));
  header.header_checksum = push_log::HeaderChecksum(header);
  std::memcpy(later.data(), &header, sizeof(header));
  files_.SetContent(Path(1), later);
  EXPECT_FAILS(Read(), StatusCode::kFailedPrecondition,
               Path(1) + ": is a push log of version 2, this build reads 1");
}

TEST_F(PushLogTest, BeginsASegmentAtACutAndForgetsWhatIsBeforeIt) {
  const auto log = Create();
  ASSERT_OK(Append(*log, 0));
  ASSERT_OK(log->Cut(Head("step-1")));
  ASSERT_OK(Append(*log, 1));
  ASSERT_OK(log->Cut(Head("step-2")));
  ASSERT_OK(Append(*log, 2));
  EXPECT_EQ(*Read(), Texts(0, 3));
  EXPECT_EQ(*Read("step-1"), Texts(1, 3));
  EXPECT_EQ(*Read("step-2"), Texts(2, 3));
  log->Forget("another");
  EXPECT_EQ(*Read(), Texts(0, 3));
  log->Forget("step-1");
  EXPECT_FALSE(files_.Exists(Path(1)));
  EXPECT_FAILS(Read(), StatusCode::kFailedPrecondition, "no segment that begins at the start");
  EXPECT_EQ(*Read("step-1"), Texts(1, 3));
  EXPECT_EQ(log->bytes(), files_.Content(Path(2)).size() + files_.Content(Path(3)).size());
}

TEST_F(PushLogTest, GoesOnBehindWhatWasRead) {
  for (int n = 0; n < 3; ++n) {
    if (n == 0) {
      ASSERT_OK(Append(*Create(), 0));
      continue;
    }
    const auto reader = PushLogReader::Open(files_, kLogFolder, "");
    ASSERT_OK(reader);
    while ((*reader)->Next()->has_value()) {
    }
    const auto log = PushLog::Continue(Options(), (*reader)->segments(), (*reader)->next_record(),
                                       Head(nullptr));
    ASSERT_OK(log);
    ASSERT_OK(Append(**log, n));
  }
  EXPECT_EQ(*Read(), Texts(0, 3));
}

// Every length at which a kill may leave the last segment.
TEST_F(PushLogTest, EndsWithTheLastWholeRecord) {
  const auto log = Create();
  std::vector<size_t> ends = {files_.Content(Path(1)).size()};
  for (int n = 0; n < 6; ++n) {
    ASSERT_OK(Append(*log, n));
    ends.push_back(files_.Content(Path(1)).size());
  }
  const std::string whole = files_.Content(Path(1));
  for (size_t length = ends[0]; length <= whole.size(); ++length) {
    files_.SetContent(Path(1), whole.substr(0, length));
    const int records =
        static_cast<int>(std::upper_bound(ends.begin(), ends.end(), length) - ends.begin()) - 1;
    const auto texts = Read();
    ASSERT_OK(texts);
    ASSERT_EQ(*texts, Texts(0, records)) << length;
  }
}

TEST_F(PushLogTest, ASegmentThatWasBeingBegunIsNone) {
  const auto log = Create();
  ASSERT_OK(Append(*log, 0));
  ASSERT_OK(log->Cut(Head("step-1")));
  const std::string head = files_.Content(Path(2));
  for (size_t length = 0; length < head.size(); ++length) {
    files_.SetContent(Path(2), head.substr(0, length));
    ASSERT_EQ(*Read(), Texts(0, 1)) << length;
  }
  // Beside a spare file, whose name comes behind those of all segments.
  files_.SetContent(Spare(), "old");
  EXPECT_EQ(*Read(), Texts(0, 1));
  // But one with another behind it is damaged.
  files_.SetContent(Path(3), head);
  EXPECT_THAT(AsStatus(Read()), FailsWith(StatusCode::kDataLoss, Path(2)));
}

TEST_F(PushLogTest, NamesTheFileWhereABitIsWrong) {
  const auto log = Create();
  for (int n = 0; n < 4; ++n) ASSERT_OK(Append(*log, n));
  const size_t before_last = files_.Content(Path(1)).size();
  ASSERT_OK(Append(*log, 4));
  const std::string whole = files_.Content(Path(1));
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string flipped = whole;
    flipped[at] = char(flipped[at] ^ (1 << at % 8));
    files_.SetContent(Path(1), flipped);
    const auto texts = Read();
    if (at >= before_last) {
      // Nobody can tell it from one that was being written.
      ASSERT_OK(texts);
      ASSERT_EQ(*texts, Texts(0, 4)) << at;
    } else {
      EXPECT_THAT(AsStatus(texts), FailsWith(StatusCode::kDataLoss, Path(1))) << at;
    }
  }
}

TEST_F(PushLogTest, FindsDamageBeforeALaterSegment) {
  const auto log = Create();
  for (int n = 0; n < 3; ++n) ASSERT_OK(Append(*log, n));
  const std::string whole = files_.Content(Path(1));
  ASSERT_OK(log->Cut(Head("step-1")));
  files_.SetContent(Path(1), whole.substr(0, whole.size() - 1));
  EXPECT_FAILS(Read(), StatusCode::kDataLoss, "the next segment begins with record 5");
  EXPECT_OK(Read("step-1"));
}

TEST_F(PushLogTest, WithFsyncItOutlivesAPowerCut) {
  const auto log = Create(/*fsync=*/true);
  ASSERT_OK(Append(*log, 0));
  ASSERT_OK(log->Cut(Head("step-1")));
  ASSERT_OK(Append(*log, 1));
  ASSERT_OK(log->Sync());
  ASSERT_OK(Append(*log, 2));
  files_.Crash();
  EXPECT_EQ(*Read(), Texts(0, 2));
}

TEST_F(PushLogTest, ThreadsShareSyncs) {
  const auto log = Create(/*fsync=*/true);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int n = 0; n < 100; ++n) {
        EXPECT_OK(Append(*log, n));
        EXPECT_OK(log->Sync());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  files_.Crash();
  EXPECT_EQ(Read()->size(), 400);
}

TEST_F(PushLogTest, IsBrokenForGoodOnceASyncHasFailed) {
  const auto log = Create(/*fsync=*/true);
  ASSERT_OK(Append(*log, 0));
  files_.FailSyncsAfter(0);
  EXPECT_FAILS(log->Sync(), StatusCode::kUnavailable, "the push log is broken");
  files_.Repair();
  EXPECT_FAILS(log->Sync(), StatusCode::kUnavailable, "the push log is broken");
  EXPECT_FAILS(Append(*log, 1), StatusCode::kUnavailable, "the push log is broken");
  EXPECT_FAILS(log->Cut(Head("step-1")), StatusCode::kUnavailable, "the push log is broken");
}

TEST_F(PushLogTest, IsBrokenForGoodOnceADrainHasFailed) {
  const auto log = Create();
  ASSERT_OK(Append(*log, 0));
  ASSERT_OK(log->Drain(0));
  files_.FailSyncsAfter(0);
  EXPECT_FAILS(log->Drain(0), StatusCode::kUnavailable, "broken");
  files_.Repair();
  EXPECT_FAILS(Append(*log, 1), StatusCode::kUnavailable, "broken");
}

TEST_F(PushLogTest, WhatCannotBeWrittenIsNoCut) {
  const auto log = Create();
  ASSERT_OK(Append(*log, 0));
  files_.SetCapacity(log->bytes() + 10);
  EXPECT_FAILS(log->Cut(Head("step-1")), StatusCode::kResourceExhausted, "no space left");
  files_.Repair();
  ASSERT_OK(Append(*log, 1));
  EXPECT_EQ(*Read(), Texts(0, 2));
  EXPECT_FAILS(Read("step-1"), StatusCode::kFailedPrecondition, "the cut of checkpoint step-1");
}

// What a segment is written over are records of the same sizes, at the same places.
TEST_F(PushLogTest, WritesASegmentOverTheFileOfOneThatWent) {
  const auto log = Create();
  for (int n = 0; n < 9; ++n) ASSERT_OK(Append(*log, n));
  const std::string old = files_.Content(Path(1));
  ASSERT_OK(log->Cut(Head("step-1")));
  log->Forget("step-1");
  EXPECT_EQ(files_.Content(Spare()), old);
  ASSERT_OK(log->Cut(Head("step-2")));
  EXPECT_FALSE(files_.Exists(Spare()));
  for (int n = 0; n < 9; ++n) {
    EXPECT_EQ(files_.Content(Path(3)).size(), old.size());
    EXPECT_EQ(*Read("step-1"), Texts(0, n));
    EXPECT_EQ(*Read("step-2"), Texts(0, n));
    ASSERT_OK(Append(*log, n));
  }
  for (int n = 9; n < 12; ++n) ASSERT_OK(Append(*log, n));
  EXPECT_GT(files_.Content(Path(3)).size(), old.size());
  EXPECT_EQ(*Read("step-2"), Texts(0, 12));
}

TEST_F(PushLogTest, FindsDamageInASegmentThatIsWrittenOverAnother) {
  const auto log = Create();
  for (int n = 0; n < 9; ++n) ASSERT_OK(Append(*log, n));
  ASSERT_OK(log->Cut(Head("step-1")));
  log->Forget("step-1");
  ASSERT_OK(log->Cut(Head("step-2")));
  ASSERT_OK(Append(*log, 0));
  const uint64_t first_end = log->bytes() - files_.Content(Path(2)).size();
  ASSERT_OK(Append(*log, 1));
  std::string bytes = files_.Content(Path(3));
  bytes[first_end - 1] ^= 1;
  files_.SetContent(Path(3), bytes);
  EXPECT_FAILS(Read("step-2"), StatusCode::kDataLoss, "there are sound ones behind it");
}

TEST_F(PushLogTest, APowerCutWhileASegmentIsWrittenOverAnotherCostsNothing) {
  for (int syncs = 0;; ++syncs) {
    SCOPED_TRACE(syncs);
    const auto log = Create(/*fsync=*/true);
    for (int n = 0; n < 3; ++n) ASSERT_OK(Append(*log, n));
    ASSERT_OK(log->Cut(Head("step-1")));
    for (int n = 3; n < 6; ++n) ASSERT_OK(Append(*log, n));
    ASSERT_OK(log->Sync());
    log->Forget("step-1");
    files_.FailSyncsAfter(syncs);
    const absl::Status cut = log->Cut(Head("step-2"));
    files_.Crash();
    files_.Repair();
    EXPECT_EQ(*Read("step-1"), Texts(3, 6));
    if (!cut.ok()) continue;
    EXPECT_EQ(*Read("step-2"), Texts(0, 0));
    EXPECT_GT(syncs, 2);
    break;
  }
}

TEST_F(PushLogTest, WritesOverNoFileFromBeforeARecovery) {
  {
    const auto log = Create();
    ASSERT_OK(Append(*log, 0));
    ASSERT_OK(log->Cut(Head("step-1")));
    log->Forget("step-1");
    EXPECT_TRUE(files_.Exists(Spare()));
  }
  const auto reader = PushLogReader::Open(files_, kLogFolder, "step-1");
  ASSERT_OK(reader);
  EXPECT_FALSE((*reader)->Next()->has_value());
  const auto log =
      PushLog::Continue(Options(), (*reader)->segments(), (*reader)->next_record(), Head(nullptr));
  ASSERT_OK(log);
  EXPECT_FALSE(files_.Exists(Spare()));
  ASSERT_OK(Append(**log, 1));
  ASSERT_OK((*log)->Cut(Head("step-2")));
  const std::string begun = files_.Content(Path(3)), before = files_.Content(Path(2));
  ASSERT_NE(begun, before);
  (*log)->Forget("step-2");
  // It is that of the segment which this log began.
  EXPECT_EQ(files_.Content(Spare()), begun);
}

// To remove a large file takes seconds.
TEST_F(PushLogTest, AppendsWhileFilesAreRemoved) {
  WatchedFiles disk(files_);
  PushLog::Options options = Options();
  options.files = &disk;
  const auto log = *PushLog::Create(options, Head(""));
  int number = 0;
  for (int cut = 1; cut <= 3; ++cut) {
    for (int n = 0; n < 4; ++n) ASSERT_OK(Append(*log, number++));
    ASSERT_OK(log->Cut(Head(absl::StrCat("step-", cut).c_str())));
  }
  int removed = 0;
  disk.on_remove = [&](const std::string&) {
    absl::Notification appended;
    std::thread pusher([&] {
      EXPECT_OK(Append(*log, number++));
      appended.Notify();
    });
    EXPECT_TRUE(appended.WaitForNotificationWithTimeout(absl::Seconds(30)));
    pusher.join();
    ++removed;
  };
  log->Forget("step-3");
  EXPECT_EQ(removed, 2);
  EXPECT_TRUE(files_.Exists(Spare()));
  EXPECT_EQ(*Read("step-3"), Texts(12, 14));
}

TEST_F(PushLogTest, RefusesEverythingOnceItIsClosed) {
  const auto log = Create(/*fsync=*/true);
  log->Close(absl::AbortedError("over"));
  EXPECT_FAILS(Append(*log, 0), StatusCode::kAborted, "over");
  EXPECT_FAILS(log->Cut(Head("step-1")), StatusCode::kAborted, "over");
  EXPECT_EQ(*Read(), Texts(0, 0));
}

}  // namespace
}  // namespace tessera::ps
