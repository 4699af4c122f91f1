#include <limits>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checksum.h"
#include "common/checkpoint/manifest.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/common/checkpoint_testing.h"
#include "tests/common/fault_file_system.h"

namespace tessera {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;

constexpr char kFolder[] = "job/step-000000000012";
constexpr char kManifest[] = "job/step-000000000012/MANIFEST.json";

v1::CheckpointManifest FullManifest() {
  v1::CheckpointManifest m;
  m.set_version("0.1.0");
  m.set_job_id("frappe-1");
  m.set_step((uint64_t{1} << 53) + 1);  // not exact as a JSON number
  m.set_partition_count(4096);
  m.mutable_spec()->set_name("frappe");
  m.mutable_spec()->set_seed(~uint64_t{0});
  auto& options = *m.mutable_spec()->mutable_model()->mutable_options()->mutable_fields();
  for (const char* name : {"hidden", "dropout", "batch_norm", "cross", "a", "b", "c", "d"}) {
    options[name].set_number_value(0.1);
  }
  v1::CheckpointTable& table = *m.add_tables();
  table.mutable_spec()->set_name("emb");
  table.mutable_spec()->mutable_optimizer()->set_learning_rate(0.1f);
  table.set_rows(uint64_t{1} << 40);
  m.mutable_position()->set_best(0.1);
  m.mutable_position()->set_has_best(true);
  m.mutable_position()->add_open()->set_end_batch(7);
  m.add_sightings()->set_name("sightings-g1-00000-of-00001");
  v1::Evaluation& evaluation = *m.add_evaluations();
  (*evaluation.mutable_metrics())["auc"] = 0.98123456789012345;
  (*evaluation.mutable_metrics())["logloss"] = std::numeric_limits<double>::infinity();
  return m;
}

class Manifest : public testing::Test {
 protected:
  Manifest() {
    MakeFolder();
    fs_.SyncFolder(".").IgnoreError();  // the job's folder is there for good
  }
  void MakeFolder() { fs_.CreateFolder(kFolder).IgnoreError(); }
  FaultFileSystem fs_;
};

TEST_F(Manifest, GivesBackEveryField) {
  ASSERT_TRUE(WriteManifest(fs_, kFolder, FullManifest()).ok());
  const auto read = ReadManifest(fs_, kFolder);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->format_version(), kManifestFormatVersion);
  EXPECT_EQ(read->checksum().size(), 16u);
  v1::CheckpointManifest bare = *read;
  bare.clear_checksum();
  bare.clear_format_version();
  EXPECT_TRUE(MessageDifferencer::Equals(bare, FullManifest())) << bare.DebugString();
}

TEST_F(Manifest, MissingMeansNoCheckpoint) {
  EXPECT_EQ(ReadManifest(fs_, kFolder).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(VerifyCheckpoint(fs_, kFolder).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(Manifest, MissingIsSaidApartFromAMissingFolder) {
  EXPECT_EQ(
      ReadManifest(fs_, kFolder).status(),
      absl::NotFoundError("job/step-000000000012: no checkpoint: it has no MANIFEST.json, which "
                          "is written last and removed first"));
  EXPECT_EQ(ReadManifest(fs_, "job/step-000000000013").status(),
            absl::NotFoundError("job/step-000000000013: no such folder"));
}

TEST_F(Manifest, ACheckpointThatIsRemovedWhileItIsReadIsNotCalledDamaged) {
  v1::CheckpointManifest manifest = FullManifest();
  manifest.clear_sightings();
  for (const char* name : {"rows-1", "rows-2"}) {
    fs_.SetContent(absl::StrCat(kFolder, "/", name), "rows");
    v1::CheckpointFile& file = *manifest.add_files();
    file.set_name(name);
    file.set_bytes(4);
    file.set_checksum(ChecksumText(Checksum64Of("rows")));
  }
  ASSERT_TRUE(WriteManifest(fs_, kFolder, manifest).ok());
  ASSERT_TRUE(VerifyCheckpoint(fs_, kFolder).ok());
  const auto removed =
      VerifyCheckpoint(fs_, kFolder, [this] { return RemoveCheckpoint(fs_, kFolder); });
  EXPECT_EQ(removed.status(),
            absl::DataLossError("job/step-000000000012/rows-2: missing, and so is MANIFEST.json by "
                                "now: the checkpoint was removed while it was read; take another"));

  fs_.CreateFolder(kFolder).IgnoreError();
  ASSERT_TRUE(WriteManifest(fs_, kFolder, manifest).ok());
  EXPECT_EQ(VerifyCheckpoint(fs_, kFolder).status(),
            absl::DataLossError("job/step-000000000012/rows-1: missing, but the manifest "
                                "names it; go on from an earlier checkpoint"));
}

TEST_F(Manifest, IsRefusedWithAnyByteChangedOrCutOffAnywhere) {
  ASSERT_TRUE(WriteManifest(fs_, kFolder, FullManifest()).ok());
  const std::string good = fs_.Content(kManifest);
  const auto refused = [&](const std::string& text) {
    fs_.SetContent(kManifest, text);
    const absl::Status status = ReadManifest(fs_, kFolder).status();
    return status.code() == absl::StatusCode::kDataLoss &&
           absl::StrContains(status.message(), kManifest);
  };
  for (size_t i = 0; i < good.size(); ++i) {
    for (int flip : {0x01, 0x20, 0x80}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      ASSERT_TRUE(refused(bad)) << "byte " << i;
    }
    ASSERT_TRUE(refused(good.substr(0, i))) << "cut off at byte " << i;
  }
  EXPECT_TRUE(refused(good + "\n"));
  EXPECT_FALSE(refused(good));
}

TEST_F(Manifest, OfAFutureFormatIsRefusedByName) {
  v1::CheckpointManifest manifest = FullManifest();
  ASSERT_TRUE(WriteManifest(fs_, kFolder, manifest).ok());
  // As a later build would write it: another version, a field unknown to this one, a new seal.
  std::string body = fs_.Content(kManifest);
  body.resize(body.rfind(",\n \"checksum\""));
  const std::string version = "\"format_version\": 4";
  const size_t at = body.find(version);
  ASSERT_NE(at, std::string::npos);
  body.replace(at, version.size(), "\"format_version\": 5,\n \"shape\": \"new\"");
  fs_.SetContent(kManifest,
                 body + ",\n \"checksum\": \"" + ChecksumText(Checksum64Of(body)) + "\"\n}\n");
  const absl::Status status = ReadManifest(fs_, kFolder).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("format 5"));
}

TEST_F(Manifest, OfPreviousFormatsIsRead) {
  v1::CheckpointManifest manifest = FullManifest();
  manifest.mutable_position()->clear_open();
  ASSERT_TRUE(WriteManifest(fs_, kFolder, manifest).ok());
  EXPECT_EQ(ReadManifest(fs_, kFolder)->format_version(), 3u) << "it has sightings";
  manifest.clear_sightings();
  ASSERT_TRUE(WriteManifest(fs_, kFolder, manifest).ok());
  std::string body = fs_.Content(kManifest);
  body.resize(body.rfind(",\n \"checksum\""));
  const std::string version = "\"format_version\": 2";
  body.replace(body.find(version), version.size(), "\"format_version\": 1");
  fs_.SetContent(kManifest,
                 body + ",\n \"checksum\": \"" + ChecksumText(Checksum64Of(body)) + "\"\n}\n");
  const auto read = ReadManifest(fs_, kFolder);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->step(), manifest.step());
}

TEST_F(Manifest, IsThereEntirelyOrNotAtAllWhateverFails) {
  const auto crash_after = [&](absl::Status written) {
    fs_.Repair();
    fs_.Crash();
    const absl::StatusCode code = ReadManifest(fs_, kFolder).status().code();
    if (written.ok()) {
      EXPECT_EQ(code, absl::StatusCode::kOk) << "it was said to be durable";
    } else {
      EXPECT_TRUE(code == absl::StatusCode::kOk || code == absl::StatusCode::kNotFound);
    }
    MakeFolder();  // whose name may be gone, too
    fs_.Remove(kManifest).IgnoreError();
    fs_.SyncFolder(kFolder).IgnoreError();
    return written.code();
  };
  for (uint64_t syncs = 0; syncs < 4; ++syncs) {
    fs_.FailSyncsAfter(syncs);
    EXPECT_EQ(crash_after(WriteManifest(fs_, kFolder, FullManifest())),
              absl::StatusCode::kUnavailable)
        << syncs;
  }
  fs_.FailRenamesAfter(0);
  EXPECT_EQ(crash_after(WriteManifest(fs_, kFolder, FullManifest())),
            absl::StatusCode::kUnavailable);
  fs_.SetCapacity(100);
  EXPECT_EQ(crash_after(WriteManifest(fs_, kFolder, FullManifest())),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(crash_after(WriteManifest(fs_, kFolder, FullManifest())), absl::StatusCode::kOk);
}

TEST(VerifyCheckpoint, FindsAMissingShortenedOrChangedFileAndNamesIt) {
  FaultFileSystem fs;
  ASSERT_TRUE(WriteTestCheckpoint(fs, kFolder, SmallModel(), 4, 2).ok());
  ASSERT_TRUE(VerifyCheckpoint(fs, kFolder).ok());
  const std::string path = std::string(kFolder) + "/rows-1";
  const std::string good = fs.Content(path);
  const auto message = [&] {
    const absl::Status status = VerifyCheckpoint(fs, kFolder).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    return std::string(status.message());
  };
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 4);
    fs.SetContent(path, bad);
    ASSERT_THAT(message(), HasSubstr("checksum")) << i;
  }
  fs.SetContent(path, good.substr(1));
  EXPECT_THAT(message(), HasSubstr("bytes"));
  // Sound in itself, but of another checkpoint.
  fs.SetContent(path, fs.Content(std::string(kFolder) + "/rows-0"));
  message();
  ASSERT_TRUE(fs.Remove(path).ok());
  EXPECT_THAT(message(), HasSubstr("missing"));
}

TEST(VerifyCheckpoint, EndsSoonWhenItIsToldTo) {
  FaultFileSystem fs;
  ASSERT_TRUE(WriteTestCheckpoint(fs, kFolder, SmallModel(), 4, 2).ok());
  int asked = 0;
  const auto stop_at_second = [&asked] {
    return ++asked == 2 ? absl::CancelledError("enough") : absl::OkStatus();
  };
  EXPECT_EQ(VerifyCheckpoint(fs, kFolder, stop_at_second).status(), absl::CancelledError("enough"));
  EXPECT_EQ(asked, 2);
}

TEST(VerifyCheckpoint, ReadsNoFileOutsideTheFolder) {
  FaultFileSystem fs;
  ASSERT_TRUE(fs.CreateFolder(kFolder).ok());
  fs.SetContent("job/secret", "");
  for (const char* name : {"../secret", "/etc/passwd", "", ".."}) {
    v1::CheckpointManifest manifest;
    manifest.add_files()->set_name(name);
    ASSERT_TRUE(WriteManifest(fs, kFolder, manifest).ok());
    EXPECT_EQ(VerifyCheckpoint(fs, kFolder).status().code(), absl::StatusCode::kDataLoss) << name;
  }
}

TEST(ListCheckpoints, NamesThoseWithAManifestNewestFirst) {
  FaultFileSystem fs;
  EXPECT_THAT(*ListCheckpoints(fs, "job"), testing::IsEmpty());
  for (uint64_t step : {uint64_t{9}, uint64_t{100}, uint64_t{1000000000000}, uint64_t{20}}) {
    const std::string folder = "job/" + CheckpointFolderName(step);
    ASSERT_TRUE(fs.CreateFolder(folder).ok());
    ASSERT_TRUE(WriteManifest(fs, folder, {}).ok());
  }
  const std::string again = "job/" + CheckpointFolderName(20, 2);
  EXPECT_EQ(again, "job/step-000000000020-2");
  ASSERT_TRUE(fs.CreateFolder(again).ok());
  ASSERT_TRUE(WriteManifest(fs, again, {}).ok());
  for (const char* other : {"step-000000000020-1", "step-000000000020-02", "step-000000000020-2-3",
                            "step-000000000020-", "step--2"}) {
    EXPECT_FALSE(ParseCheckpointFolder(other).has_value()) << other;
  }
  ASSERT_TRUE(fs.CreateFolder("job/step-000000000500").ok());  // not committed
  ASSERT_TRUE(fs.CreateFolder("job/step-7").ok());             // not ours
  fs.SetContent("job/step-7/MANIFEST.json", "{}");
  fs.SetContent("job/notes.txt", "");
  const auto list = ListCheckpoints(fs, "job");
  ASSERT_TRUE(list.ok());
  std::vector<uint64_t> steps;
  for (const CheckpointName& checkpoint : *list) {
    steps.push_back(checkpoint.step);
    EXPECT_EQ(checkpoint.name, CheckpointFolderName(checkpoint.step, checkpoint.number));
  }
  EXPECT_THAT(steps, testing::ElementsAre(1000000000000, 100, 20, 20, 9));
  EXPECT_EQ((*list)[2].number, 2u);
}

}  // namespace
}  // namespace tessera
