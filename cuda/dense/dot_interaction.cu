#include "cuda/dense/dot_interaction.h"

#include "common/math/interaction/field_pair.h"
#include "cuda/pack.h"
#include "cuda/quotient.h"

namespace tessera::cuda {

using math::FieldPair;

// A sample's vectors lie side by side in shared memory, number d of all fields in a row; a thread
// has the products of one field with four others, which it reads at once.
void DotInteraction(Stream& stream, const float* v, float* y, int64_t batch, int64_t fields,
                    int64_t dim, bool self) {
  using Others = Pack<kPackFloats>;
  const int64_t pairs = FieldPair::RowBegin(fields, self), packs = (fields + 3) / kPackFloats;
  const int64_t stride = packs * kPackFloats, products_at = dim * stride;
  ForEachGroup(stream, "dot products of fields", batch, products_at + pairs,
               Phase{fields * dim,
                     [=] TESSERA_HOST_DEVICE(int64_t sample, int64_t i, float* shared) {
                       const int64_t field = Quotient(i, dim), d = i - field * dim;
                       shared[d * stride + field] = v[sample * fields * dim + i];
                     }},
               Phase{fields * packs,
                     [=] TESSERA_HOST_DEVICE(int64_t, int64_t item, float* shared) {
                       const int64_t pack = Quotient(item, fields), first = pack * kPackFloats;
                       const int64_t i = item - pack * fields, others = i + (self ? 1 : 0) - first;
                       if (others <= 0) return;
                       Others sums;
                       for (int64_t d = 0; d < dim; ++d) {
                         sums.Add(shared[d * stride + i], shared + d * stride + first);
                       }
                       float* const to =
                           shared + products_at + FieldPair::RowBegin(i, self) + first;
                       for (int64_t k = 0; k < kPackFloats; ++k) {
                         if (k < others) to[k] = sums.of[k];
                       }
                     }},
               Phase{pairs, [=] TESSERA_HOST_DEVICE(int64_t sample, int64_t i, float* shared) {
                       y[sample * pairs + i] = shared[products_at + i];
                     }});
}

namespace {

// The slopes of a sample lie in shared memory as a symmetric matrix [fields, fields], whose
// diagonal counts twice or not at all; a thread has kFloats of one field's gradient.
template <int kFloats>
void Backward(Stream& stream, const float* v, const float* dy, float* dv, int64_t batch,
              int64_t fields, int64_t dim, bool self) {
  const int64_t pairs = FieldPair::RowBegin(fields, self), packs = dim / kFloats;
  const int64_t slopes_at = fields * dim;
  // Odd, so that slopes of fields that follow each other lie in different banks.
  const int64_t stride = fields | 1;
  ForEachGroup(
      stream, "dot products' gradients", batch, slopes_at + fields * stride,
      Phase{fields * packs,
            [=] TESSERA_HOST_DEVICE(int64_t sample, int64_t i, float* shared) {
              Pack<kFloats>::At(v + (sample * fields * packs + i) * kFloats)
                  .Store(shared + i * kFloats);
            }},
      Phase{fields * fields,
            [=] TESSERA_HOST_DEVICE(int64_t sample, int64_t at, float* shared) {
              const int64_t i = Quotient(at, fields), j = at - i * fields;
              float& slope = shared[slopes_at + i * stride + j];
              if (i == j && !self) {
                slope = 0;
              } else {
                slope = (i == j ? 2 : 1) * dy[sample * pairs + FieldPair::IndexOf(i, j, self)];
              }
            }},
      Phase{fields * packs, [=] TESSERA_HOST_DEVICE(int64_t sample, int64_t at, float* shared) {
              const int64_t i = Quotient(at, packs), pack = at - i * packs;
              Pack<kFloats> sum;
              for (int64_t j = 0; j < fields; ++j) {
                sum.Add(shared[slopes_at + i * stride + j], shared + j * dim + pack * kFloats);
              }
              sum.Store(dv + (sample * fields * packs + at) * kFloats);
            }});
}

}  // namespace

void DotInteractionBackward(Stream& stream, const float* v, const float* dy, float* dv,
                            int64_t batch, int64_t fields, int64_t dim, bool self) {
  if (InPacks(dim, v, dv)) {
    return Backward<kPackFloats>(stream, v, dy, dv, batch, fields, dim, self);
  }
  Backward<1>(stream, v, dy, dv, batch, fields, dim, self);
}

}  // namespace tessera::cuda
