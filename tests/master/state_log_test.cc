#include "master/state/state_log.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "master/etcd/etcd_state_log.h"
#include "master/state/rocksdb_wal.h"
#include "tests/common/hooked_disk.h"
#include "tests/master/etcd_process.h"

namespace tessera::master {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

// A folder of the running test, removed with all that is in it.
class TestFolder {
 public:
  TestFolder() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    std::string name = absl::StrCat(info->test_suite_name(), ".", info->name());
    for (char& c : name) c = c == '/' ? '_' : c;
    path_ = absl::StrCat(testing::TempDir(), name, ".", getpid());
    std::filesystem::remove_all(path_);
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The contract, run on every implementation.
enum class Kind { kMemory, kRocksDb, kEtcd };

class StateLogContract : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    switch (GetParam()) {
      case Kind::kMemory:
        log_ = NewMemoryStateLog();
        return;
      case Kind::kRocksDb:
        return Take(OpenRocksDbStateLog(folder_.path()));
      case Kind::kEtcd:
        if (!EtcdProcess::Installed()) GTEST_SKIP() << "no etcd on this machine (etcd-server)";
        return OpenEtcd();
    }
  }
  void Take(absl::StatusOr<std::unique_ptr<StateLog>> log) {
    ASSERT_TRUE(log.ok()) << log.status();
    log_ = *std::move(log);
  }
  void OpenEtcd() {
    etcd_ = std::make_unique<EtcdProcess>();
    channels_ = NewNetworkChannels();
    client_ =
        std::make_unique<EtcdClient>(std::vector<std::string>{etcd_->address()}, channels_.get());
    Leadership::Options options;
    options.etcd = client_.get();
    options.cluster = "contract";
    auto leadership = Leadership::Campaign(options, [](absl::Duration duration) {
      absl::SleepFor(duration);
      return false;
    });
    ASSERT_TRUE(leadership.ok()) << leadership.status();
    leadership_ = *std::move(leadership);
    Take(OpenEtcdStateLog(client_.get(), leadership_.get()));
  }

  TestFolder folder_;
  std::unique_ptr<EtcdProcess> etcd_;
  std::unique_ptr<Channels> channels_;
  std::unique_ptr<EtcdClient> client_;
  std::unique_ptr<Leadership> leadership_;
  std::unique_ptr<StateLog> log_;
};

TEST_P(StateLogContract, KeepsWhatWasWrittenAndForgetsWhatWasRemoved) {
  ASSERT_TRUE(log_->Apply({{"a", "1"}, {"b", "2"}}).ok());
  ASSERT_TRUE(log_->Apply({{"a", std::nullopt}, {"b", "3"}}).ok());
  EXPECT_EQ(log_->Get("a").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(log_->Get("b").value(), "3");
}

TEST_P(StateLogContract, LaterWritesOfABatchWin) {
  ASSERT_TRUE(log_->Apply({{"a", "1"}, {"a", "2"}, {"b", "1"}, {"b", std::nullopt}}).ok());
  EXPECT_EQ(log_->Get("a").value(), "2");
  EXPECT_FALSE(log_->Get("b").ok());
}

TEST_P(StateLogContract, ScansAPrefixInOrder) {
  ASSERT_TRUE(log_->Apply({{"job/2", "b"}, {"job/1", "a"}, {"joc", "x"}, {"jo", "y"}}).ok());
  EXPECT_THAT(log_->Scan("job/").value(), ElementsAre(Pair("job/1", "a"), Pair("job/2", "b")));
  EXPECT_EQ(log_->Scan("").value().size(), 4u);
}

TEST_P(StateLogContract, TakesAnyBytesAndEmptyBatches) {
  ASSERT_TRUE(log_->Apply({}).ok());
  const std::string bytes("\0\xff\n", 3);
  ASSERT_TRUE(log_->Apply({{bytes, bytes}, {"empty", ""}}).ok());
  EXPECT_EQ(log_->Get(bytes).value(), bytes);
  EXPECT_EQ(log_->Get("empty").value(), "");
}

TEST_P(StateLogContract, DoesWhatAMapDoes) {
  std::map<std::string, std::string> twin;
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    std::vector<StateLog::Write> batch;
    for (size_t writes = random() % 12; writes > 0; --writes) {
      const std::string key = absl::StrCat("k", random() % 50);
      if (random() % 3 == 0) {
        batch.push_back({key, std::nullopt});
        twin.erase(key);
      } else {
        batch.push_back({key, absl::StrCat(random())});
        twin[key] = *batch.back().value;
      }
    }
    ASSERT_TRUE(log_->Apply(batch).ok());
    ASSERT_EQ(log_->Scan("").value(), twin) << "round " << round;
  }
}

// The log that six writes have left.
std::filesystem::path WalOfSixWrites(const TestFolder& folder) {
  {
    auto log = OpenRocksDbStateLog(folder.path());
    EXPECT_TRUE(log.ok()) << log.status();
    for (int i = 0; log.ok() && i < 6; ++i) {
      EXPECT_TRUE((*log)->Apply({{absl::StrCat("job/", i), std::string(500, 'x')}}).ok());
    }
  }
  std::filesystem::path wal;
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    if (file.path().extension() == ".log" && file.file_size() > 0) wal = file.path();
  }
  EXPECT_FALSE(wal.empty());
  return wal;
}

void FlipBit(const std::filesystem::path& path, std::streamoff at, int bit) {
  std::fstream bytes(path, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekg(at);
  const int was = bytes.get();
  bytes.seekp(at);
  bytes.put(static_cast<char>(was ^ (1 << bit)));
}

// A write that is torn at the end was never acknowledged; anything else that is missing was.
TEST(RocksDbStateLog, DamageBeforeTheEndOfItsLogIsNotTakenForTheEnd) {
  const TestFolder measured;
  const auto record =
      static_cast<std::streamoff>(std::filesystem::file_size(WalOfSixWrites(measured)) / 6);
  // Of the second record: checksum, length, type, payload. RocksDB takes some of a length and of a
  // type for the end of the log.
  for (std::streamoff at = record; at < record + 8; ++at) {
    for (const int bit : {0, 2, 7}) {
      SCOPED_TRACE(absl::StrCat("byte ", at, ", bit ", bit));
      const TestFolder folder;
      FlipBit(WalOfSixWrites(folder), at, bit);
      // Also once it has been found.
      for (int tries = 0; tries < 2; ++tries) {
        const auto log = OpenRocksDbStateLog(folder.path());
        EXPECT_EQ(log.status().code(), absl::StatusCode::kDataLoss) << log.status();
      }
    }
  }
  for (const std::streamoff less : {std::streamoff{1}, record - 8, record - 1}) {
    SCOPED_TRACE(less);
    const TestFolder folder;
    const std::filesystem::path wal = WalOfSixWrites(folder);
    std::filesystem::resize_file(wal,
                                 std::filesystem::file_size(wal) - static_cast<uintmax_t>(less));
    const auto log = OpenRocksDbStateLog(folder.path());
    ASSERT_TRUE(log.ok()) << log.status();
    EXPECT_EQ((*log)->Scan("job/").value().size(), 5u);
  }
}

TEST(RocksDbStateLog, ABitThatIsFlippedInAnyWriteOfALogButTheLastIsFound) {
  const TestFolder folder;
  {
    auto log = OpenRocksDbStateLog(folder.path());
    ASSERT_TRUE(log.ok()) << log.status();
    // One over two blocks, and one that leaves a block no room for a header.
    for (const size_t size : {20, 40000, 25427, 20, 20}) {
      ASSERT_TRUE((*log)->Apply({{"job", std::string(size, 'x')}}).ok());
    }
  }
  std::string bytes;
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    if (file.path().extension() != ".log" || file.file_size() == 0) continue;
    bytes = ReadWholeFile(PosixFileSystem(), file.path()).value();
  }
  constexpr size_t kSmall = 45;  // a write of 20 bytes in the log
  constexpr size_t kThirdBlock = 65536;
  ASSERT_EQ(bytes.size(), kThirdBlock + 2 * kSmall);
  EXPECT_EQ(CheckWal("wal", bytes), absl::OkStatus());
  for (size_t at = 0; at < bytes.size(); at += at < kThirdBlock && at > kSmall + 8 ? 397 : 1) {
    if (at > kThirdBlock - 4 && at < kThirdBlock) continue;  // in no write
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      const bool last = at >= bytes.size() - kSmall;
      EXPECT_EQ(CheckWal("wal", flipped).ok(), last) << "byte " << at << ", bit " << bit;
    }
  }
  for (size_t size = 0; size < bytes.size(); size += 997) {
    EXPECT_EQ(CheckWal("wal", bytes.substr(0, size)), absl::OkStatus()) << "torn at " << size;
  }
}

INSTANTIATE_TEST_SUITE_P(Implementations, StateLogContract,
                         testing::Values(Kind::kMemory, Kind::kRocksDb, Kind::kEtcd),
                         [](const auto& info) {
                           return info.param == Kind::kMemory    ? "Memory"
                                  : info.param == Kind::kRocksDb ? "RocksDb"
                                                                 : "Etcd";
                         });

TEST(RocksDbStateLog, OutlivesItsProcess) {
  const TestFolder folder;
  {
    auto log = OpenRocksDbStateLog(folder.path());
    ASSERT_TRUE(log.ok());
    ASSERT_TRUE((*log)->Apply({{"a", "1"}}).ok());
  }
  auto log = OpenRocksDbStateLog(folder.path());
  ASSERT_TRUE(log.ok());
  EXPECT_EQ((*log)->Get("a").value(), "1");
}

TEST(RocksDbStateLog, AFolderInUseIsNamed) {
  const TestFolder folder;
  auto first = OpenRocksDbStateLog(folder.path());
  ASSERT_TRUE(first.ok());
  const auto second = OpenRocksDbStateLog(folder.path());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("data folder " + folder.path() + " in use by another process"));
}

TEST(RocksDbStateLog, AnotherErrorOfTheLockIsNoFolderInUse) {
  const TestFolder folder;
  const std::string path = folder.path() + "/block";
  std::filesystem::create_directories(path + "/LOCK");
  const auto log = OpenRocksDbStateLog(path);
  EXPECT_EQ(log.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(log.status().message()), HasSubstr("LOCK: Is a directory"));
}

// With one, a full disk ends the process.
TEST(RocksDbStateLog, HasNoFileForWhatRocksDbTells) {
  const TestFolder folder;
  for (int opened = 0; opened < 2; ++opened) {
    auto log = OpenRocksDbStateLog(folder.path());
    ASSERT_TRUE(log.ok());
    ASSERT_TRUE((*log)->Apply({{"a", "1"}}).ok());
  }
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_FALSE(file.path().filename().string().starts_with("LOG")) << file.path();
  }
}

// RocksDB alone would refuse all writes after some errors, and after others end the process at the
// next write.
TEST(RocksDbStateLog, GoesOnAfterWritesThatFailed) {
  rocksdb::IOStatus no_room = rocksdb::IOStatus::NoSpace("drawn");
  no_room.SetRetryable(true);  // as that of a disk
  for (const auto& [error, code] :
       {std::pair(no_room, absl::StatusCode::kResourceExhausted),
        std::pair(rocksdb::IOStatus::IOError("drawn"), absl::StatusCode::kUnavailable)}) {
    SCOPED_TRACE(error.ToString());
    const TestFolder folder;
    const auto disk = std::make_shared<HookedDisk>();
    std::atomic<bool> fails = false;
    disk->BeforeAppend([&, error = error](const std::string& path) {
      return fails && absl::EndsWith(path, ".log") ? error : rocksdb::IOStatus::OK();
    });
    auto opened = OpenRocksDbStateLog(folder.path(), disk);
    ASSERT_TRUE(opened.ok()) << opened.status();
    StateLog& log = **opened;
    ASSERT_TRUE(log.Apply({{"a", "1"}}).ok());
    for (int round = 0; round < 2; ++round) {
      fails = true;
      disk->SayFree(0);
      for (int i = 0; i < 3; ++i) {
        const absl::Status failed = log.Apply({{"b", absl::StrCat(round)}});
        EXPECT_EQ(failed.code(), code) << failed;
        EXPECT_THAT(std::string(failed.message()), HasSubstr("drawn"));
      }
      fails = false;
      disk->SayFree(std::nullopt);
      // RocksDB looks every second whether there is room again.
      absl::SleepFor(absl::Milliseconds(1200));
      const absl::Status written = log.Apply({{"b", absl::StrCat(round)}});
      ASSERT_TRUE(written.ok()) << written;
      EXPECT_THAT(log.Scan("").value(),
                  ElementsAre(Pair("a", "1"), Pair("b", absl::StrCat(round))));
    }
    opened->reset();
    opened = OpenRocksDbStateLog(folder.path());
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_THAT((*opened)->Scan("").value(), ElementsAre(Pair("a", "1"), Pair("b", "1")));
  }
}

// Of a batch that is in the file and not on the disk nobody may hear that it is written.
TEST(RocksDbStateLog, ASyncThatFailsIsAnErrorOfTheWrite) {
  const TestFolder folder;
  const auto disk = std::make_shared<HookedDisk>();
  std::atomic<bool> fails = false;
  disk->BeforeSync([&](const std::string& path) {
    return fails && absl::EndsWith(path, ".log") ? rocksdb::IOStatus::IOError("drawn")
                                                 : rocksdb::IOStatus::OK();
  });
  auto log = OpenRocksDbStateLog(folder.path(), disk);
  ASSERT_TRUE(log.ok()) << log.status();
  ASSERT_TRUE((*log)->Apply({{"a", "1"}}).ok());
  fails = true;
  for (int i = 0; i < 3; ++i) {
    const absl::Status failed = (*log)->Apply({{"b", "1"}});
    EXPECT_EQ(failed.code(), absl::StatusCode::kUnavailable) << failed;
    EXPECT_THAT(std::string(failed.message()), HasSubstr("drawn"));
  }
  fails = false;
  absl::SleepFor(absl::Milliseconds(1200));  // it is opened again now and then
  const absl::Status written = (*log)->Apply({{"b", "2"}});
  ASSERT_TRUE(written.ok()) << written;
  EXPECT_THAT((*log)->Scan("").value(), ElementsAre(Pair("a", "1"), Pair("b", "2")));
}

// Not every time: it is opened by replaying its log.
TEST(RocksDbStateLog, IsNotOpenedAnewForEveryWriteThatComesWhileItsDiskFails) {
  const TestFolder folder;
  const auto disk = std::make_shared<HookedDisk>();
  std::atomic<bool> fails = false;
  std::atomic<int> appends = 0;
  disk->BeforeAppend([&](const std::string& path) {
    if (!fails || !absl::EndsWith(path, ".log")) return rocksdb::IOStatus::OK();
    ++appends;
    return rocksdb::IOStatus::IOError("drawn");
  });
  const auto log = OpenRocksDbStateLog(folder.path(), disk);
  ASSERT_TRUE(log.ok()) << log.status();
  fails = true;
  const absl::Time begin = absl::Now();
  for (int i = 0; i < 200; ++i) EXPECT_FALSE((*log)->Apply({{"a", "1"}}).ok());
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  EXPECT_LE(appends, 2 + seconds / 0.5);
}

TEST(RocksDbStateLog, AFolderThatCannotBeMadeIsAnError) {
  EXPECT_FALSE(OpenRocksDbStateLog("/proc/nowhere/x").ok());
}

}  // namespace
}  // namespace tessera::master
