#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// Losses of samples, each by itself or compared within its group (common/math/loss). All pointers
// are to the card's memory.

// Labels and weights of the samples, and the factors of their gradients. A sample whose label is
// NaN (math::IsMissing) has none: its loss and gradient are 0, and nothing is compared with it.
struct LossSamples {
  int64_t n = 0;
  const float* labels = nullptr;   // [n]
  const float* weights = nullptr;  // [n]; null: all 1
  const float* scale = nullptr;    // one number, which may differ in every step
  float factor = 1;
};

// The samples that a ranking loss compares: each group is a run of `order`.
struct LossGroups {
  const uint32_t* order = nullptr;   // [n] samples
  const uint32_t* begins = nullptr;  // [n]: the group of order[i] is order[begins[i]] to
  const uint32_t* ends = nullptr;    // [n]  order[ends[i] - 1]
};

// The number of parts that the sum of the samples' losses comes in.
constexpr int64_t kLossSums = 4096;

// Each of these losses sets gradient [n] = *scale * factor * weight * dL/dx, and sums [kLossSums],
// in double: sums[s] adds weight * L of the samples s, s + kLossSums, ..., in their order.

// `positive_weight` multiplies the losses of samples whose label is above 0.5.
void SigmoidCrossEntropyLoss(Stream& stream, const LossSamples& samples, const float* x,
                             float positive_weight, float* gradient, double* sums);
void SquaredErrorLoss(Stream& stream, const LossSamples& samples, const float* x, float* gradient,
                      double* sums);
void HuberLoss(Stream& stream, const LossSamples& samples, const float* x, float delta,
               float* gradient, double* sums);
// x and gradient [n, classes]; labels are below `classes`. Uses the stream's scratch.
void SoftmaxCrossEntropyLoss(Stream& stream, const LossSamples& samples, const float* x,
                             int64_t classes, float* gradient, double* sums);
// x is the loss. Reads no labels.
void GivenLoss(Stream& stream, const LossSamples& samples, const float* x, float* gradient,
               double* sums);

// Ranking losses of x [n], without weights. They are sums over all pairs or groups; the caller
// makes means of them by *scale. Each sample walks its group in order. They use the stream's
// scratch.

// Sums over all pairs of a sample whose label is above 0.5 and a sample of its group whose label is
// not.
void PairwiseLoss(Stream& stream, const LossSamples& samples, const LossGroups& groups,
                  const float* x, float* gradient, double* sums);
// Sums over all groups that have a label above 0.
void ListwiseLoss(Stream& stream, const LossSamples& samples, const LossGroups& groups,
                  const float* x, float* gradient, double* sums);

}  // namespace tessera::cuda
