#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/parameters/dense_blocks.h"
#include "worker/parameters/parameter_client.h"
#include "worker/ring/gradient_ring.h"

namespace tessera::worker {

// Dense gradients of a job with train.dense_gradients ALL_REDUCE: the ranks sum them in a ring
// (gradient_ring.h), and each pushes the blocks that it ends with. All else about dense parameters
// stays on the ps: their optimizer, their statistics, checkpoints, and each push counting once. For
// one assignment; used by one thread.
class DenseReduction {
 public:
  struct Shape {
    uint32_t trained_table = 0;
    DenseLayout trained;
    uint32_t statistics_table = 0;
    DenseLayout statistics;

    uint64_t blocks() const { return trained.blocks().size() + statistics.blocks().size(); }
  };
  // `ring.blocks` is set here.
  DenseReduction(Shape shape, GradientRing::Options ring, const KeyRouter& router);

  // Sums a step's gradients, [trained.floats()] and [statistics.floats()]. A rank that has none
  // passes both empty, and takes part all the same. Errors as GradientRing::Reduce.
  absl::Status Reduce(uint64_t step, absl::Span<const float> trained,
                      absl::Span<const float> statistics);
  // Adds what this rank pushes for the step: its share, or nothing if no rank had gradients.
  // Valid until the next Reduce.
  void AddWrites(std::vector<TableGradients>* writes) const;

  // As in GradientRing.
  void Resume(const PushProgress& progress) { ring_.Resume(progress); }
  absl::StatusOr<bool> Trace(uint64_t step) { return ring_.Trace(step); }

 private:
  const Shape shape_;
  GradientRing ring_;
  DenseBlocks trained_;     // those in this rank's share
  DenseBlocks statistics_;  // likewise
  // [blocks, kDenseBlockFloats]: the trained parameters', then the statistics'; padded with zeros.
  std::vector<float> values_;
  bool summed_ = false;
};

}  // namespace tessera::worker
