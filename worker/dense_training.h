#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/memory.h"
#include "tessera/v1/job.pb.h"
#include "worker/card_optimizer.h"
#include "worker/dense/executor.h"
#include "worker/parameter_client.h"

namespace tessera::worker {

// The trained parameters of the dense graph where the executor's card trains them from the first
// batch of a unit to the last (train.row_cache.write_back, one worker): whole blocks come from the
// ps, and go back as changes. Errors are the executor's. Not thread-safe.
class DenseTraining {
 public:
  // `table`: kDenseTable's number. `executor` is on a card, borrowed, and outlives it.
  DenseTraining(uint32_t table, const v1::OptimizerSpec& optimizer, uint64_t trained_floats,
                const KeyRouter& router, Executor* executor);

  // What is to be pulled before the first batch, with nothing of it on its way to a ps; and then.
  TableRows Read();
  void Begin();
  // Once a step has been given to the card: whether Beyond, after the stream's next Synchronize.
  void StartCheck();
  // Whether it has gradients beyond largest_gradient, or not finite: no step counts with those.
  bool Beyond() const { return beyond_host_.data() != nullptr && *beyond_host_.data() != 0; }
  float largest_gradient() const { return optimizer_.largest_gradient(); }
  // After a step that counts, which the card has done: one step of the parameters.
  void Train(double learning_rate_scale);
  // After the last batch; waits for the card. Valid until the next Read.
  TableGradients TakeChanges();

 private:
  cuda::TrainedRows Blocks();
  size_t floats() const { return keys_.keys.size() * optimizer_.floats(); }

  const uint32_t table_;
  const CardOptimizer optimizer_;
  Executor& executor_;
  RoutedKeys keys_;  // block numbers
  // In the order of keys_: [blocks, floats of a block and its slots].
  cuda::Memory host_, device_;
  cuda::Memory state_, at_ps_;  // by block
  // Of each of keys_ its block, as a slot of them all; then all blocks in order.
  cuda::Memory words_;
  cuda::Memory beyond_, beyond_host_;  // how many gradients are
};

}  // namespace tessera::worker
