#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "common/job/dense_layout.h"
#include "cuda/memory.h"
#include "tessera/v1/job.pb.h"
#include "worker/card/card_optimizer.h"
#include "worker/dense/executor.h"
#include "worker/parameters/parameter_client.h"

namespace tessera::worker {

// The dense graph's trained parameters on a card that trains them itself, from the first batch of a
// unit to the last (train.row_cache.write_back, one worker): whole blocks come from the ps, and
// changes of them go back. Errors are the executor's. Not thread-safe.
class DenseTraining {
 public:
  // `table`: kDenseTable's number. `executor` is on a card, borrowed, and outlives it.
  DenseTraining(uint32_t table, const v1::OptimizerSpec& optimizer, uint64_t trained_floats,
                const KeyRouter& router, Executor* executor);

  // What to pull before the first batch, while no push of it is under way.
  TableRows Read();
  // Puts what was pulled on the card. FAILED_PRECONDITION: it was written for another model.
  absl::Status Begin();
  // Starts the check behind Beyond, once the card has been given a step.
  void StartCheck();
  // Whether the step has gradients that are not finite or are beyond largest_gradient: it must not
  // count then. Known after the stream's next Synchronize.
  bool Beyond() const { return beyond_host_.data() != nullptr && *beyond_host_.data() != 0; }
  float largest_gradient() const { return optimizer_.largest_gradient(); }
  // Takes one step of the parameters, with gradients that the card has. Only if the step counts.
  void Train(double learning_rate_scale);
  // The changes since Begin. Called after the last batch; waits for the card. Valid until the next
  // Read.
  TableGradients TakeChanges();

 private:
  cuda::TrainedRows Blocks();
  size_t floats() const { return keys_.keys.size() * optimizer_.floats(); }

  const uint32_t table_;
  const CardOptimizer optimizer_;
  Executor& executor_;
  const DenseLayout layout_;
  RoutedKeys keys_;  // block numbers
  // In the order of keys_: [blocks, floats of a block and of its optimizer slots].
  cuda::Memory host_, device_;
  cuda::Memory state_, at_ps_;  // by block
  // For each of keys_ its block number, as a slot; then all block numbers in order.
  cuda::Memory words_;
  cuda::Memory beyond_, beyond_host_;  // how many gradients are beyond
};

}  // namespace tessera::worker
