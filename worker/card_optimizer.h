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
  // Of a job that has been checked: not one that StepsByWhole.
  CardOptimizer(const v1::OptimizerSpec& spec, uint32_t dim);

  uint32_t dim() const { return dim_; }
  // Optimizer floats of a row.
  uint32_t states() const { return states_; }
  // Of embedding and optimizer.
  uint32_t floats() const { return dim_ + states_; }
  // Of elements of the gradients that Train is to get, as a ps takes them.
  float largest_gradient() const { return math::LargestGradient(options_); }
  // What a ps does with a push of these gradients, on the card.
  void Train(cuda::Stream& stream, const cuda::TrainedRows& rows,
             const cuda::RowGradients& gradients, double learning_rate_scale) const;

 private:
  v1::OptimizerSpec spec_;
  math::RowOptions options_;
  uint32_t dim_;
  uint32_t states_;
};

}  // namespace tessera::worker
