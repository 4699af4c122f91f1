#pragma once

#include "common/math/activation/sigmoid.h"
#include "common/math/exponential.h"
#include "common/math/host_device.h"

namespace tessera::math {

// One unit of a gated recurrent unit (Cho et al. 2014, arXiv:1406.1078) in the form of ONNX with
// linear_before_reset = 1 and of cuDNN. The input contributes x_z, x_r, x_n to the gates, the
// previous state h contributes u_z, u_r, u_n; both include their biases:
//   z = sigmoid(x_z + u_z);  r = sigmoid(x_r + u_r);  n = tanh(x_n + r u_n)
//   h' = h + a (1 - z) (n - h)
// With a = 1 this is (1 - z) n + z h. In AUGRU (Zhou et al. 2019, arXiv:1809.03672, equations 6 and
// 7) a is the attention of the place; the paper's update gate u is 1 - z.
struct Gru {
  struct Gates {
    float z, r, n;
  };

  TESSERA_HOST_DEVICE static Gates Open(float x_z, float x_r, float x_n, float u_z, float u_r,
                                        float u_n) {
    Gates gates;
    gates.z = Sigmoid::Value(x_z + u_z);
    gates.r = Sigmoid::Value(x_r + u_r);
    gates.n = HyperbolicTangent(x_n + gates.r * u_n);
    return gates;
  }
  TESSERA_HOST_DEVICE static float State(const Gates& gates, float attention, float before) {
    return before + attention * (1 - gates.z) * (gates.n - before);
  }

  // The gradients of the sums inside the gates, of h and of a, given dh' = `slope`.
  struct Gradients {
    float z;          // of x_z and u_z
    float r;          // of x_r and u_r
    float n;          // of x_n; that of u_n is r times as large
    float before;     // of h, without its part through u
    float attention;  // of a
  };
  TESSERA_HOST_DEVICE static Gradients Backward(const Gates& gates, float u_n, float attention,
                                                float before, float slope) {
    const float open = 1 - gates.z, away = gates.n - before;
    Gradients out;
    out.before = slope * (1 - attention * open);
    out.attention = slope * open * away;
    out.z = -slope * attention * away * gates.z * open;
    out.n = slope * attention * open * (1 - gates.n * gates.n);
    out.r = out.n * u_n * gates.r * (1 - gates.r);
    return out;
  }
};

}  // namespace tessera::math
