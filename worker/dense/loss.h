#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/job/tasks.h"
#include "cuda/dense/losses.h"
#include "tessera/v1/job.pb.h"

namespace tessera::worker {

// What a step's samples are held against. Borrowed.
struct Targets {
  Targets(absl::Span<const float> labels) : labels(labels) {}
  Targets(const std::vector<float>& labels) : labels(labels) {}
  Targets(absl::Span<const float> labels, uint32_t label_width, absl::Span<const float> weights,
          absl::Span<const uint64_t> groups)
      : labels(labels), label_width(label_width), weights(weights), groups(groups) {}

  float Label(size_t sample, uint32_t column) const {
    return labels[sample * label_width + column];
  }

  absl::Span<const float> labels;  // [n, label_width], row-major
  uint32_t label_width = 1;
  absl::Span<const float> weights;    // [n], 0 or more; empty: all 1
  absl::Span<const uint64_t> groups;  // [n], equal ones are compared; of ranking losses
};

// Sample numbers in the order of their groups, and within a group as they came.
void SortByGroup(absl::Span<const uint64_t> groups, std::vector<uint32_t>* order);

// The loss of a task, with its defaults filled in.
struct LossFunction {
  v1::Loss kind = v1::BINARY_CROSS_ENTROPY;
  uint32_t label = 0;         // column of Targets::labels
  float task_weight = 1;      // multiplies value and gradient
  float positive_weight = 1;  // BINARY_CROSS_ENTROPY: of samples whose label is above 0.5
  float huber_delta = 1;      // HUBER

  static LossFunction Of(const JobTask& task);

  // Of each sample: its loss times its weight, and the gradient of that. The sum of the samples'
  // losses, in their order; gradient[i] = scale * dL / d outputs[i]. A loss of ranking is a mean
  // over pairs or groups; each of the n samples counts as having it. Labels of
  // SOFTMAX_CROSS_ENTROPY are below `width`. Formulas: common/math/loss. Does not allocate.
  double Evaluate(absl::Span<const float> outputs,  // [n, width], row-major
                  size_t width,                     // 1, or the number of classes
                  const Targets& targets,
                  absl::Span<const uint32_t> order,  // SortByGroup; of ranking losses
                  float scale,
                  absl::Span<float> gradient) const;  // [n, width]

  // Of a loss of ranking what makes of its sum over all pairs or groups n times their mean, 0 where
  // nothing can be compared; 1 of other losses.
  double MeanFactor(const Targets& targets,
                    absl::Span<const uint32_t> order) const;  // SortByGroup

  // The same as Evaluate on a card, which has the numbers: the sum comes in parts, and without the
  // factors of the task and of MeanFactor. The scale of `samples` has the latter in it, the factor
  // is filled in.
  void CudaEvaluate(cuda::Stream& stream, const float* outputs, int64_t width,
                    cuda::LossSamples samples,
                    const cuda::LossGroups& groups,  // of ranking losses
                    float* gradient,
                    double* sums) const;  // [cuda::kLossSums]
};

// A loss that the graph computes itself (GraphLoss), of n samples: `weight` times the sum of what
// they have, each by the sample's weight; gradient[i] = scale * weight * the sample's.
double AddedLoss(absl::Span<const float> values,  // [n]
                 float weight, const Targets& targets, float scale,
                 absl::Span<float> gradient);  // [n]

}  // namespace tessera::worker
