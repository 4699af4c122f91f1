#pragma once

#include <atomic>

#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"
#include "grpcpp/support/sync_stream.h"
#include "master/core/host.h"
#include "tessera/v1/cluster.grpc.pb.h"
#include "tessera/v1/job_service.grpc.pb.h"
#include "tessera/v1/work.grpc.pb.h"

// The three services: thin handlers over the core. Synchronous gRPC: a call holds one thread while
// it lasts, which suits the master's traffic (one Join and one NextWork per process, some Watches);
// a Join has a second thread that writes. All waits end when the host stops. Thread-safe; the host
// is borrowed and outlives them.
namespace tessera::master {

class ClusterServiceImpl final : public v1::ClusterService::Service {
 public:
  explicit ClusterServiceImpl(CoreHost* host) : host_(host) {}
  using Stream = grpc::ServerReaderWriter<v1::MasterMessage, v1::NodeMessage>;
  grpc::Status Join(grpc::ServerContext* context, Stream* stream) override;

 private:
  // Sends until the node is dead, the host stops, or `ended`; then ends the stream.
  void SendAssignments(uint64_t incarnation, grpc::ServerContext* context, Stream* stream,
                       const std::atomic<bool>& ended);

  CoreHost* const host_;
};

class WorkServiceImpl final : public v1::WorkService::Service {
 public:
  explicit WorkServiceImpl(CoreHost* host) : host_(host) {}
  grpc::Status NextWork(grpc::ServerContext* context, const v1::NextWorkRequest* request,
                        v1::NextWorkResponse* response) override;
  grpc::Status ReportScores(grpc::ServerContext* context,
                            grpc::ServerReader<v1::ScoresChunk>* reader,
                            v1::ReportScoresResponse* response) override;

 private:
  CoreHost* const host_;
};

class JobServiceImpl final : public v1::JobService::Service {
 public:
  explicit JobServiceImpl(CoreHost* host) : host_(host) {}
  grpc::Status Submit(grpc::ServerContext* context, const v1::SubmitRequest* request,
                      v1::SubmitResponse* response) override;
  grpc::Status Get(grpc::ServerContext* context, const v1::GetRequest* request,
                   v1::JobStatus* response) override;
  grpc::Status List(grpc::ServerContext* context, const v1::ListRequest* request,
                    v1::ListResponse* response) override;
  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::JobStatus>* writer) override;
  grpc::Status Cancel(grpc::ServerContext* context, const v1::CancelRequest* request,
                      v1::CancelResponse* response) override;
  grpc::Status Suspend(grpc::ServerContext* context, const v1::SuspendRequest* request,
                       v1::SuspendResponse* response) override;
  grpc::Status Resume(grpc::ServerContext* context, const v1::ResumeRequest* request,
                      v1::ResumeResponse* response) override;
  grpc::Status Scale(grpc::ServerContext* context, const v1::ScaleRequest* request,
                     v1::ScaleResponse* response) override;
  grpc::Status GetCluster(grpc::ServerContext* context, const v1::GetClusterRequest* request,
                          v1::ClusterStatus* response) override;

 private:
  CoreHost* const host_;
};

}  // namespace tessera::master
