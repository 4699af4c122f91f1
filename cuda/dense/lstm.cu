#include "cuda/dense/lstm.h"

#include "common/math/cell/lstm.h"
#include "cuda/dense/recurrence.h"

namespace tessera::cuda {
namespace {

constexpr int64_t kGates = 4;

// Where a unit's numbers lie in the planes.
struct Unit {
  float *i, *o, *f, *c, *memory, *before;

  TESSERA_HOST_DEVICE static Unit At(float* planes, int64_t plane, int64_t at) {
    float* const first = planes + at;
    return {first,
            first + plane,
            first + 2 * plane,
            first + 3 * plane,
            first + 4 * plane,
            first + 5 * plane};
  }
  // The memory before place number `place`.
  TESSERA_HOST_DEVICE float MemoryBefore(int64_t place, int64_t units) const {
    return place == 0 ? 0 : *(memory - units);
  }
};

// Advances all units by one place: `u` [batch, 4, units] is without bias; h [batch, units] becomes
// the state after it.
void Step(Stream& stream, const Sequences& sequences, int64_t place, const float* u,
          const float* bias, float* planes, float* h, float* y, float* last_memory) {
  const Sequences s = sequences;
  const int64_t plane = s.batch * s.places * s.units;
  ForEach(stream, "LSTM", s.batch * s.units, [=] TESSERA_HOST_DEVICE(int64_t index) {
    const int64_t j = index % s.units, sample = index / s.units;
    const int64_t at = (sample * s.places + place) * s.units + j;
    const Unit unit = Unit::At(planes, plane, at);
    if (!Inside(s, sample, place)) {
      *unit.i = *unit.o = *unit.f = *unit.c = *unit.memory = *unit.before = 0;
      if (s.all_states) y[at] = 0;
      if (last_memory != nullptr && place == 0) last_memory[index] = 0;
      return;
    }
    const float* const products = u + sample * kGates * s.units;
    const auto sum = [&](int64_t gate, float of_x) {
      const int64_t of = gate * s.units + j;
      return math::Lstm::Sum(of_x, bias[of], products[of], bias[kGates * s.units + of]);
    };
    const math::Lstm::Gates gates =
        math::Lstm::Open(sum(0, *unit.i), sum(1, *unit.o), sum(2, *unit.f), sum(3, *unit.c));
    const float memory = math::Lstm::Memory(gates, unit.MemoryBefore(place, s.units));
    *unit.before = h[index];
    *unit.i = gates.i;
    *unit.o = gates.o;
    *unit.f = gates.f;
    *unit.c = gates.c;
    *unit.memory = memory;
    h[index] = math::Lstm::State(gates, memory);
    if (s.all_states) y[at] = h[index];
    if (last_memory != nullptr) last_memory[index] = memory;
  });
}

// The same backward. `slope` is as in WalkBackward, without dy's part if all states are the output.
// memory_slope [batch, units] is the gradient of the memory after the place, and becomes that of
// the memory before.
void StepBackward(Stream& stream, const Sequences& sequences, int64_t place, const float* dy,
                  float* planes, float* slope, float* memory_slope, float* du) {
  const Sequences s = sequences;
  const int64_t plane = s.batch * s.places * s.units;
  ForEach(stream, "LSTM's gradient", s.batch * s.units, [=] TESSERA_HOST_DEVICE(int64_t index) {
    const int64_t j = index % s.units, sample = index / s.units;
    const int64_t at = (sample * s.places + place) * s.units + j;
    float* const of_u = du + sample * kGates * s.units + j;
    if (!Inside(s, sample, place)) {  // The planes hold zeros already.
      for (int64_t gate = 0; gate < kGates; ++gate) of_u[gate * s.units] = 0;
      return;
    }
    const Unit unit = Unit::At(planes, plane, at);
    const math::Lstm::Gradients d = math::Lstm::Backward(
        {*unit.i, *unit.o, *unit.f, *unit.c}, *unit.memory, unit.MemoryBefore(place, s.units),
        slope[index] + (s.all_states ? dy[at] : 0), memory_slope[index]);
    *unit.i = of_u[0] = d.i;
    *unit.o = of_u[s.units] = d.o;
    *unit.f = of_u[2 * s.units] = d.f;
    *unit.c = of_u[3 * s.units] = d.c;
    slope[index] = 0;
    memory_slope[index] = d.before;
  });
}

}  // namespace

void Lstm(Stream& stream, const Sequences& sequences, const float* recurrence, const float* bias,
          float* planes, float* y, float* memory) {
  const int64_t floats = sequences.batch * sequences.units;
  float* const h = stream.Scratch(static_cast<size_t>((1 + kGates) * floats));
  float* const u = h + floats;
  stream.Zero(h, floats);
  WalkForward(stream, sequences, kGates, recurrence, h, u, [&](int64_t place) {
    Step(stream, sequences, place, u, bias, planes, h, y, memory);
  });
  if (!sequences.all_states) stream.Copy(h, y, floats);
}

void LstmBackward(Stream& stream, const Sequences& sequences, const float* recurrence,
                  float* planes, const float* dy, const float* dmemory) {
  const int64_t floats = sequences.batch * sequences.units;
  float* const slope = stream.Scratch(static_cast<size_t>((2 + kGates) * floats));
  float* const memory_slope = slope + floats;
  float* const du = memory_slope + floats;
  const auto begin_with = [&](const float* from, float* gradient) {
    if (from == nullptr) return stream.Zero(gradient, floats);
    stream.Copy(from, gradient, floats);
  };
  begin_with(sequences.all_states ? nullptr : dy, slope);
  begin_with(dmemory, memory_slope);
  WalkBackward(stream, sequences, kGates, recurrence, du, slope, [&](int64_t place) {
    StepBackward(stream, sequences, place, dy, planes, slope, memory_slope, du);
  });
}

}  // namespace tessera::cuda
