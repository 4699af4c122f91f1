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

// What this worker has for its neighbours in the ring (worker/ring/README.md): its partial sums of
// one step, kept until the next step begins; the calls that wait for them; and how many ranks'
// gradients are in the sums that it took itself. RingService puts this class on gRPC, of which it
// knows only byte buffers. Thread-safe. Answers are given without a lock held, in the thread whose
// call made them possible.
class RingPartials {
 public:
  // Calls that may wait; further ones are refused.
  static constexpr size_t kMaxWaiting = 256;

  // Called once. The bytes are a TakePartialResponse or a TraceGradientsResponse; for AwaitTaken
  // there are none.
  using Answer = absl::AnyInvocable<void(absl::StatusOr<grpc::ByteBuffer>) &&>;

  struct Seat {
    std::string job_id;
    uint64_t generation = 0;
    uint32_t rank = 0;
    uint32_t ranks = 0;
    uint64_t incarnation = 0;
  };
  // The worker has this rank from here on; everything of an earlier rank is dropped.
  void Begin(Seat seat) ABSL_LOCKS_EXCLUDED(mu_);
  // The worker has no rank from here on; calls that wait get UNAVAILABLE.
  void End() ABSL_LOCKS_EXCLUDED(mu_);

  // All ps have this rank's pushes of steps below `step`: it does not sum these again. Some ps may
  // have pushes of this rank, with sums of all ranks, of steps below `pushed_end`.
  void ResumeAt(uint64_t step, uint64_t pushed_end) ABSL_LOCKS_EXCLUDED(mu_);
  // Begins a step: what is offered from here on is of `step`, and sums of earlier steps are
  // dropped. If the step has begun already, its sums stay.
  void BeginStep(uint64_t step) ABSL_LOCKS_EXCLUDED(mu_);
  // Called before this rank uses partial sums that it took for the step that has begun. They came
  // from worker `incarnation` of the rank before, and hold gradients of `summed` ranks before this
  // one. UNAVAILABLE: that worker has lost its rank, and its sums must not be used.
  absl::Status MarkTaken(uint32_t summed, uint64_t incarnation) ABSL_LOCKS_EXCLUDED(mu_);
  // Offers a piece of the step that has begun. `sums` is a TakePartialResponse.
  void Offer(uint32_t share, uint32_t piece, grpc::ByteBuffer sums) ABSL_LOCKS_EXCLUDED(mu_);
  // Says that this rank has taken all that it needs from the rank before it, for the step that has
  // begun.
  void SetTaken() ABSL_LOCKS_EXCLUDED(mu_);

  // The calls of RingService, with its errors. The result is for Withdraw; `answer` may be called
  // before the method returns.
  uint64_t TakePartial(const v1::TakePartialRequest& request, Answer answer)
      ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t AwaitTaken(const v1::AwaitTakenRequest& request, Answer answer) ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t TraceGradients(const v1::TraceGradientsRequest& request, Answer answer)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Answers the call with CANCELLED, if it still waits: its caller has gone.
  void Withdraw(uint64_t call) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Place = std::pair<uint32_t, uint32_t>;  // share, piece
  enum class Method { kTakePartial, kAwaitTaken, kTraceGradients };
  struct Waiting {
    Method method = Method::kTakePartial;
    uint64_t step = 0;
    Place place = {};                 // for TakePartial
    uint32_t rank = 0;                // for TraceGradients: the caller's
    uint64_t incarnation_before = 0;  // for TraceGradients
    Answer answer;
  };
  using Due = std::vector<std::pair<Answer, absl::StatusOr<grpc::ByteBuffer>>>;

  absl::Status Check(const v1::RingHeader& header, Method method)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // INVALID_ARGUMENT: this rank must not be called so by `rank`.
  absl::Status CheckCaller(uint32_t rank, Method method) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The answer to a call; nullopt: there is none yet.
  std::optional<absl::StatusOr<grpc::ByteBuffer>> Find(const Waiting& call) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether this rank may have taken or pushed sums with gradients of `rank` of the step.
  bool MayHave(uint32_t rank, uint64_t step) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t Call(const v1::RingHeader& header, Waiting call) ABSL_LOCKS_EXCLUDED(mu_);
  // Takes the calls that can be answered now; TakeAll takes all, with `status` as their answer.
  Due TakeDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Due TakeAll(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Give(Due due);

  absl::Mutex mu_;
  std::optional<Seat> seat_ ABSL_GUARDED_BY(mu_);
  std::map<uint32_t, uint64_t> callers_ ABSL_GUARDED_BY(mu_);  // by rank: latest incarnation
  uint64_t first_step_ ABSL_GUARDED_BY(mu_) = 0;               // steps below are not summed again
  uint64_t taken_below_ ABSL_GUARDED_BY(mu_) = 0;              // all is taken of steps below
  std::optional<uint64_t> step_ ABSL_GUARDED_BY(mu_);          // the step that has begun
  std::map<Place, grpc::ByteBuffer> offered_ ABSL_GUARDED_BY(mu_);
  bool resumed_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t pushed_end_ ABSL_GUARDED_BY(mu_) = 0;          // from ResumeAt
  uint32_t most_summed_ ABSL_GUARDED_BY(mu_) = 0;         // largest MarkTaken of step_, in ranks
  uint64_t incarnation_before_ ABSL_GUARDED_BY(mu_) = 0;  // sums of earlier ones are not taken
  uint64_t last_call_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, Waiting> waiting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::worker
