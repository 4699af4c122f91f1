// Ops that walk from place to place.
#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/read_axes.h"
#include "worker/onnx/reads.h"
#include "worker/onnx/recurrence.h"

namespace tessera::worker {
// As a product with a matrix of ones up to the diagonal.
absl::Status ReadCumSum(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> named, r.IntsIn(1));
  if (named.size() != 1 || r.Int("exclusive", 0) != 0 || r.Int("reverse", 0) != 0) {
    return absl::UnimplementedError("expected one axis, forward, with the number itself");
  }
  TESSERA_ASSIGN_OR_RETURN(const size_t axis, r.SampleAxis(named[0], x));
  const int64_t size = r.DimsOf(x)[axis];
  if (size > 1024) return absl::UnimplementedError(absl::StrCat("of ", size, ", above 1024"));
  std::swap(x.axes[axis], x.axes.back());
  const size_t last = x.axes.size() - 1;
  r.LastAxis(x, last);
  // [batch, all the rest, size]
  const Shape shape = r.shape(x.tensor);
  const auto rows = static_cast<int64_t>(shape.Product(0, shape.rank() - 1));
  google::protobuf::Struct options = Options().Set("shape", std::vector<int64_t>{size, size});
  auto* list = (*options.mutable_fields())["value"].mutable_list_value();
  for (int64_t i = 0; i < size * size; ++i) {
    list->add_values()->set_number_value(i / size <= i % size ? 1 : 0);
  }
  const Tensor ones = r.Layer("Constant", {}, std::move(options));
  const Tensor sums = r.Layer("MatMul", {r.Reshaped(x.tensor, Shape{rows, size}), ones});
  x.tensor = r.Reshaped(sums, shape);
  std::swap(x.axes[axis], x.axes.back());
  r.Set(std::move(x));
  return absl::OkStatus();
}

namespace {

using Direction = OnnxRecurrence::Direction;
using States = std::vector<Tensor>;

// Reads the node as the dense graph's op of that name: LSTM, and GRU in the form of PyTorch and
// Keras.
absl::Status ReadAsOp(OnnxNodeReader& r, const std::string& op, OnnxRecurrence& recurrence) {
  const int64_t gates = recurrence.gates();
  const int64_t units = recurrence.units(), width = recurrence.width();
  const bool all = r.HasOutput(0), memory = op == "LSTM" && r.HasOutput(2);
  google::protobuf::Struct options =
      Options().Set("units", static_cast<double>(units)).Set("sequence", all);
  if (memory) (*options.mutable_fields())["memory"].set_bool_value(true);
  std::vector<Tensor> states, last, memories;
  for (const Direction& direction : recurrence.directions()) {
    std::vector<OnnxNodeReader::Weight> weights;
    for (const auto& [name, i, size] : {std::tuple("weight", size_t{1}, gates * units * width),
                                        std::tuple("recurrence", size_t{2}, gates * units * units),
                                        std::tuple("bias", size_t{3}, 2 * gates * units)}) {
      TESSERA_ASSIGN_OR_RETURN(weights.emplace_back(),
                               recurrence.WeightOf(direction, name, i, size, 0, size));
    }
    TESSERA_ASSIGN_OR_RETURN(const std::vector<Tensor> made,
                             r.TrainedLayers(op, recurrence.InputsOf(direction), options,
                                             std::move(weights), memory ? 2 : 1));
    if (all) states.push_back(made[0]);
    if (memory) memories.push_back(made[1]);
    if (r.HasOutput(1)) last.push_back(all ? recurrence.LastOf(made[0]) : made[0]);
  }
  if (all) recurrence.SetAll(states);
  if (r.HasOutput(1)) recurrence.SetOne(last, 1);
  if (memory) recurrence.SetOne(memories, 2);
  return absl::OkStatus();
}

// Gates `first` to `last` of x, which has the gates one after another.
Tensor GatesOf(OnnxNodeReader& r, Tensor x, int64_t units, int64_t first, int64_t last) {
  return Sliced(r, x, 1, first * units, last * units);
}

// z, r = sigmoid(.), h' = tanh(x_h + r (W h + b)), or tanh(x_h + W (r h) + b) where the reset comes
// first; h = (1 - z) h' + z h = h' + z (h - h').
absl::StatusOr<States> GruCell(OnnxNodeReader& r, const OnnxRecurrence& recurrence,
                               bool reset_first, const Direction& direction, Tensor x, Tensor h) {
  const int64_t units = recurrence.units();
  TESSERA_ASSIGN_OR_RETURN(const Tensor recurred, recurrence.Recurred(direction, h, 0, 2));
  const Tensor gates = r.Layer("Sigmoid", {r.Layer("Add", {GatesOf(r, x, units, 0, 2), recurred})});
  const Tensor update = GatesOf(r, gates, units, 0, 1), reset = GatesOf(r, gates, units, 1, 2);
  const Tensor kept = reset_first ? r.Layer("Mul", {reset, h}) : h;
  TESSERA_ASSIGN_OR_RETURN(Tensor past, recurrence.Recurred(direction, kept, 2, 3));
  if (!reset_first) past = r.Layer("Mul", {reset, past});
  const Tensor next = r.Layer("Tanh", {r.Layer("Add", {GatesOf(r, x, units, 2, 3), past})});
  const Tensor change = r.Layer("Mul", {update, r.Layer("Sub", {h, next})});
  return States{r.Layer("Add", {next, change})};
}

// i, o, f = sigmoid(.), c' = tanh(.); c = f c + i c', h = o tanh(c).
absl::StatusOr<States> LstmCell(OnnxNodeReader& r, const OnnxRecurrence& recurrence,
                                const Direction& direction, Tensor x, const States& states) {
  const int64_t units = recurrence.units();
  TESSERA_ASSIGN_OR_RETURN(const Tensor recurred, recurrence.Recurred(direction, states[0], 0, 4));
  const Tensor sum = r.Layer("Add", {x, recurred});
  const Tensor gates = r.Layer("Sigmoid", {GatesOf(r, sum, units, 0, 3)});
  const Tensor next = r.Layer("Tanh", {GatesOf(r, sum, units, 3, 4)});
  const Tensor kept = r.Layer("Mul", {GatesOf(r, gates, units, 2, 3), states[1]});
  const Tensor added = r.Layer("Mul", {GatesOf(r, gates, units, 0, 1), next});
  const Tensor memory = r.Layer("Add", {kept, added});
  const Tensor shown = r.Layer("Tanh", {memory});
  return States{r.Layer("Mul", {GatesOf(r, gates, units, 1, 2), shown}), memory};
}

}  // namespace

absl::Status ReadGru(OnnxNodeReader& r) {
  if (HasRowsBesideBatch(r)) return ReadRowByRow(r);
  TESSERA_ASSIGN_OR_RETURN(OnnxRecurrence recurrence,
                           OnnxRecurrence::Read(r, 3, {"Sigmoid", "Tanh"}, /*states=*/1));
  const bool reset_first = r.Int("linear_before_reset", 0) == 0;
  if (!reset_first && recurrence.is_plain()) return ReadAsOp(r, "GRU", recurrence);
  return recurrence.SetUnrolled([&](const Direction& direction, Tensor x, const States& states) {
    return GruCell(r, recurrence, reset_first, direction, x, states[0]);
  });
}

absl::Status ReadLstm(OnnxNodeReader& r) {
  if (HasRowsBesideBatch(r)) return ReadRowByRow(r);
  if (r.Has(7) || r.Int("input_forget", 0) != 0) {
    return absl::UnimplementedError("expected no peepholes, and input_forget 0");
  }
  TESSERA_ASSIGN_OR_RETURN(OnnxRecurrence recurrence,
                           OnnxRecurrence::Read(r, 4, {"Sigmoid", "Tanh", "Tanh"}, /*states=*/2));
  if (recurrence.is_plain()) return ReadAsOp(r, "LSTM", recurrence);
  return recurrence.SetUnrolled([&](const Direction& direction, Tensor x, const States& states) {
    return LstmCell(r, recurrence, direction, x, states);
  });
}

// h = f(x + W h + b), with an f for each direction.
absl::Status ReadRnn(OnnxNodeReader& r) {
  if (HasRowsBesideBatch(r)) return ReadRowByRow(r);
  TESSERA_ASSIGN_OR_RETURN(OnnxRecurrence recurrence, OnnxRecurrence::Read(r, 1, {}, /*states=*/1));
  std::vector<std::string> functions(recurrence.directions().size(), "Tanh");
  if (const auto* const named = r.Attribute("activations"); named != nullptr) {
    functions.assign(named->strings().begin(), named->strings().end());
    functions.resize(recurrence.directions().size());
  }
  for (const std::string& function : functions) {
    if (function != "Tanh" && function != "Relu" && function != "Sigmoid") {
      return absl::UnimplementedError(
          absl::StrCat("its activation is \"", function, "\", expected Tanh, Relu or Sigmoid"));
    }
  }
  return recurrence.SetUnrolled([&](const Direction& direction, Tensor x,
                                    const States& states) -> absl::StatusOr<States> {
    TESSERA_ASSIGN_OR_RETURN(const Tensor past, recurrence.Recurred(direction, states[0], 0, 1));
    return States{r.Layer(functions[direction.number], {r.Layer("Add", {x, past})})};
  });
}

}  // namespace tessera::worker
