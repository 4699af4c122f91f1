#include "common/math/cell/lstm.h"

#include "common/status_macros.h"
#include "cuda/dense/lstm.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/recurrent_op.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

using math::Lstm;

// Advances all units of one state, in loops whose arrays do not overlap. i, o, f and c hold the
// input's part of the sums without bias, and afterwards the gates; u is U h_(t-1).
void OpenGates(size_t units, const float* __restrict bias, const float* __restrict u,
               float* __restrict i, float* __restrict o, float* __restrict f, float* __restrict c,
               float* __restrict memory, const float* __restrict before, float* __restrict h) {
  const float* const u_bias = bias + 4 * units;
  for (size_t j = 0; j < units; ++j) {
    const size_t at_o = units + j, at_f = 2 * units + j, at_c = 3 * units + j;
    const Lstm::Gates gates = Lstm::Open(Lstm::Sum(i[j], bias[j], u[j], u_bias[j]),
                                         Lstm::Sum(o[j], bias[at_o], u[at_o], u_bias[at_o]),
                                         Lstm::Sum(f[j], bias[at_f], u[at_f], u_bias[at_f]),
                                         Lstm::Sum(c[j], bias[at_c], u[at_c], u_bias[at_c]));
    const float m = Lstm::Memory(gates, before[j]);
    i[j] = gates.i, o[j] = gates.o, f[j] = gates.f, c[j] = gates.c;
    memory[j] = m;
    h[j] = Lstm::State(gates, m);
  }
}

// Overwrites the gates with the gradients of their sums, which are also those of u. `slope` and
// `memory_slope` are the gradients of the state and the memory. `memory_slope` becomes the gradient
// of the memory before; the state before has a gradient through u alone.
void GoThroughGates(size_t units, float* __restrict i, float* __restrict o, float* __restrict f,
                    float* __restrict c, const float* __restrict memory,
                    const float* __restrict before, float* __restrict slope,
                    float* __restrict memory_slope, float* __restrict of_u) {
  for (size_t j = 0; j < units; ++j) {
    const Lstm::Gradients d =
        Lstm::Backward({i[j], o[j], f[j], c[j]}, memory[j], before[j], slope[j], memory_slope[j]);
    i[j] = of_u[j] = d.i;
    o[j] = of_u[units + j] = d.o;
    f[j] = of_u[2 * units + j] = d.f;
    c[j] = of_u[3 * units + j] = d.c;
    slope[j] = 0;
    memory_slope[j] = d.before;
  }
}

// math::Lstm, gates in the order i, o, f, c, and the memory.
struct LstmCell {
  static constexpr size_t kGates = 4, kPlanes = 6;
  static constexpr bool kHasMemory = true;
  static constexpr size_t PlaneOfU(size_t gate) { return gate; }
  using Planes = std::array<float*, kPlanes>;

  static void Advance(size_t units, float, const float* bias, const float* u, const Planes& at,
                      const float* memory_before, float* h) {
    OpenGates(units, bias, u, at[0], at[1], at[2], at[3], at[4], memory_before, h);
  }
  static void GoBack(size_t units, float, const Planes& at, const float* memory_before,
                     float* slope, float* memory_slope, float* of_u, float*) {
    GoThroughGates(units, at[0], at[1], at[2], at[3], at[4], memory_before, slope, memory_slope,
                   of_u);
  }
  static void CudaForward(cuda::Stream& stream, const cuda::Sequences& sequences,
                          const float* recurrence, const float* bias, float* planes, float* y,
                          float* memory) {
    cuda::Lstm(stream, sequences, recurrence, bias, planes, y, memory);
  }
  static void CudaBackward(cuda::Stream& stream, const cuda::Sequences& sequences,
                           const float* recurrence, float* planes, const float* dy,
                           const float* dmemory, float*) {
    cuda::LstmBackward(stream, sequences, recurrence, planes, dy, dmemory);
  }
};

// Options: units, of the state (required); sequence, whether all states are the output or the last
// alone (true); memory, whether the last memory is a second output (false).
absl::StatusOr<std::unique_ptr<Op>> NewLstm(absl::Span<const Shape> inputs, OptionReader& options) {
  RecurrentOptions of;
  of.units = options.Int("units", 0, 1, RecurrentOp<LstmCell>::kMostUnits);
  of.sequence = options.Bool("sequence", true);
  of.memory = options.Bool("memory", false);
  of.init = WeightInit::Read(options);
  if (of.units == 0) options.Fail("units", "must be set: the width of the state");
  TESSERA_RETURN_IF_ERROR(options.Finish());
  const bool fits = (inputs.size() == 1 || (inputs.size() == 2 && inputs[1] == Shape{1})) &&
                    inputs[0].rank() == 2;
  TESSERA_RETURN_IF_ERROR(
      ExpectShapes(fits, "[batch, T, n], and if sequences have lengths those, [batch, 1]", inputs));
  return std::make_unique<RecurrentOp<LstmCell>>(inputs[0], of);
}

}  // namespace

std::vector<OpEntry> OpsOfLstm() { return {{"LSTM", "lstm", &NewLstm}}; }

}  // namespace tessera::worker
