#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/v1/ring.pb.h"
#include "worker/cancellation.h"
#include "worker/parameter_client.h"
#include "worker/rank_directory.h"
#include "worker/ring_partials.h"
#include "worker/ring_share.h"
#include "worker/status_board.h"

namespace tessera::worker {

// Sums a rank's dense gradients with those of the other ranks: the reduce-scatter half of a ring
// all-reduce, in an order that depends on the number of ranks alone (proto/tessera/v1/ring.proto).
// The all-gather half is the pull of what the ps have made of the sums. For one assignment with two
// ranks or more; used by one thread.
class GradientRing {
 public:
  struct Options {
    v1::RingHeader header;  // to_rank is set here
    uint64_t blocks = 0;    // of all dense gradients
    // Borrowed; they outlive the ring.
    const RankDirectory* ranks = nullptr;
    RingPartials* partials = nullptr;
    StatusBoard* board = nullptr;
    Cancellation* cancellation = nullptr;
  };
  explicit GradientRing(const Options& options);

  // The blocks that this rank ends with, and pushes.
  RingShares::Blocks share() const { return shares_.Share(options_.header.rank()); }

  // Takes part in a step. `values` [blocks * kDenseBlockFloats], this rank's gradients; the share()
  // becomes the sum of all ranks', the rest stays. Not `contributes`: they are not read, and what
  // is summed is the others'. False: nobody contributed, and the share is zeros. Returns when the
  // rank behind has all that it needs, so that the share may be pushed. Waits at most ten
  // minutes, with repeats; errors name the rank that was waited for.
  // ABORTED: a step can only be summed again from a checkpoint.
  absl::StatusOr<bool> Reduce(uint64_t step, bool contributes, absl::Span<float> values);

  // For whoever has taken the rank. With what GetProgress said: others may ask from here on.
  void Resume(const PushProgress& progress);
  // Asks the other ranks whether gradients of the step that another worker of this rank had may be
  // in their sums; if not, they never get there. Not where this worker has taken part in the step.
  // Gives up after 15 s, or 35, with an error that names the rank that has not answered.
  absl::StatusOr<bool> Trace(uint64_t step);

 private:
  struct Step;
  v1::RingHeader HeaderTo(uint32_t rank) const;
  // The shares of which this rank is the first.
  void OfferOwn(const Step& step);
  // A piece of what the rank before has summed; any thread.
  absl::Status TakePiece(Step& step, uint32_t share, uint32_t piece,
                         const grpc::ByteBuffer& answer);
  absl::Status TakeAll(Step& step);

  const Options options_;
  const RingShares shares_;
};

}  // namespace tessera::worker
