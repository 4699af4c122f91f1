#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/common/hooked_disk.h"
#include "tests/ps/cold_store_testing.h"

// Stores whose disk is full, or was.
namespace tessera::ps {
namespace {

class FullDiskTest : public ColdStoreTest {
 protected:
  FullDiskTest() { options_.disk = disk_; }

  // Records of RocksDB's own find no room once there were `room` of them more.
  void LimitRecords(std::atomic<int>& room) {
    disk_->BeforeAppend([&room](const std::string& path) { return AppendRecord(path, room); });
  }
  static rocksdb::IOStatus AppendRecord(const std::string& path, std::atomic<int>& room) {
    const bool has_room = !absl::StrContains(path, "/MANIFEST-") || room-- > 0;
    return has_room ? rocksdb::IOStatus::OK() : rocksdb::IOStatus::NoSpace("no space");
  }
  // Tries for 30 s at most: RocksDB sees only after a moment that there is room again.
  static void WriteOnceThereIsRoom(ColdStore& store, const Twin& rows) {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    absl::Status written = Write(store, rows);
    while (!written.ok() && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(50));
      written = Write(store, rows);
    }
    ASSERT_OK(written);
    ExpectHolds(store, rows);
  }

  static constexpr int kPlenty = 1 << 30;
  const std::shared_ptr<HookedDisk> disk_ = std::make_shared<HookedDisk>();
};

TEST_F(FullDiskTest, AFullDiskIsAnErrorAndLeavesWhatWasThere) {
  auto store = Open();
  const Twin rows = Rows(0, 5000, 1);
  ASSERT_OK(Write(*store, rows));
  disk_->FailWith(rocksdb::IOStatus::NoSpace("no space"));
  EXPECT_FAILS(Write(*store, Rows(0, 5000, 2)), absl::StatusCode::kResourceExhausted, "users");
  ExpectHolds(*store, rows);
  disk_->FailWith(rocksdb::IOStatus::IOError("broken"));
  EXPECT_FAILS(Write(*store, Rows(0, 5000, 2)), absl::StatusCode::kUnavailable, "broken");
  ExpectHolds(*store, rows);
  disk_->FailWith(rocksdb::IOStatus::OK());
  ASSERT_OK(Write(*store, Rows(0, 5000, 3)));
  ExpectHolds(*store, Rows(0, 5000, 3));
}

// RocksDB stops when the second of the two that it writes for a file finds no room.
TEST_F(FullDiskTest, GoesOnAfterADiskThatHadNoRoomForARecordOfRocksDb) {
  std::atomic<int> room = kPlenty;
  LimitRecords(room);
  auto store = Open();
  Twin rows = Rows(0, 5000, 1);
  ASSERT_OK(Write(*store, rows));
  for (int round = 0; round < 2; ++round) {
    SCOPED_TRACE(round);
    room = 1;
    while (room > -3) {
      EXPECT_FAILS(Write(*store, Rows(0, 5000, 2)), absl::StatusCode::kResourceExhausted, "users");
      ExpectHolds(*store, rows);
      absl::SleepFor(absl::Milliseconds(100));
    }
    room = kPlenty;
    rows = Rows(0, 5000, 3 + round);
    WriteOnceThereIsRoom(*store, rows);
  }
}

// It goes on after either: the first costs a compaction alone, at the second it stops.
TEST_F(FullDiskTest, GoesOnAfterADiskThatHadNoRoomForACompactionAndThenForARecord) {
  std::atomic<bool> full = false;
  absl::Mutex mu;
  std::set<std::string> failed;  // tables of compactions
  std::atomic<int> room = kPlenty;
  disk_->BeforeAppend([&](const std::string& path) {
    if (!full || !absl::StrContains(path, "/db/") || !absl::EndsWith(path, ".sst")) {
      return AppendRecord(path, room);
    }
    absl::MutexLock lock(&mu);
    failed.insert(path);
    return rocksdb::IOStatus::NoSpace("no space");
  });
  auto store = Open();
  full = true;
  disk_->SayFree(0);
  uint64_t version = 0;
  while (version < 14) ASSERT_OK(Write(*store, Rows(0, 1000, ++version)));
  // Without another write.
  const auto tried_again = [&] { return failed.size() >= 2; };
  EXPECT_TRUE(mu.LockWhenWithTimeout(absl::Condition(&tried_again), absl::Seconds(30)));
  mu.Unlock();
  room = 1;
  EXPECT_FAILS(Write(*store, Rows(0, 1000, 100)), absl::StatusCode::kResourceExhausted, "users");
  ExpectHolds(*store, Rows(0, 1000, version));
  room = kPlenty;
  full = false;
  disk_->SayFree(std::nullopt);
  WriteOnceThereIsRoom(*store, Rows(0, 1000, 101));
}

// A table that is closed must not wait ten seconds for a compaction that does not come.
TEST_F(FullDiskTest, ToWaitForCompactionEndsSoonOnceItIsStopped) {
  disk_->BeforeAppend([](const std::string& path) {
    const bool compacts = absl::StrContains(path, "/db/") && absl::EndsWith(path, ".sst");
    return compacts ? rocksdb::IOStatus::NoSpace("no space") : rocksdb::IOStatus::OK();
  });
  auto store = Open();
  disk_->SayFree(0);
  for (uint64_t version = 0; version < 40; ++version)
    ASSERT_OK(Write(*store, Rows(0, 10, version)));
  std::atomic<bool> stopped = false;
  const absl::Time begin = absl::Now();
  std::thread stops([&stopped] {
    absl::SleepFor(absl::Milliseconds(500));
    stopped = true;
  });
  store->AwaitCompactionOfWrites(0, stopped);
  EXPECT_TRUE(stopped) << "it has waited";
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
  stops.join();
  disk_->BeforeAppend(nullptr);
  disk_->SayFree(std::nullopt);
}

// It would go on by itself, in a thread that looks for room every second.
TEST_F(FullDiskTest, IsClosedWhileADiskHasNoRoomForARecordOfRocksDb) {
  for (const bool makes_files : {true, false}) {
    SCOPED_TRACE(makes_files);
    std::atomic<int> room = kPlenty;
    LimitRecords(room);
    auto store = Open();
    room = 1;
    EXPECT_FAILS(Write(*store, Rows(0, 100, 1)), absl::StatusCode::kResourceExhausted, "users");
    while (room > -2) absl::SleepFor(absl::Milliseconds(10));
    if (!makes_files) disk_->FailWith(rocksdb::IOStatus::NoSpace("no space"));
    const absl::Time begin = absl::Now();
    store = nullptr;
    EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
    EXPECT_FALSE(std::filesystem::exists(options_.folder));
  }
}

}  // namespace
}  // namespace tessera::ps
