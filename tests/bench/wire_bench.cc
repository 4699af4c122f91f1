// What one worker pulls from and pushes to one ps over loopback, beside what a bare gRPC echo of
// the same bytes carries in the same run, and beside Redis where it is installed; through shared
// memory beside that.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/partition.h"
#include "common/rpc/channels.h"
#include "common/rpc/status.h"
#include "common/status_macros.h"
#include "grpcpp/client_context.h"
#include "tessera/v1/parameter_service.grpc.pb.h"
#include "tests/bench/bench.h"
#include "tests/bench/wire_echo.h"
#include "tests/bench/wire_redis.h"
#include "tests/bench/wire_servers.h"
#include "tests/bench/zipf.h"
#include "worker/parameters/parameter_client.h"

namespace tessera::bench {
namespace {

constexpr char kEcho[] = "gRPC echo, same bytes";
// The tables, by what crosses the wire.
constexpr uint32_t kFloat32 = 0, kBfloat16 = 1;

struct Sizes {
  uint64_t rows = 10'000'000;
  uint32_t dim = 16;
  uint32_t batch_keys = 53'248;
  uint32_t batches = 32;       // distinct ones
  int rounds = 7;              // each: the ps, then the echo
  uint32_t calls = 64;         // batches a round
  size_t pending = 3;          // batches that the worker has under way
  uint64_t chunk = 512 << 10;  // bytes of a message of the echo
  int in_flight = 8;           // messages of the echo
  // Of the ps: a quarter of what the overload offers at once.
  uint64_t max_bytes = 16 << 20;
};

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Calls one of the ps.
struct Client {
  explicit Client(uint32_t rank = 0, bool share_memory = false)
      : rank(rank), share_memory(share_memory) {}

  const uint32_t rank;
  const bool share_memory;
  std::string job = "wire";
  v1::RecoverySpec::PushLog push_log = v1::RecoverySpec::OFF;
  std::unique_ptr<Channels> channels;
  std::unique_ptr<v1::ParameterService::Stub> stub;
  std::unique_ptr<worker::PsDirectory> directory;
  std::unique_ptr<worker::ParameterClient> client;
  uint64_t sequence = 0;
};

class WireBench {
 public:
  WireBench(const Sizes& sizes, std::unique_ptr<WireServers> servers)
      : options_(sizes), servers_(std::move(servers)) {}

  absl::Status Run(benchmark::State& state) {
    TESSERA_RETURN_IF_ERROR(Open(servers_->ps(), nullptr, plain_));
    TESSERA_RETURN_IF_ERROR(Open(servers_->ps(), nullptr, shared_));
    echo_ = std::make_unique<EchoClient>(servers_->echo());
    TESSERA_RETURN_IF_ERROR(CreateRows(plain_));
    MakeBatches();
    TESSERA_RETURN_IF_ERROR(Throughput(state));
    TESSERA_RETURN_IF_ERROR(SharedMemory(state));
    TESSERA_RETURN_IF_ERROR(Bfloat16(state));
    TESSERA_RETURN_IF_ERROR(Encrypted(state));
    TESSERA_RETURN_IF_ERROR(Latency(state));
    TESSERA_RETURN_IF_ERROR(Overload(state));
    TESSERA_RETURN_IF_ERROR(Logged(state));
    return Redis(state);
  }

 private:
  absl::Status Open(const std::string& ps, const Security* security, Client& client) {
    client.channels = NewNetworkChannels(security);
    v1::PsAddress address;
    address.set_name("ps-0");
    address.set_address(ps);
    const v1::PartitionMap map = NewPartitionMap(1, kDefaultPartitions, {address});
    v1::OpenJobRequest job;
    job.set_job_id(client.job);
    job.set_generation(1);
    job.set_push_log(client.push_log);
    job.set_seed(1);
    job.set_workers(2);
    job.set_map_version(1);
    job.set_partition_count(kDefaultPartitions);
    for (uint32_t p = 0; p < kDefaultPartitions; ++p) job.add_partitions(p);
    for (const v1::FloatType wire_type : {v1::FLOAT32, v1::BFLOAT16}) {
      v1::PsTable& table = *job.add_tables();
      table.set_consistency(v1::ASYNC);
      table.mutable_spec()->set_name(v1::FloatType_Name(wire_type));
      table.mutable_spec()->set_dim(options_.dim);
      table.mutable_spec()->set_wire_type(wire_type);
      table.mutable_spec()->mutable_initializer()->mutable_constant();
      table.mutable_spec()->mutable_optimizer()->set_learning_rate(0.01f);
      table.mutable_spec()->mutable_optimizer()->mutable_adagrad();
    }
    client.stub = v1::ParameterService::NewStub(client.channels->Connect(ps));
    grpc::ClientContext context;
    v1::OpenJobResponse response;
    TESSERA_RETURN_IF_ERROR(FromGrpc(client.stub->OpenJob(&context, job, &response)));
    v1::CallHeader header;
    header.set_job_id(client.job);
    header.set_generation(1);
    header.set_rank(client.rank);
    header.set_incarnation(1);
    client.directory = std::make_unique<worker::PsDirectory>(map, client.channels.get());
    client.client = worker::NewGrpcParameterClient(header, client.directory.get(), &board_,
                                                   &cancellation_, client.share_memory);
    return absl::OkStatus();
  }

  // One ps: any order of keys is that of their owners.
  static worker::RoutedKeys Routed(std::vector<uint64_t> keys) {
    const auto count = static_cast<uint32_t>(keys.size());
    return {.keys = std::move(keys), .begin = {0, count}};
  }

  absl::Status CreateRows(Client& client, uint32_t table = kFloat32) {
    constexpr uint64_t kAtOnce = 100'000;
    std::vector<float> rows(kAtOnce * options_.dim);
    for (uint64_t first = 0; first < options_.rows; first += kAtOnce) {
      std::vector<uint64_t> keys(std::min(kAtOnce, options_.rows - first));
      for (size_t i = 0; i < keys.size(); ++i) keys[i] = first + i;
      const worker::RoutedKeys routed = Routed(std::move(keys));
      TESSERA_RETURN_IF_ERROR(Pull(client, routed, rows.data(), table)->Wait());
    }
    return absl::OkStatus();
  }

  // Keys are items: rows of popular ones are scattered, as DrawZipf scatters them.
  void MakeBatches() {
    for (const std::vector<uint32_t>& draws : DrawZipf({.items = options_.rows,
                                              .batches = options_.batches,
                                              .batch = options_.batch_keys,
                                              .unique = false,
                                              .seed = 7})) {
      absl::flat_hash_set<uint64_t> seen;
      std::vector<uint64_t> keys;
      for (const uint64_t key : draws) {
        if (seen.insert(key).second) keys.push_back(key);
      }
      distinct_ += keys.size();
      batches_.push_back(Routed(std::move(keys)));
    }
  }

  std::unique_ptr<worker::PendingCall> Pull(Client& client, const worker::RoutedKeys& keys,
                                            float* rows, uint32_t table = kFloat32) {
    const worker::TableRows reads[] = {{.table = table,
                                        .dim = options_.dim,
                                        .keys = &keys,
                                        .rows = rows,
                                        .bfloat16 = table == kBfloat16}};
    return client.client->Pull(reads, {});
  }
  std::unique_ptr<worker::PendingCall> Push(Client& client, const worker::RoutedKeys& keys,
                                            const float* values, uint32_t table = kFloat32) {
    const worker::TableGradients writes[] = {{.table = table,
                                              .dim = options_.dim,
                                              .keys = &keys,
                                              .gradients = values,
                                              .bfloat16 = table == kBfloat16}};
    return client.client->Push(writes, {.sequence = client.sequence++});
  }

  // Million distinct keys a second of options_.calls batches, `pending` of them under way.
  template <typename Start>
  absl::StatusOr<double> Rate(Start start) {
    std::deque<std::unique_ptr<worker::PendingCall>> pending;
    uint64_t keys = 0;
    const double began = Now();
    for (uint32_t c = 0; c < options_.calls; ++c) {
      const worker::RoutedKeys& batch = batches_[c % batches_.size()];
      keys += batch.keys.size();
      pending.push_back(start(batch, c));
      if (pending.size() < options_.pending) continue;
      TESSERA_RETURN_IF_ERROR(pending.front()->Wait());
      pending.pop_front();
    }
    for (auto& call : pending) TESSERA_RETURN_IF_ERROR(call->Wait());
    return keys / (Now() - began) / 1e6;
  }
  // The same bytes in messages of options_.chunk.
  absl::StatusOr<double> EchoRate(uint64_t request_bytes, uint64_t response_bytes) {
    const uint64_t keys = options_.calls * distinct_ / options_.batches;
    const uint64_t per_call =
        std::max<uint64_t>(1, options_.chunk / (request_bytes + response_bytes));
    const int calls = static_cast<int>((keys + per_call - 1) / per_call);
    const double began = Now();
    TESSERA_RETURN_IF_ERROR(echo_->Exchange(calls, per_call * request_bytes,
                                            per_call * response_bytes, options_.in_flight));
    return calls * per_call / (Now() - began) / 1e6;
  }

  // [options_.pending]
  std::vector<std::vector<float>> Buffers() const {
    return std::vector<std::vector<float>>(
        options_.pending, std::vector<float>(options_.batch_keys * options_.dim, 1e-3f));
  }
  absl::StatusOr<double> PullRate(Client& client, std::vector<std::vector<float>>& rows,
                                  uint32_t table = kFloat32) {
    return Rate([&](const worker::RoutedKeys& batch, uint32_t c) {
      return Pull(client, batch, rows[c % rows.size()].data(), table);
    });
  }
  absl::StatusOr<double> PushRate(Client& client, const std::vector<std::vector<float>>& values,
                                  uint32_t table = kFloat32) {
    return Rate([&](const worker::RoutedKeys& batch, uint32_t c) {
      return Push(client, batch, values[c % values.size()].data(), table);
    });
  }

  // What Interleave takes; the first error goes to `status`.
  static auto RatesTo(absl::Status& status) {
    return [&status](absl::StatusOr<double> measured) {
      status.Update(measured.status());
      return measured.ok() ? *measured : 0;
    };
  }

  absl::Status Throughput(benchmark::State& state) {
    const uint64_t row = options_.dim * sizeof(float);
    std::vector<std::vector<float>> rows = Buffers();
    absl::Status status;
    const auto rate = RatesTo(status);
    const auto report = [&](const std::string& metric, const Medians& medians) {
      Report(state, {metric, medians.value, "M keys/s", kEcho, medians.limit, ">= 0.7"});
      const double gigabytes = static_cast<double>(8 + row) / 1e3;
      Report(state, {metric + " bytes", medians.value * gigabytes, "GB/s", kEcho,
                     medians.limit * gigabytes});
    };
    const Medians pull = Interleave(
        options_.rounds, [&] { return rate(PullRate(plain_, rows)); },
        [&] { return rate(EchoRate(8, row)); });
    const Medians push = Interleave(
        options_.rounds, [&] { return rate(PushRate(plain_, rows)); },
        [&] { return rate(EchoRate(8 + row, 0)); });
    TESSERA_RETURN_IF_ERROR(status);
    report("pull", pull);
    report("push", push);
    pull_rate_ = pull.value;
    push_rate_ = push.value;
    return absl::OkStatus();
  }

  // The same with the bulk in shared memory, beside the same calls without.
  absl::Status SharedMemory(benchmark::State& state) {
    std::vector<std::vector<float>> rows = Buffers();
    absl::Status status;
    const auto rate = RatesTo(status);
    const Medians pull = Interleave(
        options_.rounds, [&] { return rate(PullRate(shared_, rows)); },
        [&] { return rate(PullRate(plain_, rows)); });
    const Medians push = Interleave(
        options_.rounds, [&] { return rate(PushRate(shared_, rows)); },
        [&] { return rate(PushRate(plain_, rows)); });
    TESSERA_RETURN_IF_ERROR(status);
    Report(state, {"pull by shared memory", pull.value, "M keys/s", "gRPC", pull.limit, ">= 1.2"});
    Report(state, {"push by shared memory", push.value, "M keys/s", "gRPC", push.limit, ">= 1.2"});
    return absl::OkStatus();
  }

  // A table whose rows and gradients cross the wire as bfloat16, beside one of float32.
  absl::Status Bfloat16(benchmark::State& state) {
    TESSERA_RETURN_IF_ERROR(CreateRows(plain_, kBfloat16));
    std::vector<std::vector<float>> rows = Buffers();
    absl::Status status;
    const auto rate = RatesTo(status);
    for (Client* const client : {&plain_, &shared_}) {
      const Medians pull = Interleave(
          options_.rounds, [&] { return rate(PullRate(*client, rows, kBfloat16)); },
          [&] { return rate(PullRate(*client, rows)); });
      const Medians push = Interleave(
          options_.rounds, [&] { return rate(PushRate(*client, rows, kBfloat16)); },
          [&] { return rate(PushRate(*client, rows)); });
      TESSERA_RETURN_IF_ERROR(status);
      const std::string as =
          absl::StrCat(" as bfloat16", client->share_memory ? " by shared memory" : "");
      Report(state, {"pull" + as, pull.value, "M keys/s", "float32", pull.limit});
      Report(state, {"push" + as, push.value, "M keys/s", "float32", push.limit});
    }
    return absl::OkStatus();
  }

  // The same with TLS and a token, beside the ps without.
  absl::Status Encrypted(benchmark::State& state) {
    TESSERA_ASSIGN_OR_RETURN(const auto security, Security::Load(servers_->security()));
    Client secured;
    TESSERA_RETURN_IF_ERROR(Open(servers_->secured_ps(), security.get(), secured));
    TESSERA_RETURN_IF_ERROR(CreateRows(secured));
    std::vector<std::vector<float>> rows = Buffers();
    absl::Status status;
    const auto rate = RatesTo(status);
    const Medians pull = Interleave(
        options_.rounds, [&] { return rate(PullRate(secured, rows)); },
        [&] { return rate(PullRate(plain_, rows)); });
    const Medians push = Interleave(
        options_.rounds, [&] { return rate(PushRate(secured, rows)); },
        [&] { return rate(PushRate(plain_, rows)); });
    TESSERA_RETURN_IF_ERROR(status);
    Report(state, {"pull with TLS", pull.value, "M keys/s", "without", pull.limit});
    Report(state, {"push with TLS", push.value, "M keys/s", "without", push.limit});
    return absl::OkStatus();
  }

  absl::Status Latency(benchmark::State& state) {
    constexpr int kCalls = 4000;
    constexpr size_t kKeys = 26;
    std::vector<float> rows(kKeys * options_.dim);
    std::vector<double> pull, echo;
    std::vector<worker::RoutedKeys> few;
    for (int i = 0; i < 64; ++i) {
      const auto& keys = batches_[i % batches_.size()].keys;
      few.push_back(Routed({keys.begin() + i * 100, keys.begin() + i * 100 + kKeys}));
    }
    for (int i = 0; i < kCalls; ++i) {
      double began = Now();
      TESSERA_RETURN_IF_ERROR(
          echo_->Exchange(1, kKeys * 8, kKeys * options_.dim * sizeof(float), 1));
      echo.push_back(Now() - began);
      began = Now();
      TESSERA_RETURN_IF_ERROR(Pull(plain_, few[i % few.size()], rows.data())->Wait());
      pull.push_back(Now() - began);
    }
    Report(state, {"26 keys p50", Percentile(pull, 50) * 1e6, "us", kEcho,
                   Percentile(echo, 50) * 1e6, "<= 1.3"});
    Report(state,
           {"26 keys p99", Percentile(pull, 99) * 1e6, "us", kEcho, Percentile(echo, 99) * 1e6});
    return absl::OkStatus();
  }

  // Four times what the ps takes at once, all the time: it pushes back, every call gets through in
  // the end, and its memory does not grow.
  absl::Status Overload(benchmark::State& state) {
    std::vector<float> values(options_.batch_keys * options_.dim, 1e-3f);
    const uint64_t batch_bytes = distinct_ / options_.batches * (8 + options_.dim * sizeof(float));
    const size_t pending = 4 * options_.max_bytes / batch_bytes + 1;
    uint64_t most[2] = {0, 0};  // of each half
    std::deque<std::unique_ptr<worker::PendingCall>> calls;
    for (uint32_t c = 0; c < 8 * pending; ++c) {
      calls.push_back(Push(plain_, batches_[c % batches_.size()], values.data()));
      if (calls.size() < pending) continue;
      TESSERA_RETURN_IF_ERROR(calls.front()->Wait());
      calls.pop_front();
      uint64_t& peak = most[c / (4 * pending)];
      peak = std::max(peak, servers_->ResidentBytes());
    }
    for (auto& call : calls) TESSERA_RETURN_IF_ERROR(call->Wait());
    Report(state, {"overload, memory at most", static_cast<double>(most[1]) / 1e6, "MB",
                   "in its first half", static_cast<double>(most[0]) / 1e6, "<= 1.05"});
    return absl::OkStatus();
  }

  // Pushes that are logged before they are acknowledged, beside those that are not.
  absl::Status Logged(benchmark::State& state) {
    Client logged;
    logged.job = "logged";
    logged.push_log = v1::RecoverySpec::ASYNC;
    TESSERA_RETURN_IF_ERROR(Open(servers_->ps(), nullptr, logged));
    TESSERA_RETURN_IF_ERROR(CreateRows(logged));
    std::vector<std::vector<float>> rows = Buffers();
    absl::Status status;
    const auto rate = RatesTo(status);
    const Medians push = Interleave(
        options_.rounds,
        [&] {
          status.Update(ShortenLog(logged));
          return rate(PushRate(logged, rows));
        },
        [&] { return rate(PushRate(plain_, rows)); });
    TESSERA_RETURN_IF_ERROR(status);
    Report(state, {"push, log async", push.value, "M keys/s", "no log", push.limit, ">= 0.85"});
    return absl::OkStatus();
  }

  // As a checkpoint does: what the log holds goes, and its file is written over.
  absl::Status ShortenLog(Client& client) {
    v1::WriteCheckpointRequest request;
    request.set_job_id(client.job);
    request.set_generation(1);
    request.set_parts(1);
    request.set_folder(absl::StrCat("cut-", client.sequence));
    for (const auto phase : {v1::WriteCheckpointRequest::CUT, v1::WriteCheckpointRequest::DROP,
                             v1::WriteCheckpointRequest::COMMITTED}) {
      request.set_phase(phase);
      grpc::ClientContext context;
      v1::WriteCheckpointResponse response;
      TESSERA_RETURN_IF_ERROR(FromGrpc(client.stub->WriteCheckpoint(&context, request, &response)));
    }
    return absl::OkStatus();
  }

  absl::Status Redis(benchmark::State& state) {
    auto redis = RedisPeer::Start();
    if (absl::IsNotFound(redis.status())) {
      state.SetLabel("no Redis beside it: redis-server is not installed");
      std::fprintf(stderr, "wire: no Redis beside it: redis-server is not installed\n");
      return absl::OkStatus();
    }
    TESSERA_RETURN_IF_ERROR(redis.status());
    const uint64_t row = options_.dim * sizeof(float);
    TESSERA_RETURN_IF_ERROR((*redis)->Fill(options_.rows, row));
    std::vector<double> got, set;
    for (const worker::RoutedKeys& batch : batches_) {
      const auto rate = [&, began = Now()] { return batch.keys.size() / (Now() - began) / 1e6; };
      TESSERA_RETURN_IF_ERROR((*redis)->Get(batch.keys, row, 1024));
      got.push_back(rate());
    }
    for (const worker::RoutedKeys& batch : batches_) {
      const auto rate = [&, began = Now()] { return batch.keys.size() / (Now() - began) / 1e6; };
      TESSERA_RETURN_IF_ERROR((*redis)->Set(batch.keys, row, 1024));
      set.push_back(rate());
    }
    Report(state, {"pull beside Redis", pull_rate_, "M keys/s", "Redis, pipelined MGET of 1024",
                   Median(got), ">= 5"});
    // Which adds no gradients: it writes over.
    Report(state, {"push beside Redis", push_rate_, "M keys/s", "Redis, pipelined MSET of 1024",
                   Median(set), ">= 5"});
    return absl::OkStatus();
  }

  const Sizes options_;
  worker::StatusBoard board_{SystemClock()};
  worker::Cancellation cancellation_;
  const std::unique_ptr<WireServers> servers_;
  std::unique_ptr<EchoClient> echo_;
  Client plain_;
  Client shared_{/*rank=*/1, /*share_memory=*/true};
  std::vector<worker::RoutedKeys> batches_;
  uint64_t distinct_ = 0;  // keys of all batches
  double pull_rate_ = 0, push_rate_ = 0;
};

}  // namespace

void RegisterBenchmarks(const Options& options) {
  Sizes sizes;
  if (options.short_run) {
    sizes.rows = 200'000;
    sizes.rounds = 2;
  }
  // Before anything here starts a thread.
  absl::StatusOr<std::unique_ptr<WireServers>> servers = WireServers::Start(sizes.max_bytes);
  auto shared = std::make_shared<decltype(servers)>(std::move(servers));
  Register("wire", [sizes, shared](benchmark::State& state) {
    spdlog::set_level(spdlog::level::err);
    absl::Status status = shared->status();
    if (status.ok()) status = WireBench(sizes, *std::move(*shared)).Run(state);
    if (!status.ok()) state.SkipWithError(status.ToString().c_str());
  });
}

}  // namespace tessera::bench
