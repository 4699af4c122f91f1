#include "common/math/bfloat16.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tessera::math {
namespace {

constexpr uint32_t kHalves = 1 << 16;

bool IsFinite(uint32_t half) { return std::isfinite(FromBfloat16(static_cast<uint16_t>(half))); }

TEST(Bfloat16, ComesBackAsItWas) {
  for (uint32_t half = 0; half < kHalves; ++half) {
    const float x = FromBfloat16(static_cast<uint16_t>(half));
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(FromBfloat16(NearestBfloat16(x))));
      continue;
    }
    EXPECT_EQ(NearestBfloat16(x), half);
    if (!std::isfinite(x)) continue;
    // Exact numbers stay whatever is drawn.
    EXPECT_EQ(StochasticBfloat16(x, 0), half);
    EXPECT_EQ(StochasticBfloat16(x, 0xFFFF), half);
  }
}

TEST(Bfloat16, RoundsToTheNearestAndToTheEvenOfTwo) {
  std::mt19937 random(1);
  for (uint32_t half = 0; half + 1 < 0x7F80; ++half) {
    const double low = FromBfloat16(static_cast<uint16_t>(half));
    const double high = FromBfloat16(static_cast<uint16_t>(half + 1));
    const float middle = static_cast<float>((low + high) / 2);
    EXPECT_EQ(NearestBfloat16(middle), half % 2 == 0 ? half : half + 1);
    EXPECT_EQ(NearestBfloat16(-middle), 0x8000 | (half % 2 == 0 ? half : half + 1));
    const auto between = static_cast<float>(low + (high - low) * (random() % 1000) / 1000);
    const bool up = between - low > high - between;
    if (between == middle) continue;
    EXPECT_EQ(NearestBfloat16(between), up ? half + 1 : half);
  }
}

TEST(Bfloat16, DrawsTheFurtherOneAsOftenAsTheNumberIsOnItsWayThere) {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    const auto half = static_cast<uint16_t>(random());
    if (!IsFinite(half) || !IsFinite(half + 1u)) continue;
    const double low = FromBfloat16(half), high = FromBfloat16(static_cast<uint16_t>(half + 1));
    const uint32_t part = random() % kHalves;
    const auto x = static_cast<float>(low + (high - low) * part / kHalves);
    uint32_t further = 0;
    for (uint32_t draw = 0; draw < kHalves; ++draw) {
      const uint16_t drawn = StochasticBfloat16(x, static_cast<uint16_t>(draw));
      ASSERT_TRUE(drawn == half || drawn == half + 1) << x;
      further += drawn != half;
    }
    EXPECT_EQ(further, part) << x;
  }
}

TEST(Bfloat16, OfManyIsThatOfEach) {
  std::mt19937 random(3);
  for (const size_t count : {0, 1, 7, 8, 33}) {
    std::vector<float> from(count + 1, 1), wide(count + 1, 1);
    std::vector<uint16_t> to(count + 1, 1);
    for (size_t i = 0; i < count; ++i) {
      from[i] = std::bit_cast<float>(static_cast<uint32_t>(random()));
    }
    RoundToBfloat16(from.data(), count, to.data());
    WidenBfloat16(to.data(), count, wide.data());
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(to[i], NearestBfloat16(from[i]));
      EXPECT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(FromBfloat16(to[i])));
    }
    EXPECT_EQ(to[count], 1);
    EXPECT_EQ(wide[count], 1);
  }
}

TEST(Bfloat16, StaysFinite) {
  const float largest = std::numeric_limits<float>::max();
  for (const float x : {largest, -largest}) {
    const float drawn = FromBfloat16(StochasticBfloat16(x, 0xFFFF));
    EXPECT_TRUE(std::isfinite(drawn));
    EXPECT_EQ(drawn > 0, x > 0);
  }
}

}  // namespace
}  // namespace tessera::math
