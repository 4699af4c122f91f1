#include "cuda/dense/field_aware_pairs.h"

#include "common/math/interaction/field_pair.h"
#include "cuda/launch.h"

namespace tessera::cuda {
namespace {

// Where field i's vector for field j begins in a sample.
TESSERA_HOST_DEVICE inline int64_t Towards(int64_t i, int64_t j, int64_t fields, int64_t dim) {
  return math::FieldAwareIndex(i, j, fields) * dim;
}

}  // namespace

void FieldAwarePairs(Stream& stream, const float* v, float* y, int64_t batch, int64_t fields,
                     int64_t dim) {
  const int64_t pairs = math::FieldPair::RowBegin(fields, false);
  const int64_t sample_floats = fields * (fields - 1) * dim;
  SumRows(
      stream, "field-aware pairs", batch, pairs * dim,
      [=] TESSERA_HOST_DEVICE(int64_t sample, int64_t at) {
        const math::FieldPair pair = math::FieldPair::At(at / dim, false);
        const float* const of_dim = v + sample * sample_floats + at % dim;
        return of_dim[Towards(pair.i, pair.j, fields, dim)] *
               of_dim[Towards(pair.j, pair.i, fields, dim)];
      },
      [=] TESSERA_HOST_DEVICE(int64_t sample, float sum) { y[sample] = sum; });
}

void FieldAwarePairsBackward(Stream& stream, const float* v, const float* dy, float* dv,
                             int64_t batch, int64_t fields, int64_t dim) {
  const int64_t width = (fields - 1) * dim, sample_floats = fields * width;
  ForEach(stream, "field-aware pairs' gradients", batch * sample_floats,
          [=] TESSERA_HOST_DEVICE(int64_t at) {
            const int64_t sample = at / sample_floats, i = at / width % fields;
            const int64_t other = at % width / dim, j = other < i ? other : other + 1;
            dv[at] = dy[sample] * v[sample * sample_floats + Towards(j, i, fields, dim) + at % dim];
          });
}

}  // namespace tessera::cuda
