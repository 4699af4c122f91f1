#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/rows/training.h"
#include "cuda/stream.h"
#include "tessera/v1/job.pb.h"
#include "worker/embedding.h"

namespace tessera::worker {

// The optimizers of the rows that a card trains (train.row_cache.write_back). Immutable.
class RowTraining {
 public:
  // Of a job that has been checked: no table has lamb.
  RowTraining(const v1::JobSpec& spec, const EmbeddingPlan& plan);

  // Optimizer floats of a row, by lookup.
  uint32_t states(size_t lookup) const { return tables_[lookup].states; }
  // What a ps does with a push of these gradients, on the card.
  void Train(cuda::Stream& stream, size_t lookup, const cuda::TrainedRows& rows,
             const cuda::RowGradients& gradients, double learning_rate_scale) const;

 private:
  struct Table {
    v1::OptimizerSpec optimizer;
    math::RowOptions options;
    uint32_t states = 0;
  };
  std::vector<Table> tables_;  // by lookup
};

}  // namespace tessera::worker
