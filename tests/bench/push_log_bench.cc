// What a push log costs the pushes of one ps in this process, and how fast it is read again; what
// they cost with a second ps here that has a copy of the rows.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/partition.h"
#include "ps/jobs/job_shard.h"
#include "tests/bench/bench.h"
#include "tests/bench/zipf.h"

namespace tessera::bench {
namespace {

using ps::JobShard;

constexpr uint32_t kDim = 16;

struct Sizes {
  uint64_t rows = 2'000'000;
  uint32_t batch = 16'384;  // keys drawn; a message's worth of distinct ones
  uint32_t batches = 64;
  int rounds = 9;
  uint32_t replayed = 512;  // pushes
};

void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "push log benchmark: %s\n", std::string(status.message()).c_str());
  std::exit(1);
}

// A ps with one async table, Adagrad.
class Shard {
 public:
  Shard(const std::string& folder, v1::RecoverySpec::PushLog log, bool recover = false)
      : shard_(Open(folder, log, recover, /*follow=*/false)) {}

  void Push(const std::vector<uint64_t>& keys) {
    const size_t key_bytes = keys.size() * sizeof(uint64_t);
    const size_t gradient_bytes = keys.size() * kDim * sizeof(float);
    ps::PushCall call;
    call.request.mutable_header()->set_job_id("bench");
    call.request.mutable_header()->set_generation(1);
    call.request.set_sequence(sequence_++);
    call.request.set_learning_rate_scale(1);
    call.request.add_tables()->set_table(0);
    call.memory = wire::Buffer(key_bytes + gradient_bytes);
    std::memcpy(call.memory.data(), keys.data(), key_bytes);
    auto* const gradients = reinterpret_cast<float*>(call.memory.data() + key_bytes);
    std::fill_n(gradients, keys.size() * kDim, 1e-3f);
    call.keys.push_back({call.memory.data(), key_bytes});
    call.gradients.push_back({call.memory.data() + key_bytes, gradient_bytes});
    call.bytes = call.memory.size();
    Must(shard_->Push(std::move(call)));
  }
  // Returns when a copy has all that was pushed.
  void AwaitCopy() {
    absl::Notification has;
    shard_->AwaitFollower([&](absl::Status status) {
      Must(status);
      has.Notify();
    });
    has.WaitForNotification();
  }
  uint64_t log_bytes() const { return shard_->Stats().log_bytes(); }
  // Begins a segment and gives up those before it.
  void ShortenLog() {
    v1::WriteCheckpointRequest request;
    request.set_parts(1);
    request.set_folder(absl::StrCat("cut-", sequence_));
    for (const auto phase : {v1::WriteCheckpointRequest::CUT, v1::WriteCheckpointRequest::DROP,
                             v1::WriteCheckpointRequest::COMMITTED}) {
      request.set_phase(phase);
      Must(shard_->WriteCheckpoint(request, absl::InfiniteDuration()).status());
    }
  }

 private:
  friend class Copy;
  static std::shared_ptr<JobShard> Open(const std::string& folder, v1::RecoverySpec::PushLog log,
                                        bool recover, bool follow) {
    JobShard::Options options;
    options.clock = &SystemClock();
    options.files = &PosixFileSystem();
    options.checkpoint_root = folder;
    options.log_root = absl::StrCat(folder, "/log-", int{log});
    v1::OpenJobRequest job;
    job.set_job_id("bench");
    job.set_generation(1);
    job.set_workers(1);
    job.set_partition_count(kDefaultPartitions);
    for (uint32_t p = 0; p < kDefaultPartitions; ++p) job.add_partitions(p);
    v1::PsTable& table = *job.add_tables();
    table.mutable_spec()->set_name("bench");
    table.mutable_spec()->set_dim(kDim);
    table.mutable_spec()->mutable_initializer()->mutable_constant();
    table.mutable_spec()->mutable_optimizer()->set_learning_rate(0.01f);
    table.mutable_spec()->mutable_optimizer()->mutable_adagrad();
    table.set_consistency(v1::ASYNC);
    job.set_push_log(log);
    job.set_recover(recover);
    if (follow) {
      job.set_follow("the other one");
      job.set_pair(1);
    }
    auto shard = JobShard::Open(job, options);
    Must(shard.status());
    if (follow) Must((*shard)->OpenLog());
    return *std::move(shard);
  }

  const std::shared_ptr<JobShard> shard_;
  uint64_t sequence_ = 0;
};

// A second ps that follows the first one's push log, in a thread of its own.
class Copy {
 public:
  Copy(Shard* of, const std::string& folder, v1::RecoverySpec::PushLog log)
      : of_(of->shard_), shard_(Shard::Open(folder, log, /*recover=*/false, /*follow=*/true)) {
    Must(of_->SetFollower(1, "ps-1"));
    thread_ = std::thread([this] { Follow(); });
    while (of_->replica() == 0) absl::SleepFor(absl::Milliseconds(1));
  }
  ~Copy() {
    Must(of_->SetFollower(2, /*follower=*/""));
    thread_.join();
  }

 private:
  void Follow() {
    while (true) {
      absl::StatusOr<v1::ReadLogResponse> response;
      absl::Notification answered;
      of_->ReadLog(shard_->NextRead(), absl::InfiniteDuration(), [&](auto answer) {
        response = std::move(answer);
        answered.Notify();
      });
      answered.WaitForNotification();
      if (absl::IsAborted(response.status())) return;
      Must(response.status());
      Must(shard_->Follow(*std::move(response)));
    }
  }

  const std::shared_ptr<JobShard> of_;
  const std::shared_ptr<JobShard> shard_;
  std::thread thread_;
};

void PushLogBench(benchmark::State& state, const Sizes& sizes, const std::string& folder) {
  std::vector<std::vector<uint64_t>> batches;
  uint64_t keys = 0;
  for (const std::vector<uint32_t>& draws : DrawZipf({.items = sizes.rows,
                                            .batches = sizes.batches,
                                            .batch = sizes.batch,
                                            .unique = true,
                                            .seed = 5})) {
    std::vector<uint64_t>& batch = batches.emplace_back();
    for (const uint64_t item : draws) batch.push_back(Mix64(item + 1));
    keys += batch.size();
  }
  const auto rate = [&](Shard& shard) {
    const double seconds = Seconds([&] {
      for (const std::vector<uint64_t>& batch : batches) shard.Push(batch);
    });
    return keys / seconds / 1e6;
  };
  Shard plain(folder, v1::RecoverySpec::OFF);
  for (const auto& [log, name, bar] : {std::tuple(v1::RecoverySpec::ASYNC, "async", ">= 0.85"),
                                       std::tuple(v1::RecoverySpec::FSYNC, "fsync", "")}) {
    Shard logged(folder, log);
    const Medians push = Interleave(
        sizes.rounds,
        [&] {
          logged.ShortenLog();
          return rate(logged);
        },
        [&] { return rate(plain); });
    Report(state,
           {absl::StrCat("push, ", name), push.value, "M keys/s", "no log", push.limit, bar});
  }
  {
    // Both do all the work, on the same processors.
    Shard alone(folder + "/alone", v1::RecoverySpec::ASYNC);
    Shard copied(folder + "/copied", v1::RecoverySpec::ASYNC);
    const Copy copy(&copied, folder + "/copy", v1::RecoverySpec::ASYNC);
    const Medians push = Interleave(
        sizes.rounds,
        [&] {
          copied.ShortenLog();
          const double seconds = Seconds([&] {
            for (const std::vector<uint64_t>& batch : batches) copied.Push(batch);
            copied.AwaitCopy();
          });
          return keys / seconds / 1e6;
        },
        [&] {
          alone.ShortenLog();
          return rate(alone);
        });
    Report(state, {"push, async, with a copy", push.value, "M keys/s", "without", push.limit});
  }
  uint64_t bytes = 0;
  const std::string folder2 = folder + "/replay";
  {
    Shard shard(folder2, v1::RecoverySpec::ASYNC);
    for (uint32_t i = 0; i < sizes.replayed; ++i) shard.Push(batches[i % batches.size()]);
    bytes = shard.log_bytes();
  }
  const double replay = Seconds([&] { Shard(folder2, v1::RecoverySpec::ASYNC, /*recover=*/true); });
  Shard again(folder, v1::RecoverySpec::OFF);
  const double apply = Seconds([&] {
    for (uint32_t i = 0; i < sizes.replayed; ++i) again.Push(batches[i % batches.size()]);
  });
  Report(state,
         {"replay", bytes / replay / 1e9, "GB/s", "pushes of the same", bytes / apply / 1e9});
}

}  // namespace

void RegisterBenchmarks(const Options& options) {
  Sizes sizes;
  if (options.short_run) {
    sizes = {.rows = 100'000, .batch = 4096, .batches = 16, .rounds = 5, .replayed = 64};
  }
  Register("push_log", [sizes, folder = options.work_folder](benchmark::State& state) {
    PushLogBench(state, sizes, folder);
  });
}

}  // namespace tessera::bench
