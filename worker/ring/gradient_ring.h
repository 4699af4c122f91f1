#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tessera/v1/ring.pb.h"
#include "worker/assignment/cancellation.h"
#include "worker/assignment/status_board.h"
#include "worker/parameters/push_progress.h"
#include "worker/ring/rank_directory.h"
#include "worker/ring/ring_partials.h"
#include "worker/ring/ring_share.h"

namespace tessera::worker {

// Sums a rank's dense gradients with those of the other ranks: the reduce-scatter half of a ring
// all-reduce, in an order that depends on the number of ranks alone (proto/tessera/v1/ring.proto).
// The all-gather half is the pull of what the ps have made of the sums. For one assignment with two
// ranks or more; used by one thread.
class GradientRing {
 public:
  struct Options {
    v1::RingHeader header;  // to_rank is set here
    uint64_t blocks = 0;    // number of blocks of all dense gradients
    // Borrowed; they outlive the ring.
    const RankDirectory* ranks = nullptr;
    RingPartials* partials = nullptr;
    StatusBoard* board = nullptr;
    Cancellation* cancellation = nullptr;
  };
  explicit GradientRing(const Options& options);

  // The blocks whose sums this rank ends with, and pushes.
  RingShares::Blocks share() const { return shares_.Share(options_.header.rank()); }

  // Takes part in a step. `values` [blocks * kDenseBlockFloats]: this rank's gradients, of which
  // share() becomes the sum over all ranks and the rest stays. Without `contributes` the gradients
  // are not read, and the sum is that of the other ranks. Returns false if no rank contributed: the
  // share is zeros then. Returns once the rank behind has all that it needs, so that the share may
  // be pushed. Repeats calls for ten minutes; errors name the rank that was waited for.
  // ABORTED: the step can be summed again only from a checkpoint.
  absl::StatusOr<bool> Reduce(uint64_t step, bool contributes, absl::Span<float> values);

  // Called by a worker that has got this rank, with what GetProgress said. From here on other ranks
  // get answers to TraceGradients.
  void Resume(const PushProgress& progress);
  // Asks the other ranks whether their sums may have gradients of the step from an earlier worker
  // of this rank. If not, those gradients cannot get there later either. Not to be called once this
  // worker has taken part in the step. Gives up after 15 s, at most 35, with an error that names
  // the rank that has not answered.
  absl::StatusOr<bool> Trace(uint64_t step);

 private:
  struct Step;
  v1::RingHeader HeaderTo(uint32_t rank) const;
  // Offers the share whose sum begins with this rank.
  void OfferOwn(const Step& step);
  // Adds this rank's gradients to a piece that the rank before has summed; in any thread.
  absl::Status TakePiece(Step& step, uint32_t share, uint32_t piece,
                         const grpc::ByteBuffer& answer);
  absl::Status TakeAll(Step& step);

  const Options options_;
  const RingShares shares_;
};

}  // namespace tessera::worker
