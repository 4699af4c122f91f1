#include "common/math/metrics/binary_metrics.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "common/math/loss/sigmoid_cross_entropy.h"

namespace tessera::math {
namespace {

// Maps floats to integers of the same order; -0 and 0 to the same one.
uint32_t OrderedBits(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
float FromOrderedBits(uint32_t ordered) {
  return std::bit_cast<float>((ordered & 0x80000000u) != 0 ? ordered & 0x7FFFFFFFu : ~ordered);
}

// Least significant digit first, three digits of 11 bits. `scratch` is resized as needed.
void RadixSort(std::vector<uint32_t>& keys, std::vector<uint32_t>& scratch) {
  constexpr int kDigitBits = 11;
  constexpr uint32_t kDigits = 1u << kDigitBits;
  scratch.resize(keys.size());
  std::vector<size_t> starts(kDigits);
  for (int shift = 0; shift < 32; shift += kDigitBits) {
    starts.assign(kDigits, 0);
    for (uint32_t key : keys) ++starts[(key >> shift) % kDigits];
    size_t sum = 0;
    for (size_t& start : starts) {
      const size_t count = start;
      start = sum;
      sum += count;
    }
    for (uint32_t key : keys) scratch[starts[(key >> shift) % kDigits]++] = key;
    keys.swap(scratch);
  }
}

// Twice the number of (positive, negative) pairs in which the positive is above, ties counting one.
// Both sorted.
unsigned __int128 TwiceOrderedPairs(const std::vector<uint32_t>& positives,
                                    const std::vector<uint32_t>& negatives) {
  unsigned __int128 twice = 0;
  size_t below = 0, not_above = 0;
  for (uint32_t key : positives) {
    while (below < negatives.size() && negatives[below] < key) ++below;
    while (not_above < negatives.size() && negatives[not_above] <= key) ++not_above;
    twice += below + not_above;
  }
  return twice;
}

// In the order of the keys, with compensation (Kahan 1965), which keeps the sum of any number of
// losses exact to about a unit of the last place.
class CompensatedSum {
 public:
  void Add(double x) {
    const double y = x - lost_;
    const double sum = sum_ + y;
    lost_ = (sum - sum_) - y;
    sum_ = sum;
  }
  double value() const { return sum_; }

 private:
  double sum_ = 0;
  double lost_ = 0;
};

}  // namespace

BinaryMetrics ComputeBinaryMetrics(absl::Span<const float> logits, absl::Span<const float> labels) {
  constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
  BinaryMetrics metrics = {kUndefined, kUndefined, logits.size()};
  size_t positive_count = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) return metrics;
    positive_count += labels[i] > 0.5f;
  }
  if (logits.empty()) return metrics;
  std::vector<uint32_t> positives, negatives, scratch;
  positives.reserve(positive_count);
  negatives.reserve(logits.size() - positive_count);
  for (size_t i = 0; i < logits.size(); ++i) {
    (labels[i] > 0.5f ? positives : negatives).push_back(OrderedBits(logits[i]));
  }
  RadixSort(positives, scratch);
  RadixSort(negatives, scratch);

  CompensatedSum loss;
  for (uint32_t key : positives) {
    loss.Add(SigmoidCrossEntropy::Value<double>(FromOrderedBits(key), 1));
  }
  for (uint32_t key : negatives) {
    loss.Add(SigmoidCrossEntropy::Value<double>(FromOrderedBits(key), 0));
  }
  if (std::isfinite(loss.value())) {
    metrics.logloss = loss.value() / static_cast<double>(logits.size());
  }
  if (!positives.empty() && !negatives.empty()) {
    const unsigned __int128 twice_pairs =
        static_cast<unsigned __int128>(2 * positives.size()) * negatives.size();
    metrics.auc = static_cast<double>(TwiceOrderedPairs(positives, negatives)) /
                  static_cast<double>(twice_pairs);
  }
  return metrics;
}

}  // namespace tessera::math
