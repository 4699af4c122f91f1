#include "ps/parameter_server.h"

#include <unistd.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/rpc/channels.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "common/version.h"
#include "grpcpp/client_context.h"
#include "tessera/v1/cluster.grpc.pb.h"
#include "tessera/v1/parameter_service.grpc.pb.h"
#include "tests/common/health.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

using absl::StatusCode;

// Welcomes whoever comes, unless told to refuse, and ends streams when told to.
class FakeMaster final : public v1::ClusterService::Service {
 public:
  using Stream = grpc::ServerReaderWriter<v1::MasterMessage, v1::NodeMessage>;
  explicit FakeMaster(absl::Status refusal = absl::OkStatus()) : refusal_(std::move(refusal)) {}

  grpc::Status Join(grpc::ServerContext*, Stream* stream) override {
    v1::NodeMessage in;
    if (!stream->Read(&in)) return grpc::Status::OK;
    if (!refusal_.ok()) return ToGrpc(refusal_);
    v1::MasterMessage out;
    {
      absl::MutexLock lock(&mu_);
      hello_ = in.hello();
      out.mutable_welcome()->set_incarnation(++joined_);
    }
    out.mutable_welcome()->set_name(in.hello().name());
    out.mutable_welcome()->set_heartbeat_ms(10);
    out.mutable_welcome()->set_lease_ms(30000);
    stream->Write(out);
    while (stream->Read(&in)) {
      absl::MutexLock lock(&mu_);
      heartbeat_ = in.heartbeat();
      if (std::exchange(end_lease_, false))
        return {grpc::StatusCode::ABORTED, "its lease has ended"};
    }
    return grpc::Status::OK;
  }

  void EndLease() {
    absl::MutexLock lock(&mu_);
    end_lease_ = true;
  }
  // The first heartbeat of which `wanted` is true.
  v1::Heartbeat Await(std::function<bool(const v1::Heartbeat&, int joined)> wanted) {
    absl::MutexLock lock(&mu_);
    const auto holds = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return wanted(heartbeat_, joined_);
    };
    EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&holds), absl::Seconds(30)));
    return heartbeat_;
  }
  v1::Hello hello() {
    absl::MutexLock lock(&mu_);
    return hello_;
  }

 private:
  const absl::Status refusal_;
  absl::Mutex mu_;
  v1::Hello hello_ ABSL_GUARDED_BY(mu_);
  v1::Heartbeat heartbeat_ ABSL_GUARDED_BY(mu_);
  int joined_ ABSL_GUARDED_BY(mu_) = 0;
  bool end_lease_ ABSL_GUARDED_BY(mu_) = false;
};

class ParameterServerTest : public testing::Test {
 protected:
  std::unique_ptr<RpcServer> StartMaster(FakeMaster& master) {
    return *RpcServer::Start({.listen = "master", .in_process = &channels_}, {&master});
  }
  ParameterServer::Options Options() {
    ParameterServer::Options options;
    options.server.listen = "ps-address";
    options.server.in_process = &channels_;
    options.master_address = "master";
    options.name = "ps-0";
    options.channels = &channels_;
    options.files = &files_;
    options.clock = &SystemClock();
    return options;
  }

  InProcessChannels channels_;
  FaultFileSystem files_;
};

// A ps that sends no rows, and does not say so.
class HangingSource final : public v1::ParameterService::Service {
 public:
  grpc::Status ReadPartitions(grpc::ServerContext* context, const v1::ReadPartitionsRequest*,
                              grpc::ServerWriter<v1::RowChunk>*) override {
    called_.Notify();
    while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(5));
    left_.Notify();
    return grpc::Status::OK;
  }
  bool AwaitCalled() { return called_.WaitForNotificationWithTimeout(absl::Seconds(30)); }
  // Whether whoever read has hung up.
  bool AwaitLeft() { return left_.WaitForNotificationWithTimeout(absl::Seconds(30)); }

 private:
  absl::Notification called_;
  absl::Notification left_;
};

TEST_F(ParameterServerTest, BringsNoRowsOverForACallThatHasEnded) {
  FakeMaster master;
  const auto master_server = StartMaster(master);
  HangingSource source;
  const auto source_server =
      *RpcServer::Start({.listen = "source", .in_process = &channels_}, {&source});
  const auto server = ParameterServer::Start(Options());
  ASSERT_OK(server);
  master.Await([](const auto& h, int) { return !h.doing().empty(); });
  const auto stub = v1::ParameterService::NewStub(channels_.Connect((*server)->address()));
  v1::FetchPartitionsRequest request;
  *request.mutable_open() = Whole(Job({SgdTable("t", 1, v1::SYNC)}));
  request.mutable_open()->set_generation(2);
  request.mutable_open()->set_take_over(1);
  v1::FetchPartitionsRequest::Source& from = *request.add_sources();
  from.set_name("ps-9");
  from.set_address("source");
  from.add_partitions(0);
  grpc::ClientContext context;
  std::thread caller([&] {
    v1::FetchPartitionsResponse response;
    EXPECT_EQ(stub->FetchPartitions(&context, request, &response).error_code(),
              grpc::StatusCode::CANCELLED);
  });
  EXPECT_TRUE(source.AwaitCalled());
  context.TryCancel();
  caller.join();
  EXPECT_TRUE(source.AwaitLeft());
}

TEST_F(ParameterServerTest, JoinsTheMasterAndTellsItsRows) {
  FakeMaster master;
  const auto master_server = StartMaster(master);
  const auto server = ParameterServer::Start(Options());
  ASSERT_OK(server);
  EXPECT_EQ(master.Await([](const auto& h, int) { return !h.doing().empty(); }).doing(), "idle");
  EXPECT_EQ(master.hello().kind(), v1::PS);
  EXPECT_EQ(master.hello().name(), "ps-0");
  EXPECT_EQ(master.hello().address(), "ps-address");
  EXPECT_EQ(master.hello().version(), kVersion);

  const auto stub = v1::ParameterService::NewStub(channels_.Connect((*server)->address()));
  const auto pull = [&](uint64_t step) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(30)));
    v1::PullResponse response;
    return FromGrpc(stub->Pull(&context, PullOf(0, step, {{0, {1, 2, 3}}}), &response));
  };
  grpc::ClientContext context;
  v1::OpenJobResponse opened;
  ASSERT_OK(
      FromGrpc(stub->OpenJob(&context, Whole(Job({SgdTable("t", 1, v1::SYNC)}, 2)), &opened)));
  ASSERT_OK(pull(0));
  const v1::Heartbeat heartbeat = master.Await([](const auto& h, int) { return h.rows() == 3; });
  EXPECT_EQ(heartbeat.doing(), "serving job-1");
  EXPECT_GT(heartbeat.resident_bytes(), 0u);

  // The master takes the incarnation for dead: what it held is of no use to anyone.
  master.EndLease();
  master.Await([](const auto& h, int joined) { return joined == 2 && h.rows() == 0; });
  EXPECT_FAILS(pull(0), StatusCode::kUnavailable, "not open on this ps");
  (*server)->Stop(absl::Seconds(1));
}

TEST_F(ParameterServerTest, MemoryIsKeptBesideASpillFolderForRowsThatCannotLeave) {
  FakeMaster master;
  const auto master_server = StartMaster(master);
  ParameterServer::Options options = Options();
  const std::string name = absl::StrCat("parameter-server-spill-", getpid());
  options.spill_folder = (std::filesystem::path(testing::TempDir()) / name).string();
  options.memory_bytes = 64 << 20;
  const auto server = ParameterServer::Start(options);
  ASSERT_OK(server);
  master.Await([](const auto& h, int) { return !h.doing().empty(); });
  const auto stub = v1::ParameterService::NewStub(channels_.Connect((*server)->address()));
  constexpr uint32_t kDim = 1024;
  v1::PsTable every_row = SgdTable("t", kDim, v1::ASYNC);
  every_row.mutable_spec()->set_update(v1::EVERY_ROW);
  grpc::ClientContext context;
  v1::OpenJobResponse opened;
  ASSERT_OK(FromGrpc(stub->OpenJob(&context, Whole(Job({every_row})), &opened)));
  uint64_t next = 0;
  const auto pull = [&] {
    std::vector<uint64_t> keys(1000);
    for (uint64_t& key : keys) key = next++;
    grpc::ClientContext of_pull;
    of_pull.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(30)));
    v1::PullResponse response;
    return FromGrpc(stub->Pull(&of_pull, PullOf(0, 0, {{0, keys}}), &response));
  };
  absl::Status refused;
  for (int i = 0; i < 20 && refused.ok(); ++i) refused = pull();
  EXPECT_FAILS(refused, StatusCode::kResourceExhausted, "table t: no memory for 1000 rows");
  (*server)->Stop(absl::Seconds(1));
  std::filesystem::remove_all(options.spill_folder);
}

TEST_F(ParameterServerTest, RefusesWhatIsMeantForTheProcessBeforeIt) {
  FakeMaster master;
  const auto master_server = StartMaster(master);
  const auto server = ParameterServer::Start(Options());
  ASSERT_OK(server);
  master.Await([](const auto& h, int) { return !h.doing().empty(); });
  const auto stub = v1::ParameterService::NewStub(channels_.Connect((*server)->address()));
  const auto call = [&](auto method, const auto& request, auto response) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(30)));
    return FromGrpc((stub.get()->*method)(&context, request, &response));
  };
  using Stub = v1::ParameterService::Stub;
  v1::OpenJobRequest open = Whole(Job({SgdTable("t", 1, v1::ASYNC)}));
  const uint64_t own = master.hello().process();
  ASSERT_NE(own, 0u);
  const auto refuses = [](const absl::Status& status) {
    EXPECT_FAILS(status, StatusCode::kUnavailable, "for a ps that ran at this address earlier");
  };
  open.set_ps_process(own + 1);
  refuses(call(&Stub::OpenJob, open, v1::OpenJobResponse()));
  open.set_ps_process(own);
  ASSERT_OK(call(&Stub::OpenJob, open, v1::OpenJobResponse()));

  const auto refused_from = [&](auto method, auto request, auto response) {
    if constexpr (requires { request.set_job_id(open.job_id()); }) {
      request.set_job_id(open.job_id());
      request.set_generation(open.generation());
    }
    request.set_ps_process(own + 1);
    refuses(call(method, request, response));
  };
  refused_from(&Stub::WriteCheckpoint, v1::WriteCheckpointRequest(), v1::WriteCheckpointResponse());
  refused_from(&Stub::WeighPartitions, v1::WeighPartitionsRequest(), v1::WeighPartitionsResponse());
  refused_from(&Stub::SetFollower, v1::SetFollowerRequest(), v1::SetFollowerResponse());
  refused_from(&Stub::FetchPartitions, v1::FetchPartitionsRequest(), v1::FetchPartitionsResponse());
  v1::ReadPartitionsRequest read;
  read.set_job_id(open.job_id());
  read.set_generation(open.generation());
  read.set_ps_process(own + 1);
  grpc::ClientContext context;
  const auto rows = stub->ReadPartitions(&context, read);
  v1::RowChunk chunk;
  EXPECT_FALSE(rows->Read(&chunk));
  refuses(FromGrpc(rows->Finish()));

  v1::WeighPartitionsRequest weigh;
  weigh.set_job_id(open.job_id());
  weigh.set_generation(open.generation());
  weigh.set_ps_process(own);
  EXPECT_OK(call(&Stub::WeighPartitions, weigh, v1::WeighPartitionsResponse()));
  (*server)->Stop(absl::Seconds(1));
}

TEST_F(ParameterServerTest, TellsWhenTheMasterRefusesItForGood) {
  FakeMaster master(absl::FailedPreconditionError("version 0.0.9 is not 0.1.0"));
  const auto master_server = StartMaster(master);
  const auto server = ParameterServer::Start(Options());
  ASSERT_OK(server);
  EXPECT_FAILS((*server)->WaitForFatal(absl::Seconds(30)), StatusCode::kFailedPrecondition,
               "version 0.0.9");
  EXPECT_EQ(HealthAt(channels_.Connect("ps-address")), "NOT_SERVING");
}

TEST_F(ParameterServerTest, HealthSaysNotServingOnceItIsToStop) {
  FakeMaster master;
  const auto master_server = StartMaster(master);
  for (const bool asks_for_leave : {true, false}) {
    const auto server = ParameterServer::Start(Options());
    ASSERT_OK(server);
    const auto channel = channels_.Connect("ps-address");
    EXPECT_EQ(HealthAt(channel), "SERVING");
    asks_for_leave ? (void)(*server)->AwaitRelease(absl::ZeroDuration()) : (*server)->Leave();
    EXPECT_EQ(HealthAt(channel), "NOT_SERVING") << asks_for_leave;
  }
}

TEST(ParameterServerOptions, BoundsOfWhatIsBesideRowsAreSharesOfTheMemoryAndNeverRise) {
  ParameterServer::Options options;
  options.max_shared_bytes = 0;  // none is wished for
  const ParameterServer::Options without = options;
  options.BoundBeside(64ull << 30);
  EXPECT_EQ(options.max_queued_bytes, without.max_queued_bytes);
  EXPECT_EQ(options.max_copied_bytes, without.max_copied_bytes);
  options.BoundBeside(512 << 20);
  EXPECT_EQ(options.max_queued_bytes, 32 << 20);
  EXPECT_EQ(options.max_copied_bytes, 64 << 20);
  EXPECT_EQ(options.server.max_received_bytes, 128 << 20);
  EXPECT_EQ(options.max_shared_bytes, 0);
  const uint64_t beside = options.max_queued_bytes + options.max_unsent_bytes +
                          options.max_copied_bytes + options.max_held_push_bytes +
                          options.max_waiting_bytes;
  EXPECT_EQ(beside, 3 * (512 << 20) / 8);
}

TEST_F(ParameterServerTest, RefusesADataFolderThatIsInUse) {
  InProcessChannels channels;
  ParameterServer::Options options;
  options.server.listen = "ps-0";
  options.server.in_process = &channels;
  options.master_address = "no-master";
  const std::string name = absl::StrCat("parameter-server-folder-", getpid());
  options.data_folder = (std::filesystem::path(testing::TempDir()) / name).string();
  options.channels = &channels;
  options.files = &PosixFileSystem();
  options.clock = &SystemClock();
  const auto first = ParameterServer::Start(options);
  ASSERT_OK(first);
  options.server.listen = "ps-1";
  EXPECT_FAILS(ParameterServer::Start(options), StatusCode::kFailedPrecondition,
               absl::StrCat(name, ": in use by process"));
  std::filesystem::remove_all(options.data_folder);
}

TEST_F(ParameterServerTest, RefusesAnAddressThatItCannotListenOn) {
  const auto channels = NewNetworkChannels();
  ParameterServer::Options options;
  options.master_address = "127.0.0.1:1";
  options.channels = channels.get();
  options.files = &PosixFileSystem();
  options.clock = &SystemClock();
  const auto first = ParameterServer::Start(options);
  ASSERT_OK(first);
  options.server.listen = (*first)->address();
  EXPECT_FAILS(ParameterServer::Start(options), StatusCode::kUnavailable, "cannot listen on");
  options.server.listen = "0.0.0.0:0";
  EXPECT_FAILS(ParameterServer::Start(options), StatusCode::kFailedPrecondition, "--insecure");
  options.server.insecure = true;
  EXPECT_FAILS(ParameterServer::Start(options), StatusCode::kFailedPrecondition, "--advertise");
  options.advertise_host = "localhost";
  EXPECT_OK(ParameterServer::Start(options));
}

}  // namespace
}  // namespace tessera::ps
