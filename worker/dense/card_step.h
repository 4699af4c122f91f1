#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "cuda/dense/losses.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "worker/dense/loss.h"
#include "worker/dense/model.h"

namespace tessera::worker {

// The numbers besides the inputs that a step sends to a card, and those that it brings back: each
// set is one block of the card's memory and travels in one copy, from or to pinned memory. The card
// computes the losses. Not thread-safe; errors are the stream's.
class CardStep {
 public:
  // Both are borrowed and outlive this. Takes no memory.
  CardStep(const Model& model, cuda::Stream& stream);

  // The floats of the card that Reserve takes.
  static uint64_t FloatsFor(const Model& model, uint32_t capacity);
  // Takes memory for batches of up to `capacity` samples.
  void Reserve(uint32_t capacity);

  // Call before the passes, once the step before is done. The losses' gradients are multiplied by
  // both scales; ScaleBack divides by the second, a power of two.
  void Tell(uint32_t batch, const Targets& targets, float loss_scale, float gradient_scale,
            absl::Span<const uint64_t> random_keys);  // by node of the graph
  // Lies in the card's memory.
  const uint64_t* random_key(int32_t node) const;
  // Call after the forward pass: compute a loss and its gradient. All pointers are the card's.
  void TaskLoss(size_t task, const float* outputs, float* gradient);
  void GraphLoss(size_t loss, const float* values, float* gradient);
  // Gradients in the card's memory, which the passes write. [trained floats]; zeros fill up the
  // last block of kDenseBlockFloats.
  absl::Span<float> trained_gradient() const {
    return given_.subspan(layout_.trained_at, layout_.trained);
  }
  absl::Span<float> statistics_gradient() const {
    return given_.subspan(layout_.statistics_at, layout_.statistics);
  }

  // Divides trained_gradient() and the gradients of inputs (in the card's memory) by the gradient
  // scale. Call after the backward pass if that scale is not 1.
  void ScaleBack(absl::Span<const absl::Span<float>> input_gradients);

  // Starts to copy the step's results to the machine, with or without the trained gradient; they
  // are there after the stream's next Synchronize.
  void StartBack(bool with_trained);
  // The sum of the losses above, weighted.
  double LossSum() const;
  // Whether all gradients that ScaleBack got are finite; of a step without ScaleBack it says
  // nothing.
  bool finite() const;
  // If `trained` is empty, that gradient is not copied.
  void CopyGradients(absl::Span<float> trained, absl::Span<float> statistics) const;

 private:
  // Where numbers lie in given_, which the card writes (sums of losses, the result of AddNonFinite,
  // gradients), and in told_, which it reads (numbers, random keys, then columns of
  // RoundUp(batch)).
  struct Layout {
    explicit Layout(const Model& model);
    size_t given_floats() const;
    size_t told_floats(uint32_t capacity) const;

    size_t losses, tasks;
    size_t trained, statistics, statistics_at, trained_at;
    size_t keys_at, columns_at;
    size_t group_columns;  // 0: there is no ranking loss
  };

  void TellGroups(const Targets& targets);
  size_t ColumnAt(size_t column) const;  // in told_
  cuda::LossSamples Samples(size_t scale_at) const;
  double* Sums(size_t loss) const;

  const Model& model_;
  cuda::Stream& stream_;
  const Layout layout_;
  cuda::Memory given_memory_, given_host_;
  absl::Span<float> given_;
  cuda::Memory told_, told_host_;
  std::vector<uint32_t> group_order_;  // for ranking losses
  std::vector<double> mean_factors_;   // by task
  uint32_t batch_ = 0;
  bool weighted_ = false;
};

}  // namespace tessera::worker
