// Checkpoints of several layers: what changed since an earlier one, over that one's files.
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/diff.h"
#include "common/checkpoint/digest.h"
#include "gmock/gmock.h"
#include "tests/common/checkpoint_testing.h"
#include "tests/common/fault_file_system.h"

namespace tessera {
namespace {

using testing::HasSubstr;

constexpr uint32_t kPartitions = 8;

std::vector<TestTable> Read(const CheckpointReader& reader) {
  std::vector<TestTable> tables;
  for (int t = 0; t < reader.manifest().tables_size(); ++t) {
    const v1::CheckpointTable& saved = reader.manifest().tables(t);
    TestTable& table = tables.emplace_back();
    table = {saved.spec().name(), saved.spec().dim(), saved.slot_floats(), {}};
    for (uint32_t p = 0; p < reader.partition_count(); ++p) {
      const auto rows = reader.Read(TableIndex(static_cast<uint32_t>(t)), PartitionId(p));
      EXPECT_TRUE(rows.ok()) << rows.status();
      for (uint64_t i = 0; rows.ok() && i < rows->rows(); ++i) {
        EXPECT_TRUE(i == 0 || rows->key(i - 1) < rows->key(i));
        table.rows[rows->key(i)] = {rows->frequency(i),
                                    rows->last_step(i),
                                    {rows->values(i).begin(), rows->values(i).end()}};
      }
    }
  }
  return tables;
}

class CheckpointLayersTest : public testing::Test {
 protected:
  // A first checkpoint, then two layers: rows that change, come, go, and come again.
  void SetUp() override {
    ASSERT_TRUE(WriteTestCheckpoint(files_, "job/base", model_, kPartitions, 2).ok());
    manifest_ = *ReadManifest(files_, "job/base");
    ASSERT_TRUE(files_.CreateFolder("job/new").ok());
    for (const v1::CheckpointFile& file : manifest_.files()) {
      ASSERT_TRUE(files_.Link("job/base/" + file.name(), "job/new/" + file.name()).ok());
    }
    // Layer 1: key 7 changes, 12 comes, 0 and 2^32 go.
    AddLayer(1, {{7, {90, 91, {1, 2, 3}}}, {12, {1, 5, {4, 5, 6}}}}, {0, uint64_t{1} << 32});
    // Layer 2: 7 goes, 0 comes again, 12 changes.
    AddLayer(2, {{0, {3, 95, {7, 8, 9}}}, {12, {2, 96, {0, 0, 1}}}}, {7});
    manifest_.mutable_tables(0)->set_rows(model_[0].rows.size());
  }

  void AddLayer(uint32_t layer, const std::map<uint64_t, TestRow>& changed,
                const std::set<uint64_t>& gone) {
    std::vector<TestTable> tables = model_;
    for (TestTable& table : tables) table.rows.clear();
    tables[0].rows = changed;
    const auto file = WriteTestLayer(files_, "job/new/rows-layer-" + std::to_string(layer), tables,
                                     {gone, {}, {}}, kPartitions, layer);
    ASSERT_TRUE(file.ok()) << file.status();
    *manifest_.add_files() = *file;
    for (const uint64_t key : gone) model_[0].rows.erase(key);
    for (const auto& [key, row] : changed) model_[0].rows[key] = row;
  }

  FaultFileSystem files_;
  std::vector<TestTable> model_ = SmallModel();
  v1::CheckpointManifest manifest_;
};

TEST_F(CheckpointLayersTest, TheHighestLayerThatKnowsARowHasIt) {
  const auto reader = CheckpointReader::Open(files_, "job/new", manifest_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const std::vector<TestTable> read = Read(**reader);
  for (size_t t = 0; t < model_.size(); ++t) EXPECT_EQ(read[t].rows, model_[t].rows);
}

TEST_F(CheckpointLayersTest, TheDigestIsThatOfTheSameRowsInOneLayer) {
  ASSERT_TRUE(WriteManifest(files_, "job/new", manifest_).ok());
  ASSERT_TRUE(WriteTestCheckpoint(files_, "job/whole", model_, kPartitions, 3).ok());
  const auto layered = DigestCheckpoint(files_, "job/new");
  ASSERT_TRUE(layered.ok()) << layered.status();
  EXPECT_EQ(*layered, *DigestCheckpoint(files_, "job/whole"));
  EXPECT_NE(*layered, *DigestCheckpoint(files_, "job/base"));
}

TEST_F(CheckpointLayersTest, TheLayersBelowOutliveTheCheckpointThatTheyComeFrom) {
  ASSERT_TRUE(WriteManifest(files_, "job/new", manifest_).ok());
  const auto before = DigestCheckpoint(files_, "job/new");
  ASSERT_TRUE(files_.Remove("job/base").ok());
  const auto after = DigestCheckpoint(files_, "job/new");
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(*before, *after);
}

TEST_F(CheckpointLayersTest, TwoFilesOfALayerMustNotHoldTheSamePartition) {
  manifest_.mutable_files(3)->set_layer(1);
  const auto reader = CheckpointReader::Open(files_, "job/new", manifest_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  absl::Status found;
  for (uint32_t p = 0; p < kPartitions && found.ok(); ++p) {
    found = (*reader)->Read(TableIndex(0), PartitionId(p)).status();
  }
  EXPECT_TRUE(absl::IsDataLoss(found)) << found;
  EXPECT_THAT(found.message(), HasSubstr("is in job/new/rows-layer-1 too"));
}

TEST_F(CheckpointLayersTest, AFirstLayerHasNothingToTakeAway) {
  manifest_.mutable_files(2)->set_layer(0);
  const auto reader = CheckpointReader::Open(files_, "job/new", manifest_);
  EXPECT_TRUE(absl::IsDataLoss(reader.status())) << reader.status();
  EXPECT_THAT(reader.status().message(), HasSubstr("takes rows away"));
}

TEST_F(CheckpointLayersTest, AMissingOrDamagedLayerIsNamed) {
  ASSERT_TRUE(WriteManifest(files_, "job/new", manifest_).ok());
  std::string bytes = files_.Content("job/new/rows-layer-1");
  bytes[bytes.size() / 2] ^= 1;
  files_.SetContent("job/new/rows-layer-1", bytes);
  EXPECT_THAT(std::string(DigestCheckpoint(files_, "job/new").status().message()),
              HasSubstr("job/new/rows-layer-1"));
  ASSERT_TRUE(files_.Remove("job/new/rows-layer-1").ok());
  const auto reader = CheckpointReader::Open(files_, "job/new", manifest_);
  EXPECT_TRUE(absl::IsDataLoss(reader.status())) << reader.status();
  EXPECT_THAT(reader.status().message(), HasSubstr("job/new/rows-layer-1: missing"));
}

TEST_F(CheckpointLayersTest, AFileThatTheManifestDoesNotNameIsMissed) {
  ASSERT_TRUE(WriteTestCheckpoint(files_, "job/whole", model_, kPartitions, 3).ok());
  auto manifest = ReadManifest(files_, "job/whole");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  ASSERT_TRUE(CheckpointReader::Open(files_, "job/whole", *manifest).ok());
  manifest->mutable_files()->RemoveLast();
  const auto reader = CheckpointReader::Open(files_, "job/whole", *manifest);
  EXPECT_TRUE(absl::IsDataLoss(reader.status())) << reader.status();
  EXPECT_THAT(reader.status().message(),
              HasSubstr("job/whole: damaged: the 2 files that its manifest names hold"));
}

TEST_F(CheckpointLayersTest, ARowIsFoundByItsKeyAsTheHighestLayerHasIt) {
  ASSERT_TRUE(WriteManifest(files_, "job/new", manifest_).ok());
  const auto reader = CheckpointReader::Open(files_, "job/new", manifest_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto table = (*reader)->FindTable("user");
  ASSERT_TRUE(table.ok()) << table.status();
  const auto first_slot = [&](uint64_t key) -> float {
    const auto rows = (*reader)->Read(*table, PartitionOf(key, kPartitions));
    EXPECT_TRUE(rows.ok()) << rows.status();
    const std::optional<uint64_t> place = rows->Find(key);
    return place.has_value() ? rows->values(*place)[2] : -1;
  };
  EXPECT_EQ(first_slot(0), 9);
  EXPECT_EQ(first_slot(12), 1);
  EXPECT_EQ(first_slot(7), -1);
  EXPECT_EQ(first_slot(uint64_t{1} << 32), -1);
  EXPECT_EQ(first_slot(~uint64_t{0}), 0.1f);
  EXPECT_EQ((*reader)->FindTable("none").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointLayersTest, ADifferenceIsThatOfTheRowsNotOfTheLayers) {
  ASSERT_TRUE(WriteManifest(files_, "job/new", manifest_).ok());
  const auto diff = DiffCheckpoints(files_, "job/base", "job/new");
  ASSERT_TRUE(diff.ok()) << diff.status();
  EXPECT_THAT(diff->at(0).different.first, testing::ElementsAre(0));
  EXPECT_THAT(diff->at(0).only_first.first, testing::UnorderedElementsAre(7, uint64_t{1} << 32));
  EXPECT_THAT(diff->at(0).only_second.first, testing::ElementsAre(12));
  EXPECT_EQ(diff->at(0).same, 3u);
  EXPECT_TRUE(diff->at(2).equal());
}

}  // namespace
}  // namespace tessera
