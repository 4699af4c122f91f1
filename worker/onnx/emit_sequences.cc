// Recurrent ops, masks and attention. Formulas and shapes: worker/dense/ops/gru.cc,
// sequence_mask.cc, attention.cc.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "worker/onnx/emit.h"

namespace tessera::worker {
namespace {

// [batch, size, 1]: true at the places that the lengths [batch, 1] reach.
std::string WithinLength(Emission& e, const std::string& length, int64_t size) {
  std::vector<float> places;
  for (int64_t t = 1; t <= size; ++t) places.push_back(static_cast<float>(t));
  const std::string known =
      e.onnx.Constant(absl::StrCat(e.node.name, "/places"), {1, size, 1}, places);
  const std::string column = e.Value("Unsqueeze", {length, e.Ints("column", {2})});
  return e.Value("LessOrEqual", {known, column});
}

// The parameter as an initializer of other dims.
std::string WithDims(Emission& e, const char* name, const std::vector<int64_t>& dims) {
  return e.onnx.Floats(e.ParameterName(name), dims, e.values(name));
}

}  // namespace

void EmitSequenceMask(Emission& e) {
  const double valid = e.options.Number("valid", 1, -1e30, 1e30);
  const double padding = e.options.Number("padding", 0, -1e30, 1e30);
  const std::string within = WithinLength(e, e.in[0], e.out_shape(0).dim(0));
  e.Last("Where", {within, e.Scalar("valid", static_cast<float>(valid)),
                   e.Scalar("padding", static_cast<float>(padding))});
}

// Runtimes do not have ONNX's own Attention yet. A mask is added before the softmax, so that hidden
// keys get no weight, and multiplied after it, so that a query whose keys are all hidden gives
// zeros.
void EmitAttention(Emission& e) {
  const int64_t heads = e.options.Int("heads", 1, 1, 1 << 10);
  const int64_t queries = e.in_shape(0).dim(0), keys = e.in_shape(1).dim(0);
  const int64_t dim = e.in_shape(0).dim(1) / heads, value_dim = e.in_shape(2).dim(1) / heads;
  const double scale =
      e.options.Number("scale", 1 / std::sqrt(static_cast<double>(dim)), -1e6, 1e6);
  const auto split = [&](size_t i, int64_t rows, int64_t width, std::vector<int64_t> perm) {
    const std::string parts =
        e.Value("Reshape", {e.in[i], e.Ints(absl::StrCat("heads", i), {0, rows, heads, width})});
    return e.Value("Transpose", {parts}, {{"perm", perm}});
  };
  const std::string scores =
      e.Value("MatMul", {split(0, queries, dim, {0, 2, 1, 3}), split(1, keys, dim, {0, 2, 3, 1})});
  std::string weights = e.Value("Mul", {scores, e.Scalar("scale", static_cast<float>(scale))});
  std::vector<std::string> masks;  // 1 or 0
  if (e.in.size() > 3) {
    const std::string within = e.Value("Cast", {WithinLength(e, e.in[3], keys)},
                                       {{"to", int64_t{onnx::TensorProto::FLOAT}}});
    masks.push_back(e.Value("Reshape", {within, e.Ints("row", {0, 1, 1, keys})}));
  }
  if (e.options.Bool("causal", false)) {
    std::vector<float> known;
    for (int64_t q = 0; q < queries; ++q) {
      for (int64_t k = 0; k < keys; ++k) known.push_back(k <= q ? 1 : 0);
    }
    masks.push_back(
        e.onnx.Constant(absl::StrCat(e.node.name, "/causal"), {1, 1, queries, keys}, known));
  }
  std::string mask = masks.empty() ? "" : masks[0];
  if (masks.size() > 1) mask = e.Value("Mul", masks);
  if (!mask.empty()) {
    const std::string hidden = e.Value("Sub", {e.Scalar("one", 1), mask});
    weights = e.Value("Sub", {weights, e.Value("Mul", {hidden, e.Scalar("far", 1e9f)})});
  }
  weights = e.Value("Softmax", {weights}, {{"axis", int64_t{-1}}});
  if (!mask.empty()) weights = e.Value("Mul", {weights, mask});
  const std::string answers = e.Value("MatMul", {weights, split(2, keys, value_dim, {0, 2, 1, 3})});
  const std::vector<int64_t> joined = {0, 2, 1, 3};
  e.Last("Reshape", {e.Value("Transpose", {answers}, {{"perm", joined}}),
                     e.Ints("joined", {0, queries, heads * value_dim})});
}

// ONNX's recurrences have the places before the batch, an axis of directions, and lengths as whole
// numbers.
void EmitRecurrence(Emission& e) {
  const std::string& op = e.node.op_name;
  const int64_t gates = e.spec("weight")->shape[0];
  const int64_t places = e.in_shape(0).dim(0), in = e.in_shape(0).dim(1);
  const int64_t units = e.out_shape(0).last();
  const std::vector<int64_t> turn = {1, 0, 2};
  std::vector<std::string> inputs = {e.Value("Transpose", {e.in[0]}, {{"perm", turn}}),
                                     WithDims(e, "weight", {1, gates * units, in}),
                                     WithDims(e, "recurrence", {1, gates * units, units}),
                                     WithDims(e, "bias", {1, 2 * gates * units})};
  if (e.in.size() > 1) {
    const std::string most = e.Scalar("most", static_cast<float>(places));
    const std::string whole =
        e.Value("Cast", {e.Value("Max", {e.Value("Min", {e.in[1], most}), e.Scalar("none", 0)})},
                {{"to", int64_t{onnx::TensorProto::INT32}}});
    inputs.push_back(e.Value("Squeeze", {whole, e.Ints("axis", {1})}));
  }
  std::vector<std::string> outputs = {e.onnx.Unique(e.node.name + "/states"),
                                      e.onnx.Unique(e.node.name + "/state")};
  if (e.out.size() > 1) outputs.push_back(e.onnx.Unique(e.node.name + "/memory"));
  // GRU: the reset gate multiplies after the recurrence, as in PyTorch.
  if (op == "GRU") {
    e.onnx.Node(op, inputs, outputs, {{"hidden_size", units}, {"linear_before_reset", int64_t{1}}});
  } else {
    e.onnx.Node(op, inputs, outputs, {{"hidden_size", units}});
  }
  // [1, batch, units] or [places, 1, batch, units]
  const std::string first = e.Ints("direction", {e.out_shape(0).rank() == 1 ? 0 : 1});
  if (e.out.size() > 1) {
    e.onnx.Node("Squeeze", {outputs[2], e.Ints("memory_direction", {0})}, {e.out[1]});
  }
  if (e.out_shape(0).rank() == 1) {
    return e.onnx.Node("Squeeze", {outputs[1], first}, {e.out[0]});
  }
  e.onnx.Node("Transpose", {e.Value("Squeeze", {outputs[0], first})}, {e.out[0]}, {{"perm", turn}});
}

// Unrolled place after place, because ONNX has no such cell.
void EmitAugru(Emission& e) {
  const int64_t places = e.in_shape(0).dim(0), in = e.in_shape(0).dim(1);
  const int64_t units = e.out_shape(0).last();
  const auto turned = [&](const char* name, int64_t width) {  // [width, 3 units]
    const std::string matrix = WithDims(e, name, {3 * units, width});
    return e.Value("Transpose", {matrix}, {{"perm", std::vector<int64_t>{1, 0}}});
  };
  const auto bias_half = [&](const char* name, int64_t begin) {
    const absl::Span<const float> half =
        e.values("bias").subspan(static_cast<size_t>(begin), static_cast<size_t>(3 * units));
    return e.onnx.Floats(e.ParameterName("bias") + name, {3 * units}, half);
  };
  const std::string of_x = e.Value("Add", {e.Value("MatMul", {e.in[0], turned("weight", in)}),
                                           bias_half("/input", 0)});  // [batch, places, 3 units]
  const std::string recurrence = turned("recurrence", units);
  const std::string bias = bias_half("/state", 3 * units);
  const std::string gates = e.Ints("gates", {units, units, units});
  const std::string zero = e.Scalar("zero", 0), one = e.Scalar("one", 1);
  const std::string within = e.in.size() > 2 ? WithinLength(e, e.in[2], places) : "";
  const auto place = [&](const std::string& tensor, int64_t t) {
    return e.Value("Gather", {tensor, e.Ints("place", {t})}, {{"axis", int64_t{1}}});
  };
  const auto split = [&](const std::string& tensor) {
    std::vector<std::string> parts;
    for (const char* gate : {"/z", "/r", "/n"}) parts.push_back(e.onnx.Unique(e.node.name + gate));
    e.onnx.Node("Split", {tensor, gates}, parts, {{"axis", int64_t{2}}});
    return parts;
  };
  // [batch, 1, units]
  std::string state = e.Value("Mul", {split(place(of_x, 0))[0], zero});
  std::vector<std::string> states;
  for (int64_t t = 0; t < places; ++t) {
    const std::vector<std::string> x = split(place(of_x, t));
    const std::vector<std::string> u =
        split(e.Value("Add", {e.Value("MatMul", {state, recurrence}), bias}));
    const std::string z = e.Value("Sigmoid", {e.Value("Add", {x[0], u[0]})});
    const std::string r = e.Value("Sigmoid", {e.Value("Add", {x[1], u[1]})});
    const std::string n = e.Value("Tanh", {e.Value("Add", {x[2], e.Value("Mul", {r, u[2]})})});
    const std::string open = e.Value("Mul", {e.Value("Sub", {one, z}), place(e.in[1], t)});
    const std::string next =
        e.Value("Add", {state, e.Value("Mul", {open, e.Value("Sub", {n, state})})});
    if (within.empty()) {
      state = next;
      states.push_back(next);
      continue;
    }
    // Behind the length the state stays as it is, and the output is 0.
    const std::string here = place(within, t);
    states.push_back(e.Value("Where", {here, next, zero}));
    state = e.Value("Where", {here, next, state});
  }
  if (e.out_shape(0).rank() == 2) return e.Last("Concat", states, {{"axis", int64_t{1}}});
  e.Last("Squeeze", {state, e.Ints("axis", {1})});
}

}  // namespace tessera::worker
