#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/support/byte_buffer.h"
#include "tessera/v1/ring.pb.h"

namespace tessera::worker {

// What this worker has for its neighbours in the ring (proto/tessera/v1/ring.proto): the partial
// sums of one step, kept until the next one begins, and who waits for them. Knows no gRPC but its
// bytes; RingService is around it. Thread-safe; answers are given without a lock held, in the
// thread of whoever made them possible.
class RingPartials {
 public:
  // Of the calls that wait, more are refused.
  static constexpr size_t kMaxWaiting = 256;

  // Called once. The bytes are a TakePartialResponse; empty for AwaitTaken.
  using Answer = absl::AnyInvocable<void(absl::StatusOr<grpc::ByteBuffer>) &&>;

  struct Seat {
    std::string job_id;
    uint64_t generation = 0;
    uint32_t rank = 0;
    uint32_t ranks = 0;
  };
  // The worker has this rank from here on; what was before is over.
  void Begin(Seat seat) ABSL_LOCKS_EXCLUDED(mu_);
  // It has none; calls that wait get UNAVAILABLE.
  void End() ABSL_LOCKS_EXCLUDED(mu_);

  // All ps have the rank's pushes of the steps below: it does not sum those again.
  void ResumeAt(uint64_t step) ABSL_LOCKS_EXCLUDED(mu_);
  // What is offered from here on is of `step`; of those before nothing is kept. Of a step that is
  // begun again everything is.
  void BeginStep(uint64_t step) ABSL_LOCKS_EXCLUDED(mu_);
  // Of the step that has begun. `sums` is a TakePartialResponse.
  void Offer(uint32_t share, uint32_t piece, grpc::ByteBuffer sums) ABSL_LOCKS_EXCLUDED(mu_);
  // The rank has all that it needs of the partial sums of the rank before it, of the step that has
  // begun.
  void SetTaken() ABSL_LOCKS_EXCLUDED(mu_);

  // The calls of RingService, with its errors. The result is for Withdraw; `answer` may have been
  // called by then.
  uint64_t Take(const v1::TakePartialRequest& request, Answer answer) ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t AwaitTaken(const v1::AwaitTakenRequest& request, Answer answer) ABSL_LOCKS_EXCLUDED(mu_);
  // The caller has gone: CANCELLED, if the call still waits.
  void Withdraw(uint64_t call) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Place = std::pair<uint32_t, uint32_t>;  // share, piece
  struct Waiting {
    uint64_t step = 0;
    std::optional<Place> place;  // nullopt: AwaitTaken
    Answer answer;
  };
  using Due = std::vector<std::pair<Answer, absl::StatusOr<grpc::ByteBuffer>>>;

  // `from_behind`: it is to be the rank behind that calls, else the one before.
  absl::Status Check(const v1::RingHeader& header, bool from_behind)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // nullopt: not yet.
  std::optional<absl::StatusOr<grpc::ByteBuffer>> Find(uint64_t step,
                                                       const std::optional<Place>& place) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t Call(const v1::RingHeader& header, Waiting call) ABSL_LOCKS_EXCLUDED(mu_);
  // Those that can be answered now.
  Due TakeDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Due TakeAll(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Give(Due due);

  absl::Mutex mu_;
  std::optional<Seat> seat_ ABSL_GUARDED_BY(mu_);
  std::map<uint32_t, uint64_t> callers_ ABSL_GUARDED_BY(mu_);  // by rank: the last incarnation
  uint64_t first_step_ ABSL_GUARDED_BY(mu_) = 0;               // nothing below is made again
  uint64_t taken_below_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<uint64_t> step_ ABSL_GUARDED_BY(mu_);  // that has begun
  std::map<Place, grpc::ByteBuffer> offered_ ABSL_GUARDED_BY(mu_);
  uint64_t last_call_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, Waiting> waiting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::worker
