#include "common/math/metrics/binned_auc.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/math/metrics/auc.h"
#include "gtest/gtest.h"

namespace tessera::math {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct BinnedSamples {
  std::vector<float> logits;
  std::vector<float> labels;
  std::vector<float> weights;

  BinnedAuc Binned() const {
    BinnedAuc auc(!weights.empty());
    auc.Add(logits, labels, weights);
    return auc;
  }
  double Exact() const { return Auc(SortScores(logits, labels, weights)); }
  // Samples [begin, end) of an order.
  BinnedSamples Part(const std::vector<size_t>& order, size_t begin, size_t end) const {
    BinnedSamples part;
    for (size_t i = begin; i < end; ++i) {
      part.logits.push_back(logits[order[i]]);
      part.labels.push_back(labels[order[i]]);
      if (!weights.empty()) part.weights.push_back(weights[order[i]]);
    }
    return part;
  }
};

using Draw = std::function<float(std::mt19937&)>;

// The larger a logit among the others, the likelier is a positive.
BinnedSamples Drawn(size_t n, int seed, double share, const Draw& draw) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform;
  BinnedSamples samples;
  for (size_t i = 0; i < n; ++i) samples.logits.push_back(draw(random));
  std::sort(samples.logits.begin(), samples.logits.end());
  for (size_t i = 0; i < n; ++i) {
    const double rank = static_cast<double>(i) / static_cast<double>(n);
    samples.labels.push_back(uniform(random) < 2 * share * rank ? 1 : 0);
  }
  samples.labels[0] = 0, samples.labels[n - 1] = 1;
  return samples;
}

Draw Normal(float mean, float deviation) {
  return [=](std::mt19937& random) {
    return std::normal_distribution<float>(mean, deviation)(random);
  };
}

void ExpectWithinBound(const BinnedSamples& samples, const std::string& what) {
  const BinnedAuc binned = samples.Binned();
  EXPECT_LE(std::fabs(binned.value() - samples.Exact()), binned.error_bound() + 1e-14) << what;
  EXPECT_GE(binned.error_bound(), 0) << what;
  EXPECT_LE(binned.error_bound(), 0.5) << what;
}

TEST(BinnedAuc, IsWithinItsBoundOfTheExactOne) {
  for (const float mean : {0.0f, -4.0f, 7.0f, -300.0f}) {
    for (const float deviation : {1e-6f, 1e-3f, 0.1f, 1.0f, 30.0f, 1e4f}) {
      for (const double share : {0.5, 0.01}) {
        const std::string what = absl::StrCat(mean, " +- ", deviation, ", ", share, " positive");
        ExpectWithinBound(Drawn(20000, 1, share, Normal(mean, deviation)), what);
      }
    }
  }
  // All floats, the infinite and the tiny among them.
  const Draw any = [](std::mt19937& random) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    return std::isnan(x) ? (random() % 2 == 0 ? kInfinity : -kInfinity) : x;
  };
  ExpectWithinBound(Drawn(50000, 2, 0.3, any), "any");
  for (int seed = 3; seed < 10; ++seed) ExpectWithinBound(Drawn(7, seed, 0.5, any), "few");
}

TEST(BinnedAuc, OfWeightsIsWithinItsBoundToo) {
  std::mt19937 random(5);
  std::exponential_distribution<float> exponential;
  for (const float scale : {1e-9f, 1.0f, 1e9f}) {
    for (const float mean : {0.0f, -4.0f}) {
      BinnedSamples samples = Drawn(20000, 4, 0.1, Normal(mean, 1));
      for (size_t i = 0; i < samples.logits.size(); ++i) {
        samples.weights.push_back(i % 10 == 0 ? 0 : scale * exponential(random));
      }
      const BinnedAuc binned = samples.Binned();
      EXPECT_NEAR(binned.value(), samples.Exact(), binned.error_bound() + 1e-9) << scale;
      EXPECT_LT(binned.error_bound(), 1e-4) << scale;
    }
  }
}

TEST(BinnedAuc, CountsASampleAsOftenAsItWeighs) {
  BinnedSamples once = Drawn(3000, 6, 0.3, Normal(0, 2)), repeated;
  std::mt19937 random(7);
  for (size_t i = 0; i < once.logits.size(); ++i) {
    const uint32_t times = random() % 4;
    once.weights.push_back(static_cast<float>(times));
    repeated.logits.insert(repeated.logits.end(), times, once.logits[i]);
    repeated.labels.insert(repeated.labels.end(), times, once.labels[i]);
  }
  EXPECT_NEAR(once.Binned().value(), repeated.Binned().value(), 1e-15);
}

// What binned_auc.h says of a million samples, with room for fewer.
TEST(BinnedAuc, IsNearToTheExactOneOfLogitsAsModelsHaveThem) {
  for (const float mean : {0.0f, -4.0f, -7.0f}) {
    const BinnedSamples samples = Drawn(300000, 8, 0.02, Normal(mean, 1));
    const BinnedAuc binned = samples.Binned();
    EXPECT_NEAR(binned.value(), samples.Exact(), 5e-6) << mean;
    EXPECT_LT(binned.error_bound(), 1e-4) << mean;
  }
}

TEST(BinnedAuc, IsExactWhereScoresAreEqualOrFarApart) {
  const BinnedSamples tied = Drawn(10000, 9, 0.3, [](std::mt19937& random) {
    return std::round(std::normal_distribution<float>(0, 12)(random)) / 4;
  });
  EXPECT_EQ(tied.Binned().value(), tied.Exact());
  EXPECT_EQ(tied.Binned().error_bound(), 0);
  const BinnedSamples constant = {{3, 3, 3}, {0, 1, 0}, {}};
  EXPECT_EQ(constant.Binned().value(), 0.5);
  EXPECT_EQ(constant.Binned().error_bound(), 0);
  const BinnedSamples extreme = {
      {-kInfinity, -0.0f, 0.0f, kInfinity, kInfinity}, {0, 1, 0, 1, 0}, {}};
  EXPECT_EQ(extreme.Binned().value(), extreme.Exact());
  EXPECT_EQ(extreme.Binned().error_bound(), 0);
}

TEST(BinnedAuc, IsWrongByItsBoundAtMostWhereAllScoresShareABin) {
  const BinnedSamples near = {{4, std::nextafter(4.0f, 5.0f)}, {0, 1}, {}};
  EXPECT_EQ(near.Exact(), 1);
  EXPECT_EQ(near.Binned().value(), 0.5);
  EXPECT_EQ(near.Binned().error_bound(), 0.5);
}

TEST(BinnedAuc, MergedInAnyOrderIsThatOfOnePassBitForBit) {
  for (const bool weighted : {false, true}) {
    BinnedSamples samples = Drawn(20000, 10, 0.2, Normal(-3, 2));
    std::mt19937 random(11);
    std::exponential_distribution<float> exponential;
    for (size_t i = 0; weighted && i < samples.logits.size(); ++i) {
      samples.weights.push_back(exponential(random));
    }
    const BinnedAuc whole = samples.Binned();
    std::vector<size_t> order(samples.logits.size());
    std::iota(order.begin(), order.end(), size_t{0});
    for (int round = 0; round < 5; ++round) {
      std::shuffle(order.begin(), order.end(), random);
      BinnedAuc merged(weighted);
      for (size_t begin = 0; begin < order.size();) {
        const size_t end = std::min<size_t>(order.size(), begin + random() % 7000);
        merged.Merge(samples.Part(order, begin, end).Binned());
        begin = end;
      }
      EXPECT_EQ(merged.value(), whole.value());
      EXPECT_EQ(merged.error_bound(), whole.error_bound());
    }
  }
}

TEST(BinnedAuc, CountsBillionsOfSamples) {
  const BinnedSamples samples = Drawn(3000, 12, 0.3, Normal(0, 1));
  BinnedAuc binned = samples.Binned();
  const double expected = binned.value();
  for (int i = 0; i < 30; ++i) binned.Merge(binned);
  EXPECT_DOUBLE_EQ(binned.value(), expected);
}

TEST(BinnedAuc, IsUndefinedWhereAClassIsMissingOrWeighsNothing) {
  for (const BinnedSamples& samples :
       {BinnedSamples{}, BinnedSamples{{1, 2}, {1, 1}, {}}, BinnedSamples{{1, 2}, {0, 0}, {}},
        BinnedSamples{{1, 2}, {0, 1}, {1, 0}}, BinnedSamples{{1, 2}, {0, 1}, {1, 0x1p63f}},
        BinnedSamples{{1, 2}, {0, 1}, {1, kInfinity}}}) {
    EXPECT_TRUE(std::isnan(samples.Binned().value()));
    EXPECT_TRUE(std::isnan(samples.Binned().error_bound()));
  }
}

}  // namespace
}  // namespace tessera::math
