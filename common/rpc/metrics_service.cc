#include "common/rpc/metrics_service.h"

#include "grpcpp/server_context.h"

namespace tessera {

grpc::ServerUnaryReactor* MetricsService::GetMetrics(grpc::CallbackServerContext* context,
                                                     const v1::GetMetricsRequest* request,
                                                     v1::GetMetricsResponse* response) {
  response->set_text(registry_->Text());
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace tessera
