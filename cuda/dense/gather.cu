#include "cuda/dense/gather.h"

#include "cuda/dense/constants.h"
#include "cuda/launch.h"

namespace tessera::cuda {
namespace {

const int32_t* ToScratch(Stream& stream, const int32_t* from, int64_t n) {
  static_assert(sizeof(int32_t) == sizeof(float));
  auto* const to = reinterpret_cast<int32_t*>(stream.Scratch(static_cast<size_t>(n)));
  CopyConstants(stream, from, to, n);
  return to;
}

}  // namespace

void Gather(Stream& stream, const float* x, const int32_t* indices, int64_t count, float* y,
            int64_t rows, int64_t size, int64_t inner) {
  const int32_t* const index = ToScratch(stream, indices, count);
  ForEach(stream, "Gather", rows * count * inner, [=] TESSERA_HOST_DEVICE(int64_t i) {
    const int64_t place = i / inner, row = place / count;
    y[i] = x[(row * size + index[place % count]) * inner + i % inner];
  });
}

void GatherGradient(Stream& stream, const float* dy, const int32_t* places, int64_t different,
                    int64_t count, float* dx, int64_t rows, int64_t size, int64_t inner) {
  if (different < size) stream.Zero(dx, static_cast<size_t>(rows * size * inner));
  const int32_t* const indices = ToScratch(stream, places, 2 * different + 1 + count);
  const int32_t* const begins = indices + different;
  const int32_t* const list = begins + different + 1;
  ForEach(stream, "Gather's gradient", rows * different * inner,
          [=] TESSERA_HOST_DEVICE(int64_t i) {
            const int64_t row = i / inner / different, which = i / inner % different;
            float sum = 0;
            for (int32_t at = begins[which]; at < begins[which + 1]; ++at) {
              sum += dy[(row * count + list[at]) * inner + i % inner];
            }
            dx[(row * size + indices[which]) * inner + i % inner] = sum;
          });
}

}  // namespace tessera::cuda
