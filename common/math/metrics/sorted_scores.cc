#include "common/math/metrics/sorted_scores.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

namespace tessera::math {
namespace {

// Sorts by the least significant digit first, three digits of 11 bits. Resizes `scratch` as needed.
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

// Sorts the keys with their weights and splits them into a list of keys and a list of weights.
void Part(std::vector<std::pair<uint32_t, float>> sorted, std::vector<uint32_t>* keys,
          std::vector<float>* weights) {
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [key, weight] : sorted) {
    keys->push_back(key);
    weights->push_back(weight);
  }
}

SortedScores SortWeighted(absl::Span<const float> logits, absl::Span<const float> labels,
                          absl::Span<const float> weights) {
  std::vector<std::pair<uint32_t, float>> positives, negatives;
  for (size_t i = 0; i < logits.size(); ++i) {
    (labels[i] > 0.5f ? positives : negatives)
        .emplace_back(SortedScores::Key(logits[i]), weights[i]);
  }
  SortedScores scores;
  Part(std::move(positives), &scores.positives, &scores.positive_weights);
  Part(std::move(negatives), &scores.negatives, &scores.negative_weights);
  return scores;
}

}  // namespace

uint32_t SortedScores::Key(float logit) {
  const uint32_t bits = std::bit_cast<uint32_t>(logit + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

SortedScores SortScores(absl::Span<const float> logits, absl::Span<const float> labels,
                        absl::Span<const float> weights) {
  if (!weights.empty()) return SortWeighted(logits, labels, weights);
  size_t positives = 0;
  for (float label : labels) positives += label > 0.5f;
  SortedScores scores;
  scores.positives.reserve(positives);
  scores.negatives.reserve(logits.size() - positives);
  for (size_t i = 0; i < logits.size(); ++i) {
    (labels[i] > 0.5f ? scores.positives : scores.negatives)
        .push_back(SortedScores::Key(logits[i]));
  }
  std::vector<uint32_t> scratch;
  RadixSort(scores.positives, scratch);
  RadixSort(scores.negatives, scratch);
  return scores;
}

}  // namespace tessera::math
