#pragma once

namespace tessera::math {

// A number among an activation's Params that a layer may set, by the name that ONNX has for it; its
// default is that of Params.
template <typename Params>
struct ActivationOption {
  const char* name;
  float Params::*number;
  double least, most;
};

}  // namespace tessera::math
