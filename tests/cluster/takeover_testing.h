#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/clock.h"
#include "common/metrics/metrics.h"
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

inline constexpr uint64_t kLossAt = 11;  // push number

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

// A master and two ps in this process, and workers that may come and go. Workers serve on loopback:
// gRPC 1.51's in-process transport can crash when a call starts while its server shuts down.
class WorkerlessCluster {
 public:
  explicit WorkerlessCluster(const std::string& folder) : folder_(folder) {
    EXPECT_TRUE(PosixFileSystem().CreateFolder(folder + "/checkpoints").ok());
    master::Master::Options options;
    options.server = Server("master");
    options.data_dir = folder + "/master";
    options.checkpoint_root = folder + "/checkpoints";
    options.channels = &channels_;
    auto master = master::Master::Start(options);
    EXPECT_TRUE(master.ok()) << master.status();
    master_ = *std::move(master);
    for (int i = 0; i < 2; ++i) StartPs(i);
  }
  // All workers have left.
  ~WorkerlessCluster() {
    for (auto& ps : all_ps_) ps->Leave();
    master_->Stop(absl::Seconds(1));
    for (auto& ps : all_ps_) ps->Stop(absl::Seconds(1));
  }

  InProcessChannels& channels() { return channels_; }

  // `channels`: to master and ps; null: those of the cluster.
  std::unique_ptr<worker::Worker> StartWorker(const std::string& name, const std::string& data_root,
                                              Channels* channels = nullptr) {
    worker::Worker::Options options;
    options.name = name;
    options.data_root = data_root;
    options.channels = channels;
    return StartWorker(std::move(options));
  }
  std::unique_ptr<worker::Worker> StartWorker(worker::Worker::Options options) {
    ways_.push_back(
        std::make_unique<Ways>(options.channels == nullptr ? channels_ : *options.channels));
    options.master_address = "master";
    options.channels = ways_.back().get();
    options.server.emplace();
    auto worker = worker::Worker::Start(options);
    EXPECT_TRUE(worker.ok()) << worker.status();
    return *std::move(worker);
  }

  // Its id.
  std::string Submit(const v1::JobSpec& spec, int workers) {
    v1::SubmitRequest request;
    *request.mutable_spec() = spec;
    request.set_ps(2);
    request.set_workers(static_cast<uint32_t>(workers));
    v1::SubmitResponse submitted;
    grpc::ClientContext context;
    EXPECT_TRUE(Jobs()->Submit(&context, request, &submitted).ok());
    return submitted.job_id();
  }
  // Until the job ends; `checkpoint` is an absolute path.
  v1::JobStatus Await(const std::string& job_id) {
    v1::JobStatus last;
    v1::WatchRequest watch;
    watch.set_job_id(job_id);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(120));
    const auto jobs = Jobs();
    const auto stream = jobs->Watch(&context, watch);
    while (stream->Read(&last)) {
    }
    EXPECT_TRUE(stream->Finish().ok()) << last.ShortDebugString();
    last.set_checkpoint(absl::StrCat(folder_, "/checkpoints/", last.checkpoint()));
    return last;
  }

  std::unique_ptr<v1::JobService::Stub> Jobs() {
    return v1::JobService::NewStub(channels_.Connect("master"));
  }
  // Of all ps, as `tessera metrics` shows them.
  std::vector<std::string> PsMetrics() const {
    std::vector<std::string> texts;
    for (const auto& registry : registries_) texts.push_back(registry->Text());
    return texts;
  }

 private:
  // To workers over the network, to all others as given.
  class Ways final : public Channels {
   public:
    explicit Ways(Channels& others) : others_(others) {}
    std::shared_ptr<grpc::Channel> Connect(const std::string& address) override {
      return address.find(':') == std::string::npos ? others_.Connect(address)
                                                    : network_->Connect(address);
    }

   private:
    Channels& others_;
    const std::unique_ptr<Channels> network_ = NewNetworkChannels();
  };

  ServerOptions Server(const std::string& name) {
    ServerOptions server;
    server.listen = name;
    server.in_process = &channels_;
    return server;
  }
  void StartPs(int number) {
    registries_.push_back(std::make_unique<MetricsRegistry>());
    ps::ParameterServer::Options ps;
    ps.name = absl::StrCat("ps-", number);
    ps.server = Server(ps.name);
    ps.master_address = "master";
    ps.data_folder = absl::StrCat(folder_, "/", ps.name);
    ps.checkpoint_root = folder_ + "/checkpoints";
    ps.metrics = registries_.back().get();
    ps.channels = &channels_;
    ps.files = &PosixFileSystem();
    ps.clock = &SystemClock();
    auto started = ps::ParameterServer::Start(ps);
    EXPECT_TRUE(started.ok()) << started.status();
    all_ps_.push_back(*std::move(started));
  }

  const std::string folder_;
  InProcessChannels channels_;
  std::vector<std::unique_ptr<Channels>> ways_;
  std::vector<std::unique_ptr<MetricsRegistry>> registries_;
  std::unique_ptr<master::Master> master_;
  std::vector<std::unique_ptr<ps::ParameterServer>> all_ps_;
};

class TakeoverTest : public TrainingTest {
 protected:
  // Two ps; rank 1 is lost in its push kLossAt, which reaches the ps that `through` says, and
  // another worker, the last, joins.
  v1::JobStatus RunWithALoss(const std::string& name, const v1::JobSpec& spec,
                             std::vector<bool> through, int workers = 2) {
    WorkerlessCluster cluster(RunFolder(name));
    GatedChannels gated(cluster.channels(), std::move(through));
    std::vector<std::unique_ptr<worker::Worker>> all;
    for (int w = 0; w < workers; ++w) {
      all.push_back(cluster.StartWorker(absl::StrCat("worker-", w), *data_folder_,
                                        w == 1 ? &gated : nullptr));
    }
    const std::string job_id = cluster.Submit(spec, workers);
    gated.AwaitLoss();
    all[1].reset();
    all[1] = cluster.StartWorker(absl::StrCat("worker-", workers), *data_folder_);
    const v1::JobStatus last = cluster.Await(job_id);
    for (auto& worker : all) worker->Leave();
    for (auto& worker : all) worker->Stop();
    return last;
  }
};

}  // namespace tessera
