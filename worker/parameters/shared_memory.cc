#include "worker/parameters/shared_memory.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/rpc/status.h"
#include "common/rpc/this_machine.h"
#include "common/wire/message_bytes.h"
#include "grpcpp/support/byte_buffer.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::worker {
namespace {

constexpr char kShareMemory[] = "/tessera.v1.ParameterService/ShareMemory";
constexpr absl::Duration kTimeout = absl::Seconds(5);
// How long after a failed offer the next is made, if it may end better.
constexpr absl::Duration kOfferAgainAfter = absl::Seconds(5);

absl::StatusOr<uint64_t> ReadRegion(const grpc::ByteBuffer& answer) {
  v1::ShareMemoryResponse response;
  if (wire::FromBytes(answer, &response)) return response.region();
  return absl::InternalError("answered ShareMemory with what is no ShareMemoryResponse");
}

}  // namespace

struct SharedMemory::Offer {
  size_t ps;
  std::shared_ptr<Peer> peer;
  std::shared_ptr<SlotPool> pool;
  grpc::ClientContext context;
  grpc::ByteBuffer request;
  grpc::ByteBuffer answer;
};

SharedMemory::SharedMemory(const PsDirectory* ps, bool enabled)
    : ps_(*ps), enabled_(enabled), links_(ps->size()) {}

SharedMemory::~SharedMemory() {
  absl::MutexLock lock(&mu_);
  ending_ = true;
  for (Offer* const offer : offers_) offer->context.TryCancel();
  mu_.Await(absl::Condition(this, &SharedMemory::NoOffers));
}

std::optional<SharedMemory::Taken> SharedMemory::Take(size_t ps, uint64_t bytes) {
  if (!enabled_ || bytes > kSlotBytes) return std::nullopt;
  std::shared_ptr<Peer> peer = ps_.At(ps);
  std::shared_ptr<SlotPool> pool;
  uint64_t region = 0;
  bool offer = false;
  {
    absl::MutexLock lock(&mu_);
    Link& link = links_[ps];
    if (link.peer != peer) link = Link(peer);
    if (link.state == State::kAgreed) {
      pool = link.pool;
      region = link.region;
    } else if (link.state == State::kNotOffered && link.not_before <= SystemClock().Monotonic()) {
      offer = true;
      link.state = State::kOffered;
    }
  }
  if (offer) Begin(ps, std::move(peer));
  if (pool == nullptr) return std::nullopt;
  std::optional<Slot> slot = pool->Take();
  if (!slot.has_value()) return std::nullopt;
  return Taken{.slot = *std::move(slot), .region = region};
}

void SharedMemory::Failed(size_t ps, uint64_t region, const absl::Status& status) {
  if (!absl::IsUnavailable(status)) return;
  absl::MutexLock lock(&mu_);
  Link& link = links_[ps];
  if (link.state == State::kAgreed && link.region == region) link = Link(link.peer);
}

void SharedMemory::Begin(size_t ps, std::shared_ptr<Peer> peer) {
  if (!IsThisMachine(peer->where.address)) {
    absl::MutexLock lock(&mu_);
    if (links_[ps].peer == peer) links_[ps].state = State::kRefused;
    return;
  }
  absl::StatusOr<std::shared_ptr<SlotPool>> pool = SlotPool::New(kSlots, kSlotBytes);
  if (!pool.ok()) {
    absl::MutexLock lock(&mu_);
    if (links_[ps].peer == peer) Refuse(*peer, links_[ps], pool.status());
    return;
  }
  v1::ShareMemoryRequest request;
  request.set_pid(static_cast<uint32_t>(::getpid()));
  request.set_fd(static_cast<uint32_t>((*pool)->region().fd()));
  request.set_bytes((*pool)->region().bytes());
  request.set_nonce((*pool)->region().nonce());
  auto* const offer = new Offer{.ps = ps,
                                .peer = std::move(peer),
                                .pool = *std::move(pool),
                                .context = {},
                                .request = wire::ToBytes(request),
                                .answer = {}};
  offer->context.set_deadline(absl::ToChronoTime(absl::Now() + kTimeout));
  {
    absl::MutexLock lock(&mu_);
    offers_.push_back(offer);
  }
  offer->peer->stub.UnaryCall(
      &offer->context, kShareMemory, grpc::StubOptions(), &offer->request, &offer->answer,
      [this, offer](const grpc::Status& status) { End(offer, FromGrpc(status)); });
}

void SharedMemory::End(Offer* offer, absl::Status status) {
  const std::unique_ptr<Offer> owned(offer);
  uint64_t region = 0;
  if (status.ok()) {
    const absl::StatusOr<uint64_t> read = ReadRegion(offer->answer);
    status = read.status();
    if (read.ok()) region = *read;
  }
  absl::MutexLock lock(&mu_);
  offers_.erase(std::find(offers_.begin(), offers_.end(), offer));
  Link& link = links_[offer->ps];
  if (link.peer != offer->peer || link.state != State::kOffered) return;
  if (!status.ok()) return Refuse(*offer->peer, link, status);
  SPDLOG_INFO("{}: this worker shares {} bytes of memory with it", offer->peer->where.label,
              offer->pool->region().bytes());
  link.state = State::kAgreed;
  link.pool = offer->pool;
  link.region = region;
}

void SharedMemory::Refuse(const Peer& peer, Link& link, const absl::Status& why) {
  if (ending_) return;
  if (!link.refused_once) {
    SPDLOG_INFO("{}: this worker shares no memory with it: {}", peer.where.label,
                std::string(why.message()));
  }
  link.refused_once = true;
  const bool for_good = !IsRetryable(why) && !IsBroken(why);
  link.state = for_good ? State::kRefused : State::kNotOffered;
  link.not_before = SystemClock().Monotonic() + kOfferAgainAfter;
}

}  // namespace tessera::worker
