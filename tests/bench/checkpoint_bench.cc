#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/partition.h"
#include "ps/jobs/job_shard.h"
#include "tests/bench/bench.h"
#include "tests/bench/zipf.h"

// Checkpoints of one ps in this process: what they cost the training that goes on, and how fast
// they are written, made increments of, and restored, beside the disk.
namespace tessera::bench {
namespace {

using ps::JobShard;
using Request = v1::WriteCheckpointRequest;

constexpr uint32_t kDim = 16;
constexpr uint32_t kBatch = 16384;
constexpr uint32_t kLookKeys = 26;
constexpr char kRoot[] = "checkpoints";

uint64_t KeyOf(uint64_t item) { return Mix64(item + 1); }

void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "checkpoint benchmark: %s\n", std::string(status.message()).c_str());
  std::exit(1);
}

absl::Span<const char> BytesOf(const void* data, size_t bytes) {
  return {static_cast<const char*>(data), bytes};
}

// A ps with one table, Adagrad, all of whose rows are there.
class Shard {
 public:
  Shard(const std::string& folder, uint64_t rows)
      : folder_(folder), rows_(rows), gradients_(size_t{kBatch} * kDim, 1e-3f) {
    std::filesystem::create_directories(folder_ + "/" + kRoot);
    shard_ = Open("");
    std::vector<uint64_t> keys;
    for (uint64_t i = 0; i < rows; i += keys.size()) {
      keys.clear();
      for (uint64_t k = i; k < std::min(rows, i + kBatch); ++k) keys.push_back(KeyOf(k));
      Push(keys);
    }
  }

  // Seconds of a push.
  double Push(const std::vector<uint64_t>& keys) {
    ps::PushCall call;
    Head(call.request.mutable_header());
    call.request.set_sequence(sequence_++);
    call.request.set_learning_rate_scale(1);
    call.request.add_tables()->set_table(0);
    call.keys.push_back(BytesOf(keys.data(), keys.size() * sizeof(uint64_t)));
    call.gradients.push_back(BytesOf(gradients_.data(), keys.size() * kDim * sizeof(float)));
    call.bytes = call.keys[0].size() + call.gradients[0].size();
    return Seconds([&] { Must(shard_->Push(std::move(call))); });
  }
  // Seconds of a pull of a few keys.
  double Look(uint64_t seed) {
    uint64_t keys[kLookKeys];
    for (uint32_t i = 0; i < kLookKeys; ++i) keys[i] = KeyOf(Mix64(seed + i) % rows_);
    ps::PullCall call;
    Head(call.request.mutable_header());
    call.request.add_tables()->set_table(0);
    call.keys.push_back(BytesOf(keys, sizeof(keys)));
    call.bytes = sizeof(keys);
    return Seconds([&] {
      shard_->Pull(std::move(call), absl::InfiniteDuration(),
                   [](absl::StatusOr<ps::PullAnswer> answer) { Must(answer.status()); });
    });
  }
  v1::WriteCheckpointResponse Checkpoint(const std::string& name, const std::string& base = "") {
    Request request;
    request.set_folder(name);
    request.set_parts(1);
    request.set_base(base);
    request.set_phase(Request::CUT);
    Must(shard_->WriteCheckpoint(request, absl::InfiniteDuration()).status());
    request.set_phase(Request::WRITE);
    auto written = shard_->WriteCheckpoint(request, absl::InfiniteDuration());
    Must(written.status());
    v1::CheckpointManifest manifest;
    manifest.set_job_id("bench");
    manifest.set_partition_count(kDefaultPartitions);
    v1::CheckpointTable& table = *manifest.add_tables();
    *table.mutable_spec() = Table().spec();
    table.set_slot_floats(written->slot_floats(0));
    table.set_rows(written->rows(0));
    for (const v1::CheckpointFile& file : written->files()) *manifest.add_files() = file;
    Must(WriteManifest(PosixFileSystem(), FolderOf(name), manifest));
    return *std::move(written);
  }
  std::string FolderOf(const std::string& name) const {
    return absl::StrCat(folder_, "/", kRoot, "/", name);
  }
  void Remove(const std::string& name) { std::filesystem::remove_all(FolderOf(name)); }
  std::shared_ptr<JobShard> Open(const std::string& checkpoint) const {
    JobShard::Options options;
    options.clock = &SystemClock();
    options.files = &PosixFileSystem();
    options.checkpoint_root = folder_ + "/" + kRoot;
    v1::OpenJobRequest job;
    job.set_job_id("bench");
    job.set_generation(1);
    job.set_workers(1);
    job.set_partition_count(kDefaultPartitions);
    for (uint32_t p = 0; p < kDefaultPartitions; ++p) job.add_partitions(p);
    *job.add_tables() = Table();
    job.set_checkpoint(checkpoint);
    auto shard = JobShard::Open(job, options);
    Must(shard.status());
    return *std::move(shard);
  }
  void Close() { shard_.reset(); }

 private:
  static v1::PsTable Table() {
    v1::PsTable table;
    table.mutable_spec()->set_name("bench");
    table.mutable_spec()->set_dim(kDim);
    table.mutable_spec()->mutable_initializer()->mutable_constant()->set_value(0.01f);
    table.mutable_spec()->mutable_optimizer()->set_learning_rate(0.01f);
    table.mutable_spec()->mutable_optimizer()->mutable_adagrad();
    table.set_consistency(v1::ASYNC);
    return table;
  }
  static void Head(v1::CallHeader* header) {
    header->set_job_id("bench");
    header->set_generation(1);
  }

  const std::string folder_;
  const uint64_t rows_;
  const std::vector<float> gradients_;
  std::shared_ptr<JobShard> shard_;
  uint64_t sequence_ = 0;
};

// Seconds to write a file of so many bytes from its start and to sync it.
double SequentialWrite(const std::string& path, uint64_t bytes) {
  std::string block(1 << 20, '\0');
  for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<char>(Mix64(i));
  const double seconds = Seconds([&] {
    auto file = PosixFileSystem().Create(path);
    Must(file.status());
    for (uint64_t done = 0; done < bytes; done += block.size()) Must((*file)->Append(block));
    Must((*file)->Sync());
    Must((*file)->Close());
  });
  Must(PosixFileSystem().Remove(path));
  return seconds;
}

// Of all threads of this process: what the work takes of processors, whoever else wants them.
double ProcessCpuSeconds() {
  timespec t = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void DropPages(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY);
  if (fd < 0 || ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) std::exit(1);
  ::close(fd);
}

double SequentialRead(const std::string& path) {
  DropPages(path);
  std::vector<char> block(1 << 20);
  return Seconds([&] {
    auto file = PosixFileSystem().Open(path);
    Must(file.status());
    for (uint64_t at = 0; at < (*file)->Size(); at += block.size()) {
      const uint64_t left = (*file)->Size() - at;
      Must((*file)->Read(at, absl::MakeSpan(block).first(std::min<uint64_t>(left, block.size()))));
    }
  });
}

// What requests saw in a stretch of time.
struct Load {
  std::vector<double> push_seconds;
  std::vector<double> push_cpu_seconds;
  std::vector<double> look_seconds;
  double seconds = 0;
};

// One thread pushes, another looks at a few keys now and then, until `work` has returned.
Load Under(Shard& shard, const std::vector<std::vector<uint64_t>>& batches,
           absl::FunctionRef<void()> work) {
  Load load;
  std::atomic<bool> done = false;
  std::thread pusher([&] {
    for (size_t b = 0; !done; b = (b + 1) % batches.size()) {
      load.push_cpu_seconds.push_back(
          CpuSeconds([&] { load.push_seconds.push_back(shard.Push(batches[b])); }));
    }
  });
  std::thread looker([&] {
    for (uint64_t seed = 0; !done; seed += kLookKeys) {
      load.look_seconds.push_back(shard.Look(seed));
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  });
  load.seconds = Seconds(work);
  done = true;
  pusher.join();
  looker.join();
  return load;
}

void Training(benchmark::State& state, const std::string& folder, uint64_t rows, int rounds,
              uint32_t batch_count) {
  std::vector<std::vector<uint64_t>> batches;
  for (const auto& items : DrawZipf(
           {.items = rows, .batches = batch_count, .batch = kBatch, .unique = false, .seed = 3})) {
    std::vector<uint64_t>& keys = batches.emplace_back();
    for (const uint32_t item : items) keys.push_back(KeyOf(item));
  }
  Shard shard(folder, rows);
  std::vector<double> with, without, cpu_with, cpu_without;
  std::vector<double> pushes_with, pushes_without, looks_with, looks_without;  // seconds
  for (int round = 0; round <= rounds; ++round) {
    const Load live = Under(shard, batches, [&] { shard.Checkpoint("live"); });
    const Load alone = Under(shard, batches, [&] {
      std::this_thread::sleep_for(std::chrono::duration<double>(live.seconds));
    });
    shard.Remove("live");
    if (round == 0) continue;
    const auto rate = [](const Load& load) {
      return static_cast<double>(load.push_seconds.size()) * kBatch / load.seconds / 1e6;
    };
    with.push_back(rate(live));
    without.push_back(rate(alone));
    const auto append = [](const std::vector<double>& some, std::vector<double>& all) {
      all.insert(all.end(), some.begin(), some.end());
    };
    append(live.push_seconds, pushes_with);
    append(alone.push_seconds, pushes_without);
    append(live.look_seconds, looks_with);
    append(alone.look_seconds, looks_without);
    for (const double s : live.push_cpu_seconds) cpu_with.push_back(kBatch / s / 1e6);
    for (const double s : alone.push_cpu_seconds) cpu_without.push_back(kBatch / s / 1e6);
  }
  Report(state, {.metric = "pushes while one is written, median push",
                 .value = kBatch / Median(pushes_with) / 1e6,
                 .unit = "M keys/s",
                 .limit_name = "without one",
                 .limit = kBatch / Median(pushes_without) / 1e6,
                 .bar = ">= 0.95"});
  // What the pushes themselves pay, whoever else wants the processors.
  Report(state, {.metric = "pushes while one is written, median push, processor time",
                 .value = Median(cpu_with),
                 .unit = "M keys/s",
                 .limit_name = "without one",
                 .limit = Median(cpu_without)});
  Report(state, {.metric = "pushes while one is written, all",
                 .value = Median(with),
                 .unit = "M keys/s",
                 .limit_name = "without one",
                 .limit = Median(without)});
  ReportTimes(state, absl::StrCat("push of ", kBatch, " while one is written"), pushes_with,
              "without one", pushes_without);
  ReportTimes(state, absl::StrCat("pull of ", kLookKeys, " while one is written"), looks_with,
              "without one", looks_without);
  const auto longest = [](const std::vector<double>& pushes, const std::vector<double>& looks) {
    return std::max(Percentile(pushes, 100), Percentile(looks, 100));
  };
  Report(state, {.metric = "longest request while one is written",
                 .value = 1e3 * longest(pushes_with, looks_with),
                 .unit = "ms",
                 .limit_name = "allowed",
                 .limit = 50,
                 .bar = "<= 1"});
  Report(state, {.metric = "longest request without one",
                 .value = 1e3 * longest(pushes_without, looks_without),
                 .unit = "ms",
                 .limit_name = "",
                 .limit = 0});
}

void ReportOneProcessor(benchmark::State& state, const std::string& metric,
                        const std::vector<double>& rates) {
  Report(state, {.metric = metric + " with one processor",
                 .value = Median(rates),
                 .unit = "MB/s",
                 .limit_name = "",
                 .limit = 0});
}

void Writing(benchmark::State& state, const std::string& folder, uint64_t rows, int rounds) {
  Shard shard(folder, rows);
  uint64_t bytes = 0;
  std::vector<double> write_cpu;
  const Medians write = Interleave(
      rounds,
      [&] {
        shard.Remove("whole");
        const double cpu = ProcessCpuSeconds();
        const double seconds = Seconds([&] { bytes = shard.Checkpoint("whole").files(0).bytes(); });
        write_cpu.push_back(static_cast<double>(bytes) / (ProcessCpuSeconds() - cpu) / 1e6);
        return static_cast<double>(bytes) / seconds / 1e6;
      },
      [&] { return static_cast<double>(bytes) / SequentialWrite(folder + "/raw", bytes) / 1e6; });
  Report(state, {.metric = "write",
                 .value = write.value,
                 .unit = "MB/s",
                 .limit_name = "sequential write",
                 .limit = write.limit,
                 .bar = ">= 0.7"});
  ReportOneProcessor(state, "write", write_cpu);

  std::vector<uint64_t> touched;
  for (uint64_t i = 0; i < rows / 100; ++i) {
    touched.push_back(KeyOf(i * 100 + Mix64(i) % 100));
    if (touched.size() < kBatch && i + 1 < rows / 100) continue;
    shard.Push(touched);
    touched.clear();
  }
  const v1::WriteCheckpointResponse increment = shard.Checkpoint("increment", "whole");
  if (increment.files_size() != 2) Must(absl::InternalError("the increment is none"));
  Report(state, {.metric = "increment after touching 1% of the rows",
                 .value = static_cast<double>(increment.files(1).bytes()) / 1e6,
                 .unit = "MB",
                 .limit_name = "whole",
                 .limit = static_cast<double>(bytes) / 1e6,
                 .bar = "<= 0.03"});
}

void Restoring(benchmark::State& state, const std::string& folder, uint64_t rows, int rounds) {
  Shard shard(folder, rows);
  const v1::CheckpointFile written = shard.Checkpoint("whole").files(0);
  const uint64_t bytes = written.bytes();
  const std::string file = shard.FolderOf("whole") + "/" + written.name();
  shard.Close();
  std::vector<double> restore_cpu;
  const Medians restore = Interleave(
      rounds,
      [&] {
        DropPages(file);
        std::shared_ptr<JobShard> restored;
        const double cpu = ProcessCpuSeconds();
        const double seconds = Seconds([&] { restored = shard.Open("whole"); });
        restore_cpu.push_back(static_cast<double>(bytes) / (ProcessCpuSeconds() - cpu) / 1e6);
        if (restored->rows() != rows) Must(absl::InternalError("rows are missing"));
        return static_cast<double>(bytes) / seconds / 1e6;
      },
      [&] { return static_cast<double>(bytes) / SequentialRead(file) / 1e6; });
  Report(state, {.metric = "restore",
                 .value = restore.value,
                 .unit = "MB/s",
                 .limit_name = "sequential read",
                 .limit = restore.limit,
                 .bar = ">= 0.5"});
  ReportOneProcessor(state, "restore", restore_cpu);
}

}  // namespace

void RegisterBenchmarks(const Options& options) {
  const bool small = options.short_run;
  const std::string& folder = options.work_folder;
  const uint64_t rows = small ? 100'000 : 28'000'000;  // 4 GB
  Register("checkpoint/training", [=](benchmark::State& state) {
    Training(state, folder + "/training", rows, small ? 1 : 2, small ? 8 : 200);
  });
  Register("checkpoint/writing", [=](benchmark::State& state) {
    Writing(state, folder + "/writing", rows, small ? 1 : 2);
  });
  Register("checkpoint/restoring", [=](benchmark::State& state) {
    Restoring(state, folder + "/restoring", rows, small ? 1 : 3);
  });
}

}  // namespace tessera::bench
