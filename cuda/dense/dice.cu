#include "cuda/dense/dice.h"

#include "common/math/normalization/dice.h"
#include "common/math/normalization/standardization.h"
#include "cuda/launch.h"

namespace tessera::cuda {

using math::Standardization;

void Dice(Stream& stream, const float* x, int64_t rows, int64_t width, const float* mean,
          const float* inverse, const float* alpha, float* y, float* p) {
  ForEachInRows(stream, "Dice", rows, width, [=] TESSERA_HOST_DEVICE(int64_t row, int64_t j) {
    const int64_t at = row * width + j;
    const float share = math::Dice::Share(Standardization::Value(x[at], mean[j], inverse[j]));
    if (p != nullptr) p[at] = share;
    y[at] = math::Dice::Value(share, alpha[j], x[at]);
  });
}

void DiceAlphaGradient(Stream& stream, const float* x, int64_t rows, int64_t width, const float* p,
                       const float* dy, float* dalpha) {
  SumColumns(
      stream, "Dice's gradient of alpha", rows, width,
      [=] TESSERA_HOST_DEVICE(int64_t row, int64_t j) {
        const int64_t at = row * width + j;
        return math::Dice::AlphaGradient(p[at], x[at], dy[at]);
      },
      [=] TESSERA_HOST_DEVICE(int64_t j, float sum) { dalpha[j] = sum; });
}

void DiceBackward(Stream& stream, const float* x, int64_t rows, int64_t width, const float* mean,
                  const float* inverse, const float* alpha, const float* p, const float* dy,
                  float* dx, float* room) {
  const char* const what = "Dice's gradient";
  const float n = rows == 0 ? 1 : static_cast<float>(rows);
  float *const g_mean = room, *const g_slope = room + width;
  SumColumns(
      stream, what, rows, width,
      [=] TESSERA_HOST_DEVICE(int64_t row, int64_t j) {
        const int64_t at = row * width + j;
        return math::Dice::StandardGradient(p[at], alpha[j], x[at], dy[at]);
      },
      [=] TESSERA_HOST_DEVICE(int64_t j, float sum) { g_mean[j] = sum / n; });
  SumColumns(
      stream, what, rows, width,
      [=] TESSERA_HOST_DEVICE(int64_t row, int64_t j) {
        const int64_t at = row * width + j;
        return math::Dice::StandardGradient(p[at], alpha[j], x[at], dy[at]) * (x[at] - mean[j]);
      },
      [=] TESSERA_HOST_DEVICE(int64_t j, float sum) {
        g_slope[j] = sum / n * inverse[j] * inverse[j];
      });
  ForEachInRows(stream, what, rows, width, [=] TESSERA_HOST_DEVICE(int64_t row, int64_t j) {
    const int64_t at = row * width + j;
    const float g = math::Dice::StandardGradient(p[at], alpha[j], x[at], dy[at]);
    dx[at] = dy[at] * math::Dice::Slope(p[at], alpha[j]) +
             Standardization::Gradient(inverse[j], g, g_mean[j], x[at] - mean[j], g_slope[j]);
  });
}

}  // namespace tessera::cuda
