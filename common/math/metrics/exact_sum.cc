#include "common/math/metrics/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace tessera::math {
namespace {

constexpr int kDigitBits = 32;
constexpr int64_t kDigitMask = (int64_t{1} << kDigitBits) - 1;
constexpr int kMantissaBits = 52;
constexpr uint32_t kInfinite = 0x7FF;         // exponent of infinities and NaN
constexpr int kLowestBit = -1074;             // lowest bit of a double, as a power of two
constexpr uint32_t kMostAdditions = 1 << 30;  // 2^62 to a digit

}  // namespace

void ExactSum::Add(double term) {
  const uint64_t bits = std::bit_cast<uint64_t>(term);
  const uint32_t exponent = static_cast<uint32_t>(bits >> kMantissaBits) & kInfinite;
  if (exponent == kInfinite) {
    (std::isnan(term) ? nan_ : term > 0 ? plus_infinity_ : minus_infinity_) = true;
    return;
  }
  uint64_t mantissa = bits & ((uint64_t{1} << kMantissaBits) - 1);
  if (exponent > 0) mantissa |= uint64_t{1} << kMantissaBits;
  const uint32_t lowest = std::max(exponent, 1u) - 1;  // of the mantissa, above kLowestBit
  const unsigned __int128 at = static_cast<unsigned __int128>(mantissa) << (lowest % kDigitBits);
  const int64_t sign = term < 0 ? -1 : 1;
  int64_t* const digit = &digits_[lowest / kDigitBits];
  digit[0] += sign * (static_cast<int64_t>(at) & kDigitMask);
  digit[1] += sign * (static_cast<int64_t>(at >> kDigitBits) & kDigitMask);
  digit[2] += sign * static_cast<int64_t>(at >> (2 * kDigitBits));
  if (++additions_ == kMostAdditions) Carry();
}

void ExactSum::Merge(const ExactSum& other) {
  ExactSum carried = other;
  carried.Carry();
  for (int i = 0; i < kDigits; ++i) digits_[i] += carried.digits_[i];
  plus_infinity_ |= other.plus_infinity_;
  minus_infinity_ |= other.minus_infinity_;
  nan_ |= other.nan_;
  if (++additions_ == kMostAdditions) Carry();
}

void ExactSum::Carry() {
  int64_t carry = 0;
  for (int i = 0; i + 1 < kDigits; ++i) {
    const int64_t digit = digits_[i] + carry;
    digits_[i] = digit & kDigitMask;
    carry = digit >> kDigitBits;  // rounds down, so the rest is not negative
  }
  digits_[kDigits - 1] += carry;
  additions_ = 0;
}

double ExactSum::value() const {
  if (nan_ || (plus_infinity_ && minus_infinity_)) return std::numeric_limits<double>::quiet_NaN();
  if (plus_infinity_) return std::numeric_limits<double>::infinity();
  if (minus_infinity_) return -std::numeric_limits<double>::infinity();
  ExactSum magnitude = *this;
  magnitude.Carry();
  const bool negative = magnitude.digits_[kDigits - 1] < 0;
  if (negative) {
    for (int64_t& digit : magnitude.digits_) digit = -digit;
    magnitude.Carry();
  }
  int top = kDigits - 1;
  while (top >= 0 && magnitude.digits_[top] == 0) --top;
  if (top < 0) return 0;
  // The first three digits, with 65 bits or more; any other digit that is not 0 sets the last bit.
  unsigned __int128 leading = 0;
  for (int i = top; i > top - 3; --i) {
    leading = leading << kDigitBits | static_cast<uint64_t>(i >= 0 ? magnitude.digits_[i] : 0);
  }
  for (int i = top - 3; i >= 0; --i) leading |= magnitude.digits_[i] != 0 ? 1 : 0;
  const double rounded =
      std::ldexp(static_cast<double>(leading), kDigitBits * (top - 2) + kLowestBit);
  return negative ? -rounded : rounded;
}

}  // namespace tessera::math
