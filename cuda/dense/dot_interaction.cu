#include "cuda/dense/dot_interaction.h"

#include "common/math/interaction/field_pair.h"
#include "cuda/pack.h"

namespace tessera::cuda {
namespace {

// Pairs of one sample fit 32 bits.
using FieldPair = math::FieldPairOf<int>;
using Four = Pack<kPackFloats>;

int Packs(int floats) { return (floats + kPackFloats - 1) / kPackFloats; }

// Sums of kFloats numbers for each of four fields.
template <int kFloats>
struct Sums {
  Pack<kFloats> of[kPackFloats];

  // += factors[k] * what lies at `from`.
  TESSERA_HOST_DEVICE void Add(const float* factors, const float* from) {
    const Four some = Four::At(factors);
    for (int k = 0; k < kPackFloats; ++k) of[k].Add(some.of[k], from);
  }
};

// In shared memory the numbers d of all fields of a sample lie side by side, with zeros up to a
// multiple of four fields. A thread computes the products of four fields with four.
template <int kFloats>
void PairProducts(Stream& stream, const float* v, float* y, int64_t batch, int fields, int dim,
                  bool self) {
  const int pairs = FieldPair::RowBegin(fields, self), field_packs = Packs(fields);
  const int packs = dim / kFloats, stride = field_packs * kPackFloats;
  const int products_at = dim * stride;
  ForEachGroup<32>(
      stream, "dot products of fields", batch, products_at + pairs,
      LightPhase{stride * packs,
                 [=] TESSERA_HOST_DEVICE(int64_t sample, int at, float* shared) {
                   const int field = at / packs, d = at % packs * kFloats;
                   Pack<kFloats> some;
                   if (field < fields) {
                     some = Pack<kFloats>::At(v + sample * (fields * dim) + at * kFloats);
                   }
                   for (int k = 0; k < kFloats; ++k) shared[(d + k) * stride + field] = some.of[k];
                 }},
      Phase{FieldPair::RowBegin(field_packs, true),
            [=] TESSERA_HOST_DEVICE(int64_t, int at, float* shared) {
              const FieldPair tile = FieldPair::At(at, true);
              const int first_i = tile.i * kPackFloats, first_j = tile.j * kPackFloats;
              Sums<kPackFloats> sums;
              for (int d = 0; d < dim; ++d) {
                sums.Add(shared + d * stride + first_i, shared + d * stride + first_j);
              }
              float* to = shared + products_at + FieldPair::RowBegin(first_i, self) + first_j;
              for (int k = 0; k < kPackFloats; ++k) {
                const int i = first_i + k, others = i + self - first_j;
                for (int l = 0; l < kPackFloats; ++l) {
                  if (i < fields && l < others) to[l] = sums.of[k].of[l];
                }
                to += i + self;  // to the next row of pairs
              }
            }},
      LightPhase{pairs, [=] TESSERA_HOST_DEVICE(int64_t sample, int at, float* shared) {
                   y[sample * pairs + at] = shared[products_at + at];
                 }});
}

// The slopes of a sample lie in shared memory as a symmetric matrix, with zeros up to a multiple of
// four columns; its diagonal counts twice or not at all. A thread computes kFloats numbers of four
// fields' gradients.
template <int kFloats>
void PairGradients(Stream& stream, const float* v, const float* dy, float* dv, int64_t batch,
                   int fields, int dim, bool self) {
  using Some = Pack<kFloats>;
  const int pairs = FieldPair::RowBegin(fields, self), field_packs = Packs(fields);
  const int packs = dim / kFloats, stride = field_packs * kPackFloats;
  const int matrix_at = Packs(fields * dim) * kPackFloats;
  const int slopes_at = matrix_at + fields * stride;
  ForEachGroup<32>(
      stream, "dot products' gradients", batch, slopes_at + pairs,
      LightPhase{
          fields * packs,
          [=] TESSERA_HOST_DEVICE(int64_t sample, int at, float* shared) {
            Some::At(v + sample * (fields * dim) + at * kFloats).Store(shared + at * kFloats);
          }},
      LightPhase{pairs,
                 [=] TESSERA_HOST_DEVICE(int64_t sample, int at, float* shared) {
                   shared[slopes_at + at] = dy[sample * pairs + at];
                 }},
      Phase{stride,
            [=] TESSERA_HOST_DEVICE(int64_t, int i, float* shared) {
              // Each thread writes a column, so that threads write side by side.
              float* const column = shared + matrix_at + i;
              if (i >= fields) {
                for (int j = 0; j < fields; ++j) column[j * stride] = 0;
                return;
              }
              const float* const slopes = shared + slopes_at;
              const int row_begin = FieldPair::RowBegin(i, self);
              for (int j = 0; j < i; ++j) column[j * stride] = slopes[row_begin + j];
              column[i * stride] = self ? 2 * slopes[row_begin + i] : 0;
              int at = FieldPair::IndexOf(i, i + 1, self);
              for (int j = i + 1; j < fields; at += j + self, ++j) column[j * stride] = slopes[at];
            }},
      Phase{field_packs * packs, [=] TESSERA_HOST_DEVICE(int64_t sample, int at, float* shared) {
              const int first = at / packs * kPackFloats, d = at % packs * kFloats;
              Sums<kFloats> sums;
              for (int j = 0; j < fields; ++j) {
                sums.Add(shared + matrix_at + j * stride + first, shared + j * dim + d);
              }
              float* const to = dv + sample * (fields * dim) + first * dim + d;
              for (int k = 0; k < kPackFloats; ++k) {
                if (first + k < fields) sums.of[k].Store(to + k * dim);
              }
            }});
}

}  // namespace

void DotInteraction(Stream& stream, const float* v, float* y, int64_t batch, int64_t fields,
                    int64_t dim, bool self) {
  const int of_fields = static_cast<int>(fields), of_dim = static_cast<int>(dim);
  if (InPacks(dim, v))
    return PairProducts<kPackFloats>(stream, v, y, batch, of_fields, of_dim, self);
  PairProducts<1>(stream, v, y, batch, of_fields, of_dim, self);
}

void DotInteractionBackward(Stream& stream, const float* v, const float* dy, float* dv,
                            int64_t batch, int64_t fields, int64_t dim, bool self) {
  const int of_fields = static_cast<int>(fields), of_dim = static_cast<int>(dim);
  if (InPacks(dim, v, dv)) {
    return PairGradients<kPackFloats>(stream, v, dy, dv, batch, of_fields, of_dim, self);
  }
  PairGradients<1>(stream, v, dy, dv, batch, of_fields, of_dim, self);
}

}  // namespace tessera::cuda
