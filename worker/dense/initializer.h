#pragma once

#include <cstdint>
#include <string>

#include "worker/dense/options.h"

namespace tessera::worker {

// How a parameter starts.
struct Initializer {
  enum class Kind { kConstant, kNormal, kUniform };
  Kind kind = Kind::kConstant;
  // kConstant: every number; kNormal: the standard deviation, about 0; kUniform: the bound, numbers
  // are in [-value, value).
  float value = 0;
};

// What layers and models say of how weights start: one of the schemes of initializer.cc and a
// factor.
class WeightInit {
 public:
  // xavier_normal.
  WeightInit() = default;
  // Options init (xavier_normal), the scheme, and gain (1), the factor.
  static WeightInit Read(OptionReader& options);
  // Option init alone, for models, which have no gain: the name of a scheme that goes by the size
  // of a layer.
  static std::string ReadScheme(OptionReader& options);

  // Of weights that map `fan_in` numbers to `fan_out`.
  Initializer For(int64_t fan_in, int64_t fan_out) const;

 private:
  std::string scheme_ = "xavier_normal";
  float gain_ = 1;
};

}  // namespace tessera::worker
