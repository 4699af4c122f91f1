#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "common/math/metrics/binary_metrics.h"
#include "common/math/metrics/parallel_auc.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::math {
namespace {

using Floats = std::vector<float>;

struct Samples {
  Floats logits;
  Floats labels;
};

// Logits rounded to quarters when `ties`, so that many are equal.
Samples RandomSamples(int n, bool ties, int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform;
  Samples samples;
  for (int i = 0; i < n; ++i) {
    const float x = normal(random) * 2;
    samples.logits.push_back(ties ? std::round(x * 4) / 4 : x);
    samples.labels.push_back(uniform(random) < 1 / (1 + std::exp(-x)) ? 1 : 0);
  }
  return samples;
}

double AucByPairs(const Samples& s) {
  double wins = 0, pairs = 0;
  for (size_t i = 0; i < s.logits.size(); ++i) {
    for (size_t j = 0; j < s.logits.size(); ++j) {
      if (s.labels[i] <= s.labels[j]) continue;
      pairs += 1;
      wins += s.logits[i] > s.logits[j] ? 1 : s.logits[i] == s.logits[j] ? 0.5 : 0;
    }
  }
  return wins / pairs;
}

TEST(BinaryMetrics, AreTheirDefinitionsOverAllPairsAndSamples) {
  for (int n : {2, 3, 17, 500, 2001}) {
    for (bool ties : {false, true}) {
      Samples s = RandomSamples(n, ties, n);
      s.labels[0] = 0, s.labels[1] = 1;
      const BinaryMetrics metrics = ComputeBinaryMetrics(s.logits, s.labels);
      EXPECT_EQ(metrics.auc, AucByPairs(s)) << n << ties;  // exact: both count halves
      double loss = 0;
      for (int i = 0; i < n; ++i) {
        const double p = 1 / (1 + std::exp(-static_cast<double>(s.logits[i])));
        loss -= std::log(s.labels[i] > 0.5f ? p : 1 - p);
      }
      EXPECT_NEAR(metrics.logloss, loss / n, 1e-12);
      EXPECT_EQ(metrics.samples, static_cast<uint64_t>(n));
    }
  }
}

TEST(ParallelAuc, IsWhatOneThreadCountsBitForBit) {
  TaskPool pool(3);
  for (const int n : {2, 500, 300'000}) {
    for (const bool ties : {false, true}) {
      Samples s = RandomSamples(n, ties, n);
      s.labels[0] = 0, s.labels[1] = 1;
      s.logits[0] = -0.0f, s.logits[1] = 0;
      const double auc = ComputeBinaryMetrics(s.logits, s.labels).auc;
      EXPECT_EQ(ParallelAuc(s.logits, s.labels, &pool), auc) << n << ties;
      EXPECT_EQ(ParallelAuc(s.logits, s.labels, nullptr), auc) << n << ties;
    }
  }
}

TEST(ParallelAuc, IsUndefinedWithoutAClassOrWithWhatIsNoNumber) {
  TaskPool pool(1);
  Samples s = RandomSamples(200'000, false, 1);
  s.logits[150'000] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(ParallelAuc(s.logits, s.labels, &pool)));
  EXPECT_TRUE(std::isnan(ParallelAuc({}, {}, &pool)));
  const Floats logits = {1, 2}, labels = {1, 1};
  EXPECT_TRUE(std::isnan(ParallelAuc(logits, labels, &pool)));
}

TEST(BinaryMetrics, DoNotDependOnTheOrderOfSamplesInOneBit) {
  const Samples s = RandomSamples(10000, true, 3);
  const BinaryMetrics first = ComputeBinaryMetrics(s.logits, s.labels);
  std::vector<int> order(s.logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(4);
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::shuffle(order.begin(), order.end(), random);
    Samples shuffled;
    for (int i : order) {
      shuffled.logits.push_back(s.logits[i]);
      shuffled.labels.push_back(s.labels[i]);
    }
    const BinaryMetrics again = ComputeBinaryMetrics(shuffled.logits, shuffled.labels);
    EXPECT_EQ(again.auc, first.auc);
    EXPECT_EQ(again.logloss, first.logloss);
  }
}

TEST(BinaryMetrics, KnowPerfectReversedAndConstantScores) {
  const Floats labels = {0, 0, 1, 1};
  EXPECT_EQ(ComputeBinaryMetrics(Floats{-3, -1, 1, 3}, labels).auc, 1);
  EXPECT_EQ(ComputeBinaryMetrics(Floats{3, 1, -1, -3}, labels).auc, 0);
  const BinaryMetrics constant = ComputeBinaryMetrics(Floats{0, 0, 0, 0}, labels);
  EXPECT_EQ(constant.auc, 0.5);
  EXPECT_NEAR(constant.logloss, std::log(2.0), 1e-15);
  // -0 and 0 are a tie; infinities are the ends of the order.
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(ComputeBinaryMetrics(Floats{0.0f, -0.0f}, Floats{0, 1}).auc, 0.5);
  const BinaryMetrics infinite = ComputeBinaryMetrics(Floats{-inf, -1e38f, 1e38f, inf}, labels);
  EXPECT_EQ(infinite.auc, 1);
  EXPECT_EQ(infinite.logloss, 0);
}

TEST(BinaryMetrics, AucIsUndefinedWhereAClassIsMissing) {
  const BinaryMetrics positives = ComputeBinaryMetrics(Floats{1, 2}, Floats{1, 1});
  EXPECT_TRUE(std::isnan(positives.auc));
  EXPECT_NEAR(positives.logloss, (std::log1p(std::exp(-1.0)) + std::log1p(std::exp(-2.0))) / 2,
              1e-15);
  EXPECT_TRUE(std::isnan(ComputeBinaryMetrics(Floats{1}, Floats{0}).auc));
  const BinaryMetrics none = ComputeBinaryMetrics({}, {});
  EXPECT_TRUE(std::isnan(none.auc));
  EXPECT_TRUE(std::isnan(none.logloss));
  EXPECT_EQ(none.samples, 0u);
}

TEST(BinaryMetrics, AreUndefinedWhereALogitIsNotANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const BinaryMetrics metrics = ComputeBinaryMetrics(Floats{1, nan, 0}, Floats{1, 1, 0});
  EXPECT_TRUE(std::isnan(metrics.auc));
  EXPECT_TRUE(std::isnan(metrics.logloss));
  EXPECT_EQ(metrics.samples, 3u);
}

TEST(BinaryMetrics, KeepTheirPrecisionAtConfidentLogits) {
  // log(1 - sigmoid(-40)) would be 0 in the naive form.
  const BinaryMetrics metrics = ComputeBinaryMetrics(Floats{-40, 40}, Floats{0, 1});
  EXPECT_NEAR(metrics.logloss, std::exp(-40.0), 1e-30);
}

TEST(BinaryMetrics, CountMillionsOfSamplesExactly) {
  // Every logit of i / 2^20 once in each class but the classes shifted by one: of n * n pairs the
  // positive is above in n (n + 1) / 2 and equal in n - 1.
  const int n = 1 << 20;
  Samples s;
  for (int i = 0; i < n; ++i) {
    s.logits.push_back(static_cast<float>(i));
    s.labels.push_back(0);
    s.logits.push_back(static_cast<float>(i + 1));
    s.labels.push_back(1);
  }
  const double pairs = static_cast<double>(n) * n;
  const double above = static_cast<double>(n) * (n + 1) / 2;
  EXPECT_EQ(ComputeBinaryMetrics(s.logits, s.labels).auc, (above + (n - 1) * 0.5) / pairs);
}

}  // namespace
}  // namespace tessera::math
