#include <memory>

#include "common/clock.h"
#include "common/rpc/channels.h"
#include "common/rpc/server.h"
#include "common/version.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "master/services.h"
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

TEST(ClusterService, AMasterThatStopsTellsNobodyThatItsIncarnationIsOver) {
  const std::unique_ptr<StateLog> log = NewMemoryStateLog();
  const Clock& clock = SystemClock();
  auto core = MasterCore::New({}, {}, {clock.Monotonic(), clock.Wall()});
  ASSERT_TRUE(core.ok()) << core.status();
  CoreHost host(*std::move(core), log.get(), &clock);
  ClusterServiceImpl service(&host);
  InProcessChannels channels;
  ServerOptions options;
  options.listen = "master";
  options.in_process = &channels;
  const auto server = RpcServer::Start(options, {&service});
  ASSERT_TRUE(server.ok()) << server.status();

  Hello first(channels, 0);
  v1::MasterMessage answer;
  ASSERT_TRUE(first.stream->Read(&answer));
  const uint64_t incarnation = answer.welcome().incarnation();
  ASSERT_GT(incarnation, 0u);
  host.Stop();
  while (first.stream->Read(&answer)) continue;
  EXPECT_FALSE(first.stream->Finish().ok());
  // The server still takes calls.
  Hello again(channels, incarnation);
  EXPECT_FALSE(again.stream->Read(&answer));
  const grpc::Status status = again.stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
}

}  // namespace
}  // namespace tessera::master
