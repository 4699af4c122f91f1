// How a checkpoint is read again: which parts of it each ps reads.
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "ps/jobs/job_checkpoint.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

using absl::StatusCode;

constexpr uint32_t kPartitions = 64;

class RestoreTest : public testing::Test {
 protected:
  static v1::OpenJobRequest TestJob(uint32_t partitions) {
    return Job({AdamTable("adam", 6, v1::ASYNC), SgdTable("linear", 1, v1::ASYNC)}, 1, partitions);
  }
  static v1::OpenJobRequest From(const std::string& folder, uint32_t partitions) {
    v1::OpenJobRequest job = TestJob(partitions);
    job.set_checkpoint(folder);
    return job;
  }
  static std::vector<Block> Gradients(uint64_t seed, size_t keys) {
    std::mt19937_64 random(seed);
    Block adam = {.table = 0, .keys = {}, .values = std::vector<float>(6 * keys, 0.5f)};
    for (size_t i = 0; i < keys; ++i) adam.keys.push_back(random());
    return {adam, {.table = 1, .keys = adam.keys, .values = std::vector<float>(keys, 0.5f)}};
  }

  // A checkpoint of one ps that has rows in every partition of both tables; returns them.
  SavedRows Save(const std::string& folder) {
    ShardedJob job(TestJob(kPartitions), 1, disk_, clock_);
    job.Push(0, 0, Gradients(1, 4000));
    EXPECT_OK(job.Checkpoint(1, folder));
    return job.Rows(1);
  }
  // The offsets of the blocks of a checkpoint's only file.
  std::vector<uint64_t> Blocks(const std::string& folder) {
    const std::string name = ReadManifest(disk_, "root/" + folder)->files(0).name();
    auto file = RowFileReader::Open(disk_, absl::StrCat("root/", folder, "/", name));
    EXPECT_OK(file.status());
    std::vector<uint64_t> offsets;
    for (const row_file::IndexEntry& entry : (*file)->blocks()) offsets.push_back(entry.offset);
    EXPECT_EQ(offsets.size(), 2 * kPartitions);
    return offsets;
  }

  HandClock clock_;
  FaultFileSystem disk_;
};

TEST_F(RestoreTest, EachPsReadsOnlyBlocksThatMayHaveItsRows) {
  const SavedRows saved = Save("step-1");
  const std::vector<uint64_t> blocks = Blocks("step-1");
  // `ps` that restore with `partitions`, dealt out in turn, and how many of them a block concerns.
  struct Case {
    uint32_t partitions, ps, least, most;
  };
  for (const Case& c : {Case{64, 1, 1, 1}, Case{64, 3, 1, 1}, Case{16, 4, 1, 1}, Case{1, 1, 1, 1},
                        Case{128, 8, 2, 2}, Case{24, 3, 1, 2}, Case{1000, 4, 4, 4}}) {
    SCOPED_TRACE(absl::StrCat(c.partitions, " partitions, ", c.ps, " ps"));
    absl::Mutex mu;
    std::map<uint64_t, uint32_t> reads;  // by offset
    WatchedFiles files(disk_);
    files.on_read = [&](const std::string&, uint64_t offset) {
      absl::MutexLock lock(&mu);
      ++reads[offset];
    };
    ShardedJob job(From("step-1", c.partitions), c.ps, files, clock_);
    ASSERT_OK(job.status());
    files.on_read = [](const std::string&, uint64_t) {};
    for (const uint64_t offset : blocks) {
      EXPECT_GE(reads[offset], c.least);
      EXPECT_LE(reads[offset], c.most);
    }
    EXPECT_EQ(job.Rows(1), saved);
  }
}

TEST_F(RestoreTest, RefusesAManifestWithTwoTablesOfOneName) {
  Save("step-1");
  v1::CheckpointManifest manifest = *ReadManifest(disk_, "root/step-1");
  manifest.mutable_tables(1)->mutable_spec()->set_name("adam");
  ASSERT_OK(WriteManifest(disk_, "root/step-1", manifest));
  EXPECT_FAILS(ShardedJob(From("step-1", kPartitions), 1, disk_, clock_).status(),
               StatusCode::kDataLoss, "two tables of its manifest are called adam");
}

}  // namespace
}  // namespace tessera::ps
