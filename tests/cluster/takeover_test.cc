// A worker that is lost between its pushes to two ps, and the one that takes over its rank.
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/row_file_reader.h"
#include "common/clock.h"
#include "common/wire/bulk_reader.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/server_builder.h"
#include "master/master.h"
#include "ps/parameter_server.h"
#include "tessera/v1/job_service.grpc.pb.h"
#include "tessera/v1/parameter_service.pb.h"
#include "tests/cluster/training_testing.h"
#include "worker/worker.h"

namespace tessera {
namespace {

constexpr uint64_t kLossAt = 11;  // push number

// Stands before a ps for one worker: passes calls on, except for the push kLossAt, which gets
// through or is lost, and whatever comes after it.
class Gate final : public grpc::CallbackGenericService {
 public:
  Gate(std::shared_ptr<grpc::Channel> ps, bool lets_push_through)
      : ps_(std::move(ps)), lets_push_through_(lets_push_through) {
    grpc::ServerBuilder builder;
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
  }
  ~Gate() override { server_->Shutdown(); }

  std::shared_ptr<grpc::Channel> Channel() { return server_->InProcessChannel({}); }
  // The push has been answered by the ps, or lost.
  void AwaitLoss() { lost_.WaitForNotification(); }

 private:
  class Call final : public grpc::ServerGenericBidiReactor {
   public:
    Call(Gate* gate, std::string method) : gate_(gate), method_(std::move(method)) {
      StartRead(&request_);
    }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::CANCELLED);
      const bool last = gate_->IsLoss(method_, request_) && !gate_->closed_.exchange(true);
      if (last ? !gate_->lets_push_through_ : gate_->closed_.load()) {
        if (last) gate_->lost_.Notify();
        return Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the network is gone"));
      }
      gate_->ps_.UnaryCall(
          &context_, method_, grpc::StubOptions(), &request_, &answer_,
          [this, last](const grpc::Status& status) {
            if (last) gate_->lost_.Notify();
            if (!status.ok() || last) {
              return Finish(last ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "the answer is lost")
                                 : status);
            }
            StartWriteAndFinish(&answer_, grpc::WriteOptions(), status);
          });
    }
    void OnDone() override { delete this; }

   private:
    Gate* const gate_;
    const std::string method_;
    grpc::ClientContext context_;
    grpc::ByteBuffer request_;
    grpc::ByteBuffer answer_;
  };

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new Call(this, context->method());
  }
  bool IsLoss(const std::string& method, const grpc::ByteBuffer& bytes) const {
    if (method != "/tessera.v1.ParameterService/Push") return false;
    v1::PushRequest request;
    EXPECT_TRUE(wire::BulkReader::Read(bytes, wire::kPushRequest, &request).ok());
    return request.sequence() == kLossAt;
  }

  grpc::GenericStub ps_;
  const bool lets_push_through_;
  std::atomic<bool> closed_ = false;
  absl::Notification lost_;
  std::unique_ptr<grpc::Server> server_;
};

// The way to each ps is through its gate.
class GatedChannels final : public Channels {
 public:
  // `through`: whether the last push reaches ps-0, ps-1.
  GatedChannels(Channels& channels, std::vector<bool> through) : channels_(channels) {
    for (size_t i = 0; i < through.size(); ++i) {
      const std::string ps = absl::StrCat("ps-", i);
      gates_[ps] = std::make_unique<Gate>(channels_.Connect(ps), through[i]);
    }
  }
  std::shared_ptr<grpc::Channel> Connect(const std::string& address) override {
    const auto gate = gates_.find(address);
    return gate == gates_.end() ? channels_.Connect(address) : gate->second->Channel();
  }
  void AwaitLoss() {
    for (auto& [ps, gate] : gates_) gate->AwaitLoss();
  }

 private:
  Channels& channels_;
  std::map<std::string, std::unique_ptr<Gate>> gates_;
};

class TakeoverTest : public TrainingTest {
 protected:
  std::unique_ptr<worker::Worker> StartWorker(const std::string& name, Channels* channels) {
    worker::Worker::Options options;
    options.master_address = "master";
    options.name = name;
    options.data_root = *data_folder_;
    options.channels = channels;
    auto worker = worker::Worker::Start(options);
    EXPECT_TRUE(worker.ok()) << worker.status();
    return *std::move(worker);
  }

  // Two ps; rank 1 is lost in its push kLossAt, which reaches the ps that `through` says, and
  // another worker joins.
  v1::JobStatus RunWithALoss(const std::string& name, const v1::JobSpec& spec,
                             std::vector<bool> through) {
    const std::string folder = RunFolder(name);
    EXPECT_TRUE(PosixFileSystem().CreateFolder(folder + "/checkpoints").ok());
    InProcessChannels channels;
    const auto server = [&channels](const std::string& name) {
      ServerOptions server;
      server.listen = name;
      server.in_process = &channels;
      return server;
    };
    master::Master::Options options;
    options.server = server("master");
    options.data_dir = folder + "/master";
    options.checkpoint_root = folder + "/checkpoints";
    options.channels = &channels;
    auto master = master::Master::Start(options);
    EXPECT_TRUE(master.ok()) << master.status();
    std::vector<std::unique_ptr<ps::ParameterServer>> all_ps;
    for (int i = 0; i < 2; ++i) {
      ps::ParameterServer::Options ps;
      ps.name = absl::StrCat("ps-", i);
      ps.server = server(ps.name);
      ps.master_address = "master";
      ps.data_folder = absl::StrCat(folder, "/", ps.name);
      ps.checkpoint_root = folder + "/checkpoints";
      ps.channels = &channels;
      ps.files = &PosixFileSystem();
      ps.clock = &SystemClock();
      auto started = ps::ParameterServer::Start(ps);
      EXPECT_TRUE(started.ok()) << started.status();
      all_ps.push_back(*std::move(started));
    }
    v1::JobStatus last;
    {
      GatedChannels gated(channels, std::move(through));
      const auto stays = StartWorker("worker-0", &channels);
      auto lost = StartWorker("worker-1", &gated);
      const auto jobs = v1::JobService::NewStub(channels.Connect("master"));
      v1::SubmitRequest request;
      *request.mutable_spec() = spec;
      request.set_ps(2);
      request.set_workers(2);
      v1::SubmitResponse submitted;
      grpc::ClientContext submit;
      EXPECT_TRUE(jobs->Submit(&submit, request, &submitted).ok());
      gated.AwaitLoss();
      lost.reset();
      const auto takes_over = StartWorker("worker-2", &channels);
      v1::WatchRequest watch;
      watch.set_job_id(submitted.job_id());
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(120));
      const auto stream = jobs->Watch(&context, watch);
      while (stream->Read(&last)) {
      }
      EXPECT_TRUE(stream->Finish().ok()) << last.ShortDebugString();
      takes_over->Stop();
      stays->Stop();
      for (auto& ps : all_ps) ps->Leave();
      (*master)->Stop(absl::Seconds(1));
      for (auto& ps : all_ps) ps->Stop(absl::Seconds(1));
    }
    last.set_checkpoint(absl::StrCat(folder, "/checkpoints/", last.checkpoint()));
    return last;
  }
};

TEST_F(TakeoverTest, AWorkerThatIsLostBetweenTwoPsCostsNoBitAndNoRollback) {
  const v1::JobSpec spec = Job({"consistency.sparse=sync", "consistency.dense=sync",
                                "train.early_stopping.patience=0", "checkpoint.keep_best=false"});
  const std::string undisturbed = Digest(Run("undisturbed", spec, {.ps = 2}));
  for (const std::vector<bool>& through :
       std::vector<std::vector<bool>>{{true, false}, {false, true}, {true, true}, {false, false}}) {
    const std::string name = absl::StrCat("through-", through[0], through[1]);
    SCOPED_TRACE(name);
    const v1::JobStatus status = RunWithALoss(name, spec, through);
    EXPECT_EQ(Digest(status), undisturbed);
    EXPECT_EQ(status.restarts(), 0u);
    EXPECT_EQ(status.generation(), 1u);
    EXPECT_EQ(status.samples(), 2u * 12000);
    EXPECT_EQ(status.nodes(3).name(), "worker-2");
    // A worker that is stopped says so: nobody waits for its lease.
    bool left = false;
    for (const v1::Event& event : status.events()) {
      left = left || event.message() == "worker-1 lost (it left)" ||
             event.message() == "worker-1 lost (its connection broke)";
    }
    EXPECT_TRUE(left) << status.ShortDebugString();
  }
}

// Of every row, the number of pushes that it was in: who makes up a batch depends on nothing but
// the job, so a push that was lost, or counted twice, shows.
std::map<std::pair<uint32_t, uint64_t>, uint32_t> Frequencies(const v1::JobStatus& status) {
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> frequencies;
  const auto manifest = VerifyCheckpoint(PosixFileSystem(), status.checkpoint());
  EXPECT_TRUE(manifest.ok()) << manifest.status();
  for (const v1::CheckpointFile& file : manifest->files()) {
    const auto reader =
        RowFileReader::Open(PosixFileSystem(), absl::StrCat(status.checkpoint(), "/", file.name()));
    EXPECT_TRUE(reader.ok()) << reader.status();
    for (const row_file::IndexEntry& entry : (*reader)->blocks()) {
      const auto block = (*reader)->Read(entry);
      EXPECT_TRUE(block.ok()) << block.status();
      for (uint64_t i = 0; i < block->rows(); ++i) {
        EXPECT_TRUE(
            frequencies.emplace(std::pair(entry.table, block->key(i)), block->frequency(i)).second);
      }
    }
  }
  return frequencies;
}

TEST_F(TakeoverTest, InEveryMixOfModesEverySampleCountsOnce) {
  for (const char* sparse : {"sync", "async"}) {
    for (const char* dense : {"sync", "async"}) {
      const std::string name = absl::StrCat(sparse, "-", dense);
      SCOPED_TRACE(name);
      const v1::JobSpec spec = Job(
          {absl::StrCat("consistency.sparse=", sparse), absl::StrCat("consistency.dense=", dense),
           "train.epochs=3", "train.early_stopping.patience=0", "checkpoint.keep_best=false"});
      const auto expected = Frequencies(Run(name + "-undisturbed", spec, {.ps = 2}));
      EXPECT_GT(expected.size(), 1000u);
      const v1::JobStatus status = RunWithALoss(name, spec, {true, false});
      EXPECT_EQ(status.state(), v1::SUCCEEDED) << status.message();
      EXPECT_EQ(status.restarts(), 0u);
      EXPECT_EQ(status.samples(), 3u * 12000);
      EXPECT_TRUE(Frequencies(status) == expected);
    }
  }
}

}  // namespace
}  // namespace tessera
