#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/job/tasks.h"
#include "cuda/dense/losses.h"
#include "tessera/v1/job.pb.h"

namespace tessera::worker {

// Labels, weights and groups of a step's samples. Borrowed. A label that a sample does not have is
// NaN (math::IsMissing): losses of that column take no part from the sample.
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
  absl::Span<const float> weights;  // [n], 0 or more; empty: all 1
  // [n], samples with equal ones are compared; for ranking losses.
  absl::Span<const uint64_t> groups;
};

// Sorts sample numbers by group, keeping their order within a group.
void SortByGroup(absl::Span<const uint64_t> groups, std::vector<uint32_t>* order);

// The loss of a task, with its defaults filled in.
struct LossFunction {
  v1::Loss kind = v1::BINARY_CROSS_ENTROPY;
  uint32_t label = 0;         // column of Targets::labels
  float task_weight = 1;      // multiplies value and gradient
  float positive_weight = 1;  // BINARY_CROSS_ENTROPY: for samples whose label is above 0.5
  float huber_delta = 1;      // HUBER

  static LossFunction Of(const JobTask& task);

  // Returns the sum L of the samples' losses, each times the sample's weight, added in their order;
  // sets gradient[i] = scale * dL / d outputs[i]. A ranking loss is a mean over pairs or groups of
  // samples with a label; each of the n samples counts as having that loss. Labels of
  // SOFTMAX_CROSS_ENTROPY are below `width`. Formulas: common/math/loss. Does not allocate.
  double Evaluate(absl::Span<const float> outputs,  // [n, width], row-major
                  size_t width,                     // 1, or the number of classes
                  const Targets& targets,
                  absl::Span<const uint32_t> order,  // from SortByGroup; for ranking losses
                  float scale,
                  absl::Span<float> gradient) const;  // [n, width]

  // For a ranking loss the factor that turns its sum over all pairs or groups into n times their
  // mean, 0 if nothing can be compared; for other losses 1.
  double MeanFactor(const Targets& targets,
                    absl::Span<const uint32_t> order) const;  // from SortByGroup

  // Evaluate on a card, with all numbers in its memory. The sum comes in kLossSums parts, without
  // the task's weight and MeanFactor. The caller puts MeanFactor into the scale of `samples`; this
  // call fills in its factor.
  void CudaEvaluate(cuda::Stream& stream, const float* outputs, int64_t width,
                    cuda::LossSamples samples,
                    const cuda::LossGroups& groups,  // for ranking losses
                    float* gradient,
                    double* sums) const;  // [cuda::kLossSums]
};

// Returns a loss that the graph computes itself (GraphLoss): `weight` times the sum of values[i] *
// the weight of sample i. Sets gradient[i] = scale * weight * the weight of sample i.
double AddedLoss(absl::Span<const float> values,  // [n]
                 float weight, const Targets& targets, float scale,
                 absl::Span<float> gradient);  // [n]

}  // namespace tessera::worker
