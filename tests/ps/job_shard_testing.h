#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "ps/jobs/job_shard.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {

// One shard, of a job that each test opens.
class JobShardTest : public testing::Test {
 protected:
  void Open(v1::OpenJobRequest job) {
    auto shard = TryOpen(std::move(job));
    ASSERT_OK(shard);
    shard_ = *std::move(shard);
  }
  absl::StatusOr<std::shared_ptr<JobShard>> TryOpen(v1::OpenJobRequest job) {
    return JobShard::Open(Whole(std::move(job)),
                          {.clock = &clock_, .files = &files_, .checkpoint_root = "root"});
  }
  absl::Status Push(uint32_t rank, uint64_t sequence, const std::vector<Block>& blocks) {
    return PushAll(*shard_, PushOf(rank, sequence, blocks));
  }
  // Rows as they are, changing nothing.
  std::vector<float> Look(uint32_t table, const std::vector<uint64_t>& keys) {
    PendingPull pull(*shard_, PullOf(/*no worker*/ 1000, 0, {{table, keys}}, /*read_only=*/true));
    EXPECT_OK(pull.status());
    return pull.status().ok() ? pull.values() : std::vector<float>();
  }

  HandClock clock_;
  FaultFileSystem files_;
  std::shared_ptr<JobShard> shard_;
};

}  // namespace tessera::ps
