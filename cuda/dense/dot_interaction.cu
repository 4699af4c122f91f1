#include "cuda/dense/dot_interaction.h"

#include "common/math/interaction/field_pair.h"
#include "cuda/pack.h"
#include "cuda/quotient.h"

namespace tessera::cuda {
namespace {

using math::FieldPair;
using Four = Pack<kPackFloats>;

// Sixteen sums: of four fields or numbers in each direction.
struct Tile {
  Four rows[kPackFloats];

  TESSERA_HOST_DEVICE void Add(const float* left, const float* right) {
    const Four factors = Four::At(left);
    for (int k = 0; k < kPackFloats; ++k) rows[k].Add(factors.of[k], right);
  }
};

int64_t Packs(int64_t floats) { return (floats + kPackFloats - 1) / kPackFloats; }

// A sample's vectors lie in shared memory with number d of all fields side by side; a thread has
// the products of four fields with four.
template <int kFloats>
void Products(Stream& stream, const float* v, float* y, int64_t batch, int64_t fields, int64_t dim,
              bool self) {
  const int64_t pairs = FieldPair::RowBegin(fields, self), field_packs = Packs(fields);
  const int64_t packs = dim / kFloats, stride = field_packs * kPackFloats;
  const int64_t products_at = dim * stride;
  ForEachGroup(
      stream, "dot products of fields", batch, products_at + pairs,
      Phase{fields * packs,
            [=] TESSERA_HOST_DEVICE(int64_t sample, int64_t at, float* shared) {
              const int64_t field = Quotient(at, packs), d = (at - field * packs) * kFloats;
              const auto some = Pack<kFloats>::At(v + (sample * fields + field) * dim + d);
              for (int k = 0; k < kFloats; ++k) shared[(d + k) * stride + field] = some.of[k];
            }},
      Phase{FieldPair::RowBegin(field_packs, true),
            [=] TESSERA_HOST_DEVICE(int64_t, int64_t at, float* shared) {
              const FieldPair tile = FieldPair::At(at, true);
              const int64_t first_i = tile.i * kPackFloats, first_j = tile.j * kPackFloats;
              Tile sums;
              for (int64_t d = 0; d < dim; ++d) {
                sums.Add(shared + d * stride + first_i, shared + d * stride + first_j);
              }
              for (int k = 0; k < kPackFloats; ++k) {
                const int64_t i = first_i + k;
                if (i == fields) break;
                float* const to = shared + products_at + FieldPair::RowBegin(i, self) + first_j;
                for (int l = 0; l < kPackFloats; ++l) {
                  if (first_j + l < i + (self ? 1 : 0)) to[l] = sums.rows[k].of[l];
                }
              }
            }},
      Phase{pairs, [=] TESSERA_HOST_DEVICE(int64_t sample, int64_t at, float* shared) {
              y[sample * pairs + at] = shared[products_at + at];
            }});
}

// The slopes of a sample lie in shared memory as a symmetric matrix, whose diagonal counts twice or
// not at all; a thread has four numbers, or with kFloats of 1 one, of four fields' gradients.
template <int kFloats>
void Gradients(Stream& stream, const float* v, const float* dy, float* dv, int64_t batch,
               int64_t fields, int64_t dim, bool self) {
  using Some = Pack<kFloats>;
  const int64_t pairs = FieldPair::RowBegin(fields, self), field_packs = Packs(fields);
  const int64_t packs = dim / kFloats, stride = field_packs * kPackFloats;
  const int64_t matrix_at = fields * dim + (kPackFloats - fields * dim % kPackFloats) % kPackFloats;
  const int64_t slopes_at = matrix_at + fields * stride;
  ForEachGroup(
      stream, "dot products' gradients", batch, slopes_at + pairs,
      Phase{fields * packs,
            [=] TESSERA_HOST_DEVICE(int64_t sample, int64_t at, float* shared) {
              Some::At(v + (sample * fields * packs + at) * kFloats).Store(shared + at * kFloats);
            }},
      Phase{pairs,
            [=] TESSERA_HOST_DEVICE(int64_t sample, int64_t at, float* shared) {
              shared[slopes_at + at] = dy[sample * pairs + at];
            }},
      Phase{fields,
            [=] TESSERA_HOST_DEVICE(int64_t, int64_t i, float* shared) {
              const float* const slopes = shared + slopes_at + FieldPair::RowBegin(i, self);
              float* const matrix = shared + matrix_at;
              for (int64_t j = 0; j < i; ++j) {
                matrix[i * stride + j] = slopes[j];
                matrix[j * stride + i] = slopes[j];
              }
              matrix[i * stride + i] = self ? 2 * slopes[i] : 0;
            }},
      Phase{field_packs * packs,
            [=] TESSERA_HOST_DEVICE(int64_t sample, int64_t at, float* shared) {
              const int64_t field_pack = Quotient(at, packs);
              const int64_t first = field_pack * kPackFloats;
              const int64_t d = (at - field_pack * packs) * kFloats;
              Some sums[kPackFloats];
              for (int64_t j = 0; j < fields; ++j) {
                const Four slopes = Four::At(shared + matrix_at + j * stride + first);
                for (int k = 0; k < kPackFloats; ++k) {
                  sums[k].Add(slopes.of[k], shared + j * dim + d);
                }
              }
              for (int k = 0; k < kPackFloats; ++k) {
                if (first + k < fields) sums[k].Store(dv + (sample * fields + first + k) * dim + d);
              }
            }});
}

}  // namespace

void DotInteraction(Stream& stream, const float* v, float* y, int64_t batch, int64_t fields,
                    int64_t dim, bool self) {
  if (InPacks(dim, v)) return Products<kPackFloats>(stream, v, y, batch, fields, dim, self);
  Products<1>(stream, v, y, batch, fields, dim, self);
}

void DotInteractionBackward(Stream& stream, const float* v, const float* dy, float* dv,
                            int64_t batch, int64_t fields, int64_t dim, bool self) {
  if (InPacks(dim, v, dv)) {
    return Gradients<kPackFloats>(stream, v, dy, dv, batch, fields, dim, self);
  }
  Gradients<1>(stream, v, dy, dv, batch, fields, dim, self);
}

}  // namespace tessera::cuda
