#pragma once

#include <cstdint>

#include "common/math/optim/largest_gradient.h"
#include "common/math/optim/row_options.h"
#include "cuda/rows/training.h"
#include "cuda/stream.h"
#include "tessera/v1/job.pb.h"

namespace tessera::worker {

// A table's optimizer over rows that a card keeps. A value.
class CardOptimizer {
 public:
  // `spec` is from a job that has been checked, so it is not one that StepsByWhole.
  CardOptimizer(const v1::OptimizerSpec& spec, uint32_t dim);

  uint32_t dim() const { return dim_; }
  // Optimizer floats per row.
  uint32_t states() const { return states_; }
  // Floats per row: embedding and optimizer.
  uint32_t floats() const { return dim_ + states_; }
  // Train takes gradients with no element beyond this, as a ps does.
  float largest_gradient() const { return math::LargestGradient(options_); }
  // Does on the card what a ps does with a push of these gradients.
  void Train(cuda::Stream& stream, const cuda::TrainedRows& rows,
             const cuda::RowGradients& gradients, double learning_rate_scale) const;

 private:
  v1::OptimizerSpec spec_;
  math::RowOptions options_;
  uint32_t dim_;
  uint32_t states_;
};

}  // namespace tessera::worker
