#include "worker/parameters/parameter_client.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "common/clock.h"
#include "common/math/bfloat16.h"
#include "common/partition.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/v1/parameter_service.grpc.pb.h"

namespace tessera::worker {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kHalfTable = 6;  // the one whose wire_type is bfloat16

std::string HalfBytes(absl::Span<const float> values) {
  std::vector<uint16_t> halves(values.size());
  math::RoundToBfloat16(values.data(), values.size(), halves.data());
  return {reinterpret_cast<const char*>(halves.data()), halves.size() * sizeof(uint16_t)};
}

// Answers a pull with rows that hold the key in every float; can fail, lie or hang.
class FakePs final : public v1::ParameterService::Service {
 public:
  grpc::Status Pull(grpc::ServerContext* context, const v1::PullRequest* request,
                    v1::PullResponse* response) override {
    ++pulls;
    NoteSize(request->ByteSizeLong());
    if (failures.fetch_sub(1) > 0) return ToGrpc(failure);
    while (hang && !context->IsCancelled()) absl::SleepFor(absl::Milliseconds(5));
    for (const v1::KeyBlock& block : request->tables()) {
      v1::RowBlock* rows = response->add_tables();
      rows->set_table(block.table());
      for (size_t i = 0; i < block.keys().size() / 8; ++i) {
        uint64_t key;
        std::memcpy(&key, block.keys().data() + 8 * i, 8);
        const float value = static_cast<float>(key);
        const float row[] = {value, value};
        *rows->mutable_values() += block.table() == kHalfTable
                                       ? HalfBytes(row)
                                       : std::string(reinterpret_cast<const char*>(row), 8);
      }
      if (shorten) rows->mutable_values()->pop_back();
    }
    response->set_has_cold_rows(has_cold_rows);
    return grpc::Status::OK;
  }
  grpc::Status LookAhead(grpc::ServerContext*, const v1::PullRequest* request,
                         v1::LookAheadResponse*) override {
    if (failures.fetch_sub(1) > 0) return ToGrpc(failure);
    absl::MutexLock lock(&mu);
    for (const v1::KeyBlock& block : request->tables()) told += block.keys();
    return grpc::Status::OK;
  }
  grpc::Status Push(grpc::ServerContext*, const v1::PushRequest* request,
                    v1::PushResponse*) override {
    ++pushes;
    sequence = request->sequence();
    NoteSize(request->ByteSizeLong());
    if (failures.fetch_sub(1) > 0) return ToGrpc(failure);
    absl::MutexLock lock(&mu);
    if (on_push) return ToGrpc(on_push(*request));
    parts[request->part()] = *request;
    return grpc::Status::OK;
  }
  grpc::Status ShareMemory(grpc::ServerContext*, const v1::ShareMemoryRequest*,
                           v1::ShareMemoryResponse*) override {
    ++offers;
    return agrees ? grpc::Status::OK : grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "");
  }
  grpc::Status GetStats(grpc::ServerContext*, const v1::GetStatsRequest* request,
                        v1::StatsResponse* response) override {
    if (failures.fetch_sub(1) > 0) return ToGrpc(failure);
    if (request->generation() != 7) return ToGrpc(absl::AbortedError("it has generation 7"));
    for (const uint64_t rows : table_rows) response->add_tables()->set_rows(rows);
    return grpc::Status::OK;
  }
  void NoteSize(size_t bytes) {
    size_t seen = largest;
    while (seen < bytes && !largest.compare_exchange_weak(seen, bytes)) {
    }
  }

  std::atomic<int> pulls = 0;
  std::atomic<int> pushes = 0;
  std::atomic<uint64_t> sequence = 0;
  std::atomic<int> failures = 0;
  absl::Status failure = absl::UnavailableError("restarting");
  std::atomic<bool> hang = false;
  std::atomic<int> offers = 0;
  bool agrees = false;  // to share memory, of which it makes no use
  bool shorten = false;
  bool has_cold_rows = false;
  std::string told ABSL_GUARDED_BY(mu);  // keys, ahead of a pull
  std::atomic<size_t> largest = 0;       // message
  std::vector<uint64_t> table_rows;
  absl::Mutex mu;
  std::map<uint32_t, v1::PushRequest> parts ABSL_GUARDED_BY(mu);  // by number
  // Answers pushes, if it is set.
  std::function<absl::Status(const v1::PushRequest&)> on_push ABSL_GUARDED_BY(mu);
};

class ParameterClientTest : public ::testing::Test {
 protected:
  ParameterClientTest() : board_(SystemClock()) {
    std::vector<v1::PsAddress> addresses(2);
    for (int p = 0; p < 2; ++p) {
      addresses[p].set_name("ps-" + std::to_string(p));
      addresses[p].set_address("fake-" + std::to_string(p));
      servers_[p] = *RpcServer::Start({.listen = addresses[p].address(), .in_process = &channels_},
                                      {&ps_[p]});
    }
    const v1::PartitionMap map = NewPartitionMap(1, 16, addresses);
    directory_ = std::make_unique<PsDirectory>(map, &channels_);
    client_ = NewGrpcParameterClient({}, directory_.get(), &board_, &cancellation_,
                                     /*share_memory=*/true, &pool_);
    std::vector<uint64_t> keys(100);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
    KeyRouter(map).Route(keys, &keys_, &position_);
    rows_.assign(2 * keys.size(), -1);
    many_.keys.resize(200000);
    for (size_t i = 0; i < many_.keys.size(); ++i) many_.keys[i] = i + 5;
    many_.begin = {0, 150000, 200000};
  }

  absl::Status Pull() {
    const TableRows reads[] = {{.table = 3, .dim = 2, .keys = &keys_, .rows = rows_.data()}};
    return client_->Pull(reads, {})->Wait();
  }

  InProcessChannels channels_;
  FakePs ps_[2];
  std::unique_ptr<RpcServer> servers_[2];
  TaskPool pool_{2};
  StatusBoard board_;
  Cancellation cancellation_;
  std::unique_ptr<PsDirectory> directory_;
  std::unique_ptr<ParameterClient> client_;
  RoutedKeys keys_;
  std::vector<uint32_t> position_;
  std::vector<float> rows_;
  RoutedKeys many_;  // more than fit one message
};

TEST_F(ParameterClientTest, PutsEveryRowWithItsKey) {
  ASSERT_TRUE(Pull().ok());
  for (size_t i = 0; i < keys_.keys.size(); ++i) {
    EXPECT_EQ(rows_[2 * i], static_cast<float>(keys_.keys[i]));
    EXPECT_EQ(rows_[2 * i + 1], static_cast<float>(keys_.keys[i]));
  }
}

TEST_F(ParameterClientTest, LooksAheadAtPsThatHaveRowsOnDiskAndTriesOnce) {
  const TableRows reads[] = {{.table = 3, .dim = 2, .keys = &keys_, .rows = rows_.data()}};
  EXPECT_EQ(client_->LookAhead(reads), nullptr) << "no ps has said anything";
  ps_[1].has_cold_rows = true;
  ASSERT_TRUE(Pull().ok());
  const std::unique_ptr<PendingCall> ahead = client_->LookAhead(reads);
  ASSERT_NE(ahead, nullptr);
  EXPECT_TRUE(ahead->Wait().ok());
  EXPECT_TRUE(ahead->Done());
  {
    absl::MutexLock lock(&ps_[1].mu);
    const size_t begin = keys_.begin[1], end = keys_.begin[2];
    EXPECT_EQ(ps_[1].told, std::string(reinterpret_cast<const char*>(keys_.keys.data() + begin),
                                       (end - begin) * sizeof(uint64_t)));
  }
  {
    absl::MutexLock lock(&ps_[0].mu);
    EXPECT_EQ(ps_[0].told, "");
  }
  ps_[1].failures = 1;
  const std::unique_ptr<PendingCall> refused = client_->LookAhead(reads);
  EXPECT_EQ(refused->Wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(refused->Done());
  ps_[1].failures = 0;
  ps_[1].has_cold_rows = false;
  ASSERT_TRUE(Pull().ok());
  EXPECT_EQ(client_->LookAhead(reads), nullptr);
}

TEST_F(ParameterClientTest, RepeatsOnlyTheCallThatFailedForAPassingReason) {
  ps_[1].failures = 2;
  ASSERT_TRUE(Pull().ok());
  EXPECT_EQ(ps_[0].pulls, 1);
  EXPECT_EQ(ps_[1].pulls, 3);
}

// Only moved by hand; read by several threads.
class SteppedClock final : public Clock {
 public:
  absl::Duration Monotonic() const override { return absl::Seconds(seconds.load()); }
  absl::Time Wall() const override { return absl::UnixEpoch() + Monotonic(); }
  std::atomic<int> seconds = 100;
};

TEST_F(ParameterClientTest, ACallThatFailsAgainAndAgainIsOneWaitSinceItsFirstFailure) {
  SteppedClock clock;
  StatusBoard board(clock);
  const auto client = NewGrpcParameterClient({}, directory_.get(), &board, &cancellation_,
                                             /*share_memory=*/true);
  ps_[1].failures = std::numeric_limits<int>::max();
  const TableRows reads[] = {{.table = 3, .dim = 2, .keys = &keys_, .rows = rows_.data()}};
  absl::Status status;
  std::thread caller([&] { status = client->Pull(reads, {})->Wait(); });
  const auto await_pulls = [this](int pulls) {
    while (ps_[1].pulls < pulls) absl::SleepFor(absl::Milliseconds(1));
  };
  await_pulls(4);  // the caller waits by now
  clock.seconds += 7;
  await_pulls(6);
  EXPECT_THAT(board.waits(),
              ::testing::Contains(::testing::AllOf(HasSubstr("ps-1"), HasSubstr("restarting"),
                                                   HasSubstr("since 7 s"))));
  ps_[1].failures = 0;
  caller.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(board.waits(), ::testing::IsEmpty());
}

TEST_F(ParameterClientTest, CountsTheRowsOfEveryTableOnAllPs) {
  ps_[0].table_rows = {3, 0, 5};
  ps_[1].table_rows = {4, 0, 1};
  ps_[1].failures = 1;
  v1::CallHeader header;
  header.set_generation(7);
  client_ = NewGrpcParameterClient(header, directory_.get(), &board_, &cancellation_, false);
  EXPECT_EQ(client_->CountRows().value(), (std::vector<uint64_t>{7, 0, 6}));
  client_ = NewGrpcParameterClient({}, directory_.get(), &board_, &cancellation_, false);
  EXPECT_EQ(client_->CountRows().status().code(), absl::StatusCode::kAborted);
}

TEST_F(ParameterClientTest, RepeatsACallThatBroke) {
  for (const absl::Status& broken : {absl::CancelledError("the server is shutting down"),
                                     absl::UnknownError("Stream removed")}) {
    ps_[1].failure = broken;
    ps_[1].failures = 1;
    EXPECT_TRUE(Pull().ok());
  }
}

TEST_F(ParameterClientTest, ReturnsALastingFailureWithTheNameOfThePs) {
  ps_[1].failures = 1;
  ps_[1].failure = absl::AbortedError("generation 4 is over");
  const absl::Status status = Pull();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ps-1 (fake-1): pull of step 0"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("generation 4 is over"));
}

TEST_F(ParameterClientTest, RefusesAnAnswerOfTheWrongSize) {
  ps_[0].shorten = true;
  const absl::Status status = Pull();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ps-0: answered table 3 with"));
}

TEST_F(ParameterClientTest, PushesToEveryPsAlsoWithoutKeys) {
  ASSERT_TRUE(client_->Push({}, {.sequence = 7})->Wait().ok());
  for (FakePs& ps : ps_) {
    EXPECT_EQ(ps.pushes, 1);
    EXPECT_EQ(ps.sequence, 7u);
  }
}

TEST_F(ParameterClientTest, ALargePullIsCutIntoMessagesAndEveryRowFindsItsKey) {
  std::vector<float> rows(2 * many_.keys.size(), -1), again = rows;
  ps_[0].failures = 3;  // of one message each
  const TableRows reads[] = {{.table = 3, .dim = 2, .keys = &many_, .rows = rows.data()},
                             {.table = 1, .dim = 2, .keys = &many_, .rows = again.data()}};
  ASSERT_TRUE(client_->Pull(reads, {})->Wait().ok());
  for (size_t i = 0; i < many_.keys.size(); ++i) {
    ASSERT_EQ(rows[2 * i], static_cast<float>(many_.keys[i]));
    ASSERT_EQ(rows[2 * i + 1], static_cast<float>(many_.keys[i]));
  }
  EXPECT_EQ(again, rows);
  EXPECT_GT(ps_[0].pulls, 2 * ps_[1].pulls);
  EXPECT_LT(ps_[0].largest, size_t{600} << 10);
}

TEST_F(ParameterClientTest, ALargePushIsCutIntoNumberedPartsOfOnePush) {
  std::vector<float> gradients(2 * many_.keys.size());
  for (size_t i = 0; i < gradients.size(); ++i) gradients[i] = static_cast<float>(i);
  const TableGradients writes[] = {
      {.table = 3, .dim = 2, .keys = &many_, .gradients = gradients.data()}};
  ps_[0].failures = 2;
  ASSERT_TRUE(client_->Push(writes, {.sequence = 7, .confirmed = 5, .learning_rate_scale = 0.5})
                  ->Wait()
                  .ok());
  for (size_t p = 0; p < 2; ++p) {
    absl::MutexLock lock(&ps_[p].mu);
    std::string keys, values;
    for (const auto& [number, part] : ps_[p].parts) {
      EXPECT_EQ(part.parts(), ps_[p].parts.size());
      EXPECT_EQ(part.sequence(), 7u);
      EXPECT_EQ(part.confirmed(), 5u);
      EXPECT_EQ(part.learning_rate_scale(), 0.5);
      EXPECT_EQ(part.bulk_bytes(), (many_.begin[p + 1] - many_.begin[p]) * 16u);
      ASSERT_EQ(part.tables_size(), 1);
      EXPECT_EQ(part.tables(0).table(), 3u);
      keys += part.tables(0).keys();
      values += part.tables(0).gradients();
    }
    EXPECT_GT(ps_[p].parts.size(), 1u);
    EXPECT_LT(ps_[p].largest, size_t{600} << 10);
    const size_t first = many_.begin[p], count = many_.begin[p + 1] - first;
    ASSERT_EQ(keys.size(), count * 8);
    EXPECT_EQ(std::memcmp(keys.data(), &many_.keys[first], keys.size()), 0);
    ASSERT_EQ(values.size(), count * 8);
    EXPECT_EQ(std::memcmp(values.data(), &gradients[2 * first], values.size()), 0);
  }
}

TEST_F(ParameterClientTest, APushThatWaitsForRoomGetsItFromAYoungerOneThatNobodyWaitsFor) {
  std::set<uint32_t> parts;  // of the younger push, which has taken the room that there is
  bool has_failed = false;
  {
    absl::MutexLock lock(&ps_[0].mu);
    ps_[0].on_push = [&](const v1::PushRequest& request) -> absl::Status {
      if (request.sequence() == 0) {
        if (parts.size() == request.parts()) return absl::OkStatus();
        return absl::ResourceExhaustedError("no room");
      }
      if (request.part() == 1 && !std::exchange(has_failed, true)) {
        return absl::ResourceExhaustedError("too many requests wait");
      }
      parts.insert(request.part());
      return absl::OkStatus();
    };
  }
  const std::vector<float> gradients(2 * many_.keys.size());
  const TableGradients writes[] = {
      {.table = 3, .dim = 2, .keys = &many_, .gradients = gradients.data()}};
  const auto younger = client_->Push(writes, {.sequence = 1});
  const auto older = client_->Push(writes, {.sequence = 0});
  absl::Notification ended;
  std::thread limit([&] {
    if (!ended.WaitForNotificationWithTimeout(absl::Seconds(60))) cancellation_.Cancel();
  });
  const absl::Status status = older->Wait();
  ended.Notify();
  limit.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(younger->Wait().ok());
}

TEST_F(ParameterClientTest, RowsAndGradientsOfATableCrossTheWireAsBfloat16) {
  std::vector<float> halves(2 * many_.keys.size(), -1), wide = halves;
  const TableRows reads[] = {
      {.table = 3, .dim = 2, .keys = &many_, .rows = wide.data()},
      {.table = kHalfTable, .dim = 2, .keys = &many_, .rows = halves.data(), .bfloat16 = true}};
  ASSERT_TRUE(client_->Pull(reads, {})->Wait().ok());
  for (size_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(wide[i], static_cast<float>(many_.keys[i / 2]));
    ASSERT_EQ(halves[i], math::FromBfloat16(math::NearestBfloat16(wide[i])));
  }
  std::vector<float> gradients(wide.size());
  for (size_t i = 0; i < gradients.size(); ++i) gradients[i] = 1 + 0.001f * static_cast<float>(i);
  const TableGradients writes[] = {{.table = 3, .dim = 2, .keys = &many_, .gradients = wide.data()},
                                   {.table = kHalfTable,
                                    .dim = 2,
                                    .keys = &many_,
                                    .gradients = gradients.data(),
                                    .bfloat16 = true}};
  ps_[0].failures = 2;  // a message is the same when it is sent again
  ASSERT_TRUE(client_->Push(writes, {.sequence = 7, .confirmed = 5, .learning_rate_scale = 0.5})
                  ->Wait()
                  .ok());
  for (size_t p = 0; p < 2; ++p) {
    const size_t first = many_.begin[p], count = many_.begin[p + 1] - first;
    absl::MutexLock lock(&ps_[p].mu);
    std::map<uint32_t, std::string> values;  // by table
    for (const auto& [number, part] : ps_[p].parts) {
      EXPECT_EQ(part.bulk_bytes(), count * (8 + 2 * 4 + 8 + 2 * 2));
      for (const v1::GradientBlock& block : part.tables())
        values[block.table()] += block.gradients();
    }
    EXPECT_EQ(values[3], std::string(reinterpret_cast<const char*>(&wide[2 * first]), count * 8));
    EXPECT_EQ(values[kHalfTable],
              HalfBytes(absl::MakeConstSpan(gradients).subspan(2 * first, 2 * count)));
  }
}

TEST_F(ParameterClientTest, FindsAPsThatCameBackElsewhere) {
  ps_[1].failures = std::numeric_limits<int>::max();
  const TableRows reads[] = {{.table = 3, .dim = 2, .keys = &keys_, .rows = rows_.data()}};
  const std::unique_ptr<PendingCall> pull = client_->Pull(reads, {});
  FakePs again;
  const auto server =
      *RpcServer::Start({.listen = "elsewhere", .in_process = &channels_}, {&again});
  std::vector<v1::PsAddress> addresses(2);
  addresses[0].set_address("fake-0");
  addresses[1].set_address("elsewhere");
  addresses[1].set_incarnation(7);
  directory_->Update(NewPartitionMap(1, 16, addresses));
  ASSERT_TRUE(pull->Wait().ok());
  EXPECT_EQ(again.pulls, 1);
  for (size_t i = 0; i < keys_.keys.size(); ++i) {
    EXPECT_EQ(rows_[2 * i], static_cast<float>(keys_.keys[i]));
  }
}

TEST_F(ParameterClientTest, CancellationEndsAWaitForAHangingPs) {
  ps_[0].hang = true;
  std::thread canceller([this] {
    while (ps_[0].pulls == 0) std::this_thread::yield();
    cancellation_.Cancel();
  });
  EXPECT_EQ(Pull().code(), absl::StatusCode::kCancelled);
  canceller.join();
  ps_[0].hang = false;
}

// A FakePs on loopback: as far as a client can tell it may have the same memory.
class LoopbackTest : public ::testing::Test {
 protected:
  LoopbackTest() : channels_(NewNetworkChannels()), board_(SystemClock()) {
    keys_.keys.resize(10'000);
    for (size_t i = 0; i < keys_.keys.size(); ++i) keys_.keys[i] = i;
    keys_.begin = {0, 10'000};
    rows_.resize(2 * keys_.keys.size());
    v1::PsAddress address;
    address.set_name("ps-0");
    address.set_address(server_->address());
    directory_ = std::make_unique<PsDirectory>(NewPartitionMap(1, 16, {address}), channels_.get());
    client_ = NewGrpcParameterClient({}, directory_.get(), &board_, &cancellation_,
                                     /*share_memory=*/true);
  }
  absl::Status Pull() {
    const TableRows reads[] = {{.table = 3, .dim = 2, .keys = &keys_, .rows = rows_.data()}};
    return client_->Pull(reads, {})->Wait();
  }

  FakePs ps_;
  const std::unique_ptr<RpcServer> server_ = *RpcServer::Start({.listen = "127.0.0.1:0"}, {&ps_});
  const std::unique_ptr<Channels> channels_;
  StatusBoard board_;
  Cancellation cancellation_;
  std::unique_ptr<PsDirectory> directory_;
  std::unique_ptr<ParameterClient> client_;
  RoutedKeys keys_;
  std::vector<float> rows_;
};

TEST_F(LoopbackTest, APsThatKnowsNothingOfSharedMemoryIsAskedOnceAndCalledAsEver) {
  for (int i = 0; i < 20; ++i) {
    rows_.assign(rows_.size(), -1);
    ASSERT_TRUE(Pull().ok());
    EXPECT_EQ(rows_[2 * 7777], 7777);
  }
  EXPECT_EQ(ps_.offers, 1);
}

TEST_F(LoopbackTest, AnAnswerThatLeavesTheRowsOutOfTheMemoryAgreedOnIsAnError) {
  ps_.agrees = true;
  absl::Status status;
  // Until the agreement is there calls carry their keys.
  while (status.ok()) status = Pull();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("where they were not asked for"));
}

TEST_F(LoopbackTest, SmallCallsAreNotWorthSharing) {
  keys_.keys.resize(100);
  keys_.begin = {0, 100};
  ASSERT_TRUE(Pull().ok());
  EXPECT_EQ(ps_.offers, 0);
}

}  // namespace
}  // namespace tessera::worker
