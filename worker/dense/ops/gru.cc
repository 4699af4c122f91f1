// GRU and AUGRU.
#include "common/math/cell/gru.h"

#include "common/status_macros.h"
#include "cuda/dense/gru.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/recurrent_op.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

using math::Gru;

// Advances all units of one state, in loops whose arrays do not overlap. z, r and n hold x_z, x_r
// and x_n without bias, and afterwards the gates; u is U h_(t-1).
void OpenGates(size_t units, float attention, const float* __restrict bias,
               const float* __restrict u, float* __restrict z, float* __restrict r,
               float* __restrict n, float* __restrict u_n, const float* __restrict before,
               float* __restrict h) {
  for (size_t j = 0; j < units; ++j) {
    const float of_u = u[2 * units + j] + bias[5 * units + j];
    const Gru::Gates gates =
        Gru::Open(z[j] + bias[j], r[j] + bias[units + j], n[j] + bias[2 * units + j],
                  u[j] + bias[3 * units + j], u[units + j] + bias[4 * units + j], of_u);
    z[j] = gates.z, r[j] = gates.r, n[j] = gates.n, u_n[j] = of_u;
    h[j] = Gru::State(gates, attention, before[j]);
  }
}

// Overwrites the gates with the gradients of x_z, x_r and x_n, and u_n with its own gradient.
// Writes the gradients of u to `of_u` and each unit's part of the attention's gradient to `terms`.
// `slope` is the gradient of the state, and afterwards of the state before.
void GoThroughGates(size_t units, float attention, const float* __restrict before,
                    float* __restrict z, float* __restrict r, float* __restrict n,
                    float* __restrict u_n, float* __restrict slope, float* __restrict of_u,
                    float* __restrict terms) {
  for (size_t j = 0; j < units; ++j) {
    const Gru::Gradients d =
        Gru::Backward({z[j], r[j], n[j]}, u_n[j], attention, before[j], slope[j]);
    const float of_u_n = d.n * r[j];
    u_n[j] = of_u[2 * units + j] = of_u_n;
    z[j] = of_u[j] = d.z;
    r[j] = of_u[units + j] = d.r;
    n[j] = d.n;
    slope[j] = d.before;
    terms[j] = d.attention;
  }
}

// math::Gru, gates in the order z, r, n, and u_n.
struct GruCell {
  static constexpr size_t kGates = 3, kPlanes = 5;
  static constexpr bool kHasMemory = false;
  static constexpr size_t PlaneOfU(size_t gate) { return gate == 2 ? 3 : gate; }
  using Planes = std::array<float*, kPlanes>;

  static void Advance(size_t units, float attention, const float* bias, const float* u,
                      const Planes& at, const float*, float* h) {
    OpenGates(units, attention, bias, u, at[0], at[1], at[2], at[3], at[4], h);
  }
  static void GoBack(size_t units, float attention, const Planes& at, const float*, float* slope,
                     float*, float* of_u, float* terms) {
    GoThroughGates(units, attention, at[4], at[0], at[1], at[2], at[3], slope, of_u, terms);
  }
  static void CudaForward(cuda::Stream& stream, const cuda::Sequences& sequences,
                          const float* recurrence, const float* bias, float* planes, float* y,
                          float*) {
    cuda::Gru(stream, sequences, recurrence, bias, planes, y);
  }
  static void CudaBackward(cuda::Stream& stream, const cuda::Sequences& sequences,
                           const float* recurrence, float* planes, const float* dy, const float*,
                           float* dattention) {
    cuda::GruBackward(stream, sequences, recurrence, planes, dy, dattention);
  }
};

absl::StatusOr<std::unique_ptr<Op>> New(absl::Span<const Shape> inputs, bool attention,
                                        OptionReader& options) {
  const int64_t units = options.Int("units", 0, 1, RecurrentOp<GruCell>::kMostUnits);
  const bool sequence = options.Bool("sequence", true);
  const WeightInit init = WeightInit::Read(options);
  if (units == 0) options.Fail("units", "must be set: the width of the state");
  TESSERA_RETURN_IF_ERROR(options.Finish());
  const size_t least = attention ? 2 : 1;
  bool fits = inputs.size() >= least && inputs.size() <= least + 1 && inputs[0].rank() == 2;
  if (fits && attention) fits = inputs[1] == Shape{inputs[0].dim(0), 1};
  if (fits && inputs.size() > least) fits = inputs[least] == Shape{1};
  TESSERA_RETURN_IF_ERROR(
      ExpectShapes(fits,
                   absl::StrCat("[batch, T, n]", attention ? ", the attention [batch, T, 1]" : "",
                                ", and if sequences have lengths those, [batch, 1]"),
                   inputs));
  return std::make_unique<RecurrentOp<GruCell>>(
      inputs[0],
      RecurrentOptions{.units = units, .attention = attention, .sequence = sequence, .init = init});
}

// Options of both: units, of the state (required); sequence, whether all states are the output or
// the last alone (true).
absl::StatusOr<std::unique_ptr<Op>> NewGru(absl::Span<const Shape> inputs, OptionReader& options) {
  return New(inputs, false, options);
}

absl::StatusOr<std::unique_ptr<Op>> NewAugru(absl::Span<const Shape> inputs,
                                             OptionReader& options) {
  return New(inputs, true, options);
}

}  // namespace

std::vector<OpEntry> OpsOfGru() { return {{"AUGRU", "augru", &NewAugru}, {"GRU", "gru", &NewGru}}; }

}  // namespace tessera::worker
