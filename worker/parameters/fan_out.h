#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/backoff.h"
#include "common/task_pool.h"
#include "grpcpp/alarm.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "worker/assignment/cancellation.h"
#include "worker/assignment/status_board.h"
#include "worker/parameters/parameter_client.h"
#include "worker/parameters/peer_directory.h"

namespace tessera::worker {

// One method called on several peers (every ps, or a neighbour in a ring), in one or more messages
// each. A leg is one message and its answer. At most kInFlight legs per peer are under way, so that
// even a large call holds few messages in memory. A leg that failed for a passing reason is
// repeated, with backoff, whether or not somebody waits for the call: a ps that has some of its
// legs keeps room for the others, which an older call may need. If this process lacks memory for a
// leg, the call ends with RESOURCE_EXHAUSTED: to wait would not free memory, since the waiting
// caller holds it.
class FanOut final : public PendingCall {
 public:
  static constexpr int kInFlight = 8;
  static constexpr absl::Duration kTenMinutes = absl::Minutes(10);

  struct Leg {
    size_t peer = 0;  // number in the directory
    // `message` is called for each attempt, `take` with the answer. Called in any thread, one at a
    // time. Both may throw std::bad_alloc.
    std::function<grpc::ByteBuffer()> message;
    std::function<absl::Status(const grpc::ByteBuffer&)> take;
    // Called instead of `take` with the error of an attempt that failed; may be null.
    std::function<void(const absl::Status&)> failed = nullptr;
    // Called with the time from sending to the answer; may be null.
    std::function<void(absl::Duration)> took = nullptr;
  };
  struct Options {
    // How long legs that failed for a passing reason are repeated once Wait has been called; 0:
    // none is repeated.
    absl::Duration retry_for = kTenMinutes;
    // Deadline of one attempt of one leg; a pull may wait for other ranks that long.
    absl::Duration attempt = absl::Seconds(20);
    // Of the waits between tries (Backoff): different in each worker, e.g. its incarnation.
    uint64_t seed = 0;
    // Makes the first messages, peer by peer, while the caller goes on; null: the constructor makes
    // them.
    TaskPool* pool = nullptr;
  };
  // `what` is for messages: "pull of step 4". `method` is a full name: "/package.Service/Method".
  FanOut(std::string what, std::string method, const PeerDirectory* peers, std::vector<Leg> legs,
         StatusBoard* board, Cancellation* cancellation, const Options& options);
  ~FanOut() override;

  absl::Status Wait() override ABSL_LOCKS_EXCLUDED(mu_);
  bool Done() const override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  enum class Phase { kReady, kUnderWay, kDone, kFailed };
  struct State {
    Phase phase = Phase::kReady;
    absl::Status status;  // of the last attempt that has ended
    bool threw = false;   // `message` or `take` threw: the peer is not to blame
    grpc::ByteBuffer request;
    grpc::ByteBuffer answer;
    absl::Duration sent;
    std::unique_ptr<grpc::ClientContext> context;
    std::shared_ptr<Peer> peer;                          // called by the last attempt
    std::optional<Cancellation::Registration> replaced;  // with `peer`, while the leg is under way
  };
  struct Queue {
    explicit Queue(uint64_t seed) : backoff({.first = absl::Milliseconds(50), .seed = seed}) {}

    std::vector<size_t> legs;  // legs of one peer, in the order to be sent
    size_t next = 0;
    int under_way = 0;
    // The leg that failed last for a passing reason: no more are sent before it is repeated.
    // Otherwise a peer that answers nothing would be sent every leg before it is given up.
    std::optional<size_t> failing;
    bool answered = false;  // some leg, since failing legs were repeated
    Backoff backoff;
    std::optional<grpc::Alarm> repeat;
  };

  // No leg is under way, and none will be.
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return under_way_ == 0 && starting_ == 0 && repeating_ == 0;
  }
  bool IdleOrFailing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return failed_ || Idle(); }
  // The next leg of a peer, which counts as under way from here on; none if no leg may be sent now.
  std::optional<size_t> Next(size_t peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StartAll() ABSL_LOCKS_EXCLUDED(mu_);
  void StartInPool() ABSL_LOCKS_EXCLUDED(mu_);
  void StartPeer(size_t peer) ABSL_LOCKS_EXCLUDED(mu_);
  void Start(size_t leg) ABSL_LOCKS_EXCLUDED(mu_);
  // Makes the message and everything else that an attempt needs.
  State* Prepare(size_t leg) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Take(size_t leg, const State& state, absl::Status status);
  void Finish(size_t leg, absl::Status status, bool threw) ABSL_LOCKS_EXCLUDED(mu_);
  // Has a failing peer called again after a while, unless it has been given up.
  void RepeatLater(size_t peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Repeat(size_t peer) ABSL_LOCKS_EXCLUDED(mu_);
  void Cancel() ABSL_LOCKS_EXCLUDED(mu_);
  // Sends nothing more.
  void Stop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What the call waits for.
  std::string Waiting() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Result() const ABSL_LOCKS_EXCLUDED(mu_);
  // Whether a leg that failed may be repeated.
  bool MayPass(const State& state) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Describe(size_t leg) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string what_;
  const std::string method_;
  const PeerDirectory* const peers_;
  const std::vector<Leg> legs_;
  const Options options_;
  StatusBoard* const board_;
  Cancellation* const cancellation_;
  std::optional<Cancellation::Registration> registration_;

  mutable absl::Mutex mu_;
  int under_way_ ABSL_GUARDED_BY(mu_) = 0;
  int starting_ ABSL_GUARDED_BY(mu_) = 0;       // peers whose first legs the pool still starts
  int repeating_ ABSL_GUARDED_BY(mu_) = 0;      // peers that will be called again, or just are
  bool failed_ ABSL_GUARDED_BY(mu_) = false;    // some leg, and it was or will be repeated
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;  // nothing more is sent
  absl::Duration give_up_ ABSL_GUARDED_BY(mu_) = absl::InfiniteDuration();  // on the system's clock
  // The first leg that failed for a lasting reason; later ones may only have been cancelled.
  std::optional<size_t> ended_by_ ABSL_GUARDED_BY(mu_);
  std::vector<Queue> queues_ ABSL_GUARDED_BY(mu_);  // [peers]
  // A state's messages belong to gRPC while its leg is under way.
  std::vector<State> states_ ABSL_GUARDED_BY(mu_);  // [legs]
};

}  // namespace tessera::worker
