#pragma once

#include <cstdint>

namespace tessera::worker {

// What a loss is multiplied by so that its gradients keep within float16 (Micikevicius et al. 2018,
// "Mixed precision training", arXiv:1710.03740, sections 3.2 and 4): a power of two, halved where
// they did not, doubled after many steps in which they did. A function of what it was told alone.
// Not thread-safe.
class LossScale {
 public:
  static constexpr float kFirst = 0x1p16f, kLargest = 0x1p24f;
  static constexpr uint32_t kGoodSteps = 2000;

  float value() const { return value_; }
  // After a step with value(), whether its gradients were finite. False: the step is to be left
  // out. With a scale of 1 none is: then it is not the scale that makes them infinite.
  bool Update(bool finite) {
    if (!finite) {
      good_steps_ = 0;
      if (value_ == 1) return true;
      value_ /= 2;
      return false;
    }
    if (++good_steps_ >= kGoodSteps && value_ < kLargest) {
      good_steps_ = 0;
      value_ *= 2;
    }
    return true;
  }

 private:
  float value_ = kFirst;
  uint32_t good_steps_ = 0;
};

}  // namespace tessera::worker
