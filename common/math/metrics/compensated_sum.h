#pragma once

namespace tessera::math {

// Adds with compensation (Kahan 1965): the sum of any number of terms of one sign is exact to about
// one unit in the last place.
class CompensatedSum {
 public:
  void Add(double x) {
    const double y = x - lost_;
    const double sum = sum_ + y;
    lost_ = (sum - sum_) - y;
    sum_ = sum;
  }
  double value() const { return sum_; }

 private:
  double sum_ = 0;
  double lost_ = 0;
};

}  // namespace tessera::math
