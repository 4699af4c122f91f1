#include "common/checkpoint/digest.h"

#include <unistd.h>

#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/checkpoint_testing.h"
#include "tests/common/fault_file_system.h"

namespace tessera {
namespace {

constexpr char kStepFolder[] = "job/step-000000000012";

std::string DigestOf(const std::vector<TestTable>& tables, uint32_t partitions = 16,
                     uint32_t parts = 1) {
  FaultFileSystem fs;
  const absl::Status written = WriteTestCheckpoint(fs, kStepFolder, tables, partitions, parts);
  EXPECT_TRUE(written.ok()) << written;
  const auto digest = DigestCheckpoint(fs, kStepFolder);
  EXPECT_TRUE(digest.ok()) << digest.status();
  return digest.value_or("");
}

TEST(Digest, IsTheSameWhateverTheNumberOfPsAndPartitions) {
  const std::string digest = DigestOf(SmallModel());
  EXPECT_THAT(digest, testing::MatchesRegex("[0-9a-f]{32}"));
  EXPECT_EQ(DigestOf(SmallModel(), 16, 3), digest);
  EXPECT_EQ(DigestOf(SmallModel(), 16, 8), digest);
  EXPECT_EQ(DigestOf(SmallModel(), 1, 1), digest);
}

TEST(Digest, LeavesMetadataOut) {
  std::vector<TestTable> tables = SmallModel();
  for (auto& [key, row] : tables[0].rows) row.frequency += 1, row.last_step += 100;
  EXPECT_EQ(DigestOf(tables), DigestOf(SmallModel()));
}

TEST(Digest, ChangesWithEveryFloatKeyNameAndShape) {
  std::set<std::string> digests = {DigestOf(SmallModel())};
  const auto add = [&](auto change) {
    std::vector<TestTable> tables = SmallModel();
    change(tables);
    return digests.insert(DigestOf(tables)).second;
  };
  for (int i = 0; i < 3; ++i) {  // two of the embedding, one slot
    EXPECT_TRUE(add([&](auto& t) {
      float& x = t[0].rows.at(7).values[i];
      x = std::nextafter(x, 1e9f);
    }));
  }
  EXPECT_TRUE(add([](auto& t) { t[2].rows.at(0).values[2] = 0; })) << "-0 became 0";
  EXPECT_TRUE(add([](auto& t) { t[0].rows.erase(7); }));
  EXPECT_TRUE(add([](auto& t) {
    t[0].rows[8] = t[0].rows.at(7);
    t[0].rows.erase(7);
  }));
  EXPECT_TRUE(add([](auto& t) { std::swap(t[0].rows.at(0).values, t[0].rows.at(7).values); }));
  EXPECT_TRUE(add([](auto& t) { t[0].name = "users"; }));
  EXPECT_TRUE(add([](auto& t) { t[1].name = "void"; })) << "an empty table's name";
  EXPECT_TRUE(add([](auto& t) { t[0].dim = 1, t[0].slot_floats = 2; })) << "what is a slot";
}

TEST(Digest, RefusesEveryChangedByteOfEveryFile) {
  FaultFileSystem fs;
  ASSERT_TRUE(WriteTestCheckpoint(fs, kStepFolder, SmallModel(), 4, 2).ok());
  for (const std::string& path : fs.Files()) {
    const std::string good = fs.Content(path);
    for (size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 2);
      fs.SetContent(path, bad);
      const absl::Status status = DigestCheckpoint(fs, kStepFolder).status();
      ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << path << " byte " << i;
      ASSERT_THAT(std::string(status.message()), testing::HasSubstr(path));
    }
    fs.SetContent(path, good);
  }
  EXPECT_TRUE(DigestCheckpoint(fs, kStepFolder).ok());
}

TEST(Digest, IsTheSameOnARealDisk) {
  FileSystem& fs = PosixFileSystem();
  const std::string root = absl::StrCat(testing::TempDir(), "/digest-", getpid());
  const std::string folder = root + "/step-000000000012";
  ASSERT_TRUE(WriteTestCheckpoint(fs, folder, SmallModel(), 16, 3).ok());
  const auto digest = DigestCheckpoint(fs, folder);
  ASSERT_TRUE(digest.ok()) << digest.status();
  EXPECT_EQ(*digest, DigestOf(SmallModel()));
  EXPECT_TRUE(fs.Remove(root).ok());
}

TEST(Digest, RefusesRowsThatAreMissingOrThereTwice) {
  const std::vector<TestTable> tables = SmallModel();
  FaultFileSystem fs;
  ASSERT_TRUE(WriteTestCheckpoint(fs, kStepFolder, tables, 4, 2).ok());
  auto manifest = ReadManifest(fs, kStepFolder);
  ASSERT_TRUE(manifest.ok());
  const auto digest_with = [&](auto change) {
    v1::CheckpointManifest changed = *manifest;
    change(changed);
    EXPECT_TRUE(WriteManifest(fs, kStepFolder, changed).ok());
    return DigestCheckpoint(fs, kStepFolder).status().code();
  };
  const auto kDataLoss = absl::StatusCode::kDataLoss;
  EXPECT_EQ(digest_with([](auto& m) { m.mutable_files()->RemoveLast(); }), kDataLoss);
  EXPECT_EQ(digest_with([](auto& m) { *m.add_files() = m.files(0); }), kDataLoss);
  EXPECT_EQ(digest_with([](auto& m) { m.mutable_tables(0)->set_rows(7); }), kDataLoss);
  EXPECT_EQ(digest_with([](auto& m) { m.mutable_tables(0)->set_slot_floats(2); }), kDataLoss);
  EXPECT_EQ(digest_with([](auto& m) { m.mutable_tables()->RemoveLast(); }), kDataLoss);
  EXPECT_EQ(digest_with([](auto& m) { m.set_partition_count(8); }), kDataLoss);
  EXPECT_EQ(digest_with([](auto& m) {}), absl::StatusCode::kOk);
}

}  // namespace
}  // namespace tessera
