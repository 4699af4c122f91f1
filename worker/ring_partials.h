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
// sums of one step, kept until the next one begins, and who waits for them; and whose gradients are
// in what it took itself. Knows no gRPC but its bytes; RingService is around it. Thread-safe;
// answers are given without a lock held, in the thread of whoever made them possible.
class RingPartials {
 public:
  // Of the calls that wait, more are refused.
  static constexpr size_t kMaxWaiting = 256;

  // Called once. The bytes are a TakePartialResponse or a TraceGradientsResponse; empty for
  // AwaitTaken.
  using Answer = absl::AnyInvocable<void(absl::StatusOr<grpc::ByteBuffer>) &&>;

  struct Seat {
    std::string job_id;
    uint64_t generation = 0;
    uint32_t rank = 0;
    uint32_t ranks = 0;
    uint64_t incarnation = 0;
  };
  // The worker has this rank from here on; what was before is over.
  void Begin(Seat seat) ABSL_LOCKS_EXCLUDED(mu_);
  // It has none; calls that wait get UNAVAILABLE.
  void End() ABSL_LOCKS_EXCLUDED(mu_);

  // All ps have the rank's pushes of the steps below: it does not sum those again. Some ps may have
  // sums of all ranks from it, of steps below `pushed_end`.
  void ResumeAt(uint64_t step, uint64_t pushed_end) ABSL_LOCKS_EXCLUDED(mu_);
  // What is offered from here on is of `step`; of those before nothing is kept. Of a step that is
  // begun again everything is.
  void BeginStep(uint64_t step) ABSL_LOCKS_EXCLUDED(mu_);
  // Before partial sums of the step that has begun are used: worker `incarnation` of the rank
  // before gave them, with gradients of so many ranks before this one. UNAVAILABLE: that worker has
  // lost its rank, and what it gave must not be used.
  absl::Status MarkTaken(uint32_t summed, uint64_t incarnation) ABSL_LOCKS_EXCLUDED(mu_);
  // Of the step that has begun. `sums` is a TakePartialResponse.
  void Offer(uint32_t share, uint32_t piece, grpc::ByteBuffer sums) ABSL_LOCKS_EXCLUDED(mu_);
  // The rank has all that it needs of the partial sums of the rank before it, of the step that has
  // begun.
  void SetTaken() ABSL_LOCKS_EXCLUDED(mu_);

  // The calls of RingService, with its errors. The result is for Withdraw; `answer` may have been
  // called by then.
  uint64_t TakePartial(const v1::TakePartialRequest& request, Answer answer)
      ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t AwaitTaken(const v1::AwaitTakenRequest& request, Answer answer) ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t TraceGradients(const v1::TraceGradientsRequest& request, Answer answer)
      ABSL_LOCKS_EXCLUDED(mu_);
  // The caller has gone: CANCELLED, if the call still waits.
  void Withdraw(uint64_t call) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Place = std::pair<uint32_t, uint32_t>;  // share, piece
  enum class Method { kTakePartial, kAwaitTaken, kTraceGradients };
  struct Waiting {
    Method method = Method::kTakePartial;
    uint64_t step = 0;
    Place place = {};                 // TakePartial
    uint32_t rank = 0;                // TraceGradients: the caller's
    uint64_t incarnation_before = 0;  // likewise
    Answer answer;
  };
  using Due = std::vector<std::pair<Answer, absl::StatusOr<grpc::ByteBuffer>>>;

  absl::Status Check(const v1::RingHeader& header, Method method)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether that rank may call it.
  absl::Status CheckCaller(uint32_t rank, Method method) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // nullopt: not yet.
  std::optional<absl::StatusOr<grpc::ByteBuffer>> Find(const Waiting& call) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether this rank has taken gradients of that rank's of the step, or pushed them.
  bool MayHave(uint32_t rank, uint64_t step) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
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
  bool resumed_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t pushed_end_ ABSL_GUARDED_BY(mu_) = 0;          // as it was when the rank was taken
  uint32_t most_summed_ ABSL_GUARDED_BY(mu_) = 0;         // in what was taken of step_
  uint64_t incarnation_before_ ABSL_GUARDED_BY(mu_) = 0;  // no earlier one's sums are taken
  uint64_t last_call_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, Waiting> waiting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::worker
