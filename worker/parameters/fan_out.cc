#include "worker/parameters/fan_out.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/backoff.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/rpc/status.h"

namespace tessera::worker {
namespace {

// Has no text, which would itself take memory; Describe adds it.
absl::Status NoMemory() { return absl::ResourceExhaustedError(""); }

}  // namespace

FanOut::FanOut(std::string what, std::string method, const PeerDirectory* peers,
               std::vector<Leg> legs, StatusBoard* board, Cancellation* cancellation,
               const Options& options)
    : what_(std::move(what)),
      method_(std::move(method)),
      peers_(peers),
      legs_(std::move(legs)),
      options_(options),
      board_(board),
      cancellation_(cancellation),
      states_(legs_.size()) {
  queues_.reserve(peers->size());
  for (size_t peer = 0; peer < peers->size(); ++peer) queues_.emplace_back(options.seed);
  for (size_t leg = 0; leg < legs_.size(); ++leg) queues_[legs_[leg].peer].legs.push_back(leg);
  if (options_.pool != nullptr) {
    StartInPool();
  } else {
    StartAll();
  }
  registration_.emplace(cancellation_, [this] { Cancel(); });
}

FanOut::~FanOut() {
  registration_.reset();
  Cancel();
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(this, &FanOut::Idle));
}

std::optional<size_t> FanOut::Next(size_t peer) {
  Queue& queue = queues_[peer];
  if (stopping_ || queue.failing.has_value()) return {};
  if (queue.next == queue.legs.size() || queue.under_way == kInFlight) return {};
  const size_t leg = queue.legs[queue.next++];
  ++queue.under_way;
  ++under_way_;
  states_[leg].phase = Phase::kUnderWay;
  return leg;
}

void FanOut::StartInPool() {
  {
    absl::MutexLock lock(&mu_);
    starting_ = static_cast<int>(peers_->size());
  }
  for (size_t peer = 0; peer < peers_->size(); ++peer) {
    options_.pool->Post([this, peer] {
      StartPeer(peer);
      absl::MutexLock lock(&mu_);
      --starting_;
    });
  }
}

void FanOut::StartAll() {
  for (size_t peer = 0; peer < peers_->size(); ++peer) StartPeer(peer);
}

void FanOut::StartPeer(size_t peer) {
  while (true) {
    std::optional<size_t> leg;
    {
      absl::MutexLock lock(&mu_);
      leg = Next(peer);
    }
    if (!leg.has_value()) break;
    Start(*leg);
  }
}

void FanOut::Start(size_t leg) {
  State* state = nullptr;
  try {
    state = Prepare(leg);
  } catch (const std::exception&) {
    return Finish(leg, NoMemory(), /*threw=*/true);
  }
  state->peer->stub.UnaryCall(state->context.get(), method_, grpc::StubOptions(), &state->request,
                              &state->answer, [this, leg, state](const grpc::Status& status) {
                                absl::Status result;
                                bool threw = false;
                                // gRPC drops exceptions of a callback: the leg would never end.
                                try {
                                  result = Take(leg, *state, FromGrpc(status));
                                } catch (const std::exception&) {
                                  result = NoMemory();
                                  threw = true;
                                }
                                state->replaced.reset();
                                state->request.Clear();
                                state->answer.Clear();
                                Finish(leg, std::move(result), threw);
                              });
}

FanOut::State* FanOut::Prepare(size_t leg) {
  grpc::ByteBuffer message = legs_[leg].message();
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(absl::ToChronoTime(absl::Now() + options_.attempt));
  State* state = nullptr;
  const std::shared_ptr<Peer> peer = peers_->At(legs_[leg].peer);
  grpc::ClientContext* const borrowed = context.get();
  {
    absl::MutexLock lock(&mu_);
    state = &states_[leg];
    state->request = std::move(message);
    state->context = std::move(context);
    state->peer = peer;
    state->sent = SystemClock().Monotonic();
    if (stopping_) borrowed->TryCancel();
  }
  state->replaced.emplace(&peer->replaced, [borrowed] { borrowed->TryCancel(); });
  return state;
}

absl::Status FanOut::Take(size_t leg, const State& state, absl::Status status) {
  if (!status.ok()) {
    if (legs_[leg].failed) legs_[leg].failed(status);
    return status;
  }
  if (legs_[leg].took) legs_[leg].took(SystemClock().Monotonic() - state.sent);
  return legs_[leg].take(state.answer);
}

void FanOut::Finish(size_t leg, absl::Status status, bool threw) {
  const size_t peer = legs_[leg].peer;
  std::optional<size_t> next;
  {
    absl::MutexLock lock(&mu_);
    State& state = states_[leg];
    state.phase = status.ok() ? Phase::kDone : Phase::kFailed;
    state.status = std::move(status);
    state.threw = threw;
    Queue& queue = queues_[peer];
    if (state.phase == Phase::kDone) {
      queue.answered = true;
    } else if (MayPass(state)) {
      queue.failing = leg;
    } else if (!stopping_) {
      ended_by_ = leg;
      Stop();
    }
    --queue.under_way;
    // Takes the next leg before this one stops counting, so that under_way_ is above 0 until the
    // last leg has ended.
    next = Next(peer);
    if (queue.failing.has_value() && queue.under_way == 0) RepeatLater(peer);
    --under_way_;
  }
  if (next.has_value()) Start(*next);
}

bool FanOut::MayPass(const State& state) const {
  if (state.threw) return false;
  return IsRetryable(state.status) || (IsBroken(state.status) && !stopping_);
}

void FanOut::RepeatLater(size_t peer) {
  if (stopping_ || options_.retry_for == absl::ZeroDuration()) return;
  if (SystemClock().Monotonic() >= give_up_) return;
  Queue& queue = queues_[peer];
  // A peer that answers some of the legs is not the one to be spared.
  if (std::exchange(queue.answered, false)) queue.backoff.Reset();
  SPDLOG_WARN("{}; trying again", std::string(Describe(*queue.failing).message()));
  failed_ = true;
  ++repeating_;
  // A new one each time: the callback of the last may still be returning.
  queue.repeat.emplace().Set(absl::ToChronoTime(absl::Now() + queue.backoff.Next()),
                             [this, peer](bool /*expired*/) { Repeat(peer); });
}

void FanOut::Repeat(size_t peer) {
  {
    absl::MutexLock lock(&mu_);
    Queue& queue = queues_[peer];
    queue.failing.reset();
    // Without those that were sent there is room for those that are sent again.
    queue.legs.erase(queue.legs.begin(), queue.legs.begin() + queue.next);
    queue.next = 0;
    for (size_t leg = 0; leg < legs_.size() && !stopping_; ++leg) {
      if (legs_[leg].peer != peer || states_[leg].phase != Phase::kFailed) continue;
      states_[leg].phase = Phase::kReady;
      queue.legs.push_back(leg);
    }
  }
  StartPeer(peer);
  absl::MutexLock lock(&mu_);
  --repeating_;
}

void FanOut::Cancel() {
  absl::MutexLock lock(&mu_);
  Stop();
  for (State& state : states_) {
    if (state.phase == Phase::kUnderWay && state.context != nullptr) state.context->TryCancel();
  }
}

void FanOut::Stop() {
  stopping_ = true;
  for (Queue& queue : queues_) {
    if (queue.repeat.has_value()) queue.repeat->Cancel();
  }
}

bool FanOut::Done() const {
  absl::MutexLock lock(&mu_);
  return Idle();
}

absl::Status FanOut::Wait() {
  constexpr absl::Duration kLook = absl::Seconds(1);
  {
    absl::MutexLock lock(&mu_);
    give_up_ = SystemClock().Monotonic() + options_.retry_for;
    mu_.AwaitWithTimeout(absl::Condition(this, &FanOut::IdleOrFailing), kLook);
  }
  // Lasts over all tries: the status says since when the call has failed, however often it is
  // repeated.
  std::optional<StatusBoard::Wait> wait;
  while (true) {
    std::string waiting;
    {
      absl::MutexLock lock(&mu_);
      if (Idle()) break;
      waiting = Waiting();
    }
    if (wait.has_value()) {
      wait->Reword(std::move(waiting));
    } else {
      wait.emplace(board_, std::move(waiting));
    }
    absl::MutexLock lock(&mu_);
    mu_.AwaitWithTimeout(absl::Condition(this, &FanOut::Idle), kLook);
  }
  return Result();
}

absl::Status FanOut::Result() const {
  const bool cancelled = cancellation_->cancelled();  // takes a lock that Cancel is called under
  absl::MutexLock lock(&mu_);
  std::optional<size_t> failed;
  bool all = true;
  for (size_t leg = 0; leg < legs_.size(); ++leg) {
    if (states_[leg].phase == Phase::kDone) continue;
    all = false;
    if (states_[leg].phase == Phase::kFailed && !failed.has_value()) failed = leg;
  }
  if (all) return absl::OkStatus();
  if (cancelled) return CancelledStatus();
  return Describe(ended_by_.has_value() ? *ended_by_ : *failed);
}

std::string FanOut::Waiting() const {
  std::vector<bool> named(peers_->size(), false);
  std::string names;
  for (size_t leg = 0; leg < legs_.size(); ++leg) {
    const State& state = states_[leg];
    if (state.phase == Phase::kDone) continue;
    if (!state.status.ok()) return std::string(Describe(leg).message());
    const size_t peer = legs_[leg].peer;
    if (named[peer]) continue;
    named[peer] = true;
    absl::StrAppend(&names, names.empty() ? "" : ", ", peers_->At(peer)->where.name);
  }
  return absl::StrCat(names, ": ", what_);
}

absl::Status FanOut::Describe(size_t leg) const {
  const State& state = states_[leg];
  const std::string& peer = peers_->At(legs_[leg].peer)->where.label;
  return absl::Status(
      state.status.code(),
      absl::StrCat(peer, ": ", what_, ": ",
                   state.threw ? "this worker has no memory for a message or its answer; use "
                                 "machines with more, or a smaller train.batch_size"
                               : state.status.message()));
}

}  // namespace tessera::worker
