#include <set>

#include "common/checkpoint/checksum.h"
#include "common/checkpoint/row_file_reader.h"
#include "common/checkpoint/row_file_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/checkpoint_testing.h"
#include "tests/common/fault_file_system.h"

namespace tessera {
namespace {

constexpr char kPath[] = "ckpt/rows-0";

class RowFile : public testing::Test {
 protected:
  RowFile() {
    fs_.CreateFolder("ckpt").IgnoreError();
    fs_.SyncFolder(".").IgnoreError();
  }

  absl::StatusOr<v1::CheckpointFile> Write(const std::vector<TestTable>& tables,
                                           uint32_t partitions = 4) {
    return WriteTestPart(fs_, kPath, tables, partitions, 0, 1);
  }
  // Rows by table, or the first error of reading everything.
  absl::StatusOr<std::vector<std::map<uint64_t, TestRow>>> ReadAll(size_t tables) {
    TESSERA_ASSIGN_OR_RETURN(auto reader, RowFileReader::Open(fs_, kPath));
    std::vector<std::map<uint64_t, TestRow>> out(tables);
    for (const row_file::IndexEntry& entry : reader->blocks()) {
      TESSERA_ASSIGN_OR_RETURN(RowBlock block, reader->Read(entry));
      for (uint64_t i = 0; i < block.rows(); ++i) {
        const auto values = block.values(i);
        out[block.table().value()][block.key(i)] = {
            block.frequency(i), block.last_step(i), {values.begin(), values.end()}};
      }
    }
    return out;
  }

  FaultFileSystem fs_;
};

TEST_F(RowFile, GivesBackEveryRowWhole) {
  const std::vector<TestTable> tables = SmallModel();
  const auto file = Write(tables);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->name(), "rows-0");
  EXPECT_EQ(file->bytes(), fs_.Content(kPath).size());
  EXPECT_EQ(file->checksum(), ChecksumText(Checksum64Of(fs_.Content(kPath))));
  EXPECT_THAT(file->rows(), testing::ElementsAre(6, 0, 3));
  const auto rows = ReadAll(tables.size());
  ASSERT_TRUE(rows.ok()) << rows.status();
  for (size_t t = 0; t < tables.size(); ++t) EXPECT_EQ((*rows)[t], tables[t].rows);
}

TEST_F(RowFile, GivesBackBlocksLargerThanItsBuffer) {
  std::vector<TestTable> tables = {{"wide", 64, 64, {}}};
  for (uint64_t i = 0; i < 10000; ++i) {
    tables[0].rows[Mix64(i)] = {1, i, std::vector<float>(128, static_cast<float>(i))};
  }
  ASSERT_TRUE(Write(tables, 2).ok());
  EXPECT_GT(fs_.Content(kPath).size(), size_t{5} << 20);
  const auto rows = ReadAll(1);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ((*rows)[0], tables[0].rows);
}

TEST_F(RowFile, FindsABlockByTableAndPartitionAlone) {
  const std::vector<TestTable> tables = SmallModel();
  ASSERT_TRUE(Write(tables).ok());
  auto reader = RowFileReader::Open(fs_, kPath);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ((*reader)->partition_count(), 4u);
  std::set<uint64_t> found;
  for (uint32_t p = 0; p < 4; ++p) {
    EXPECT_EQ((*reader)->Find(TableIndex(1), PartitionId(p)), nullptr) << "the empty table";
    const row_file::IndexEntry* entry = (*reader)->Find(TableIndex(0), PartitionId(p));
    if (entry == nullptr) continue;
    const auto block = (*reader)->Read(*entry);
    ASSERT_TRUE(block.ok());
    EXPECT_EQ(block->partition(), PartitionId(p));
    for (uint64_t i = 0; i < block->rows(); ++i) found.insert(block->key(i));
  }
  EXPECT_EQ(found.size(), tables[0].rows.size());
  EXPECT_EQ((*reader)->Find(TableIndex(9), PartitionId(0)), nullptr);
}

TEST_F(RowFile, HoldsNoRowsAtAllIfThereAreNone) {
  ASSERT_TRUE(Write({{"empty", 8, 8, {}}}).ok());
  EXPECT_EQ(fs_.Content(kPath).size(), sizeof(row_file::Header) + sizeof(row_file::Trailer));
  const auto rows = ReadAll(1);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_TRUE((*rows)[0].empty());
}

TEST_F(RowFile, IsTheSameBytesForTheSameRows) {
  ASSERT_TRUE(Write(SmallModel()).ok());
  const std::string first = fs_.Content(kPath);
  ASSERT_TRUE(Write(SmallModel()).ok());
  EXPECT_EQ(fs_.Content(kPath), first);
}

TEST_F(RowFile, KeepsItsFormatFromBuildToBuild) {
  // The example of common/checkpoint/FORMAT.md. A change of these bytes is a new format version.
  ASSERT_TRUE(Write({{"t", 1, 1, {{7, {3, 5, {1.0f, -2.0f}}}}}}, 1).ok());
  const std::string bytes = fs_.Content(kPath);
  ASSERT_EQ(bytes.size(), 32 + 32 + 28 + 8 + 40 + 32);
  EXPECT_EQ(bytes.substr(0, 8), "TSSRROW1");
  EXPECT_EQ(bytes.substr(32, 4), "TBLK");
  EXPECT_EQ(bytes.substr(64, 28), std::string("\x07\0\0\0\0\0\0\0"
                                              "\x03\0\0\0"
                                              "\x05\0\0\0\0\0\0\0"
                                              "\0\0\x80\x3f\0\0\0\xc0",
                                              28));
  EXPECT_EQ(bytes.substr(164), "TSSREND1");
  EXPECT_EQ(ChecksumText(Checksum64Of(bytes)), "01ce8636eecf201e");
}

TEST_F(RowFile, IsRefusedWithAnyByteChanged) {
  const std::vector<TestTable> tables = SmallModel();
  ASSERT_TRUE(Write(tables).ok());
  const std::string good = fs_.Content(kPath);
  for (size_t i = 0; i < good.size(); ++i) {
    for (int flip : {0x01, 0x20, 0x80, 0xFF}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      fs_.SetContent(kPath, bad);
      const absl::Status status = ReadAll(tables.size()).status();
      ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << "byte " << i << ": " << status;
      ASSERT_THAT(std::string(status.message()), testing::HasSubstr(kPath));
    }
  }
}

TEST_F(RowFile, IsRefusedCutOffAnywhereOrLengthened) {
  const std::vector<TestTable> tables = SmallModel();
  ASSERT_TRUE(Write(tables).ok());
  const std::string good = fs_.Content(kPath);
  for (size_t n = 0; n < good.size(); ++n) {
    fs_.SetContent(kPath, good.substr(0, n));
    const absl::Status status = ReadAll(tables.size()).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << n << " bytes: " << status;
  }
  fs_.SetContent(kPath, good + '\0');
  EXPECT_EQ(ReadAll(tables.size()).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(RowFile, NamesTheDamagedBlockAndStillReadsTheOthers) {
  ASSERT_TRUE(Write(SmallModel()).ok());
  std::string bytes = fs_.Content(kPath);
  auto reader = RowFileReader::Open(fs_, kPath);
  ASSERT_TRUE(reader.ok());
  ASSERT_GE((*reader)->blocks().size(), 2u);
  const row_file::IndexEntry entry = (*reader)->blocks()[1];
  bytes[entry.offset + 50] ^= 1;
  fs_.SetContent(kPath, bytes);
  reader = RowFileReader::Open(fs_, kPath);
  ASSERT_TRUE(reader.ok()) << "only the block is damaged";
  EXPECT_TRUE((*reader)->Read((*reader)->blocks()[0]).ok());
  const absl::Status status = (*reader)->Read((*reader)->blocks()[1]).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(testing::HasSubstr(kPath),
                             testing::HasSubstr(absl::StrCat("table ", entry.table)),
                             testing::HasSubstr(absl::StrCat("partition ", entry.partition)),
                             testing::HasSubstr(absl::StrCat("byte ", entry.offset))));
}

TEST_F(RowFile, IsReadInThePreviousFormat) {
  ASSERT_TRUE(Write(SmallModel()).ok());
  std::string bytes = fs_.Content(kPath);
  bytes[8] = 1;
  const uint64_t checksum = Checksum64Of(absl::string_view(bytes.data(), 24));
  bytes.replace(24, 8, reinterpret_cast<const char*>(&checksum), 8);
  fs_.SetContent(kPath, bytes);
  const auto reader = RowFileReader::Open(fs_, kPath);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_FALSE((*reader)->blocks().empty());
}

TEST_F(RowFile, IsRefusedInAFormatOfTheFuture) {
  ASSERT_TRUE(Write(SmallModel()).ok());
  std::string bytes = fs_.Content(kPath);
  bytes[8] = 3;
  const uint64_t checksum = Checksum64Of(absl::string_view(bytes.data(), 24));
  bytes.replace(24, 8, reinterpret_cast<const char*>(&checksum), 8);
  fs_.SetContent(kPath, bytes);
  EXPECT_EQ(RowFileReader::Open(fs_, kPath).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(RowFile, ThatDoesNotFitOnTheDiskIsAnErrorAndIsRemoved) {
  const std::vector<TestTable> tables = SmallModel();
  ASSERT_TRUE(Write(tables).ok());
  const uint64_t size = fs_.Content(kPath).size();
  ASSERT_TRUE(fs_.Remove(kPath).ok());
  for (uint64_t capacity = 0; capacity < size; ++capacity) {
    fs_.SetCapacity(capacity);
    ASSERT_EQ(Write(tables).status().code(), absl::StatusCode::kResourceExhausted) << capacity;
    ASSERT_FALSE(fs_.Exists(kPath));
  }
  fs_.Repair();
  EXPECT_TRUE(Write(tables).ok());
}

TEST_F(RowFile, WhoseSyncFailsIsAnErrorAndIsRemoved) {
  for (uint64_t syncs : {0, 1}) {
    fs_.FailSyncsAfter(syncs);
    EXPECT_EQ(Write(SmallModel()).status().code(), absl::StatusCode::kUnavailable);
    EXPECT_FALSE(fs_.Exists(kPath));
  }
}

TEST_F(RowFile, ThatIsFinishedSurvivesACrash) {
  const std::vector<TestTable> tables = SmallModel();
  ASSERT_TRUE(Write(tables).ok());
  fs_.Crash();
  EXPECT_TRUE(ReadAll(tables.size()).ok());
}

TEST_F(RowFile, RefusesCallsOutOfOrder) {
  const auto begin = [&](uint32_t table, uint32_t partition, uint64_t rows, auto then) {
    auto writer = RowFileWriter::Create(fs_, kPath, 1, 2);
    EXPECT_TRUE(writer.ok());
    absl::Status status = (*writer)->BeginBlock(TableIndex(table), PartitionId(partition), rows, 1);
    if (status.ok()) status = then(**writer);
    const absl::Status later = (*writer)->Finish().status();
    EXPECT_EQ(later, status) << "an error stays";
    return status.code();
  };
  const std::vector<float> one = {1}, two = {1, 2};
  const auto nothing = [](RowFileWriter&) { return absl::OkStatus(); };
  EXPECT_EQ(begin(2, 0, 1, nothing), absl::StatusCode::kInternal);
  EXPECT_EQ(begin(0, 1, 1, nothing), absl::StatusCode::kInternal);
  EXPECT_EQ(begin(0, 0, 2,
                  [&](RowFileWriter& w) {
                    TESSERA_RETURN_IF_ERROR(w.AddRow(5, 0, 0, one));
                    return w.AddRow(5, 0, 0, one);
                  }),
            absl::StatusCode::kInternal);
  EXPECT_EQ(begin(0, 0, 1, [&](RowFileWriter& w) { return w.AddRow(5, 0, 0, two); }),
            absl::StatusCode::kInternal);
  EXPECT_EQ(begin(0, 0, 1, [&](RowFileWriter& w) { return w.EndBlock(); }),
            absl::StatusCode::kInternal);
  EXPECT_EQ(begin(1, 0, 1,
                  [&](RowFileWriter& w) {
                    TESSERA_RETURN_IF_ERROR(w.AddRow(5, 0, 0, one));
                    TESSERA_RETURN_IF_ERROR(w.EndBlock());
                    return w.BeginBlock(TableIndex(0), PartitionId(0), 1, 1);
                  }),
            absl::StatusCode::kInternal);
  EXPECT_FALSE(fs_.Exists(kPath));
}

}  // namespace
}  // namespace tessera
