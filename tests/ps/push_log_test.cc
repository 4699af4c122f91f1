#include "ps/push_log/push_log.h"

#include <atomic>
#include <cstring>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/checkpoint/checksum.h"
#include "common/failpoint.h"
#include "ps/push_log/push_log_reader.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

using absl::StatusCode;
using push_log::Kind;

constexpr char kFolder[] = "logs/job-1/1";

v1::PushLogHead Head(const char* cut) {
  v1::PushLogHead head;
  if (cut != nullptr) head.set_cut(cut);
  return head;
}

class PushLogTest : public testing::Test {
 protected:
  PushLog::Options Options(bool fsync = false, uint64_t max_bytes = 0) {
    PushLog::Options options;
    options.files = &files_;
    options.folder = kFolder;
    options.fsync = fsync;
    options.max_bytes = max_bytes;
    options.kept_free = 0;
    return options;
  }
  std::unique_ptr<PushLog> Create(bool fsync = false, uint64_t max_bytes = 0) {
    auto log = PushLog::Create(Options(fsync, max_bytes), Head(""));
    EXPECT_OK(log);
    return *std::move(log);
  }
  static absl::Status Append(PushLog& log, int n) {
    return log.Append(Kind::kPush, absl::StrCat("text ", n),
                      std::string(8 * (n % 5), char('a' + n % 26)));
  }
  // The texts of all records from a cut on, and how reading ended.
  absl::StatusOr<std::vector<std::string>> Read(const char* cut = "") {
    auto reader = PushLogReader::Open(files_, kFolder, cut);
    if (!reader.ok()) return reader.status();
    std::vector<std::string> texts;
    while (true) {
      auto record = (*reader)->Next();
      if (!record.ok()) return record.status();
      if (!record->has_value()) return texts;
      texts.push_back((*record)->text);
    }
  }
  static std::vector<std::string> Texts(int begin, int end) {
    std::vector<std::string> texts;
    for (int n = begin; n < end; ++n) texts.push_back(absl::StrCat("text ", n));
    return texts;
  }
  static std::string Path(int segment) {
    return absl::StrCat(kFolder, "/", push_log::SegmentName(segment));
  }

  static std::string Spare() { return absl::StrCat(kFolder, "/", push_log::kSpare); }

  uint64_t UsedBytes() const {
    uint64_t bytes = 0;
    for (const std::string& path : files_.Files()) bytes += files_.Content(path).size();
    return bytes;
  }

  FaultFileSystem files_;
};

// Heartbeats of a ps ask for it, and so do followers, for all jobs.
TEST_F(PushLogTest, SaysWhereItEndsWhileTheDiskIsWaitedFor) {
  const auto log = Create();
  ASSERT_OK(Append(*log, 0));
  const uint64_t next = log->end().next_record;
  const uint64_t bytes = log->bytes();
  ASSERT_OK(ArmFailpoints("ps.push_log.append=delay:2s@1"));
  std::thread appends([&] { EXPECT_OK(Append(*log, 1)); });
  absl::SleepFor(absl::Milliseconds(200));
  const absl::Time asked = absl::Now();
  EXPECT_EQ(log->end().next_record, next);
  EXPECT_EQ(log->bytes(), bytes);
  EXPECT_LT(absl::Now() - asked, absl::Seconds(1));
  appends.join();
  ASSERT_OK(ArmFailpoints(""));
  EXPECT_EQ(log->end().next_record, next + 1);
  EXPECT_GT(log->bytes(), bytes);
}

TEST_F(PushLogTest, GivesBackWhatWasAppended) {
  const auto log = Create();
  for (int n = 0; n < 20; ++n) ASSERT_OK(Append(*log, n));
  const auto reader = PushLogReader::Open(files_, kFolder, "");
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
    const auto reader = PushLogReader::Open(files_, kFolder, "");
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

TEST_F(PushLogTest, AFullDiskRefusesTheRecordAndNothingElse) {
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

TEST_F(PushLogTest, KeepsItsBoundAndSaysHowToMakeRoom) {
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

TEST_F(PushLogTest, SaysHowMuchOfItsRoomItTakes) {
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
TEST_F(PushLogTest, WhatIsLeftOfAnOldFileIsRoomOnlyWhileItIsWrittenOver) {
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

TEST_F(PushLogTest, TellsOfEachTwentiethFromAHalfOn) {
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

TEST_F(PushLogTest, ADiskThatOthersFillLeavesItNoRoom) {
  const auto log = Create();
  files_.SetCapacity(UsedBytes() + (64 << 20));
  ASSERT_OK(log->Cut(Head("a")));
  EXPECT_LT(log->share(), 0.01);
  files_.SetCapacity(UsedBytes() + 10);
  EXPECT_FAILS(Append(*log, 1), StatusCode::kResourceExhausted, "no space left");
  EXPECT_GT(log->share(), 0.8);
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
  const auto reader = PushLogReader::Open(files_, kFolder, "step-1");
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

TEST_F(PushLogTest, KeepsNoFileThatWasHardlyUsed) {
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

TEST_F(PushLogTest, KeepsNoFileWhereItsBoundIsNear) {
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
TEST_F(PushLogTest, ADiskOfItsOwnNeverFills) {
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
TEST_F(PushLogTest, SeveralOnADiskHaveEachItsPartOfWhatIsFree) {
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

TEST_F(PushLogTest, OnAFullDiskACheckpointCanStillBeginAndMakeRoom) {
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
    EXPECT_GE(files_.FreeBytes(kFolder), 64u << 10);
    EXPECT_GT((*log)->share(), 0.9);
    const std::string name = absl::StrCat("step-", cut);
    ASSERT_OK((*log)->Cut(Head(name.c_str())));
    (*log)->Forget(name);
  }
}

TEST_F(PushLogTest, GivesItsSpareFileUpWhereOthersFillTheDisk) {
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

TEST_F(PushLogTest, RefusesEverythingOnceItIsClosed) {
  const auto log = Create(/*fsync=*/true);
  log->Close(absl::AbortedError("over"));
  EXPECT_FAILS(Append(*log, 0), StatusCode::kAborted, "over");
  EXPECT_FAILS(log->Cut(Head("step-1")), StatusCode::kAborted, "over");
  EXPECT_EQ(*Read(), Texts(0, 0));
}

}  // namespace
}  // namespace tessera::ps
