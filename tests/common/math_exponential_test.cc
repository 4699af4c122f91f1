#include "common/math/exponential.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::math {
namespace {

// Every 997th float: all exponents and signs, infinities and NaN.
template <typename Visit>
void ForFloats(Visit visit) {
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 997) {
    const auto of = static_cast<uint32_t>(bits);
    float x;
    std::memcpy(&x, &of, sizeof(x));
    visit(x);
  }
}

struct Worst {
  double error = 0;
  float at = 0;

  // Relative, but for what is too small to be a normal float.
  void Add(float x, float value, double expected) {
    if (std::isinf(static_cast<float>(expected))) {
      ASSERT_EQ(value, static_cast<float>(expected)) << x;
      return;
    }
    constexpr double kNormal = std::numeric_limits<float>::min();
    const double found = std::fabs(value - expected) / std::fmax(std::fabs(expected), kNormal);
    if (found > error || std::isnan(found)) *this = {found, x};
  }
};

TEST(Exponential, IsWithinItsBoundForAllFloats) {
  Worst worst;
  ForFloats([&](float x) {
    if (std::isnan(x)) {
      EXPECT_THAT(Exponential(x), testing::IsNan());
    } else {
      worst.Add(x, Exponential(x), std::exp(static_cast<double>(x)));
    }
  });
  EXPECT_LT(worst.error, 1e-7) << "at " << worst.at;
  EXPECT_EQ(Exponential(0), 1);
  EXPECT_EQ(Exponential(-0.0f), 1);
}

TEST(ExpMinusOne, IsWithinItsBoundForAllFloatsUpTo0) {
  Worst worst;
  ForFloats([&](float x) {
    if (std::isnan(x)) {
      EXPECT_THAT(ExpMinusOne(x), testing::IsNan());
    } else if (x <= 0) {
      worst.Add(x, ExpMinusOne(x), std::expm1(static_cast<double>(x)));
    }
  });
  EXPECT_LT(worst.error, 1e-7) << "at " << worst.at;
}

TEST(HyperbolicTangent, IsWithinItsBoundForAllFloats) {
  Worst worst;
  ForFloats([&](float x) {
    if (std::isnan(x)) {
      EXPECT_THAT(HyperbolicTangent(x), testing::IsNan());
    } else {
      worst.Add(x, HyperbolicTangent(x), std::tanh(static_cast<double>(x)));
      EXPECT_EQ(HyperbolicTangent(-x), -HyperbolicTangent(x)) << x;
    }
  });
  EXPECT_LT(worst.error, 2e-7) << "at " << worst.at;
  EXPECT_TRUE(std::signbit(HyperbolicTangent(-0.0f)));
}

}  // namespace
}  // namespace tessera::math
