#include "tests/bench/wire_echo.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/status.h"
#include "common/status_macros.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "tessera/v1/parameter_service.grpc.pb.h"

namespace tessera::bench {
namespace {

// Any method with raw bytes in and out will do.
constexpr char kMethod[] = "/tessera.v1.ParameterService/Pull";

grpc::ByteBuffer Message(uint64_t bytes) {
  grpc::Slice slice(bytes);
  std::memset(const_cast<uint8_t*>(slice.begin()), 7, bytes);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

class EchoServer::Service final
    : public v1::ParameterService::WithRawCallbackMethod_Pull<v1::ParameterService::Service> {
 public:
  grpc::ServerUnaryReactor* Pull(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    // How much is wanted stands in the first eight bytes.
    std::vector<grpc::Slice> slices;
    uint64_t bytes = 0;
    if (request->Dump(&slices).ok()) {
      size_t have = 0;
      for (const grpc::Slice& slice : slices) {
        const size_t n = std::min(slice.size(), sizeof(bytes) - have);
        std::memcpy(reinterpret_cast<char*>(&bytes) + have, slice.begin(), n);
        if ((have += n) == sizeof(bytes)) break;
      }
    }
    *response = Message(bytes);
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

EchoServer::EchoServer() : service_(std::make_unique<Service>()) {}
EchoServer::~EchoServer() { server_.reset(); }
const std::string& EchoServer::address() const { return server_->address(); }

absl::StatusOr<std::unique_ptr<EchoServer>> EchoServer::Start() {
  std::unique_ptr<EchoServer> echo(new EchoServer());
  TESSERA_ASSIGN_OR_RETURN(echo->server_, RpcServer::Start({}, {echo->service_.get()}));
  return echo;
}

// One exchange: the callback of a call starts the next one.
class EchoClient::Run {
 public:
  Run(std::shared_ptr<grpc::Channel> channel, int calls, uint64_t request_bytes,
      uint64_t response_bytes)
      : stub_(std::move(channel)),
        request_bytes_(std::max<uint64_t>(request_bytes, sizeof(uint64_t))),
        response_bytes_(response_bytes),
        left_(calls) {}

  absl::Status Go(int in_flight) {
    for (int i = 0; i < in_flight; ++i) Next();
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(this, &Run::Finished));
    return status_;
  }

 private:
  struct Call {
    grpc::ClientContext context;
    grpc::ByteBuffer request, response;
  };
  bool Finished() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return left_ == 0 && running_ == 0; }

  void Next() ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      if (left_ == 0) return;
      --left_;
      ++running_;
    }
    auto* const call = new Call;
    grpc::Slice slice(request_bytes_);
    std::memset(const_cast<uint8_t*>(slice.begin()), 7, request_bytes_);
    std::memcpy(const_cast<uint8_t*>(slice.begin()), &response_bytes_, sizeof(response_bytes_));
    call->request = grpc::ByteBuffer(&slice, 1);
    stub_.UnaryCall(&call->context, kMethod, grpc::StubOptions(), &call->request, &call->response,
                    [this, call](grpc::Status status) {
                      if (status.ok() && call->response.Length() != response_bytes_) {
                        status = grpc::Status(grpc::StatusCode::INTERNAL, "a short echo");
                      }
                      delete call;
                      Next();
                      absl::MutexLock lock(&mu_);
                      status_.Update(FromGrpc(status));
                      --running_;
                    });
  }

  grpc::GenericStub stub_;
  const uint64_t request_bytes_;
  const uint64_t response_bytes_;
  absl::Mutex mu_;
  int left_ ABSL_GUARDED_BY(mu_);
  int running_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

EchoClient::EchoClient(const std::string& address)
    : channels_(NewNetworkChannels()), channel_(channels_->Connect(address)) {}
EchoClient::~EchoClient() = default;

absl::Status EchoClient::Exchange(int calls, uint64_t request_bytes, uint64_t response_bytes,
                                  int in_flight) {
  return Run(channel_, calls, request_bytes, response_bytes).Go(in_flight);
}

}  // namespace tessera::bench
