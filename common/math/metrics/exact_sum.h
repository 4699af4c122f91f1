#pragma once

#include <array>
#include <cstdint>

namespace tessera::math {

// The sum of any numbers, rounded once, when it is asked for: a function of the terms as a set.
// Their order, and how they were divided among sums that were merged, does not change a bit. It is
// a fixed-point number of all the bits that a double can have (Kulisch, Miranker 1986), its carries
// put off (Neal 2015, arXiv:1505.05571). A few ns a term, 0.6 KB. A value type.
class ExactSum {
 public:
  // At most 2^62 terms.
  void Add(double term);
  void Merge(const ExactSum& other);
  // To nearest, ties to even; infinite where it is too large for a double. Of infinite terms as
  // doubles add: of both signs NaN. NaN where a term is.
  double value() const;

 private:
  static constexpr int kDigits = 68;

  // Brings all digits but the last, which has the sign, into [0, 2^32).
  void Carry();

  // Digit i counts 2^(32 i - 1074). Each may grow beyond 32 bits until the next Carry.
  std::array<int64_t, kDigits> digits_{};
  uint32_t additions_ = 0;  // since the last Carry; each of less than 2^32 to a digit
  bool plus_infinity_ = false;
  bool minus_infinity_ = false;
  bool nan_ = false;
};

}  // namespace tessera::math
