#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/hash.h"
#include "common/partition.h"
#include "common/task_pool.h"
#include "ps/cold/cold_store.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {

// A store in a folder of its own, of the tables "users" and "items".
class ColdStoreTest : public testing::Test {
 protected:
  static constexpr uint32_t kRecordBytes = 100;
  // What a table holds.
  using Twin = std::map<ColdKey, std::string>;

  ColdStoreTest() : readers_(4) {
    options_.folder = testing::TempDir() + "/cold-" + std::to_string(::getpid()) + "-" +
                      testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(options_.folder);
    options_.readers = &readers_;
  }
  ~ColdStoreTest() override { std::filesystem::remove_all(options_.folder); }

  std::unique_ptr<ColdStore> Open() {
    auto store = ColdStore::Open(options_, {{.name = "users", .record_bytes = kRecordBytes},
                                            {.name = "items", .record_bytes = 8}});
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  static ColdKey Place(uint64_t key) {
    return {.partition = PartitionOf(key, 64).value(), .key = key};
  }
  static std::string Record(uint64_t key, uint64_t version, size_t bytes = kRecordBytes) {
    std::string record(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) {
      record[i] = static_cast<char>(MixPair(key, version + i / 8) >> (8 * (i % 8)));
    }
    return record;
  }
  static Twin Rows(uint64_t begin, uint64_t end, uint64_t version, size_t bytes = kRecordBytes) {
    Twin rows;
    for (uint64_t k = begin; k < end; ++k) rows[Place(k)] = Record(k, version, bytes);
    return rows;
  }
  static absl::Status Write(ColdStore& store, const Twin& rows, uint32_t table = 0) {
    std::vector<ColdRecord> records;
    for (const auto& [key, record] : rows) records.push_back({.key = key, .bytes = record.data()});
    return store.Write(table, records);
  }
  // Of the keys of `rows`, those that are found.
  static absl::StatusOr<Twin> Read(ColdStore& store, const Twin& rows, uint32_t table = 0,
                                   size_t bytes = kRecordBytes) {
    std::vector<ColdKey> keys;
    for (const auto& [key, record] : rows) keys.push_back(key);
    std::string records(keys.size() * bytes, '\0');
    std::vector<uint8_t> found(keys.size(), 2);
    const absl::Status status = store.Read(table, keys, records.data(), found.data());
    if (!status.ok()) return status;
    Twin read;
    for (size_t i = 0; i < keys.size(); ++i) {
      EXPECT_LE(found[i], 1);
      if (found[i]) read[keys[i]] = records.substr(i * bytes, bytes);
    }
    return read;
  }
  static void ExpectHolds(ColdStore& store, const Twin& rows) {
    const auto read = Read(store, rows);
    ASSERT_OK(read);
    EXPECT_TRUE(*read == rows);
  }
  static Twin ScanAll(ColdStore& store, uint32_t table = 0, const ColdSnapshot* at = nullptr) {
    const std::unique_ptr<ColdScan> scan = store.Scan(table, at);
    Twin rows;
    for (uint32_t p = 0; p < 64; ++p) {
      uint64_t last = 0;
      EXPECT_OK(scan->Visit(p, [&](uint64_t key, const char* record) {
        EXPECT_TRUE(rows.empty() || last <= key);
        last = key;
        EXPECT_TRUE(
            rows.emplace(ColdKey{p, key}, std::string(record, table == 0 ? kRecordBytes : 8))
                .second);
        return absl::OkStatus();
      }));
    }
    return rows;
  }
  // Flips a byte in the middle of every table file.
  size_t FlipTableFiles() const {
    size_t flipped = 0;
    for (const auto& entry : std::filesystem::directory_iterator(options_.folder + "/db")) {
      if (entry.path().extension() != ".sst") continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(entry.file_size() / 2);
      const char byte = static_cast<char>(file.get());
      file.seekp(entry.file_size() / 2);
      file.put(static_cast<char>(byte ^ 0x10));
      ++flipped;
    }
    return flipped;
  }

  TaskPool readers_;
  ColdStore::Options options_;
};

}  // namespace tessera::ps
