#include "common/math/metrics/binned_auc.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "common/math/metrics/compensated_sum.h"
#include "common/math/metrics/sorted_scores.h"

namespace tessera::math {
namespace {

constexpr float kNearZero = 0x1p-6f;
constexpr uint32_t kOctaves = 16;
constexpr int kBinsPerOctaveBits = 13;
constexpr uint32_t kSide = kOctaves << kBinsPerOctaveBits;  // bins on either side of 0
constexpr uint32_t kPageBins = 512;
constexpr uint32_t kNone = 0, kSeveral = ~0u;
constexpr uint64_t kTooMuchWeight = uint64_t{1} << 62;
constexpr double kNoAuc = std::numeric_limits<double>::quiet_NaN();

// Ascends with x: so do the bits of a positive float and its rounded sum with a constant.
uint32_t BinOf(float x) {
  constexpr int kMantissaBits = 23;
  const uint32_t above =
      std::bit_cast<uint32_t>(std::fabs(x) + kNearZero) - std::bit_cast<uint32_t>(kNearZero);
  const uint32_t from_zero = std::min(above >> (kMantissaBits - kBinsPerOctaveBits), kSide - 1);
  return x < 0 ? kSide - 1 - from_zero : kSide + from_zero;
}

uint32_t Both(uint32_t key, uint32_t other) {
  if (key == kNone || key == other) return other;
  return other == kNone ? key : kSeveral;
}

uint64_t SaturatingSum(uint64_t a, uint64_t b) { return std::min(a + b, kTooMuchWeight); }

void AddFraction(uint64_t fraction, uint64_t* sum, uint64_t* whole) {
  *sum += fraction;
  *whole += *sum < fraction ? 1 : 0;
}

}  // namespace

BinnedAuc::BinnedAuc(bool weighted) : weighted_(weighted), pages_(2 * kSide / kPageBins) {}

BinnedAuc::Page& BinnedAuc::PageOf(uint32_t bin) {
  Page& page = pages_[bin / kPageBins];
  if (page.bins.empty()) {
    page.bins.resize(kPageBins);
    if (weighted_) page.fractions.resize(kPageBins);
  }
  return page;
}

void BinnedAuc::Add(absl::Span<const float> logits, absl::Span<const float> labels,
                    absl::Span<const float> weights) {
  for (size_t i = 0; i < logits.size(); ++i) {
    const uint32_t b = BinOf(logits[i]);
    Page& page = PageOf(b);
    Bin& bin = page.bins[b % kPageBins];
    bin.key = Both(bin.key, SortedScores::Key(logits[i]));
    const bool positive = labels[i] > 0.5f;
    uint64_t& count = positive ? bin.positives : bin.negatives;
    if (!weighted_) {
      ++count;
      continue;
    }
    const double weight = weights[i];
    if (!(weight < static_cast<double>(kTooMuchWeight))) {
      most_weight_ = kTooMuchWeight;
      continue;
    }
    const uint64_t whole = static_cast<uint64_t>(weight);
    most_weight_ = SaturatingSum(most_weight_, whole + 1);
    count += whole;
    Fraction& fraction = page.fractions[b % kPageBins];
    AddFraction(static_cast<uint64_t>(std::ldexp(weight - static_cast<double>(whole), 64)),
                positive ? &fraction.positives : &fraction.negatives, &count);
  }
}

void BinnedAuc::Merge(const BinnedAuc& other) {
  for (uint32_t p = 0; p < pages_.size(); ++p) {
    const Page& from = other.pages_[p];
    if (from.bins.empty()) continue;
    Page& to = PageOf(p * kPageBins);
    for (uint32_t b = 0; b < kPageBins; ++b) {
      Bin& bin = to.bins[b];
      bin.positives += from.bins[b].positives;
      bin.negatives += from.bins[b].negatives;
      bin.key = Both(bin.key, from.bins[b].key);
      if (!weighted_) continue;
      AddFraction(from.fractions[b].positives, &to.fractions[b].positives, &bin.positives);
      AddFraction(from.fractions[b].negatives, &to.fractions[b].negatives, &bin.negatives);
    }
  }
  most_weight_ = SaturatingSum(most_weight_, other.most_weight_);
}

// Counts in integers, as Auc does.
BinnedAuc::Pairs BinnedAuc::Count() const {
  unsigned __int128 twice = 0, uncertain = 0;
  uint64_t positives = 0, negatives = 0;
  for (const Page& page : pages_) {
    for (const Bin& bin : page.bins) {
      const unsigned __int128 p = bin.positives;
      twice += p * (2 * negatives + bin.negatives);
      if (bin.key == kSeveral) uncertain += p * bin.negatives;
      positives += bin.positives;
      negatives += bin.negatives;
    }
  }
  if (positives == 0 || negatives == 0) return {kNoAuc, kNoAuc};
  const unsigned __int128 twice_pairs = static_cast<unsigned __int128>(2 * positives) * negatives;
  return {static_cast<double>(twice) / static_cast<double>(twice_pairs),
          2 * static_cast<double>(uncertain) / static_cast<double>(twice_pairs)};
}

BinnedAuc::Pairs BinnedAuc::CountWeighted() const {
  const auto weight = [](uint64_t whole, uint64_t fraction) {
    return static_cast<unsigned __int128>(whole) << 64 | fraction;
  };
  const auto number = [](unsigned __int128 weight) {
    return std::ldexp(static_cast<double>(weight), -64);
  };
  unsigned __int128 positives = 0, negatives = 0;
  CompensatedSum ordered, uncertain;
  for (const Page& page : pages_) {
    for (size_t b = 0; b < page.bins.size(); ++b) {
      const unsigned __int128 p = weight(page.bins[b].positives, page.fractions[b].positives);
      const unsigned __int128 n = weight(page.bins[b].negatives, page.fractions[b].negatives);
      ordered.Add(number(p) * (number(negatives) + number(n) / 2));
      if (page.bins[b].key == kSeveral) uncertain.Add(number(p) * number(n));
      positives += p;
      negatives += n;
    }
  }
  const double pairs = number(positives) * number(negatives);
  if (!(pairs > 0) || most_weight_ >= kTooMuchWeight) return {kNoAuc, kNoAuc};
  return {ordered.value() / pairs, uncertain.value() / pairs};
}

double BinnedAuc::value() const { return (weighted_ ? CountWeighted() : Count()).ordered; }

double BinnedAuc::error_bound() const {
  return (weighted_ ? CountWeighted() : Count()).uncertain / 2;
}

}  // namespace tessera::math
