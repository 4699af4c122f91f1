#include "ps/cold/cold_store.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/ps/cold_store_testing.h"
#include "tests/ps/counting_disk.h"

namespace tessera::ps {
namespace {

TEST_F(ColdStoreTest, ReadsWhatWasWrittenInLargeAndSmallBatches) {
  auto store = Open();
  Twin rows = Rows(0, 20000, 1);
  ASSERT_OK(Write(*store, rows));
  const Twin few = Rows(19990, 20100, 2);
  ASSERT_OK(Write(*store, few));
  for (const auto& [key, record] : few) rows[key] = record;
  ExpectHolds(*store, rows);
  const Twin newer = Rows(15000, 25000, 3);
  ASSERT_OK(Write(*store, newer));
  for (const auto& [key, record] : newer) rows[key] = record;
  ExpectHolds(*store, rows);
  EXPECT_TRUE(ScanAll(*store) == rows);
  EXPECT_TRUE(ScanAll(*store, 1).empty());
}

TEST_F(ColdStoreTest, BehavesLikeAMapUnderRandomOperations) {
  auto store = Open();
  Twin twin;
  std::mt19937_64 random(7);
  for (uint64_t step = 0; step < 200; ++step) {
    const uint64_t begin = random() % 3000;
    const Twin rows = Rows(begin, begin + 1 + random() % 500, step);
    switch (random() % 6) {
      case 0:
      case 1:
        ASSERT_OK(Write(*store, rows));
        for (const auto& [key, record] : rows) twin[key] = record;
        break;
      case 2: {
        std::vector<ColdKey> keys;
        for (const auto& [key, record] : rows) keys.push_back(key);
        ASSERT_OK(store->Erase(0, keys));
        for (const ColdKey& key : keys) twin.erase(key);
        break;
      }
      case 3: {
        std::vector<PartitionRange> ranges;
        for (uint32_t p = random() % 40; p < 64; p += 2 + random() % 30) {
          ranges.push_back({.first = p, .last = static_cast<uint32_t>(p + random() % 3)});
          p = ranges.back().last;
        }
        ASSERT_OK(store->ErasePartitions(0, ranges));
        for (const PartitionRange& range : ranges) {
          twin.erase(twin.lower_bound({.partition = range.first, .key = 0}),
                     twin.lower_bound({.partition = range.last + 1, .key = 0}));
        }
        break;
      }
      case 4: {
        const uint32_t partition = random() % 64;
        Twin visited;
        ASSERT_OK(store->VisitPartition(0, partition, [&](uint64_t key, const char* record) {
          visited.emplace(ColdKey{partition, key}, std::string(record, kRecordBytes));
          return absl::OkStatus();
        }));
        const Twin expected(twin.lower_bound({.partition = partition, .key = 0}),
                            twin.lower_bound({.partition = partition + 1, .key = 0}));
        ASSERT_TRUE(visited == expected) << step;
        break;
      }
      default: {
        const auto read = Read(*store, rows);
        ASSERT_OK(read);
        Twin expected;
        for (const auto& [key, record] : rows) {
          if (const auto it = twin.find(key); it != twin.end()) expected.insert(*it);
        }
        ASSERT_TRUE(*read == expected) << step;
      }
    }
  }
  EXPECT_TRUE(ScanAll(*store) == twin);
}

// Files whose ranges lie apart sink to different depths of RocksDB's tree: none may be taken for
// older than what it replaces, however they are merged.
TEST_F(ColdStoreTest, TheLastOfManyNarrowWritesCounts) {
  auto store = Open();
  const Twin all = Rows(0, 1000, 0);
  std::vector<ColdKey> places;
  for (const auto& [key, record] : all) places.push_back(key);
  Twin twin;
  std::mt19937_64 random(3);
  for (uint64_t step = 1; step <= 1500; ++step) {
    const size_t begin = random() % places.size();
    const size_t end = std::min<size_t>(places.size(), begin + 1 + random() % 100);
    Twin rows;
    for (size_t i = begin; i < end; ++i) rows[places[i]] = Record(places[i].key, step);
    ASSERT_OK(Write(*store, rows));
    for (const auto& [key, record] : rows) twin[key] = record;
    if (step % 50 != 0) continue;
    const auto read = Read(*store, all);
    ASSERT_OK(read);
    ASSERT_TRUE(*read == twin) << step;
  }
  EXPECT_TRUE(ScanAll(*store) == twin);
}

TEST_F(ColdStoreTest, TablesDoNotMix) {
  auto store = Open();
  ASSERT_OK(Write(*store, Rows(0, 100, 1)));
  ASSERT_OK(Write(*store, Rows(50, 150, 2, 8), 1));
  ExpectHolds(*store, Rows(0, 100, 1));
  const auto items = Read(*store, Rows(0, 200, 2, 8), 1, 8);
  ASSERT_OK(items);
  EXPECT_TRUE(*items == Rows(50, 150, 2, 8));
}

TEST_F(ColdStoreTest, KnowsFromMemoryWhichKeysWereNeverWritten) {
  auto store = Open();
  ASSERT_OK(Write(*store, Rows(0, 10000, 1)));
  std::vector<uint64_t> keys(20000);
  for (uint64_t k = 0; k < keys.size(); ++k) keys[k] = k;
  std::vector<uint8_t> may(keys.size());
  const size_t ones = store->MayContain(0, keys, may.data());
  for (uint64_t k = 0; k < 10000; ++k) EXPECT_EQ(may[k], 1) << k;
  EXPECT_LT(ones, 10000 + 50);
  EXPECT_EQ(store->MayContain(1, keys, may.data()), 0);
}

TEST_F(ColdStoreTest, EveryLegalKeyHasItsPlace) {
  auto store = Open();
  Twin rows;
  for (const uint64_t key : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, uint64_t{1} << 63,
                             UINT64_MAX - 1, UINT64_MAX}) {
    rows[{.partition = 0, .key = key}] = Record(key, 1);
    rows[{.partition = 63, .key = key}] = Record(key, 2);
  }
  ASSERT_OK(Write(*store, rows));
  ExpectHolds(*store, rows);
  EXPECT_TRUE(ScanAll(*store) == rows);
}

TEST_F(ColdStoreTest, AFlippedByteOfAFileIsDataLossThatNamesTableKeyAndFolder) {
  auto store = Open();
  const Twin rows = Rows(0, 5000, 1);
  ASSERT_OK(Write(*store, rows));
  ASSERT_EQ(FlipTableFiles(), 1);
  const auto read = Read(*store, rows);
  EXPECT_FAILS(read, absl::StatusCode::kDataLoss, "of table users");
  EXPECT_FAILS(read, absl::StatusCode::kDataLoss, "read key ");
  EXPECT_FAILS(read, absl::StatusCode::kDataLoss, options_.folder);
  absl::Status scan;
  const std::unique_ptr<ColdScan> pass = store->Scan(0);
  for (uint32_t p = 0; p < 64; ++p) {
    scan.Update(pass->Visit(p, [](uint64_t, const char*) { return absl::OkStatus(); }));
  }
  EXPECT_FAILS(scan, absl::StatusCode::kDataLoss, "of table users");
}

TEST_F(ColdStoreTest, AFileThatLostItsEndIsDataLossWhereverItEnds) {
  const Twin rows = Rows(0, 5000, 1);
  for (const bool page_cache : {false, true}) {
    for (int sixteenths = 0; sixteenths < 16; ++sixteenths) {
      SCOPED_TRACE(sixteenths);
      options_.page_cache = page_cache;
      auto store = Open();
      ASSERT_OK(Write(*store, rows));
      for (const auto& entry : std::filesystem::directory_iterator(options_.folder + "/db")) {
        if (entry.path().extension() != ".sst") continue;
        std::filesystem::resize_file(entry.path(), entry.file_size() * sixteenths / 16 + 1);
      }
      EXPECT_FAILS(Read(*store, rows), absl::StatusCode::kDataLoss, "of table users");
      absl::Status scan;
      const std::unique_ptr<ColdScan> pass = store->Scan(0);
      for (uint32_t p = 0; p < 64; ++p) {
        scan.Update(pass->Visit(p, [](uint64_t, const char*) { return absl::OkStatus(); }));
      }
      EXPECT_FAILS(scan, absl::StatusCode::kDataLoss, "bytes that were written");
    }
  }
}

TEST_F(ColdStoreTest, ARecordUnderAnotherKeyOrTableDoesNotHaveItsChecksum) {
  const std::string record = Record(1, 1);
  const uint64_t checksum = cold_record::ChecksumOf(0, 1, record);
  std::string value = record;
  value.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  EXPECT_EQ(cold_record::Verify(0, 1, value, kRecordBytes), record);
  EXPECT_TRUE(cold_record::Verify(0, 2, value, kRecordBytes).empty());
  EXPECT_TRUE(cold_record::Verify(1, 1, value, kRecordBytes).empty());
  EXPECT_TRUE(cold_record::Verify(0, 1, value, kRecordBytes + 1).empty());
  for (size_t i = 0; i < value.size(); ++i) {
    std::string damaged = value;
    damaged[i] ^= 1;
    EXPECT_TRUE(cold_record::Verify(0, 1, damaged, kRecordBytes).empty()) << i;
  }
}

TEST_F(ColdStoreTest, AtItsCapAWriteIsRefusedAndNamesFolderCapAndUse) {
  options_.max_bytes = 4 << 20;
  auto store = Open();
  Twin written;
  absl::Status status;
  for (uint64_t k = 0; status.ok() && k < 1000000; k += 5000) {
    const Twin rows = Rows(k, k + 5000, 1);
    status = Write(*store, rows);
    if (status.ok()) written.insert(rows.begin(), rows.end());
    EXPECT_LE(store->stats().folder_bytes, options_.max_bytes);
  }
  EXPECT_FAILS(status, absl::StatusCode::kResourceExhausted, "its cap is 4194304");
  EXPECT_FAILS(status, absl::StatusCode::kResourceExhausted, options_.folder);
  EXPECT_GT(written.size(), 10000);
  ExpectHolds(*store, written);
}

TEST_F(ColdStoreTest, ReadsThroughThePageCacheWhereItIsToldTo) {
  for (const bool page_cache : {false, true}) {
    SCOPED_TRACE(page_cache);
    auto disk = std::make_shared<CountingDisk>();
    options_.disk = disk;
    options_.page_cache = page_cache;
    auto store = Open();
    const Twin rows = Rows(0, 20000, 1);
    ASSERT_OK(Write(*store, rows));
    ExpectHolds(*store, rows);
    EXPECT_GT(disk->bytes_read(), 0);
    EXPECT_EQ(disk->direct_files() == 0, page_cache);
  }
}

TEST_F(ColdStoreTest, ASnapshotStaysAsItWasAndIsScannedInOnePass) {
  auto disk = std::make_shared<CountingDisk>();
  options_.disk = disk;
  auto store = Open();
  const std::unique_ptr<ColdSnapshot> empty = store->TakeSnapshot();
  const Twin first = Rows(0, 20000, 1);
  ASSERT_OK(Write(*store, first));
  const std::unique_ptr<ColdSnapshot> full = store->TakeSnapshot();
  ASSERT_OK(Write(*store, Rows(10000, 30000, 2)));
  EXPECT_TRUE(ScanAll(*store, 0, full.get()) == first);

  std::vector<ColdKey> keys;
  for (const auto& [key, record] : Rows(0, 30000, 1)) keys.push_back(key);
  std::vector<char> records(keys.size() * kRecordBytes);
  std::vector<uint8_t> found(keys.size());
  ASSERT_OK(store->Read(0, keys, records.data(), found.data(), full.get()));
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto it = first.find(keys[i]);
    ASSERT_EQ(found[i] != 0, it != first.end());
    if (!found[i]) continue;
    ASSERT_EQ(std::string(&records[i * kRecordBytes], kRecordBytes), it->second);
  }
  // All rows are newer than this one: they are passed once, not once a partition.
  const uint64_t before = disk->bytes_read();
  EXPECT_TRUE(ScanAll(*store, 0, empty.get()).empty());
  EXPECT_LT(disk->bytes_read() - before, 2 * store->stats().folder_bytes);
}

TEST_F(ColdStoreTest, WhatAProcessThatWasKilledLeftIsWiped) {
  std::filesystem::create_directories(options_.folder + "/db");
  std::ofstream(options_.folder + "/db/CURRENT") << "nonsense";
  std::ofstream(options_.folder + "/db/000007.sst") << "nonsense";
  auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(ScanAll(*store).empty());
  EXPECT_FALSE(std::filesystem::exists(options_.folder + "/db/000007.sst"));
}

TEST_F(ColdStoreTest, TwoStoresCannotHaveOneFolder) {
  auto store = Open();
  ASSERT_OK(Write(*store, Rows(0, 10, 1)));
  const auto second = ColdStore::Open(options_, {{.name = "users", .record_bytes = 1}});
  EXPECT_FAILS(second, absl::StatusCode::kFailedPrecondition, options_.folder);
  ExpectHolds(*store, Rows(0, 10, 1));
}

TEST_F(ColdStoreTest, LeavesNothingBehind) {
  auto store = Open();
  ASSERT_OK(Write(*store, Rows(0, 10000, 1)));
  store = nullptr;
  EXPECT_FALSE(std::filesystem::exists(options_.folder));
}

TEST_F(ColdStoreTest, CountsTheBytesOfItsFolder) {
  auto store = Open();
  for (uint64_t version = 0; version < 20; ++version) {
    ASSERT_OK(Write(*store, Rows(0, 5000, version)));
  }
  const ColdStore::Stats stats = store->stats();
  EXPECT_EQ(stats.records_written, 20 * 5000);
  EXPECT_EQ(stats.record_bytes_written, 20 * 5000 * kRecordBytes);
  EXPECT_GE(stats.device_bytes_written, stats.record_bytes_written);
  EXPECT_GE(stats.folder_bytes, 5000 * kRecordBytes);
  EXPECT_GT(stats.memory_bytes, 0);
  ExpectHolds(*store, Rows(0, 5000, 19));
}

TEST_F(ColdStoreTest, TheDiskHasLittleBesidesItsFiles) {
  auto store = Open();
  ASSERT_OK(Write(*store, Rows(0, 100, 1)));
  uint64_t on_disk = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(options_.folder)) {
    struct stat info;
    ASSERT_EQ(::stat(file.path().c_str(), &info), 0);
    on_disk += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  EXPECT_LE(on_disk, store->stats().folder_bytes + (512 << 10));
}

TEST_F(ColdStoreTest, RowsAreReadAndWrittenByManyThreads) {
  auto store = Open();
  ASSERT_OK(Write(*store, Rows(0, 8000, 0)));
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const uint64_t begin = t * 2000;
      for (uint64_t version = 1; version <= 10; ++version) {
        EXPECT_OK(Write(*store, Rows(begin, begin + 2000, version)));
        const auto read = Read(*store, Rows(begin, begin + 2000, version));
        EXPECT_OK(read);
        if (read.ok()) {
          EXPECT_TRUE(*read == Rows(begin, begin + 2000, version));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ExpectHolds(*store, Rows(0, 8000, 10));
}

}  // namespace
}  // namespace tessera::ps
