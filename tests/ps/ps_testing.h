#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/row_file_reader.h"
#include "common/clock.h"
#include "common/math/bfloat16.h"
#include "common/partition.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/calls/call_frames.h"
#include "ps/jobs/job_shard.h"
#include "tests/common/fault_file_system.h"
#include "tests/ps/watched_files.h"

// The words that the tests of ps/ share.
namespace tessera::ps {

MATCHER_P2(FailsWith, code, text,
           absl::StrCat("fails with code ", int(code), " and '", text, "'")) {
  const absl::Status status(arg);
  *result_listener << status;
  return status.code() == code && std::string(status.message()).find(text) != std::string::npos;
}
inline absl::Status AsStatus(const absl::Status& status) { return status; }
template <typename T>
absl::Status AsStatus(const absl::StatusOr<T>& status) {
  return status.status();
}
#define EXPECT_FAILS(expression, code, text) \
  EXPECT_THAT(::tessera::ps::AsStatus(expression), ::tessera::ps::FailsWith(code, text))
#define ASSERT_OK(expression)                                           \
  do {                                                                  \
    const absl::Status ok_status = ::tessera::ps::AsStatus(expression); \
    ASSERT_TRUE(ok_status.ok()) << ok_status;                           \
  } while (false)
#define EXPECT_OK(expression)                                           \
  do {                                                                  \
    const absl::Status ok_status = ::tessera::ps::AsStatus(expression); \
    EXPECT_TRUE(ok_status.ok()) << ok_status;                           \
  } while (false)

// All numbers of a row whose embedding is of float32.
inline absl::Span<float> FloatsOf(const RowLayout& layout, Row* row) {
  return {layout.Embedding(row), layout.floats()};
}
inline absl::Span<const float> FloatsOf(const RowLayout& layout, const Row* row) {
  return {layout.Embedding(row), layout.floats()};
}

// Moved by hand.
class HandClock final : public Clock {
 public:
  absl::Duration Monotonic() const override { return absl::Milliseconds(now_ms_.load()); }
  absl::Time Wall() const override { return absl::UnixEpoch() + Monotonic(); }
  void Advance(absl::Duration by) { now_ms_ += absl::ToInt64Milliseconds(by); }

 private:
  std::atomic<int64_t> now_ms_ = 1000000;
};

// How many of `keys` had a row, which is gone now.
inline uint64_t EraseKeys(RowStore& store, uint32_t partition_count,
                          const std::vector<uint64_t>& keys) {
  uint64_t erased = 0;
  for (const uint64_t key : keys) {
    erased += store.EraseIf(PartitionOf(key, partition_count),
                            [key](const Row& row) { return row.key == key; });
  }
  return erased;
}

inline v1::PsTable SgdTable(const std::string& name, uint32_t dim, v1::Consistency consistency,
                            float rate = 1) {
  v1::PsTable table;
  table.mutable_spec()->set_name(name);
  table.mutable_spec()->set_dim(dim);
  table.mutable_spec()->mutable_initializer()->mutable_constant();
  table.mutable_spec()->mutable_optimizer()->set_learning_rate(rate);
  table.mutable_spec()->mutable_optimizer()->mutable_sgd();
  table.set_consistency(consistency);
  return table;
}

inline v1::PsTable AdamTable(const std::string& name, uint32_t dim, v1::Consistency consistency) {
  v1::PsTable table = SgdTable(name, dim, consistency, 0.01f);
  table.mutable_spec()->mutable_optimizer()->mutable_adam();
  table.mutable_spec()->mutable_optimizer()->set_l2(0.001f);
  table.mutable_spec()->mutable_initializer()->mutable_normal()->set_stddev(0.1f);
  return table;
}

inline v1::PsTable DenseTable(const std::string& name, uint32_t dim, v1::Consistency consistency) {
  v1::PsTable table = SgdTable(name, dim, consistency, 0.1f);
  table.set_dense(true);
  return table;
}

inline v1::OpenJobRequest Job(std::vector<v1::PsTable> tables, uint32_t workers = 1,
                              uint32_t partitions = 64) {
  v1::OpenJobRequest job;
  job.set_job_id("job-1");
  job.set_generation(1);
  job.set_seed(42);
  job.set_workers(workers);
  job.set_map_version(1);
  job.set_partition_count(partitions);
  for (v1::PsTable& table : tables) *job.add_tables() = std::move(table);
  return job;
}
// All partitions on one ps.
inline v1::OpenJobRequest Whole(v1::OpenJobRequest job) {
  for (uint32_t p = 0; p < job.partition_count(); ++p) job.add_partitions(p);
  return job;
}

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}
template <typename T>
std::vector<T> Values(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

// Keys of one table and what comes with them, [keys, dim].
struct Block {
  uint32_t table = 0;
  std::vector<uint64_t> keys;
  std::vector<float> values;
  v1::FloatType wire_type = v1::FLOAT32;  // the table's
};

// As they cross the wire.
inline std::string WireBytes(const std::vector<float>& values, v1::FloatType type) {
  if (type != v1::BFLOAT16) return Bytes(values);
  std::vector<uint16_t> halves(values.size());
  math::RoundToBfloat16(values.data(), values.size(), halves.data());
  return Bytes(halves);
}
inline std::vector<float> WireValues(const std::string& bytes, v1::FloatType type) {
  if (type != v1::BFLOAT16) return Values<float>(bytes);
  const std::vector<uint16_t> halves = Values<uint16_t>(bytes);
  std::vector<float> values(halves.size());
  math::WidenBfloat16(halves.data(), halves.size(), values.data());
  return values;
}

inline v1::CallHeader Header(uint32_t rank, uint64_t incarnation = 1) {
  v1::CallHeader header;
  header.set_job_id("job-1");
  header.set_generation(1);
  header.set_rank(rank);
  header.set_incarnation(incarnation);
  header.set_map_version(1);
  return header;
}
inline v1::GradientBlock ToGradients(const Block& block) {
  v1::GradientBlock out;
  out.set_table(block.table);
  out.set_keys(Bytes(block.keys));
  out.set_gradients(WireBytes(block.values, block.wire_type));
  return out;
}
inline v1::PushRequest PushOf(uint32_t rank, uint64_t sequence, const std::vector<Block>& blocks) {
  v1::PushRequest request;
  *request.mutable_header() = Header(rank);
  request.set_sequence(sequence);
  request.set_learning_rate_scale(1);
  for (const Block& block : blocks) *request.add_tables() = ToGradients(block);
  return request;
}
inline v1::AssignRequest AssignOf(const std::vector<Block>& blocks) {
  v1::AssignRequest request;
  *request.mutable_header() = Header(0);
  for (const Block& block : blocks) *request.add_tables() = ToGradients(block);
  return request;
}
inline v1::PullRequest PullOf(uint32_t rank, uint64_t step,
                              const std::vector<std::pair<uint32_t, std::vector<uint64_t>>>& keys,
                              bool read_only = false) {
  v1::PullRequest request;
  *request.mutable_header() = Header(rank);
  request.set_step(step);
  request.set_read_only(read_only);
  for (const auto& [table, of_table] : keys) {
    v1::KeyBlock& block = *request.add_tables();
    block.set_table(table);
    block.set_keys(Bytes(of_table));
  }
  return request;
}

// Calls as they come from the network: really serialised, by protobuf itself.
inline grpc::ByteBuffer Serialized(const google::protobuf::MessageLite& message) {
  const std::string bytes = message.SerializeAsString();
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}
inline PushCall CallOf(const v1::PushRequest& request) { return *ReadPush(Serialized(request)); }
inline PullCall CallOf(const v1::PullRequest& request) { return *ReadPull(Serialized(request)); }
// And an answer as protobuf reads it.
inline v1::PullResponse ResponseOf(PullAnswer answer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(WriteAnswer(std::move(answer)).Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) bytes.append(slice.begin(), slice.end());
  v1::PullResponse response;
  EXPECT_TRUE(response.ParseFromString(bytes));
  return response;
}
// Statuses of the `keys` keys of a block.
inline std::vector<uint8_t> StatusesOf(const v1::RowBlock& block, size_t keys) {
  std::vector<uint8_t> statuses(keys, v1::ROW_HIT);
  for (const v1::StatusBits& bits : block.statuses()) {
    EXPECT_EQ(bits.keys().size(), (keys + 7) / 8);
    for (size_t i = 0; i < keys; ++i) {
      if ((bits.keys()[i / 8] >> (i % 8) & 1) != 0) statuses[i] = bits.status();
    }
  }
  return statuses;
}

// A pull that may wait. Lives until it is answered.
class PendingPull {
 public:
  PendingPull(JobShard& shard, const v1::PullRequest& request,
              absl::Duration deadline = absl::InfiniteDuration())
      : keys_(request.tables_size() == 0 ? 0 : request.tables(0).keys().size() / 8) {
    shard.Pull(CallOf(request), deadline, [this](absl::StatusOr<PullAnswer> answer) {
      status_ = answer.status();
      if (answer.ok()) response_ = ResponseOf(*std::move(answer));
      answered_ = true;
    });
  }
  PendingPull(const PendingPull&) = delete;
  PendingPull& operator=(const PendingPull&) = delete;

  bool answered() const { return answered_; }
  const absl::Status& status() const { return status_; }
  const v1::PullResponse& response() const { return response_; }
  std::vector<float> values(int block = 0, v1::FloatType wire_type = v1::FLOAT32) const {
    return WireValues(response_.tables(block).values(), wire_type);
  }
  // Of the first block.
  std::vector<uint8_t> statuses() const { return StatusesOf(response_.tables(0), keys_); }
  std::string status_bytes() const { return Bytes(statuses()); }

 private:
  const size_t keys_;
  v1::PullResponse response_;
  absl::Status status_ = absl::UnknownError("not answered");
  std::atomic<bool> answered_ = false;
};

// What a worker says when every ps of the job has acknowledged its pushes of the steps below.
inline absl::StatusOr<uint64_t> Confirm(JobShard& shard, uint32_t rank, uint64_t step,
                                        uint64_t incarnation = 1) {
  v1::ProgressRequest request;
  *request.mutable_header() = Header(rank, incarnation);
  request.set_confirmed(step);
  const auto progress = shard.GetProgress(request);
  if (!progress.ok()) return progress.status();
  return progress->next_push();
}
// A push to the only ps of a job, and that it has been acknowledged.
inline absl::Status PushAll(JobShard& shard, const v1::PushRequest& request) {
  const absl::Status pushed = shard.Push(CallOf(request));
  if (!pushed.ok()) return pushed;
  return Confirm(shard, request.header().rank(), request.sequence() + 1).status();
}

// A row as a checkpoint has it.
struct SavedRow {
  uint64_t last_step = 0;
  uint32_t frequency = 0;
  std::vector<float> floats;  // embedding, then slots
  bool operator==(const SavedRow&) const = default;
};
using SavedRows = std::map<std::pair<uint32_t, uint64_t>, SavedRow>;  // by table and key

inline std::ostream& operator<<(std::ostream& out, const SavedRow& row) {
  return out << "step " << row.last_step << ", frequency " << row.frequency << ", "
             << testing::PrintToString(row.floats);
}

inline SavedRows ReadRows(FileSystem& files, const std::string& path) {
  SavedRows rows;
  auto reader = RowFileReader::Open(files, path);
  EXPECT_TRUE(reader.ok()) << reader.status();
  if (!reader.ok()) return rows;
  for (const row_file::IndexEntry& entry : (*reader)->blocks()) {
    auto block = (*reader)->Read(entry);
    EXPECT_TRUE(block.ok()) << block.status();
    if (!block.ok()) continue;
    for (uint64_t i = 0; i < block->rows(); ++i) {
      const absl::Span<const float> floats = block->values(i);
      rows[{entry.table, block->key(i)}] = {.last_step = block->last_step(i),
                                            .frequency = block->frequency(i),
                                            .floats = {floats.begin(), floats.end()}};
    }
  }
  return rows;
}

// What a ps has written, to the manifest that names it.
inline void AddFiles(const v1::WriteCheckpointResponse& written, v1::CheckpointManifest& manifest) {
  for (const v1::CheckpointFile& file : written.files()) *manifest.add_files() = file;
  if (written.has_sightings()) *manifest.add_sightings() = written.sightings();
}

// Of all tables of a checkpoint with its manifest, all layers laid over one another.
inline SavedRows CheckpointRows(FileSystem& files, const std::string& folder) {
  SavedRows rows;
  auto manifest = ReadManifest(files, folder);
  EXPECT_TRUE(manifest.ok()) << manifest.status();
  if (!manifest.ok()) return rows;
  const auto reader = CheckpointReader::Open(files, folder, *std::move(manifest));
  EXPECT_TRUE(reader.ok()) << reader.status();
  if (!reader.ok()) return rows;
  for (int t = 0; t < (*reader)->manifest().tables_size(); ++t) {
    for (uint32_t p = 0; p < (*reader)->partition_count(); ++p) {
      const auto part = (*reader)->Read(TableIndex(t), PartitionId(p));
      EXPECT_TRUE(part.ok()) << part.status();
      for (uint64_t i = 0; part.ok() && i < part->rows(); ++i) {
        const absl::Span<const float> floats = part->values(i);
        rows[{t, part->key(i)}] = {.last_step = part->last_step(i),
                                   .frequency = part->frequency(i),
                                   .floats = {floats.begin(), floats.end()}};
      }
    }
  }
  return rows;
}

// One job spread over several ps, as the master and the workers use it.
class ShardedJob {
 public:
  // `spill`: of all ps; null: all rows are in memory.
  ShardedJob(const v1::OpenJobRequest& job, uint32_t ps, FileSystem& files, const Clock& clock,
             Spill* spill = nullptr)
      : job_(job), files_(files) {
    for (uint32_t i = 0; i < ps; ++i) {
      v1::OpenJobRequest part = job;
      for (uint32_t p = i; p < job.partition_count(); p += ps) part.add_partitions(p);
      JobShard::Options options;
      options.clock = &clock;
      options.files = &files;
      options.checkpoint_root = "root";
      options.spill = spill;
      auto shard = JobShard::Open(part, options);
      status_.Update(shard.status());
      if (shard.ok()) shards_.push_back(*std::move(shard));
    }
  }

  const absl::Status& status() const { return status_; }
  size_t size() const { return shards_.size(); }
  JobShard& shard(size_t i) { return *shards_[i]; }
  size_t OwnerOf(uint64_t key) const {
    return PartitionOf(key, job_.partition_count()).value() % shards_.size();
  }

  // The part of `blocks` that goes to one ps.
  std::vector<Block> PartFor(size_t ps, const std::vector<Block>& blocks) const {
    std::vector<Block> part;
    for (const Block& block : blocks) {
      const size_t dim = job_.tables(block.table).spec().dim();
      Block& out = part.emplace_back();
      out.table = block.table;
      out.wire_type = block.wire_type;
      for (size_t i = 0; i < block.keys.size(); ++i) {
        if (OwnerOf(block.keys[i]) != ps) continue;
        out.keys.push_back(block.keys[i]);
        out.values.insert(out.values.end(), block.values.begin() + i * dim,
                          block.values.begin() + (i + 1) * dim);
      }
    }
    return part;
  }
  void Push(uint32_t rank, uint64_t sequence, const std::vector<Block>& blocks) {
    for (size_t i = 0; i < size(); ++i) {
      EXPECT_OK(shard(i).Push(CallOf(PushOf(rank, sequence, PartFor(i, blocks)))));
    }
    ConfirmAt(rank, sequence + 1);
  }
  // The rank's pushes below are on all ps.
  void ConfirmAt(uint32_t rank, uint64_t sequence) {
    for (size_t i = 0; i < size(); ++i) EXPECT_OK(Confirm(shard(i), rank, sequence));
  }
  void Assign(const std::vector<Block>& blocks) {
    for (size_t i = 0; i < size(); ++i) EXPECT_OK(shard(i).Assign(AssignOf(PartFor(i, blocks))));
  }

  // Writes a checkpoint, manifest included. `base`: the one before, of this job.
  absl::Status Checkpoint(uint64_t step, const std::string& folder, const std::string& base = "") {
    v1::CheckpointManifest manifest;
    manifest.set_job_id(job_.job_id());
    manifest.set_step(step);
    manifest.set_partition_count(job_.partition_count());
    for (int t = 0; t < job_.tables_size(); ++t) {
      v1::CheckpointTable& table = *manifest.add_tables();
      *table.mutable_spec() = job_.tables(t).spec();
      table.set_dense(job_.tables(t).dense());
    }
    for (uint32_t i = 0; i < size(); ++i) {
      v1::WriteCheckpointRequest request;
      request.set_step(step);
      request.set_folder(folder);
      request.set_part(i);
      request.set_parts(size());
      request.set_base(base);
      const auto written = shards_[i]->WriteCheckpoint(request, absl::InfiniteDuration());
      if (!written.ok()) return written.status();
      AddFiles(*written, manifest);
      for (int t = 0; t < manifest.tables_size(); ++t) {
        v1::CheckpointTable& table = *manifest.mutable_tables(t);
        table.set_rows(table.rows() + written->rows(t));
        table.set_slot_floats(written->slot_floats(t));
      }
    }
    return WriteManifest(files_, "root/" + folder, manifest);
  }
  // Every row and slot of all ps.
  SavedRows Rows(uint64_t step) {
    EXPECT_OK(Checkpoint(step, "look"));
    SavedRows rows = CheckpointRows(files_, "root/look");
    EXPECT_OK(files_.Remove("root/look"));
    return rows;
  }

 private:
  const v1::OpenJobRequest job_;
  FileSystem& files_;
  absl::Status status_;
  std::vector<std::shared_ptr<JobShard>> shards_;
};

}  // namespace tessera::ps
