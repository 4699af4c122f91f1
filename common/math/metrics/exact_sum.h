#pragma once

#include <array>
#include <cstdint>

namespace tessera::math {

// The exact sum of any numbers, rounded once, in value(). Neither the order of the terms nor how
// they were divided among merged sums changes a bit. A fixed-point number of all the bits that a
// double can have (Kulisch, Miranker 1986), with delayed carries (Neal 2015, arXiv:1505.05571). A
// few ns a term, 0.6 KB. A value type.
class ExactSum {
 public:
  // At most 2^62 terms.
  void Add(double term);
  void Merge(const ExactSum& other);
  // Rounds to nearest, ties to even; infinite if the sum is too large for a double. Infinite terms
  // add up as doubles do: NaN if they have both signs. NaN if a term is NaN.
  double value() const;

 private:
  static constexpr int kDigits = 68;

  // Carries until all digits but the last, which has the sign, are in [0, 2^32).
  void Carry();

  // Digit i counts 2^(32 i - 1074). Each may grow beyond 32 bits until the next Carry.
  std::array<int64_t, kDigits> digits_{};
  uint32_t additions_ = 0;  // since the last Carry; each adds less than 2^32 to a digit
  bool plus_infinity_ = false;
  bool minus_infinity_ = false;
  bool nan_ = false;
};

}  // namespace tessera::math
