#include "cuda/dense/reduce_max.h"

#include <limits>

#include "common/math/arithmetic.h"
#include "cuda/launch.h"

namespace tessera::cuda {

void ReduceMax(Stream& stream, const float* x, float* y, int64_t outer, int64_t size,
               int64_t inner) {
  const char* const what = "ReduceMax";
  // Neighbouring threads read neighbouring floats: of a row, or of `inner`.
  if (inner == 1) {
    ReduceRows(
        stream, what, outer, size, -std::numeric_limits<float>::infinity(),
        [=] TESSERA_HOST_DEVICE(int64_t row, int64_t column) { return x[row * size + column]; },
        [=] TESSERA_HOST_DEVICE(float a, float b) { return math::Maximum::Value(a, b); },
        [=] TESSERA_HOST_DEVICE(int64_t row, float largest) { y[row] = largest; });
    return;
  }
  ForEach(stream, what, outer * inner, [=] TESSERA_HOST_DEVICE(int64_t i) {
    const float* const first = x + i / inner * size * inner + i % inner;
    float largest = *first;
    for (int64_t s = 1; s < size; ++s) largest = math::Maximum::Value(largest, first[s * inner]);
    y[i] = largest;
  });
}

void ReduceMaxGradient(Stream& stream, const float* x, const float* y, const float* dy, float* dx,
                       int64_t outer, int64_t size, int64_t inner) {
  ForEach(stream, "ReduceMax's gradient", outer * size * inner, [=] TESSERA_HOST_DEVICE(int64_t i) {
    const int64_t reduced = i / (size * inner) * inner + i % inner;
    bool first = x[i] == y[reduced];
    // Few floats equal the largest; of these most have an equal one right before them.
    for (int64_t s = i / inner % size, at = i - inner; first && s > 0; --s, at -= inner) {
      first = x[at] != y[reduced];
    }
    dx[i] = first ? dy[reduced] : 0;
  });
}

}  // namespace tessera::cuda
