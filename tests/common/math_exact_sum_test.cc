#include "common/math/metrics/exact_sum.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tessera::math {
namespace {

constexpr double kInfiniteDouble = std::numeric_limits<double>::infinity();
constexpr double kLargest = std::numeric_limits<double>::max();
constexpr double kSmallest = std::numeric_limits<double>::denorm_min();

double Sum(const std::vector<double>& terms) {
  ExactSum sum;
  for (const double term : terms) sum.Add(term);
  return sum.value();
}

// Any finite doubles: of all signs and exponents.
std::vector<double> AnyNumbers(int n, int seed) {
  std::mt19937_64 random(seed);
  std::vector<double> numbers;
  while (static_cast<int>(numbers.size()) < n) {
    const double x = std::ldexp(static_cast<double>(static_cast<int64_t>(random())),
                                static_cast<int>(random() % 2000) - 1130);
    if (std::isfinite(x)) numbers.push_back(x);
  }
  return numbers;
}

TEST(ExactSum, LosesNothingOfSmallTerms) {
  EXPECT_EQ(Sum({}), 0);
  EXPECT_EQ(Sum({1e308, 1, -1e308}), 1);
  EXPECT_EQ(Sum({kLargest, kSmallest, -kLargest}), kSmallest);
  EXPECT_EQ(Sum({kLargest, kLargest, -kLargest}), kLargest);
  EXPECT_EQ(Sum({-3 * kSmallest, kSmallest}), -2 * kSmallest);
  EXPECT_EQ(Sum({0x1p-1022, -kSmallest}), 0x1p-1022 - kSmallest);
  EXPECT_EQ(Sum(std::vector<double>(1000, 0.1)), 1000 * 0.1);
}

TEST(ExactSum, RoundsOnceToTheNearestAndTiesToEven) {
  EXPECT_EQ(Sum({0x1p53, 1}), 0x1p53);
  EXPECT_EQ(Sum({0x1p53, 1, kSmallest}), 0x1p53 + 2);
  EXPECT_EQ(Sum({0x1p53, 2, 1}), 0x1p53 + 4);
  EXPECT_EQ(Sum({0x1p53, 2, 1, -kSmallest}), 0x1p53 + 2);
  EXPECT_EQ(Sum({-0x1p53, -1, -kSmallest}), -0x1p53 - 2);
}

TEST(ExactSum, AgreesWithIntegers) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 100; ++round) {
    ExactSum sum;
    __int128 expected = 0;
    for (int i = 0; i < 1000; ++i) {
      const int64_t term = static_cast<int64_t>(random() >> 11) * (random() % 2 == 0 ? 1 : -1);
      sum.Add(static_cast<double>(term));
      expected += term;
    }
    EXPECT_EQ(sum.value(), static_cast<double>(expected));
  }
}

TEST(ExactSum, DoesNotDependOnTheOrderNorOnHowTermsWereDivided) {
  std::vector<double> terms = AnyNumbers(2000, 2);
  const double expected = Sum(terms);
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    std::shuffle(terms.begin(), terms.end(), random);
    ExactSum parts[5];
    for (const double term : terms) parts[random() % 5].Add(term);
    for (int i = 1; i < 5; ++i) parts[0].Merge(parts[i]);
    EXPECT_EQ(parts[0].value(), expected);
  }
  // What remains when all others have been taken away again.
  const double last = terms.back();
  const size_t others = terms.size() - 1;
  for (size_t i = 0; i < others; ++i) terms.push_back(-terms[i]);
  std::shuffle(terms.begin(), terms.end(), random);
  EXPECT_EQ(Sum(terms), last);
}

TEST(ExactSum, GrowsByMergesWithItself) {
  ExactSum sum;
  sum.Add(-0.1);
  for (int i = 0; i < 60; ++i) sum.Merge(sum);
  EXPECT_EQ(sum.value(), std::ldexp(-0.1, 60));
}

TEST(ExactSum, OfWhatIsNotFiniteIsAsDoublesAdd) {
  EXPECT_EQ(Sum({1, kInfiniteDouble, -kLargest}), kInfiniteDouble);
  EXPECT_EQ(Sum({-kInfiniteDouble, 1}), -kInfiniteDouble);
  EXPECT_TRUE(std::isnan(Sum({kInfiniteDouble, -kInfiniteDouble})));
  EXPECT_TRUE(std::isnan(Sum({1, std::nan("")})));
  EXPECT_EQ(Sum({kLargest, kLargest}), kInfiniteDouble);
  ExactSum sum, other;
  other.Add(kInfiniteDouble);
  sum.Merge(other);
  EXPECT_EQ(sum.value(), kInfiniteDouble);
}

}  // namespace
}  // namespace tessera::math
