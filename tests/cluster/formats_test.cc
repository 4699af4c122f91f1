// Checkpoints that builds before this one have written.
#include <filesystem>
#include <string>

#include "common/checkpoint/manifest.h"
#include "tests/cluster/training_testing.h"

namespace tessera {
namespace {

class FormatsTest : public TrainingTest {
 protected:
  // That of tests/golden/checkpoints, of the version, cut within an epoch: the job that goes on
  // from it ends with the bits of one that went through.
  void GoOnFrom(uint32_t version) {
    const std::string name = absl::StrCat("format-", version);
    const std::string golden = SourcePath("tests/golden/checkpoints");
    const std::string root = PathOf("checkpoints");
    std::filesystem::create_directories(root);
    std::filesystem::copy(golden + "/" + name, root + "/" + name);
    const auto manifest = VerifyCheckpoint(PosixFileSystem(), root + "/" + name);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    ASSERT_EQ(manifest->format_version(), version);
    v1::JobSpec spec = manifest->spec();
    const std::string through = Digest(Run("through", spec, {.data_root = golden}));
    spec.mutable_start()->set_checkpoint(name);
    const v1::JobStatus status =
        Run("goes-on", spec, {.data_root = golden, .checkpoint_root = root});
    EXPECT_EQ(Digest(status), through);
    EXPECT_EQ(status.samples(), 128u * spec.train().epochs());
  }
};

TEST_F(FormatsTest, AJobGoesOnFromACheckpointWithSightings) { GoOnFrom(3); }

TEST_F(FormatsTest, AJobGoesOnFromACheckpointWithWindowsThatAreOpenInParts) { GoOnFrom(4); }

}  // namespace
}  // namespace tessera
