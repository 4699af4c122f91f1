#pragma once

#include "common/math/activation/sigmoid.h"
#include "common/math/exponential.h"
#include "common/math/host_device.h"

namespace tessera::math {

// One unit of a long short-term memory (Hochreiter, Schmidhuber 1997; with a forget gate as in
// ONNX, cuDNN and PyTorch). It reads the sums x_g + u_g of what the input and the previous state
// contribute to its gates, and the previous memory m:
//   i, o, f = sigmoid(x + u);  c = tanh(x + u);  m' = f m + i c;  h' = o tanh(m')
struct Lstm {
  struct Gates {
    float i, o, f, c;
  };

  // x_g + u_g of one gate, each without its bias so far.
  TESSERA_HOST_DEVICE static float Sum(float x, float x_bias, float u, float u_bias) {
    return (x + x_bias) + (u + u_bias);
  }
  TESSERA_HOST_DEVICE static Gates Open(float i, float o, float f, float c) {
    return {Sigmoid::Value(i), Sigmoid::Value(o), Sigmoid::Value(f), HyperbolicTangent(c)};
  }
  TESSERA_HOST_DEVICE static float Memory(const Gates& gates, float before) {
    return gates.f * before + gates.i * gates.c;
  }
  TESSERA_HOST_DEVICE static float State(const Gates& gates, float memory) {
    return gates.o * HyperbolicTangent(memory);
  }

  // The gradients of the sums and of the previous memory, given dh' = `slope` and dm' =
  // `memory_slope`, the latter without its part through h'.
  struct Gradients {
    float i, o, f, c;
    float before;
  };
  TESSERA_HOST_DEVICE static Gradients Backward(const Gates& gates, float memory, float before,
                                                float slope, float memory_slope) {
    const float t = HyperbolicTangent(memory);
    const float dm = memory_slope + slope * gates.o * (1 - t) * (1 + t);
    Gradients out;
    out.i = dm * gates.c * gates.i * (1 - gates.i);
    out.o = slope * t * gates.o * (1 - gates.o);
    out.f = dm * before * gates.f * (1 - gates.f);
    out.c = dm * gates.i * (1 - gates.c) * (1 + gates.c);
    out.before = dm * gates.f;
    return out;
  }
};

}  // namespace tessera::math
