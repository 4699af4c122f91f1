#include "cuda/dense/losses.h"

#include <cmath>

#include "common/math/loss/bayesian_personalized_ranking.h"
#include "common/math/loss/exponential_term.h"
#include "common/math/loss/huber.h"
#include "common/math/loss/listwise_softmax.h"
#include "common/math/loss/missing_label.h"
#include "common/math/loss/positive_label.h"
#include "common/math/loss/sigmoid_cross_entropy.h"
#include "common/math/loss/softmax_cross_entropy.h"
#include "common/math/loss/squared_error.h"
#include "common/math/normalization/softmax.h"
#include "cuda/launch.h"

namespace tessera::cuda {
namespace {

TESSERA_HOST_DEVICE inline float Weight(const LossSamples& samples, int64_t i) {
  return samples.weights == nullptr ? 1.0f : samples.weights[i];
}

TESSERA_HOST_DEVICE inline float Factor(const LossSamples& samples, int64_t i) {
  return *samples.scale * samples.factor * Weight(samples, i);
}

// A loss that reads no labels takes part from all samples.
TESSERA_HOST_DEVICE inline bool Counts(const LossSamples& samples, int64_t i) {
  return samples.labels == nullptr || !math::IsMissing(samples.labels[i]);
}

// `value(i)` of a sample that counts is in double.
template <typename Value>
void SumLosses(Stream& stream, const char* what, const LossSamples& samples, double* sums,
               Value value) {
  ForEach(stream, what, kLossSums, [=] TESSERA_HOST_DEVICE(int64_t s) {
    double sum = 0;
    for (int64_t i = s; i < samples.n; i += kLossSums) {
      if (Counts(samples, i)) sum += Weight(samples, i) * value(i);
    }
    sums[s] = sum;
  });
}

// A loss of single outputs: `value` in double, `derivative` in float32, of output and label.
template <typename Value, typename Derivative>
void SingleLoss(Stream& stream, const char* what, const LossSamples& samples, const float* x,
                float* gradient, double* sums, Value value, Derivative derivative) {
  ForEach(stream, what, samples.n, [=] TESSERA_HOST_DEVICE(int64_t i) {
    gradient[i] =
        Counts(samples, i) ? Factor(samples, i) * derivative(x[i], samples.labels[i]) : 0.0f;
  });
  SumLosses(stream, what, samples, sums,
            [=] TESSERA_HOST_DEVICE(int64_t i) { return value(x[i], samples.labels[i]); });
}

// One sample's part of a ranking loss.
struct Compared {
  float gradient;  // without Factor
  double loss;
};

// compare(place) computes the part of the sample order[place], if it counts.
template <typename Compare>
void RankingLoss(Stream& stream, const char* what, const LossSamples& samples,
                 const LossGroups& groups, float* gradient, double* sums, Compare compare) {
  auto* const losses = reinterpret_cast<double*>(
      stream.Scratch(static_cast<size_t>(samples.n) * sizeof(double) / sizeof(float)));
  ForEach(stream, what, samples.n, [=] TESSERA_HOST_DEVICE(int64_t place) {
    const uint32_t i = groups.order[place];
    const Compared of_sample = Counts(samples, i) ? compare(place) : Compared{0, 0};
    gradient[i] = Factor(samples, i) * of_sample.gradient;
    losses[i] = of_sample.loss;
  });
  SumLosses(stream, what, samples, sums, [=] TESSERA_HOST_DEVICE(int64_t i) { return losses[i]; });
}

}  // namespace

void SigmoidCrossEntropyLoss(Stream& stream, const LossSamples& samples, const float* x,
                             float positive_weight, float* gradient, double* sums) {
  SingleLoss(
      stream, "binary cross entropy", samples, x, gradient, sums,
      [=] TESSERA_HOST_DEVICE(float x, float y) {
        return math::ClassWeight(y, positive_weight) *
               math::SigmoidCrossEntropy::Value<double>(x, y);
      },
      [=] TESSERA_HOST_DEVICE(float x, float y) {
        return math::ClassWeight(y, positive_weight) *
               math::SigmoidCrossEntropy::Gradient<float>(x, y);
      });
}

void SquaredErrorLoss(Stream& stream, const LossSamples& samples, const float* x, float* gradient,
                      double* sums) {
  SingleLoss(
      stream, "squared error", samples, x, gradient, sums,
      [] TESSERA_HOST_DEVICE(float x, float y) { return math::SquaredError::Value<double>(x, y); },
      [] TESSERA_HOST_DEVICE(float x, float y) {
        return math::SquaredError::Gradient<float>(x, y);
      });
}

void HuberLoss(Stream& stream, const LossSamples& samples, const float* x, float delta,
               float* gradient, double* sums) {
  SingleLoss(
      stream, "Huber's loss", samples, x, gradient, sums,
      [=] TESSERA_HOST_DEVICE(float x, float y) { return math::Huber::Value<double>(x, y, delta); },
      [=] TESSERA_HOST_DEVICE(float x, float y) {
        return math::Huber::Gradient<float>(x, y, delta);
      });
}

void SoftmaxCrossEntropyLoss(Stream& stream, const LossSamples& samples, const float* x,
                             int64_t classes, float* gradient, double* sums) {
  const char* const what = "cross entropy of classes";
  float* const largest = stream.Scratch(static_cast<size_t>(2 * samples.n));
  float* const sum = largest + samples.n;
  ReduceRows(
      stream, what, samples.n, classes, -INFINITY,
      [=] TESSERA_HOST_DEVICE(int64_t i, int64_t k) { return x[i * classes + k]; },
      [] TESSERA_HOST_DEVICE(float a, float b) { return a < b ? b : a; },
      [=] TESSERA_HOST_DEVICE(int64_t i, float value) { largest[i] = value; });
  SumRows(
      stream, what, samples.n, classes,
      [=] TESSERA_HOST_DEVICE(int64_t i, int64_t k) {
        return math::Softmax::Numerator(x[i * classes + k], largest[i]);
      },
      [=] TESSERA_HOST_DEVICE(int64_t i, float value) { sum[i] = value; });
  ForEach(stream, what, samples.n * classes, [=] TESSERA_HOST_DEVICE(int64_t at) {
    const int64_t i = at / classes;
    gradient[at] = 0;
    if (!Counts(samples, i)) return;
    const bool is_label = at % classes == static_cast<int64_t>(samples.labels[i]);
    gradient[at] = Factor(samples, i) *
                   math::SoftmaxCrossEntropy::Gradient<float>(x[at], largest[i], sum[i], is_label);
  });
  SumLosses(stream, what, samples, sums, [=] TESSERA_HOST_DEVICE(int64_t i) {
    const auto label = static_cast<int64_t>(samples.labels[i]);
    return -math::SoftmaxCrossEntropy::LogProbability<double>(x[i * classes + label], largest[i],
                                                              sum[i]);
  });
}

void GivenLoss(Stream& stream, const LossSamples& samples, const float* x, float* gradient,
               double* sums) {
  const char* const what = "a loss of the graph's";
  ForEach(stream, what, samples.n,
          [=] TESSERA_HOST_DEVICE(int64_t i) { gradient[i] = Factor(samples, i); });
  SumLosses(stream, what, samples, sums,
            [=] TESSERA_HOST_DEVICE(int64_t i) { return static_cast<double>(x[i]); });
}

// A pair's loss is counted as its positive sample's.
void PairwiseLoss(Stream& stream, const LossSamples& samples, const LossGroups& groups,
                  const float* x, float* gradient, double* sums) {
  using Pair = math::BayesianPersonalizedRanking;
  RankingLoss(stream, "loss of pairs", samples, groups, gradient, sums,
              [=] TESSERA_HOST_DEVICE(int64_t place) {
                const uint32_t i = groups.order[place];
                const bool positive = math::IsPositive(samples.labels[i]);
                Compared found = {0, 0};
                for (uint32_t at = groups.begins[place]; at < groups.ends[place]; ++at) {
                  const uint32_t j = groups.order[at];
                  if (math::IsPositive(samples.labels[j]) == positive) continue;
                  if (!Counts(samples, j)) continue;
                  if (positive) {
                    found.loss += Pair::Value<double>(x[i], x[j]);
                    found.gradient -= Pair::Gradient<float>(x[i], x[j]);
                  } else {
                    found.gradient += Pair::Gradient<float>(x[j], x[i]);
                  }
                }
                return found;
              });
}

void ListwiseLoss(Stream& stream, const LossSamples& samples, const LossGroups& groups,
                  const float* x, float* gradient, double* sums) {
  using List = math::ListwiseSoftmax;
  RankingLoss(stream, "loss of lists", samples, groups, gradient, sums,
              [=] TESSERA_HOST_DEVICE(int64_t place) {
                const uint32_t i = groups.order[place];
                const uint32_t begin = groups.begins[place], end = groups.ends[place];
                float largest = x[i];
                double labels = 0, sum = 0;
                for (uint32_t at = begin; at < end; ++at) {
                  const uint32_t j = groups.order[at];
                  if (!Counts(samples, j)) continue;
                  largest = largest < x[j] ? x[j] : largest;
                  labels += samples.labels[j];
                }
                if (!(labels > 0)) return Compared{0, 0};
                for (uint32_t at = begin; at < end; ++at) {
                  const uint32_t j = groups.order[at];
                  if (Counts(samples, j)) sum += math::ExponentialTerm(x[j], largest);
                }
                const double share = samples.labels[i] / labels;
                return Compared{
                    static_cast<float>(List::Gradient<double>(x[i], share, largest, sum)),
                    List::Term<double>(x[i], share, largest, sum)};
              });
}

}  // namespace tessera::cuda
