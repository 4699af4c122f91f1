#include "worker/ring/ring_service.h"

#include "absl/strings/str_cat.h"
#include "common/rpc/status.h"
#include "common/wire/message_bytes.h"
#include "grpcpp/server_context.h"

namespace tessera::worker {
namespace {

// A call that may be withdrawn while it waits. Deletes itself.
class HeldCall final : public grpc::ServerUnaryReactor {
 public:
  explicit HeldCall(RingPartials* partials) : partials_(*partials) {}

  // Called before the handler returns; gRPC calls OnCancel only after that.
  void SetNumber(uint64_t call) { call_ = call; }

 private:
  void OnCancel() override { partials_.Withdraw(call_); }
  void OnDone() override { delete this; }

  RingPartials& partials_;
  uint64_t call_ = 0;
};

// A call whose answer is bytes.
template <typename Request>
grpc::ServerUnaryReactor* Hold(RingPartials* partials,
                               uint64_t (RingPartials::*method)(const Request&,
                                                                RingPartials::Answer),
                               const grpc::ByteBuffer& request, grpc::ByteBuffer* response) {
  auto* const call = new HeldCall(partials);
  Request message;
  if (!wire::FromBytes(request, &message)) {
    call->Finish(ToGrpc(
        absl::InvalidArgumentError(absl::StrCat("expected a ", Request::descriptor()->name()))));
    return call;
  }
  call->SetNumber(
      (partials->*method)(message, [call, response](absl::StatusOr<grpc::ByteBuffer> answer) {
        if (answer.ok()) *response = *std::move(answer);
        call->Finish(ToGrpc(answer.status()));
      }));
  return call;
}

}  // namespace

grpc::ServerUnaryReactor* RingService::TakePartial(grpc::CallbackServerContext*,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  return Hold(&partials_, &RingPartials::TakePartial, *request, response);
}

grpc::ServerUnaryReactor* RingService::TraceGradients(grpc::CallbackServerContext*,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* response) {
  return Hold(&partials_, &RingPartials::TraceGradients, *request, response);
}

grpc::ServerUnaryReactor* RingService::AwaitTaken(grpc::CallbackServerContext*,
                                                  const v1::AwaitTakenRequest* request,
                                                  v1::AwaitTakenResponse*) {
  auto* const call = new HeldCall(&partials_);
  call->SetNumber(partials_.AwaitTaken(*request, [call](absl::StatusOr<grpc::ByteBuffer> taken) {
    call->Finish(ToGrpc(taken.status()));
  }));
  return call;
}

}  // namespace tessera::worker
