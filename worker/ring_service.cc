#include "worker/ring_service.h"

#include "common/rpc/status.h"
#include "common/wire/message_bytes.h"
#include "grpcpp/server_context.h"

namespace tessera::worker {
namespace {

// A call that may be withdrawn while it waits. Deletes itself.
class HeldCall final : public grpc::ServerUnaryReactor {
 public:
  explicit HeldCall(RingPartials* partials) : partials_(*partials) {}

  // Before the handler returns; gRPC calls OnCancel after that.
  void SetNumber(uint64_t call) { call_ = call; }

 private:
  void OnCancel() override { partials_.Withdraw(call_); }
  void OnDone() override { delete this; }

  RingPartials& partials_;
  uint64_t call_ = 0;
};

}  // namespace

grpc::ServerUnaryReactor* RingService::TakePartial(grpc::CallbackServerContext*,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  auto* const call = new HeldCall(&partials_);
  v1::TakePartialRequest message;
  if (!wire::FromBytes(*request, &message)) {
    call->Finish(ToGrpc(absl::InvalidArgumentError("expected a TakePartialRequest")));
    return call;
  }
  call->SetNumber(partials_.Take(message, [call, response](absl::StatusOr<grpc::ByteBuffer> sums) {
    if (sums.ok()) *response = *std::move(sums);
    call->Finish(ToGrpc(sums.status()));
  }));
  return call;
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
