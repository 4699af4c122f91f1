#include "common/math/rounded.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tessera::math {
namespace {

constexpr float kInfiniteFloat = std::numeric_limits<float>::infinity();

// All numbers of 0 or more that float16 has, by their definition, ascending.
std::vector<double> Float16Numbers() {
  std::vector<double> numbers;
  for (int fraction = 0; fraction < 1024; ++fraction) numbers.push_back(std::ldexp(fraction, -24));
  for (int exponent = -14; exponent <= 15; ++exponent) {
    for (int fraction = 0; fraction < 1024; ++fraction) {
      numbers.push_back(std::ldexp(1024 + fraction, exponent - 10));
    }
  }
  return numbers;
}

// `rounded` between neighbours, whose numbers in their order are even and odd in turn.
void ExpectNearest(float (*rounded)(float), const std::vector<double>& numbers) {
  std::mt19937 random(1);
  for (size_t i = 0; i + 1 < numbers.size(); ++i) {
    const double low = numbers[i], high = numbers[i + 1];
    const auto exact = static_cast<float>(low), middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(rounded(exact), low);
    ASSERT_EQ(rounded(-exact), -low);
    ASSERT_EQ(std::signbit(rounded(-exact)), true);
    ASSERT_EQ(rounded(middle), i % 2 == 0 ? low : high) << low;
    ASSERT_EQ(rounded(-middle), i % 2 == 0 ? -low : -high) << low;
    ASSERT_EQ(rounded(std::nextafter(middle, 0.0f)), low);
    ASSERT_EQ(rounded(std::nextafter(middle, kInfiniteFloat)), high);
    const auto between = static_cast<float>(low + (high - low) * (random() % 1000) / 1000);
    if (between == middle) continue;
    ASSERT_EQ(rounded(between), between - low < high - between ? low : high);
  }
}

TEST(RoundedToFloat16, IsTheNearestAndTheEvenOfTwo) {
  const std::vector<double> numbers = Float16Numbers();
  ASSERT_EQ(numbers.size(), 31u * 1024);
  EXPECT_EQ(numbers.back(), 65504);
  ExpectNearest(RoundedToFloat16, numbers);
}

TEST(RoundedToFloat16, IsInfinityBeyondTheLargest) {
  EXPECT_EQ(RoundedToFloat16(65519.996f), 65504);
  EXPECT_EQ(RoundedToFloat16(65520), kInfiniteFloat);
  EXPECT_EQ(RoundedToFloat16(-1e30f), -kInfiniteFloat);
  EXPECT_EQ(RoundedToFloat16(-kInfiniteFloat), -kInfiniteFloat);
  EXPECT_EQ(RoundedToFloat16(1e-30f), 0);
  EXPECT_TRUE(std::isnan(RoundedToFloat16(std::numeric_limits<float>::quiet_NaN())));
}

TEST(RoundedToTensorFloat32, IsTheNearestAndTheEvenOfTwo) {
  std::vector<double> numbers;
  for (const int exponent : {-126, -14, 0, 1, 127}) {
    numbers.clear();
    for (int fraction = 0; fraction < 1024; ++fraction) {
      numbers.push_back(std::ldexp(1024 + fraction, exponent - 10));
    }
    ExpectNearest(RoundedToTensorFloat32, numbers);
  }
  EXPECT_EQ(RoundedToTensorFloat32(std::numeric_limits<float>::max()), kInfiniteFloat);
  EXPECT_EQ(RoundedToTensorFloat32(-kInfiniteFloat), -kInfiniteFloat);
  EXPECT_TRUE(std::isnan(RoundedToTensorFloat32(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace tessera::math
