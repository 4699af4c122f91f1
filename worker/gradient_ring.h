#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/v1/ring.pb.h"
#include "worker/cancellation.h"
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
  // is summed is the others'. False: nobody contributed, and the share is not written. Returns
  // when the rank behind has all that it needs, so that the share may be pushed. Waits at most ten
  // minutes, with repeats; errors name the rank that was waited for.
  // ABORTED: a step can only be summed again from a checkpoint.
  absl::StatusOr<bool> Reduce(uint64_t step, bool contributes, absl::Span<float> values);

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
