#pragma once

#include <cstdint>

namespace tessera::worker {

// The factor of a loss that keeps its gradients within float16 (Micikevicius et al. 2018, "Mixed
// precision training", arXiv:1710.03740, sections 3.2 and 4): a power of two, halved after a step
// whose gradients overflowed, doubled after many steps whose gradients did not. Depends on the
// calls of Update alone. Not thread-safe.
class LossScale {
 public:
  static constexpr float kFirst = 0x1p16f, kLargest = 0x1p24f;
  static constexpr uint32_t kGoodSteps = 2000;

  float value() const { return value_; }
  // Call after each step with value(); `finite`: whether its gradients were. Returns false if the
  // step is to be left out. At a scale of 1 no step is left out: the scale is not the cause then.
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
