#include "worker/worker.h"

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "tessera/v1/cluster.grpc.pb.h"
#include "tessera/v1/metrics.grpc.pb.h"
#include "tests/common/health.h"

namespace tessera::worker {
namespace {

using ::testing::HasSubstr;

TEST(Worker, ServesItsMetricsWhereItIsToldToListen) {
  const auto channels = NewNetworkChannels();
  Worker::Options options;
  options.master_address = "127.0.0.1:1";  // nobody: it waits
  options.channels = channels.get();
  options.server.emplace();
  const auto worker = Worker::Start(options);
  ASSERT_TRUE(worker.ok()) << worker.status();
  const auto stub = v1::MetricsService::NewStub(channels->Connect((*worker)->address()));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(30)));
  v1::GetMetricsResponse response;
  ASSERT_TRUE(stub->GetMetrics(&context, {}, &response).ok());
  EXPECT_THAT(response.text(), HasSubstr("tessera_build_info{process=\"worker\""));
  EXPECT_THAT(response.text(), HasSubstr("\ntessera_worker_steps_total 0\n"));

  options.server->listen = (*worker)->address();
  EXPECT_EQ(Worker::Start(options).status().code(), absl::StatusCode::kUnavailable);
  options.server->listen = "0.0.0.0:0";
  EXPECT_EQ(Worker::Start(options).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Worker, HasNoServerUnlessItIsToldTo) {
  const auto channels = NewNetworkChannels();
  Worker::Options options;
  options.master_address = "127.0.0.1:1";
  options.channels = channels.get();
  const auto worker = Worker::Start(options);
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ((*worker)->address(), "");
}

TEST(Worker, HealthSaysNotServingOnceItIsToStop) {
  const auto channels = NewNetworkChannels();
  Worker::Options options;
  options.master_address = "127.0.0.1:1";
  options.channels = channels.get();
  options.server.emplace();
  const auto worker = Worker::Start(options);
  ASSERT_TRUE(worker.ok()) << worker.status();
  const auto channel = channels->Connect((*worker)->address());
  EXPECT_EQ(HealthAt(channel), "SERVING");
  (*worker)->Leave();
  EXPECT_EQ(HealthAt(channel), "NOT_SERVING");
}

class RefusingMaster final : public v1::ClusterService::Service {
 public:
  grpc::Status Join(grpc::ServerContext*,
                    grpc::ServerReaderWriter<v1::MasterMessage, v1::NodeMessage>*) override {
    return {grpc::StatusCode::FAILED_PRECONDITION, "another version"};
  }
};

TEST(Worker, HealthSaysNotServingOnceItIsRefusedForGood) {
  RefusingMaster master;
  const auto master_server = RpcServer::Start({}, {&master});
  ASSERT_TRUE(master_server.ok()) << master_server.status();
  const auto channels = NewNetworkChannels();
  absl::Notification refused;
  Worker::Options options;
  options.master_address = (*master_server)->address();
  options.channels = channels.get();
  options.server.emplace();
  options.on_fatal = [&refused](const absl::Status&) { refused.Notify(); };
  const auto worker = Worker::Start(options);
  ASSERT_TRUE(worker.ok()) << worker.status();
  refused.WaitForNotification();
  EXPECT_EQ(HealthAt(channels->Connect((*worker)->address())), "NOT_SERVING");
}

}  // namespace
}  // namespace tessera::worker
