#include "cuda/dense/factorization_machine.h"

#include "common/math/interaction/factorization_machine.h"
#include "cuda/launch.h"

namespace tessera::cuda {
namespace {

// Twice the products of all pairs of v [fields], whose elements lie `stride` floats apart; their
// sum to *sum, where that is not null.
TESSERA_HOST_DEVICE inline float TwicePairs(const float* v, int64_t fields, int64_t stride,
                                            float* sum) {
  float total = 0, squares = 0;
  for (int64_t f = 0; f < fields; ++f) {
    const float value = v[f * stride];
    total += value;
    squares += value * value;
  }
  if (sum != nullptr) *sum = total;
  return math::FactorizationMachine::TwicePairs(total, squares);
}

}  // namespace

void FactorizationMachine(Stream& stream, const float* v, float* y, float* sums, int64_t batch,
                          int64_t fields, int64_t dim, bool over_dim) {
  const char* const what = "factorization machine";
  const auto twice_pairs = [=] TESSERA_HOST_DEVICE(int64_t sample, int64_t d) {
    return TwicePairs(v + sample * fields * dim + d, fields, dim,
                      sums == nullptr ? nullptr : sums + sample * dim + d);
  };
  if (over_dim) {
    SumRows(stream, what, batch, dim, twice_pairs,
            [=] TESSERA_HOST_DEVICE(int64_t sample, float twice) { y[sample] = 0.5f * twice; });
  } else {
    ForEach(stream, what, batch * dim, [=] TESSERA_HOST_DEVICE(int64_t at) {
      y[at] = 0.5f * twice_pairs(at / dim, at % dim);
    });
  }
}

void FactorizationMachineBackward(Stream& stream, const float* v, const float* sums,
                                  const float* dy, float* dv, int64_t batch, int64_t fields,
                                  int64_t dim, bool over_dim) {
  ForEachInRows(stream, "factorization machine's gradient", batch * fields, dim,
                [=] TESSERA_HOST_DEVICE(int64_t vector, int64_t d) {
                  const int64_t at = vector * dim + d, sample = vector / fields;
                  dv[at] = dy[over_dim ? sample : sample * dim + d] *
                           math::FactorizationMachine::Derivative(sums[sample * dim + d], v[at]);
                });
}

}  // namespace tessera::cuda
