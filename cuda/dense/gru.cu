#include "cuda/dense/gru.h"

#include "common/math/cell/gru.h"
#include "cuda/dense/recurrence.h"

namespace tessera::cuda {
namespace {

TESSERA_HOST_DEVICE inline float AttentionOf(const Sequences& sequences, int64_t sample,
                                             int64_t place) {
  if (sequences.attention == nullptr) return 1;
  return sequences.attention[sample * sequences.places + place];
}

// Advances all units by one place: `u` [batch, 3, units] is without bias; h [batch, units] becomes
// the state after it.
void Step(Stream& stream, const Sequences& sequences, int64_t place, const float* u,
          const float* bias, float* planes, float* h, float* y) {
  const Sequences s = sequences;
  const int64_t plane = s.batch * s.places * s.units;
  ForEach(stream, "GRU", s.batch * s.units, [=] TESSERA_HOST_DEVICE(int64_t i) {
    const int64_t j = i % s.units, sample = i / s.units;
    const int64_t at = (sample * s.places + place) * s.units + j;
    float* const z = planes + at;
    float *const r = z + plane, *const n = r + plane, *const u_n = n + plane;
    float* const before = u_n + plane;
    if (!Inside(s, sample, place)) {
      *z = *r = *n = *u_n = *before = 0;
      if (s.all_states) y[at] = 0;
      return;
    }
    const float* const of_x = bias + j;
    const float* const of_u = of_x + 3 * s.units;
    const float* const products = u + sample * 3 * s.units + j;
    const float u_of_n = products[2 * s.units] + of_u[2 * s.units];
    const math::Gru::Gates gates =
        math::Gru::Open(*z + of_x[0], *r + of_x[s.units], *n + of_x[2 * s.units],
                        products[0] + of_u[0], products[s.units] + of_u[s.units], u_of_n);
    *before = h[i];
    *z = gates.z;
    *r = gates.r;
    *n = gates.n;
    *u_n = u_of_n;
    h[i] = math::Gru::State(gates, AttentionOf(s, sample, place), *before);
    if (s.all_states) y[at] = h[i];
  });
}

// The same backward. `slope` [batch, units] is the gradient of the state after the place, without
// dy's part if all states are the output. It becomes the gradient of the state before, without the
// part through u, whose gradients go to du [batch, 3, units]. attention_terms [batch, units], to be
// summed over the units, may be null.
void StepBackward(Stream& stream, const Sequences& sequences, int64_t place, const float* dy,
                  float* planes, float* slope, float* du, float* attention_terms) {
  const Sequences s = sequences;
  const int64_t plane = s.batch * s.places * s.units;
  ForEach(stream, "GRU's gradient", s.batch * s.units, [=] TESSERA_HOST_DEVICE(int64_t i) {
    const int64_t j = i % s.units, sample = i / s.units;
    const int64_t at = (sample * s.places + place) * s.units + j;
    float* const of_gates = du + sample * 3 * s.units + j;
    if (!Inside(s, sample, place)) {  // The planes hold zeros already.
      of_gates[0] = of_gates[s.units] = of_gates[2 * s.units] = 0;
      if (attention_terms != nullptr) attention_terms[i] = 0;
      return;
    }
    float* const z = planes + at;
    float *const r = z + plane, *const n = r + plane, *const u_n = n + plane;
    const float before = u_n[plane];
    const math::Gru::Gradients d =
        math::Gru::Backward({*z, *r, *n}, *u_n, AttentionOf(s, sample, place), before,
                            slope[i] + (s.all_states ? dy[at] : 0));
    *u_n = d.n * *r;
    *z = d.z;
    *r = d.r;
    *n = d.n;
    of_gates[0] = d.z;
    of_gates[s.units] = d.r;
    of_gates[2 * s.units] = *u_n;
    slope[i] = d.before;
    if (attention_terms != nullptr) attention_terms[i] = d.attention;
  });
}

// The attention's gradient at one place: for each sample the sum of its units' terms.
void SumAttention(Stream& stream, const Sequences& sequences, int64_t place, const float* terms,
                  float* dattention) {
  const int64_t units = sequences.units, places = sequences.places;
  SumRows(
      stream, "GRU's gradient of attention", sequences.batch, units,
      [=] TESSERA_HOST_DEVICE(int64_t sample, int64_t j) { return terms[sample * units + j]; },
      [=] TESSERA_HOST_DEVICE(int64_t sample, float sum) {
        dattention[sample * places + place] = sum;
      });
}

}  // namespace

void Gru(Stream& stream, const Sequences& sequences, const float* recurrence, const float* bias,
         float* planes, float* y) {
  const int64_t floats = sequences.batch * sequences.units;
  float* const h = stream.Scratch(4 * floats);
  float* const u = h + floats;
  stream.Zero(h, floats);
  WalkForward(stream, sequences, 3, recurrence, h, u,
              [&](int64_t place) { Step(stream, sequences, place, u, bias, planes, h, y); });
  if (!sequences.all_states) stream.Copy(h, y, floats);
}

void GruBackward(Stream& stream, const Sequences& sequences, const float* recurrence, float* planes,
                 const float* dy, float* dattention) {
  const int64_t floats = sequences.batch * sequences.units;
  float* const slope = stream.Scratch(5 * floats);
  float* const du = slope + floats;
  float* const attention_terms = dattention == nullptr ? nullptr : du + 3 * floats;
  if (sequences.all_states) {
    stream.Zero(slope, floats);
  } else {
    stream.Copy(dy, slope, floats);
  }
  WalkBackward(stream, sequences, 3, recurrence, du, slope, [&](int64_t place) {
    StepBackward(stream, sequences, place, dy, planes, slope, du, attention_terms);
    if (dattention != nullptr) SumAttention(stream, sequences, place, attention_terms, dattention);
  });
}

}  // namespace tessera::cuda
