#pragma once

#include "common/math/host_device.h"

namespace tessera::math {

// Functions of two numbers: y = Value(a, b). Gradient<0> and Gradient<1> are dy times the
// derivative of y with respect to a and to b.

// y = a + b.
struct Addition {
  TESSERA_HOST_DEVICE static float Value(float a, float b) { return a + b; }
};

// y = a - b;  dy/da = 1, dy/db = -1.
struct Subtraction {
  TESSERA_HOST_DEVICE static float Value(float a, float b) { return a - b; }
  template <int kOf>
  TESSERA_HOST_DEVICE static float Gradient(float, float, float dy) {
    return kOf == 0 ? dy : -dy;
  }
};

// y = a b;  dy/da = b, dy/db = a.
struct Multiplication {
  TESSERA_HOST_DEVICE static float Value(float a, float b) { return a * b; }
  template <int kOf>
  TESSERA_HOST_DEVICE static float Gradient(float a, float b, float dy) {
    return dy * (kOf == 0 ? b : a);
  }
};

// y = a / b;  dy/da = 1 / b, dy/db = -a / b^2, as -y / b, since b^2 need not be a float32.
struct Division {
  TESSERA_HOST_DEVICE static float Value(float a, float b) { return a / b; }
  template <int kOf>
  TESSERA_HOST_DEVICE static float Gradient(float a, float b, float dy) {
    return kOf == 0 ? dy / b : -dy * (a / b) / b;
  }
};

// The larger of a and b; NaN if one of them is NaN, so that the order of many numbers does not
// matter. dy goes to the larger one; if they are equal, to a.
struct Maximum {
  TESSERA_HOST_DEVICE static bool IsFirst(float a, float b) { return a >= b || a != a; }
  TESSERA_HOST_DEVICE static float Value(float a, float b) { return IsFirst(a, b) ? a : b; }
  template <int kOf>
  TESSERA_HOST_DEVICE static float Gradient(float a, float b, float dy) {
    return IsFirst(a, b) == (kOf == 0) ? dy : 0;
  }
};

// The smaller of a and b, likewise.
struct Minimum {
  TESSERA_HOST_DEVICE static bool IsFirst(float a, float b) { return a <= b || a != a; }
  TESSERA_HOST_DEVICE static float Value(float a, float b) { return IsFirst(a, b) ? a : b; }
  template <int kOf>
  TESSERA_HOST_DEVICE static float Gradient(float a, float b, float dy) {
    return IsFirst(a, b) == (kOf == 0) ? dy : 0;
  }
};

}  // namespace tessera::math
