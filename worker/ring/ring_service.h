#pragma once

#include "tessera/v1/ring.grpc.pb.h"
#include "worker/ring/ring_partials.h"

namespace tessera::worker {

// Answers are sent as the bytes that RingPartials gives; AwaitTaken's is an empty message.
using RingServiceBase = v1::RingService::WithRawCallbackMethod_TakePartial<
    v1::RingService::WithRawCallbackMethod_TraceGradients<
        v1::RingService::WithCallbackMethod_AwaitTaken<v1::RingService::Service>>>;

// Puts RingPartials on gRPC. A call that waits holds no thread. Thread-safe. Destroyed after the
// server that serves it has shut down.
class RingService final : public RingServiceBase {
 public:
  // Borrowed; outlives the service.
  explicit RingService(RingPartials* partials) : partials_(*partials) {}

  grpc::ServerUnaryReactor* TakePartial(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* AwaitTaken(grpc::CallbackServerContext* context,
                                       const v1::AwaitTakenRequest* request,
                                       v1::AwaitTakenResponse* response) override;
  grpc::ServerUnaryReactor* TraceGradients(grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* response) override;

 private:
  RingPartials& partials_;
};

}  // namespace tessera::worker
