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

// What a step on a card is told besides its inputs, and what it gives: each is one block of the
// card's memory that travels in one copy, from or to pinned memory. Losses are computed there. Not
// thread-safe; errors are the stream's.
class CardStep {
 public:
  // Borrowed, outliving it.
  CardStep(const Model& model, cuda::Stream& stream);

  // Takes memory for batches up to so many samples.
  void Reserve(uint32_t capacity);

  // Before the passes; the step before has been waited for. Gradients of the losses are multiplied
  // by both scales; what ScaleBack gets is divided by the second, a power of two.
  void Tell(uint32_t batch, const Targets& targets, float loss_scale, float gradient_scale,
            absl::Span<const uint64_t> random_keys);  // by node of the graph
  // The card's.
  const uint64_t* random_key(int32_t node) const;
  // After the forward pass: the losses and their gradients. Values and gradients are the card's.
  void TaskLoss(size_t task, const float* outputs, float* gradient);
  void GraphLoss(size_t loss, const float* values, float* gradient);
  // The card's, to be written by the passes.
  // [trained floats]; up to whole blocks of kDenseBlockFloats zeros follow.
  absl::Span<float> trained_gradient() const { return given_.subspan(trained_at_, trained_); }
  absl::Span<float> statistics_gradient() const {
    return given_.subspan(statistics_at_, statistics_);
  }

  // After the backward pass, where the gradient scale is not 1: the gradients above and those of
  // inputs, which are the card's.
  void ScaleBack(absl::Span<const absl::Span<float>> input_gradients);

  // Brings what the step gives, or all but the trained gradient; it is there after the stream's
  // next Synchronize.
  void StartBack(bool with_trained);
  // Of the losses above, weighted.
  double LossSum() const;
  // Whether all gradients that ScaleBack got are finite; where it got none, true.
  bool finite() const;
  // `trained` may be empty: it stays where it is.
  void CopyGradients(absl::Span<float> trained, absl::Span<float> statistics) const;

 private:
  void TellGroups(const Targets& targets);
  size_t ColumnAt(size_t column) const;  // in what it is told
  cuda::LossSamples Samples(size_t scale_at) const;
  double* Sums(size_t loss) const;

  const Model& model_;
  cuda::Stream& stream_;
  // Of what the card gives: sums of losses, what AddNonFinite finds, and gradients.
  const size_t losses_;
  const size_t trained_, statistics_, statistics_at_, trained_at_;
  cuda::Memory given_memory_, given_host_;
  absl::Span<float> given_;
  // What it is told: numbers, random keys, then columns of RoundUp(batch).
  const size_t keys_at_, columns_at_;
  const size_t group_columns_;  // 0: no loss is of ranking
  cuda::Memory told_, told_host_;
  std::vector<uint32_t> group_order_;  // of losses of ranking
  std::vector<double> mean_factors_;   // by task
  uint32_t batch_ = 0;
  bool weighted_ = false;
};

}  // namespace tessera::worker
