#include "cuda/dense/dot_interaction.h"

#include "common/math/interaction/field_pair.h"
#include "cuda/launch.h"

namespace tessera::cuda {

using math::FieldPair;

void DotInteraction(Stream& stream, const float* v, float* y, int64_t batch, int64_t fields,
                    int64_t dim, bool self) {
  const int64_t pairs = FieldPair::RowBegin(fields, self);
  ForEach(stream, "dot products of fields", batch * pairs, [=] TESSERA_HOST_DEVICE(int64_t at) {
    const FieldPair pair = FieldPair::At(at % pairs, self);
    const float* const of_sample = v + at / pairs * fields * dim;
    const float* const left = of_sample + pair.i * dim;
    const float* const right = of_sample + pair.j * dim;
    float sum = 0;
    for (int64_t d = 0; d < dim; ++d) sum += left[d] * right[d];
    y[at] = sum;
  });
}

void DotInteractionBackward(Stream& stream, const float* v, const float* dy, float* dv,
                            int64_t batch, int64_t fields, int64_t dim, bool self) {
  const int64_t pairs = FieldPair::RowBegin(fields, self);
  ForEach(stream, "dot products' gradients", batch * fields * dim,
          [=] TESSERA_HOST_DEVICE(int64_t at) {
            const int64_t d = at % dim, i = at / dim % fields, sample = at / dim / fields;
            const float* const of_sample = v + sample * fields * dim + d;
            const float* const slopes = dy + sample * pairs;
            float sum = 0;
            for (int64_t j = 0; j < fields; ++j) {
              if (j == i && !self) continue;
              sum += (j == i ? 2 : 1) * slopes[FieldPair::IndexOf(i, j, self)] * of_sample[j * dim];
            }
            dv[at] = sum;
          });
}

}  // namespace tessera::cuda
