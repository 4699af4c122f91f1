#include "worker/parameter_client.h"

#include <atomic>
#include <cstring>
#include <thread>

#include "common/clock.h"
#include "common/partition.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/v1/parameter_service.grpc.pb.h"

namespace tessera::worker {
namespace {

using ::testing::HasSubstr;

// Answers a pull with rows that hold the key in every float; can fail, lie or hang.
class FakePs final : public v1::ParameterService::Service {
 public:
  grpc::Status Pull(grpc::ServerContext* context, const v1::PullRequest* request,
                    v1::PullResponse* response) override {
    ++pulls;
    if (failures.fetch_sub(1) > 0) return ToGrpc(failure);
    while (hang && !context->IsCancelled()) absl::SleepFor(absl::Milliseconds(5));
    for (const v1::KeyBlock& block : request->tables()) {
      v1::RowBlock* rows = response->add_tables();
      rows->set_table(block.table());
      for (size_t i = 0; i < block.keys().size() / 8; ++i) {
        uint64_t key;
        std::memcpy(&key, block.keys().data() + 8 * i, 8);
        const float value = static_cast<float>(key);
        for (int d = 0; d < 2; ++d) {
          rows->mutable_values()->append(reinterpret_cast<const char*>(&value), 4);
        }
      }
      if (shorten) rows->mutable_values()->pop_back();
    }
    return grpc::Status::OK;
  }
  grpc::Status Push(grpc::ServerContext*, const v1::PushRequest* request,
                    v1::PushResponse*) override {
    ++pushes;
    sequence = request->sequence();
    return grpc::Status::OK;
  }

  std::atomic<int> pulls = 0;
  std::atomic<int> pushes = 0;
  std::atomic<uint64_t> sequence = 0;
  std::atomic<int> failures = 0;
  absl::Status failure = absl::UnavailableError("restarting");
  std::atomic<bool> hang = false;
  bool shorten = false;
};

class ParameterClientTest : public testing::Test {
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
    client_ = NewGrpcParameterClient({}, map, &channels_, &board_, &cancellation_);
    std::vector<uint64_t> keys(100);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
    KeyRouter(map).Route(keys, &keys_, &position_);
    rows_.assign(2 * keys.size(), -1);
  }

  absl::Status Pull() {
    const TableRows reads[] = {{.table = 3, .dim = 2, .keys = &keys_, .rows = rows_.data()}};
    return client_->Pull(reads, 0, false)->Wait();
  }

  InProcessChannels channels_;
  FakePs ps_[2];
  std::unique_ptr<RpcServer> servers_[2];
  StatusBoard board_;
  Cancellation cancellation_;
  std::unique_ptr<ParameterClient> client_;
  RoutedKeys keys_;
  std::vector<uint32_t> position_;
  std::vector<float> rows_;
};

TEST_F(ParameterClientTest, PutsEveryRowWithItsKey) {
  ASSERT_TRUE(Pull().ok());
  for (size_t i = 0; i < keys_.keys.size(); ++i) {
    EXPECT_EQ(rows_[2 * i], static_cast<float>(keys_.keys[i]));
    EXPECT_EQ(rows_[2 * i + 1], static_cast<float>(keys_.keys[i]));
  }
}

TEST_F(ParameterClientTest, RepeatsOnlyTheCallThatFailedForAPassingReason) {
  ps_[1].failures = 2;
  ASSERT_TRUE(Pull().ok());
  EXPECT_EQ(ps_[0].pulls, 1);
  EXPECT_EQ(ps_[1].pulls, 3);
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
  ASSERT_TRUE(client_->Push({}, 7, 1.0)->Wait().ok());
  for (FakePs& ps : ps_) {
    EXPECT_EQ(ps.pushes, 1);
    EXPECT_EQ(ps.sequence, 7u);
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

}  // namespace
}  // namespace tessera::worker
