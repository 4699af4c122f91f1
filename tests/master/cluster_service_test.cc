#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/clock.h"
#include "common/rpc/channels.h"
#include "common/rpc/server.h"
#include "common/version.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "master/services/services.h"
#include "tessera/v1/cluster.grpc.pb.h"

namespace tessera::master {
namespace {

// A stream that says hello.
struct Hello {
  Hello(Channels& channels, uint64_t incarnation)
      : stub(v1::ClusterService::NewStub(channels.Connect("master"))),
        stream(stub->Join(&context)) {
    v1::NodeMessage message;
    v1::Hello& hello = *message.mutable_hello();
    hello.set_protocol(kProtocolVersion);
    hello.set_kind(v1::WORKER);
    hello.set_name("worker-0");
    hello.set_process(7);
    hello.set_incarnation(incarnation);
    stream->Write(message);
  }
  const std::unique_ptr<v1::ClusterService::Stub> stub;
  grpc::ClientContext context;
  const std::unique_ptr<grpc::ClientReaderWriter<v1::NodeMessage, v1::MasterMessage>> stream;
};

// A disk that takes its time.
class HeldLog final : public StateLog {
 public:
  absl::Status Apply(const std::vector<Write>& batch) override {
    if (!asked.HasBeenNotified()) asked.Notify();
    released.WaitForNotification();
    return log_->Apply(batch);
  }
  absl::StatusOr<std::string> Get(const std::string& key) override { return log_->Get(key); }
  absl::StatusOr<std::map<std::string, std::string>> Scan(const std::string& prefix) override {
    return log_->Scan(prefix);
  }
  absl::Notification asked, released;

 private:
  const std::unique_ptr<StateLog> log_ = NewMemoryStateLog();
};

class ManualClock final : public Clock {
 public:
  absl::Duration Monotonic() const override { return absl::Seconds(seconds_.load()); }
  absl::Time Wall() const override { return absl::UnixEpoch() + Monotonic(); }
  void AdvanceASecond() { ++seconds_; }

 private:
  std::atomic<int> seconds_ = 1000;
};

TEST(ClusterServiceLease, BeginsWhenTheProcessHearsOfItHoweverSlowTheStateLogIs) {
  HeldLog log;
  ManualClock clock;
  const MasterCore::Options core_options;
  auto core = MasterCore::New(core_options, {}, {clock.Monotonic(), clock.Wall()});
  ASSERT_TRUE(core.ok()) << core.status();
  CoreHost host(*std::move(core), &log, &clock);
  ClusterServiceImpl service(&host);
  InProcessChannels channels;
  ServerOptions options;
  options.listen = "master";
  options.in_process = &channels;
  const auto server = RpcServer::Start(options, {&service});
  ASSERT_TRUE(server.ok()) << server.status();
  // As while others are heard.
  const auto pass = [&](absl::Duration time) {
    for (absl::Duration passed; passed < time; passed += absl::Seconds(1)) {
      clock.AdvanceASecond();
      host.Update([](MasterCore& core, const Now& now) { core.Tick(now); });
    }
  };

  Hello process(channels, 0);
  log.asked.WaitForNotification();
  pass(core_options.membership.lease - absl::Seconds(1));
  log.released.Notify();
  v1::MasterMessage answer;
  ASSERT_TRUE(process.stream->Read(&answer));
  // Its first heartbeat is due.
  pass(core_options.membership.heartbeat);
  EXPECT_TRUE(host.Read([&](const MasterCore& core, const Now&) {
    return core.IsAlive(answer.welcome().incarnation());
  }));
  host.Stop();
}

class ClusterService : public testing::Test {
 protected:
  void SetUp() override {
    const Clock& clock = SystemClock();
    auto core = MasterCore::New({}, {}, {clock.Monotonic(), clock.Wall()});
    ASSERT_TRUE(core.ok()) << core.status();
    host_.emplace(*std::move(core), log_.get(), &clock);
    service_.emplace(&*host_);
    ServerOptions options;
    options.listen = "master";
    options.in_process = &channels_;
    auto server = RpcServer::Start(options, {&*service_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  InProcessChannels channels_;
  const std::unique_ptr<StateLog> log_ = NewMemoryStateLog();
  std::optional<CoreHost> host_;
  std::optional<ClusterServiceImpl> service_;
  std::unique_ptr<RpcServer> server_;
};

TEST_F(ClusterService, AStreamWithoutAHelloIsRefused) {
  const auto stub = v1::ClusterService::NewStub(channels_.Connect("master"));
  grpc::ClientContext context;
  const auto stream = stub->Join(&context);
  stream->WritesDone();
  v1::MasterMessage answer;
  EXPECT_FALSE(stream->Read(&answer));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
}

TEST_F(ClusterService, AMasterThatStopsTellsNobodyThatItsIncarnationIsOver) {
  Hello first(channels_, 0);
  v1::MasterMessage answer;
  ASSERT_TRUE(first.stream->Read(&answer));
  const uint64_t incarnation = answer.welcome().incarnation();
  ASSERT_GT(incarnation, 0u);
  host_->Stop();
  while (first.stream->Read(&answer)) continue;
  EXPECT_FALSE(first.stream->Finish().ok());
  // The server still takes calls.
  Hello again(channels_, incarnation);
  EXPECT_FALSE(again.stream->Read(&answer));
  const grpc::Status status = again.stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
}

}  // namespace
}  // namespace tessera::master
