// A worker's client and a real ps, over loopback: what goes by shared memory, and what becomes of
// it when either end goes away.
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/failpoint.h"
#include "common/file_system.h"
#include "common/log.h"
#include "common/metrics/metrics.h"
#include "common/partition.h"
#include "common/rpc/channels.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "ps/parameter_server.h"
#include "tessera/v1/parameter_service.grpc.pb.h"
#include "tests/common/metric_value.h"
#include "worker/parameters/parameter_client.h"
#include "worker/parameters/shared_memory.h"

namespace tessera {
namespace {

constexpr uint32_t kDim = 16;
constexpr size_t kKeys = 20'000;  // a call of them is several messages
constexpr absl::Duration kPatience = absl::Seconds(30);

// A ps without a master.
class Ps {
 public:
  explicit Ps(uint64_t max_shared_bytes, const std::string& listen = "127.0.0.1:0")
      : channels_(NewNetworkChannels()) {
    ps::ParameterServer::Options options;
    options.server.listen = listen;
    options.master_address = "127.0.0.1:1";
    options.name = "ps-0";
    options.channels = channels_.get();
    options.files = &PosixFileSystem();
    options.clock = &SystemClock();
    options.metrics = &metrics_;
    options.max_shared_bytes = max_shared_bytes;
    server_ = *ps::ParameterServer::Start(options);
  }
  const std::string& address() const { return server_->address(); }

  // One table, "t", of two ranks.
  void Open(v1::Consistency consistency, v1::FloatType wire_type = v1::FLOAT32) {
    v1::OpenJobRequest job;
    job.set_job_id("job");
    job.set_generation(1);
    job.set_seed(1);
    job.set_workers(2);
    job.set_map_version(1);
    job.set_partition_count(kDefaultPartitions);
    for (uint32_t p = 0; p < kDefaultPartitions; ++p) job.add_partitions(p);
    v1::PsTable& table = *job.add_tables();
    table.set_consistency(consistency);
    table.mutable_spec()->set_name("t");
    table.mutable_spec()->set_dim(kDim);
    table.mutable_spec()->set_wire_type(wire_type);
    table.mutable_spec()->mutable_initializer()->mutable_normal()->set_stddev(1);
    table.mutable_spec()->mutable_optimizer()->set_learning_rate(0.1f);
    table.mutable_spec()->mutable_optimizer()->mutable_adagrad();
    const auto stub = v1::ParameterService::NewStub(channels_->Connect(address()));
    grpc::ClientContext context;
    v1::OpenJobResponse response;
    const absl::Status opened = FromGrpc(stub->OpenJob(&context, job, &response));
    ASSERT_TRUE(opened.ok()) << opened;
  }

  double Metric(const std::string& name) const { return MetricValue(metrics_.Text(), name); }
  double SharedBytes(const std::string& call) const {
    return Metric("tessera_ps_shared_bytes_total{call=\"" + call + "\"}");
  }
  double MappedBytes() const { return Metric("tessera_ps_shared_memory_bytes"); }

 private:
  MetricsRegistry metrics_;
  const std::unique_ptr<Channels> channels_;
  std::unique_ptr<ps::ParameterServer> server_;
};

// What a worker has for one assignment.
class Client {
 public:
  Client(const std::string& ps, uint32_t rank, bool share_memory,
         v1::FloatType wire_type = v1::FLOAT32)
      : bfloat16_(wire_type == v1::BFLOAT16),
        channels_(NewNetworkChannels()),
        board_(SystemClock()) {
    v1::PsAddress address;
    address.set_name("ps-0");
    address.set_address(ps);
    directory_ = std::make_unique<worker::PsDirectory>(
        NewPartitionMap(1, kDefaultPartitions, {address}), channels_.get());
    v1::CallHeader header;
    header.set_job_id("job");
    header.set_generation(1);
    header.set_rank(rank);
    header.set_incarnation(1);
    client_ = worker::NewGrpcParameterClient(header, directory_.get(), &board_, &cancellation_,
                                             share_memory);
  }

  std::unique_ptr<worker::PendingCall> StartPull(const worker::RoutedKeys& keys,
                                                 std::vector<float>* rows, uint64_t step = 0) {
    rows->assign(keys.keys.size() * kDim, -1);
    const worker::TableRows reads[] = {
        {.table = 0, .dim = kDim, .keys = &keys, .rows = rows->data(), .bfloat16 = bfloat16_}};
    worker::ParameterClient::PullOptions options;
    options.step = step;
    return client_->Pull(reads, options);
  }
  std::vector<float> Pull(const worker::RoutedKeys& keys, uint64_t step = 0) {
    std::vector<float> rows;
    const absl::Status pulled = StartPull(keys, &rows, step)->Wait();
    EXPECT_TRUE(pulled.ok()) << pulled;
    return rows;
  }
  // Adagrad's slots are as many as the embedding's numbers.
  std::vector<float> PullWhole(const worker::RoutedKeys& keys) {
    std::vector<float> rows(keys.keys.size() * 2 * kDim, -1);
    const worker::TableRows reads[] = {
        {.table = 0, .dim = 2 * kDim, .keys = &keys, .rows = rows.data(), .whole = true}};
    const absl::Status pulled = client_->Pull(reads, {})->Wait();
    EXPECT_TRUE(pulled.ok()) << pulled;
    return rows;
  }
  void PushChanges(const worker::RoutedKeys& keys, uint64_t sequence, float change) {
    const std::vector<float> changes(keys.keys.size() * 2 * kDim, change);
    const worker::TableGradients writes[] = {
        {.table = 0, .dim = 2 * kDim, .keys = &keys, .gradients = changes.data(), .changes = true}};
    const absl::Status pushed = client_->Push(writes, {.sequence = sequence})->Wait();
    EXPECT_TRUE(pushed.ok()) << pushed;
  }
  void Push(const worker::RoutedKeys& keys, uint64_t sequence) {
    std::vector<float> gradients(keys.keys.size() * kDim);
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = static_cast<float>((i * 7 + sequence * 13) % 101) / 50 - 1;
    }
    const worker::TableGradients writes[] = {{.table = 0,
                                              .dim = kDim,
                                              .keys = &keys,
                                              .gradients = gradients.data(),
                                              .bfloat16 = bfloat16_}};
    const absl::Status pushed = client_->Push(writes, {.sequence = sequence})->Wait();
    EXPECT_TRUE(pushed.ok()) << pushed;
  }

 private:
  const bool bfloat16_;
  const std::unique_ptr<Channels> channels_;
  worker::StatusBoard board_;
  worker::Cancellation cancellation_;
  std::unique_ptr<worker::PsDirectory> directory_;
  std::unique_ptr<worker::ParameterClient> client_;
};

worker::RoutedKeys KeysFrom(uint64_t first, size_t count = kKeys) {
  worker::RoutedKeys keys;
  for (size_t i = 0; i < count; ++i) keys.keys.push_back(first + i);
  keys.begin = {0, static_cast<uint32_t>(count)};
  return keys;
}

class SharedMemoryTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { spdlog::set_level(spdlog::level::err); }
  void TearDown() override { DisarmFailpoints(); }

  static constexpr uint64_t kMaxBytes = 1 << 30;

  template <typename Condition>
  static bool Eventually(Condition condition) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (!condition()) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(2));
    }
    return true;
  }
  // Pulls until that goes by shared memory: the ps may take its time to agree.
  static void AwaitSharing(const Ps& ps, Client& client) {
    const double before = ps.SharedBytes("Pull");
    ASSERT_TRUE(Eventually([&] {
      client.Pull(KeysFrom(0));
      return ps.SharedBytes("Pull") > before;
    }));
  }
};

TEST_F(SharedMemoryTest, RowsAndGradientsHaveTheBitsOfThoseThroughTheNetwork) {
  for (const auto& [consistency, wire_type] :
       {std::pair(v1::ASYNC, v1::FLOAT32), {v1::SYNC, v1::FLOAT32}, {v1::SYNC, v1::BFLOAT16}}) {
    SCOPED_TRACE(v1::FloatType_Name(wire_type));
    const int number_bytes = wire_type == v1::BFLOAT16 ? 2 : 4;
    Ps ps[2] = {Ps(kMaxBytes), Ps(kMaxBytes)};
    std::vector<float> rows[2];
    for (const bool share : {false, true}) {
      ps[share].Open(consistency, wire_type);
      Client first(ps[share].address(), 0, share, wire_type);
      Client second(ps[share].address(), 1, share, wire_type);
      if (share) {
        AwaitSharing(ps[share], first);
        AwaitSharing(ps[share], second);
      } else {
        first.Pull(KeysFrom(0));
      }
      for (uint64_t step = 0; step < 5; ++step) {
        first.Push(KeysFrom(step * 100), step);
        second.Push(KeysFrom(step * 50 + 7), step);
        const uint64_t waits = consistency == v1::SYNC ? step + 1 : 0;
        std::vector<float> unused;
        const worker::RoutedKeys few = KeysFrom(0, 10);
        const auto confirms = second.StartPull(few, &unused, waits);
        const std::vector<float> pulled = first.Pull(KeysFrom(step * 30, 3 * kKeys), waits);
        EXPECT_TRUE(confirms->Wait().ok());
        rows[share].insert(rows[share].end(), pulled.begin(), pulled.end());
      }
    }
    ASSERT_EQ(rows[0].size(), rows[1].size());
    EXPECT_EQ(std::memcmp(rows[0].data(), rows[1].data(), rows[0].size() * sizeof(float)), 0);
    EXPECT_EQ(ps[0].SharedBytes("Pull") + ps[0].SharedBytes("Push") + ps[0].MappedBytes(), 0);
    // Keys, rows and gradients, but for the few; the text rounds.
    EXPECT_GE(ps[1].SharedBytes("Push"), 0.99 * 10 * kKeys * (8 + kDim * number_bytes));
    EXPECT_GE(ps[1].SharedBytes("Pull"), 0.99 * 5 * 3 * kKeys * (8 + kDim * number_bytes));
    EXPECT_LT(ps[1].Metric("tessera_ps_received_bytes_total{call=\"Push\"}"), 100'000);
  }
}

TEST_F(SharedMemoryTest, WholeRowsAndChangesTravelAsFloatsOnBothWays) {
  for (const v1::FloatType wire_type : {v1::FLOAT32, v1::BFLOAT16}) {
    for (const bool share : {false, true}) {
      Ps ps(kMaxBytes);
      ps.Open(v1::ASYNC, wire_type);
      Client client(ps.address(), 0, share, wire_type);
      if (share) AwaitSharing(ps, client);
      const worker::RoutedKeys keys = KeysFrom(5);
      const std::vector<float> before = client.PullWhole(keys);
      client.PushChanges(keys, 0, 0.25f);
      const std::vector<float> after = client.PullWhole(keys);
      for (size_t i = 0; i < after.size(); ++i) ASSERT_EQ(after[i], before[i] + 0.25f);
      EXPECT_EQ(ps.SharedBytes("Push") > 0, share);
    }
  }
}

TEST_F(SharedMemoryTest, CallsThatFindNoFreeSlotGoThroughTheNetwork) {
  Ps ps(kMaxBytes);
  ps.Open(v1::SYNC);
  Client first(ps.address(), 0, true), second(ps.address(), 1, true);
  AwaitSharing(ps, first);
  const worker::RoutedKeys keys = KeysFrom(0, 8 * 7000);  // eight messages, all under way at once
  const std::vector<float> before = first.Pull(keys);
  first.Push(keys, 0);
  const double shared = ps.SharedBytes("Pull");
  const double sent = ps.Metric("tessera_ps_received_bytes_total{call=\"Pull\"}");
  // They wait for the second rank, with their slots.
  std::vector<std::vector<float>> rows(12);
  std::vector<std::unique_ptr<worker::PendingCall>> pulls;
  for (std::vector<float>& of_pull : rows) pulls.push_back(first.StartPull(keys, &of_pull, 1));
  second.Push(keys, 0);
  std::vector<float> last;
  const auto confirms = second.StartPull(keys, &last, 1);
  for (const auto& pull : pulls) EXPECT_TRUE(pull->Wait().ok());
  EXPECT_TRUE(confirms->Wait().ok());
  EXPECT_NE(last, before);
  for (const std::vector<float>& of_pull : rows) EXPECT_EQ(of_pull, last);
  const double all = static_cast<double>(rows.size() * keys.keys.size());
  EXPECT_GT(ps.SharedBytes("Pull") - shared, 0);
  EXPECT_LE(ps.SharedBytes("Pull") - shared,
            2.0 * worker::SharedMemory::kSlots * worker::SharedMemory::kSlotBytes);
  EXPECT_GT(ps.Metric("tessera_ps_received_bytes_total{call=\"Pull\"}") - sent, all / 8);
}

TEST_F(SharedMemoryTest, WhatACancelledCallStillWritesLandsInNoOther) {
  Ps ps(kMaxBytes);
  ps.Open(v1::SYNC);
  Client first(ps.address(), 0, true), second(ps.address(), 1, true);
  AwaitSharing(ps, first);
  const worker::RoutedKeys keys = KeysFrom(0);
  const worker::RoutedKeys others = KeysFrom(1'000'000);
  const std::vector<float> expected = first.Pull(others);
  first.Push(keys, 0);
  {
    std::vector<float> rows;
    const auto waits = first.StartPull(keys, &rows, 1);
    absl::SleepFor(absl::Milliseconds(50));  // it may reach the ps, or not: both are right
  }
  // While others come and go, the ps answers what nobody waits for.
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(first.Pull(others), expected);
    if (i == 5) second.Push(keys, 0);
    if (i == 10) second.Pull(keys, 1);
  }
  EXPECT_EQ(first.Pull(keys, 1), second.Pull(keys, 1));
}

TEST_F(SharedMemoryTest, CallsAndCancellationsInAnyOrderEndWithTheRightRows) {
  Ps ps(kMaxBytes);
  ps.Open(v1::ASYNC);
  Client client(ps.address(), 0, true);
  AwaitSharing(ps, client);
  const worker::RoutedKeys pushed = KeysFrom(1'000'000);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&client, t] {
      std::mt19937 random(static_cast<uint32_t>(t));
      std::vector<worker::RoutedKeys> keys;
      std::vector<std::vector<float>> expected;
      for (uint64_t i = 0; i < 4; ++i) {
        keys.push_back(KeysFrom((t * 4 + i) * kKeys, kKeys / (i + 1)));
        expected.push_back(client.Pull(keys.back()));
      }
      for (int i = 0; i < 60; ++i) {
        const size_t which = random() % keys.size();
        std::vector<float> rows;
        const auto pull = client.StartPull(keys[which], &rows);
        if (random() % 3 == 0) continue;  // cancelled
        ASSERT_TRUE(pull->Wait().ok());
        ASSERT_EQ(rows, expected[which]);
      }
    });
  }
  for (uint64_t sequence = 0; sequence < 20; ++sequence) client.Push(pushed, sequence);
  for (std::thread& thread : threads) thread.join();
  // Each push counts once.
  Ps other(0);
  other.Open(v1::ASYNC);
  Client alone(other.address(), 0, false);
  alone.Pull(pushed);
  for (uint64_t sequence = 0; sequence < 20; ++sequence) alone.Push(pushed, sequence);
  EXPECT_EQ(client.Pull(pushed), alone.Pull(pushed));
}

TEST_F(SharedMemoryTest, AMessageThatComesTwiceChangesNothing) {
  ASSERT_TRUE(ArmFailpoints("worker.push.again=error@2+3").ok());
  Ps ps[2] = {Ps(kMaxBytes), Ps(0)};
  std::vector<float> rows[2];
  for (const int n : {0, 1}) {
    ps[n].Open(v1::ASYNC);
    Client client(ps[n].address(), 0, true);
    if (n == 0) AwaitSharing(ps[n], client);
    client.Pull(KeysFrom(0));
    for (uint64_t sequence = 0; sequence < 10; ++sequence) client.Push(KeysFrom(0), sequence);
    rows[n] = client.Pull(KeysFrom(0));
  }
  EXPECT_EQ(rows[0], rows[1]);
}

TEST_F(SharedMemoryTest, AnotherPsAtTheAddressIsOfferedMemoryAnew) {
  auto ps = std::make_unique<Ps>(kMaxBytes);
  ps->Open(v1::ASYNC);
  const std::string address = ps->address();
  Client client(address, 0, true);
  AwaitSharing(*ps, client);
  const std::vector<float> rows = client.Pull(KeysFrom(0));
  ps.reset();
  ps = std::make_unique<Ps>(kMaxBytes, address);
  ps->Open(v1::ASYNC);
  EXPECT_EQ(client.Pull(KeysFrom(0)), rows);
  AwaitSharing(*ps, client);
  EXPECT_EQ(client.Pull(KeysFrom(0)), rows);
}

TEST_F(SharedMemoryTest, AClientThatGoesLeavesNothingMapped) {
  Ps ps(kMaxBytes);
  ps.Open(v1::ASYNC);
  for (int i = 0; i < 3; ++i) {
    Client client(ps.address(), 0, true);
    AwaitSharing(ps, client);
    EXPECT_GT(ps.MappedBytes(), 0);
  }
  EXPECT_TRUE(Eventually([&] { return ps.MappedBytes() == 0; }));
}

TEST_F(SharedMemoryTest, WithoutRoomForARegionCallsGoThroughTheNetwork) {
  for (const uint64_t bytes : {0, 1 << 20}) {
    Ps ps(bytes);
    ps.Open(v1::ASYNC);
    Client client(ps.address(), 0, true), other(ps.address(), 1, false);
    const std::vector<float> rows = client.Pull(KeysFrom(0));
    client.Push(KeysFrom(0), 0);
    EXPECT_NE(client.Pull(KeysFrom(0)), rows);
    EXPECT_EQ(client.Pull(KeysFrom(0)), other.Pull(KeysFrom(0)));
    EXPECT_EQ(ps.SharedBytes("Pull") + ps.SharedBytes("Push") + ps.MappedBytes(), 0);
  }
}

}  // namespace
}  // namespace tessera
