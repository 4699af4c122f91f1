#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace tessera::cuda {

// Losses of samples, each by itself or beside those of its group (common/math/loss). All that is
// pointed to is the card's.

// What samples are held against, and what their gradients are multiplied by.
struct LossSamples {
  int64_t n = 0;
  const float* labels = nullptr;   // [n]
  const float* weights = nullptr;  // [n]; null: all 1
  const float* scale = nullptr;    // one number, which may be another in every step
  float factor = 1;
};

// Which samples a loss of ranking compares: a group's are a run of `order`.
struct LossGroups {
  const uint32_t* order = nullptr;   // [n] samples
  const uint32_t* begins = nullptr;  // [n]: the group of order[i] is order[begins[i]] to
  const uint32_t* ends = nullptr;    // [n]  order[ends[i] - 1]
};

// In so many parts the sum of the samples' losses comes.
constexpr int64_t kLossSums = 4096;

// Each of them: gradient [n] = *scale * factor * weight * dL/dx, and sums [kLossSums], in double:
// sums[s] is that of weight * L of the samples s, s + kLossSums, ..., in their order.

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

// Losses of ranking, of x [n]; weights are none. They are sums over all pairs, or groups: means are
// the caller's, by *scale. Each sample walks its group, in order. They use the stream's scratch.

// Of all pairs of a sample whose label is above 0.5 and one of its group whose label is not.
void PairwiseLoss(Stream& stream, const LossSamples& samples, const LossGroups& groups,
                  const float* x, float* gradient, double* sums);
// Of all groups that have a label above 0.
void ListwiseLoss(Stream& stream, const LossSamples& samples, const LossGroups& groups,
                  const float* x, float* gradient, double* sums);

}  // namespace tessera::cuda
