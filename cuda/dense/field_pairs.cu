#include "cuda/dense/field_pairs.h"

#include "common/math/interaction/field_pair.h"
#include "cuda/launch.h"

namespace tessera::cuda {

using math::FieldPair;

// Counted backwards from the last pair and field, the order is that of math::FieldPair.

void FieldPairs(Stream& stream, const float* v, float* y, int64_t batch, int64_t fields,
                int64_t dim) {
  const int64_t pairs = FieldPair::RowBegin(fields, false), last = fields - 1;
  ForEach(stream, "products of fields", batch * pairs * dim, [=] TESSERA_HOST_DEVICE(int64_t at) {
    const FieldPair pair = FieldPair::At(pairs - 1 - at / dim % pairs, false);
    const float* const of_sample = v + at / dim / pairs * fields * dim + at % dim;
    y[at] = of_sample[(last - pair.i) * dim] * of_sample[(last - pair.j) * dim];
  });
}

void FieldPairsBackward(Stream& stream, const float* v, const float* dy, float* dv, int64_t batch,
                        int64_t fields, int64_t dim) {
  const int64_t pairs = FieldPair::RowBegin(fields, false), last = fields - 1;
  ForEach(stream, "products' gradients", batch * fields * dim, [=] TESSERA_HOST_DEVICE(int64_t at) {
    const int64_t d = at % dim, i = at / dim % fields, sample = at / dim / fields;
    const float* const of_sample = v + sample * fields * dim + d;
    const float* const slopes = dy + sample * pairs * dim + d;
    float sum = 0;
    for (int64_t j = 0; j < fields; ++j) {
      if (j == i) continue;
      const int64_t pair = pairs - 1 - FieldPair::IndexOf(last - i, last - j, false);
      sum += slopes[pair * dim] * of_sample[j * dim];
    }
    dv[at] = sum;
  });
}

}  // namespace tessera::cuda
