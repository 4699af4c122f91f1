#include "cuda/dense/bias.h"

#include "cuda/pack.h"

namespace tessera::cuda {

namespace {

template <int kFloats>
void AddBiasIn(Stream& stream, const float* x, const float* bias, float* y, int64_t rows,
               int64_t width) {
  ForEachInRows(stream, "bias", rows, width / kFloats,
                [=] TESSERA_HOST_DEVICE(int64_t row, int64_t pack) {
                  const int64_t column = pack * kFloats, at = row * width + column;
                  Pack<kFloats> sum = Pack<kFloats>::At(x + at);
                  sum.Add(1, bias + column);
                  sum.Store(y + at);
                });
}

}  // namespace

void AddBias(Stream& stream, const float* x, const float* bias, float* y, int64_t rows,
             int64_t width) {
  if (InPacks(width, x, bias, y)) return AddBiasIn<kPackFloats>(stream, x, bias, y, rows, width);
  AddBiasIn<1>(stream, x, bias, y, rows, width);
}

void BiasGradient(Stream& stream, const float* dy, float* sum, int64_t rows, int64_t width) {
  SumColumns(
      stream, "bias's gradient", rows, width,
      [=] TESSERA_HOST_DEVICE(int64_t row, int64_t column) { return dy[row * width + column]; },
      [=] TESSERA_HOST_DEVICE(int64_t column, float value) { sum[column] = value; });
}

}  // namespace tessera::cuda
