#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "common/checkpoint/checksum.h"
#include "ps/jobs/jobs.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {

inline constexpr uint32_t kMovePartitions = 200;  // stripes have several

// Rows that change their owner.
class PartitionMoveTest : public testing::Test {
 protected:
  PartitionMoveTest()
      : old_({.clock = &clock_, .files = &files_, .checkpoint_root = "root"}),
        other_({.clock = &clock_, .files = &files_, .checkpoint_root = "root"}) {}

  static v1::OpenJobRequest Request(uint64_t generation, const std::vector<uint32_t>& partitions) {
    v1::OpenJobRequest job = Job({AdamTable("t", 3, v1::SYNC)}, 1, kMovePartitions);
    job.set_generation(generation);
    job.set_map_version(1);
    for (const uint32_t p : partitions) job.add_partitions(p);
    return job;
  }
  static v1::OpenJobRequest TakeOver(uint64_t from, const std::vector<uint32_t>& partitions,
                                     uint64_t first_step = 0) {
    v1::OpenJobRequest job = Request(from + 1, partitions);
    job.set_take_over(from);
    job.set_first_step(first_step);
    return job;
  }
  static std::vector<uint32_t> Partitions(uint32_t begin, uint32_t end) {
    std::vector<uint32_t> all;
    for (uint32_t p = begin; p < end; ++p) all.push_back(p);
    return all;
  }
  std::shared_ptr<JobShard> Find(Jobs& jobs, uint64_t generation) {
    auto shard = jobs.Find("job-1", generation);
    EXPECT_OK(shard);
    return shard.ok() ? *shard : nullptr;
  }
  // One step over random keys below `most`.
  void Push(JobShard& shard, uint64_t step, int keys, uint64_t most, std::mt19937_64& random) {
    std::set<uint64_t> distinct;
    for (int i = 0; i < keys; ++i) {
      const uint64_t key = random() % most;
      if (shard.Owns(PartitionOf(key, kMovePartitions).value())) distinct.insert(key);
    }
    Block block = {0, {distinct.begin(), distinct.end()}, {}};
    for (size_t i = 0; i < block.keys.size() * 3; ++i) {
      block.values.push_back(static_cast<float>(random() % 100) / 50 - 1);
    }
    v1::PushRequest push = PushOf(0, step, {block});
    push.mutable_header()->set_generation(shard.request().generation());
    ASSERT_OK(PushAll(shard, push));
  }
  // Records by key, of all partitions.
  static std::map<uint64_t, std::string> Rows(JobShard& shard) {
    std::map<uint64_t, std::string> rows;
    const auto ticket = shard.BeginTake(shard.request().partitions(), /*changed=*/false, 0);
    EXPECT_OK(ticket);
    for (const uint32_t p : shard.request().partitions()) {
      std::string records;
      EXPECT_OK(shard.TakeRows(*ticket, 0, p, /*changed=*/false, records));
      const size_t bytes = 20 + 4 * shard.FloatsOf(0);
      for (size_t at = 0; at < records.size(); at += bytes) {
        uint64_t key;
        std::memcpy(&key, records.data() + at, sizeof(key));
        EXPECT_TRUE(rows.emplace(key, records.substr(at, bytes)).second) << key;
      }
    }
    return rows;
  }
  // What ParameterService's two calls do, without the network.
  absl::Status Copy(JobShard& from, JobShard& to, const std::vector<uint32_t>& partitions,
                    bool changed, uint64_t* rows = nullptr, bool training_stands = false) {
    const auto ticket = from.BeginTake(partitions, changed, 0);
    if (!ticket.ok()) return ticket.status();
    for (const uint32_t p : partitions) {
      v1::RowChunk chunk;
      const absl::Status status = from.TakeRows(*ticket, 0, p, changed, *chunk.mutable_records());
      if (!status.ok()) return status;
      chunk.set_floats_per_row(from.FloatsOf(0));
      chunk.set_checksum(Checksum64Of(chunk.records()));
      auto received = to.Receive(chunk, training_stands);
      if (!received.ok()) return received.status();
      if (rows != nullptr) *rows += *received;
    }
    for (const uint32_t p : partitions) {
      if (!changed || !from.CountsSightings(0)) continue;
      v1::RowChunk chunk;
      chunk.set_sightings_of(p);
      chunk.set_first(true);
      const absl::Status status = from.TakeSightings(*ticket, 0, p, *chunk.mutable_records());
      if (!status.ok()) return status;
      chunk.set_checksum(Checksum64Of(chunk.records()));
      if (const auto received = to.Receive(chunk); !received.ok()) return received.status();
    }
    return absl::OkStatus();
  }

  HandClock clock_;
  FaultFileSystem files_;
  Jobs old_;
  Jobs other_;
};

}  // namespace tessera::ps
