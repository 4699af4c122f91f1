#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/checkpoint/row_file_writer.h"
#include "common/cluster/node.h"
#include "common/partition.h"
#include "common/rpc/channels.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "tessera/v1/parameter_service.grpc.pb.h"
#include "tessera/v1/work.grpc.pb.h"

// Processes of a cluster without their work, over the in-memory transport, for tests of a master.
namespace tessera::master {

// A ps that keeps no rows: answers the master, and writes one row for each table.
class FakePs final : public v1::ParameterService::Service {
 public:
  FakePs(std::string name, InProcessChannels* channels, std::string root)
      : name_(std::move(name)), root_(std::move(root)) {
    ServerOptions server;
    server.listen = name_;
    server.in_process = channels;
    server_ = *RpcServer::Start(server, {this});
    ClusterNode::Options node;
    node.master_address = "master";
    node.hello.set_kind(v1::PS);
    node.hello.set_name(name_);
    node.hello.set_address(name_);
    node.channels = channels;
    node.backoff = {absl::Milliseconds(5), absl::Milliseconds(50), 1};
    node_ = ClusterNode::Start(std::move(node), {});
  }
  ~FakePs() override { node_->Stop(); }

  grpc::Status OpenJob(grpc::ServerContext*, const v1::OpenJobRequest* request,
                       v1::OpenJobResponse*) override {
    absl::MutexLock lock(&mu_);
    opens_.push_back(*request);
    return grpc::Status::OK;
  }
  grpc::Status CloseJob(grpc::ServerContext*, const v1::CloseJobRequest*,
                        v1::CloseJobResponse*) override {
    return grpc::Status::OK;
  }
  grpc::Status WriteCheckpoint(grpc::ServerContext* context,
                               const v1::WriteCheckpointRequest* request,
                               v1::WriteCheckpointResponse* response) override {
    if (request->phase() == v1::WriteCheckpointRequest::CUT && !request->base().empty()) ++based_;
    if (request->phase() != v1::WriteCheckpointRequest::WRITE) return grpc::Status::OK;
    for (const int number = ++writes_; number == held_; absl::SleepFor(absl::Milliseconds(5))) {
      if (context->IsCancelled()) return {grpc::StatusCode::CANCELLED, "nobody waits for it"};
    }
    if (full_) return ToGrpc(absl::ResourceExhaustedError("no space left on device"));
    const std::string path = absl::StrCat(root_, "/", request->folder(), "/rows-", request->part());
    auto writer = RowFileWriter::Create(PosixFileSystem(), path, 4096, 3);
    if (!writer.ok()) return ToGrpc(writer.status());
    const std::vector<float> row(6, 1.5f);  // dim 4 and 2 slots
    absl::Status status =
        (*writer)->BeginBlock(TableIndex(0), PartitionOf(request->part(), 4096), 1, 6);
    if (status.ok()) status = (*writer)->AddRow(request->part(), 1, 1, row);
    if (status.ok()) status = (*writer)->EndBlock();
    auto file = (*writer)->Finish();
    if (!file.ok()) return ToGrpc(file.status());
    *response->add_files() = *file;
    if (whole_) response->set_written_bytes(file->bytes());
    for (const uint64_t rows : file->rows()) response->add_rows(rows);
    return ToGrpc(status);
  }
  std::vector<v1::OpenJobRequest> opens() {
    absl::MutexLock lock(&mu_);
    return opens_;
  }
  std::atomic<bool> full_ = false;
  std::atomic<bool> whole_ = false;  // it says that no file is a link to an earlier one
  std::atomic<int> based_ = 0;       // cuts that may be of what has changed
  std::atomic<int> writes_ = 0;      // of checkpoints, that it has begun
  std::atomic<int> held_ = 0;        // the one of this number does not end

 private:
  const std::string name_;
  const std::string root_;
  absl::Mutex mu_;
  std::vector<v1::OpenJobRequest> opens_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<ClusterNode> node_;
};

// A worker that trains nothing: counts, waits a little for each unit, and scores by the record's
// number, so that the AUC is known.
class FakeWorker {
 public:
  FakeWorker(std::string name, InProcessChannels* channels) : channels_(channels) {
    ClusterNode::Options node;
    node.master_address = "master";
    node.hello.set_kind(v1::WORKER);
    node.hello.set_name(name);
    node.channels = channels;
    node.backoff = {absl::Milliseconds(5), absl::Milliseconds(50), 1};
    ClusterNode::Callbacks callbacks;
    callbacks.welcome = [this](const v1::Welcome& welcome) {
      absl::MutexLock lock(&mu_);
      incarnation_ = welcome.incarnation();
    };
    callbacks.assignment = [this](const v1::Assignment& assignment) {
      absl::MutexLock lock(&mu_);
      assignment_ = assignment;
    };
    callbacks.lost = [this](const absl::Status&) {
      absl::MutexLock lock(&mu_);
      assignment_.Clear();
    };
    node_ = ClusterNode::Start(std::move(node), std::move(callbacks));
    thread_ = std::thread([this] { Run(); });
  }
  ~FakeWorker() {
    node_->Stop();
    {
      absl::MutexLock lock(&mu_);
      stop_ = true;
    }
    thread_.join();
  }

  // Held by calls to the master. Who ends the master holds it: gRPC's in-process transport (1.51)
  // may crash where a call begins meanwhile.
  absl::Mutex calls_;

 private:
  void Run() {
    std::string under_way;
    uint64_t completed = 0;
    v1::UnitResult result;
    while (true) {
      v1::NextWorkRequest request;
      bool grouped = false;
      {
        absl::MutexLock lock(&mu_);
        const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
          return stop_ || !assignment_.job_id().empty();
        };
        mu_.Await(absl::Condition(&ready));
        if (stop_) return;
        request.set_job_id(assignment_.job_id());
        request.set_generation(assignment_.generation());
        request.set_rank(assignment_.rank());
        request.set_incarnation(incarnation_);
        grouped = !assignment_.spec().evaluation().group_by().empty();
      }
      const std::string key = absl::StrCat(request.job_id(), ":", request.generation());
      if (key != under_way) {
        under_way = key;
        completed = 0;
        result.Clear();
      }
      request.set_completed_unit(completed);
      *request.mutable_result() = result;
      request.set_wait_ms(200);
      absl::MutexLock calling(&calls_);
      auto stub = v1::WorkService::NewStub(channels_->Connect("master"));
      grpc::ClientContext context;
      v1::NextWorkResponse unit;
      if (!stub->NextWork(&context, request, &unit).ok()) {
        absl::SleepFor(absl::Milliseconds(5));
        continue;
      }
      if (unit.unit_id() == 0) continue;
      result = Do(*stub, request, unit, grouped);
      completed = unit.unit_id();
    }
  }

  v1::UnitResult Do(v1::WorkService::Stub& stub, const v1::NextWorkRequest& request,
                    const v1::NextWorkResponse& unit, bool grouped) {
    v1::UnitResult result;
    if (unit.has_count()) {
      v1::FileRecords* file = result.add_files();
      file->set_path(unit.count().patterns(0));
      file->set_records(1000);
    } else if (unit.has_train()) {
      result.set_samples(100 * (unit.train().batch_end() - unit.train().batch_begin()));
      result.set_train_seconds(0.005);
      absl::SleepFor(absl::Milliseconds(2));
    } else if (unit.has_evaluate()) {
      grpc::ClientContext context;
      v1::ReportScoresResponse response;
      auto stream = stub.ReportScores(&context, &response);
      for (const v1::RecordRange& range : unit.evaluate().ranges()) {
        for (uint64_t begin = range.begin(); begin < range.end(); begin += 64) {
          v1::ScoresChunk chunk;
          chunk.set_job_id(request.job_id());
          chunk.set_generation(request.generation());
          chunk.set_rank(request.rank());
          chunk.set_evaluation_id(unit.evaluate().evaluation_id());
          chunk.set_unit_id(unit.unit_id());
          for (uint64_t i = begin; i < std::min(begin + 64, range.end()); ++i) {
            // Every fourth record is ranked wrongly against all others.
            const float label = static_cast<float>(i % 2);
            const float logit = i % 4 == 3 ? -1.0f : label;
            chunk.mutable_labels()->append(reinterpret_cast<const char*>(&label), 4);
            chunk.mutable_logits()->append(reinterpret_cast<const char*>(&logit), 4);
            const uint64_t group = i % 4 == 3 ? 3 : ~uint64_t{0};
            if (grouped) {
              chunk.mutable_groups()->append(reinterpret_cast<const char*>(&group), 8);
            }
            result.set_samples(result.samples() + 1);
          }
          stream->Write(chunk);
        }
      }
      stream->WritesDone();
      const grpc::Status status = stream->Finish();
      result.set_code(status.error_code());
      result.set_message(status.error_message());
    }
    return result;
  }

  InProcessChannels* const channels_;
  absl::Mutex mu_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t incarnation_ ABSL_GUARDED_BY(mu_) = 0;
  v1::Assignment assignment_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<ClusterNode> node_;
  std::thread thread_;
};

}  // namespace tessera::master
