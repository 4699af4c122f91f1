#pragma once

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/ps/ps_testing.h"

// Jobs with push logs, for tests of what comes back from them.
namespace tessera::ps {

inline Block Random(uint32_t table, uint32_t dim, uint64_t seed, uint64_t range,
                    bool whole_numbers) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Block block = {.table = table, .keys = {}, .values = {}};
  for (uint64_t key = 0; key < range; ++key) {
    if (random() % 4 == 0) block.keys.push_back(key << 40 | key);
  }
  for (size_t i = 0; i < block.keys.size() * dim; ++i) {
    block.values.push_back(whole_numbers ? float(random() % 5) : normal(random));
  }
  return block;
}

class RecoveryHarness {
 protected:
  using Request = v1::WriteCheckpointRequest;
  static constexpr uint32_t kRanks = 3;

  static v1::OpenJobRequest Logged(v1::OpenJobRequest job,
                                   v1::RecoverySpec::PushLog log = v1::RecoverySpec::ASYNC) {
    job.set_push_log(log);
    return Whole(std::move(job));
  }
  static v1::OpenJobRequest AsyncJob() {
    return Logged(Job({SgdTable("a", 3, v1::ASYNC), SgdTable("b", 1, v1::ASYNC)}, kRanks));
  }
  // Something of everything whose bits may depend on what was there when.
  static v1::OpenJobRequest SyncJob() {
    v1::PsTable every_row = AdamTable("every_row", 2, v1::SYNC);
    every_row.mutable_spec()->set_update(v1::EVERY_ROW);
    v1::PsTable expiring = AdamTable("expiring", 1, v1::SYNC);
    expiring.mutable_spec()->mutable_expiry()->set_after_steps(2);
    v1::PsTable mixed = SgdTable("async", 1, v1::ASYNC);
    v1::PsTable waiting = AdamTable("waiting", 1, v1::SYNC);
    waiting.mutable_spec()->mutable_admission()->set_after_sightings(4);
    waiting.mutable_spec()->set_wire_type(v1::BFLOAT16);
    return Logged(Job({AdamTable("adam", 4, v1::SYNC), every_row, expiring, mixed,
                       DenseTable("dense", 3, v1::SYNC), waiting},
                      kRanks));
  }
  absl::StatusOr<std::shared_ptr<JobShard>> Open(
      const v1::OpenJobRequest& job, FileSystem& files,
      absl::FunctionRef<void(JobShard::Options&)> change = [](JobShard::Options&) {}) {
    JobShard::Options options;
    options.clock = &clock_;
    options.files = &files;
    options.checkpoint_root = "root";
    options.log_root = "logs";
    change(options);
    return JobShard::Open(job, options);
  }
  absl::StatusOr<std::shared_ptr<JobShard>> Recover(v1::OpenJobRequest job,
                                                    const std::string& checkpoint = "",
                                                    uint64_t step = 0) {
    job.set_recover(true);
    job.set_ps_process(job.ps_process() + 1);
    job.set_checkpoint(checkpoint);
    job.set_first_step(step);
    return Open(job, files_);
  }
  static PushCall AsyncPush(uint32_t rank, uint64_t sequence) {
    const uint64_t seed = 1000 * rank + sequence;
    return CallOf(
        PushOf(rank, sequence, {Random(0, 3, seed, 100, true), Random(1, 1, ~seed, 50, true)}));
  }
  static PushCall SyncPush(uint32_t rank, uint64_t step) {
    const uint64_t seed = 1000 * rank + step;
    std::vector<Block> blocks;
    const uint32_t dims[] = {4, 2, 1, 1};
    for (uint32_t t = 0; t < 4; ++t) {
      blocks.push_back(Random(t, dims[t], 4 * seed + t, 60, t == 3));
    }
    blocks.push_back(
        {.table = 4, .keys = {0, 1}, .values = {1, float(step), 2, 3, float(rank), 4}});
    blocks.push_back(Random(5, 1, ~seed, 60, false));
    blocks.back().wire_type = v1::BFLOAT16;
    return CallOf(PushOf(rank, step, blocks));
  }
  // A whole step of all ranks, pulls included.
  static void SyncStep(JobShard& shard, uint64_t step) {
    SyncPulls(shard, step);
    for (uint32_t rank = 0; rank < kRanks; ++rank) EXPECT_OK(shard.Push(SyncPush(rank, step)));
  }
  // Of all ranks, which confirm by them what they pushed before.
  static void SyncPulls(JobShard& shard, uint64_t step) {
    std::vector<std::unique_ptr<PendingPull>> pulls;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const PushCall push = SyncPush(rank, step);
      std::vector<std::pair<uint32_t, std::vector<uint64_t>>> keys;
      for (const uint32_t t : {0, 1, 2, 3, 5}) {
        const auto* data = reinterpret_cast<const uint64_t*>(push.keys[t].data());
        keys.push_back({t, {data, data + push.keys[t].size() / 8}});
      }
      pulls.push_back(std::make_unique<PendingPull>(shard, PullOf(rank, step, keys)));
    }
    for (const auto& pull : pulls) EXPECT_OK(pull->status());
  }
  static v1::AssignRequest Dense() {
    return AssignOf({{.table = 4, .keys = {0, 1}, .values = {1, 2, 3, 4, 5, 6}}});
  }
  absl::StatusOr<v1::WriteCheckpointResponse> Call(JobShard& shard, Request::Phase phase,
                                                   const std::string& folder, uint64_t step) {
    Request request;
    request.set_phase(phase);
    request.set_folder(folder);
    request.set_step(step);
    request.set_parts(1);
    return shard.WriteCheckpoint(request, clock_.Monotonic());
  }
  // A committed one.
  void Checkpoint(JobShard& shard, const v1::OpenJobRequest& job, const std::string& folder,
                  uint64_t step) {
    ASSERT_OK(Call(shard, Request::CUT, folder, step));
    const auto written = Call(shard, Request::WRITE, folder, step);
    ASSERT_OK(written);
    v1::CheckpointManifest manifest;
    manifest.set_job_id(job.job_id());
    manifest.set_step(step);
    manifest.set_partition_count(job.partition_count());
    for (int t = 0; t < job.tables_size(); ++t) {
      v1::CheckpointTable& table = *manifest.add_tables();
      *table.mutable_spec() = job.tables(t).spec();
      table.set_dense(job.tables(t).dense());
      table.set_slot_floats(written->slot_floats(t));
    }
    AddFiles(*written, manifest);
    ASSERT_OK(WriteManifest(files_, "root/" + folder, manifest));
  }
  SavedRows Rows(JobShard& shard, FileSystem& files, uint64_t step) {
    const auto written = Call(shard, Request::CUT_AND_WRITE, "look", step);
    EXPECT_OK(written);
    SavedRows rows;
    for (int f = 0; written.ok() && f < written->files_size(); ++f) {
      rows.merge(ReadRows(files, "root/look/" + written->files(f).name()));
    }
    EXPECT_OK(files.Remove("root/look"));
    return rows;
  }
  SavedRows AsyncTwin(uint64_t pushes) {
    FaultFileSystem files;
    const auto shard = Open(AsyncJob(), files);
    EXPECT_OK(shard);
    for (uint64_t s = 0; s < pushes; ++s) {
      for (uint32_t rank = 0; rank < kRanks; ++rank) EXPECT_OK((*shard)->Push(AsyncPush(rank, s)));
    }
    return Rows(**shard, files, 0);
  }

  HandClock clock_;
  FaultFileSystem files_;
};

}  // namespace tessera::ps
