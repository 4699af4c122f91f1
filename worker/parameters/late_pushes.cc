#include "worker/parameters/late_pushes.h"

#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/failpoint.h"
#include "common/log.h"
#include "grpcpp/client_context.h"

namespace tessera::worker {
namespace {

constexpr int kMessagesAhead = 3;
constexpr absl::Duration kTimeout = absl::Seconds(10);

// A call whose answer is ignored. Lives until it is answered.
struct Call {
  std::shared_ptr<Peer> peer;
  grpc::ByteBuffer request;
  grpc::ByteBuffer answer;
  grpc::ClientContext context;
};

}  // namespace

void LatePushes::Sending(const std::shared_ptr<Peer>& peer, const grpc::ByteBuffer& message) {
  const bool again = !Failpoint("worker.push.again").ok();
  std::vector<Copy> due;
  {
    absl::MutexLock lock(&mu_);
    for (Copy& copy : copies_) --copy.messages_ahead;
    while (!copies_.empty() && copies_.front().messages_ahead <= 0) {
      due.push_back(std::move(copies_.front()));
      copies_.pop_front();
    }
    if (again) copies_.push_back({peer, message, kMessagesAhead});
  }
  for (Copy& copy : due) Send(std::move(copy));
}

void LatePushes::Send(Copy copy) const {
  SPDLOG_WARN("failpoint worker.push.again: a message of {} bytes goes to {} once more",
              copy.message.Length(), copy.peer->where.name);
  auto* const call = new Call{std::move(copy.peer), std::move(copy.message), {}, {}};
  call->context.set_deadline(absl::ToChronoTime(absl::Now() + kTimeout));
  call->peer->stub.UnaryCall(&call->context, method_, grpc::StubOptions(), &call->request,
                             &call->answer, [call](const grpc::Status&) { delete call; });
}

}  // namespace tessera::worker
