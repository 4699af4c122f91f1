#include "worker/onnx/emit.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/math/activation/clip.h"

namespace tessera::worker {

const ParameterSpec* Emission::spec(absl::string_view name) const {
  for (const int32_t p : node.parameters) {
    if (name == graph.parameters()[p].spec.name) return &graph.parameters()[p].spec;
  }
  return nullptr;
}

absl::Span<const float> Emission::values(absl::string_view name) const {
  for (const int32_t p : node.parameters) {
    const GraphParameter& parameter = graph.parameters()[p];
    if (name != parameter.spec.name) continue;
    return (parameter.spec.trained ? trained : statistics)
        .subspan(parameter.offset, parameter.floats);
  }
  return {};
}

std::string Emission::ParameterName(absl::string_view name) const {
  for (const int32_t p : node.parameters) {
    if (name == graph.parameters()[p].spec.name) return graph.parameters()[p].name;
  }
  return "";
}

std::string Emission::Weight(absl::string_view name) {
  return onnx.Floats(ParameterName(name), spec(name)->shape, values(name));
}

std::string Emission::Value(const std::string& op, const std::vector<std::string>& inputs,
                            const std::vector<OnnxAttribute>& attributes) {
  return onnx.Value(absl::StrCat(node.name, "/", op), op, inputs, attributes);
}

std::string Emission::Ints(const std::string& name, absl::Span<const int64_t> values) {
  return onnx.Ints(absl::StrCat(node.name, "/", name), values);
}

std::string Emission::Scalar(const std::string& name, float value) {
  return onnx.Scalar(absl::StrCat(node.name, "/", name), value);
}

void Emission::Last(const std::string& op, const std::vector<std::string>& inputs,
                    const std::vector<OnnxAttribute>& attributes) {
  onnx.Node(op, inputs, out, attributes);
}

namespace {

void Clip(Emission& e) {
  const auto bound = [&](const auto& option) -> std::string {
    if (!e.options.Has(option.name)) return "";
    const double number = e.options.Number(option.name, 0, option.least, option.most);
    return e.Scalar(option.name, static_cast<float>(number));
  };
  const auto& [least, most] = math::Clip::kOptions;
  const std::string min = bound(least), max = bound(most);
  e.Last("Clip", {e.in[0], min, max});
}

void Pow(Emission& e) {
  const auto exponent = static_cast<float>(e.options.Number("exponent", 1, -1e3, 1e3));
  e.Last("Pow", {e.in[0], e.Scalar("exponent", exponent)});
}

void Add(Emission& e) { e.Last(e.in.size() == 2 ? "Add" : "Sum", e.in); }

void Bias(Emission& e) { e.Last("Add", {e.in[0], e.Weight("bias")}); }

// ONNX's Gemm takes matrices only; other inputs go to MatMul, with the weight as [in, units].
void Gemm(Emission& e) {
  const bool bias = e.spec("bias") != nullptr;
  if (e.in_shape(0).rank() == 1) {
    std::vector<std::string> inputs = {e.in[0], e.Weight("weight")};
    if (bias) inputs.push_back(e.Weight("bias"));
    return e.Last("Gemm", inputs, {{"transB", int64_t{1}}});
  }
  const std::vector<int64_t>& dims = e.spec("weight")->shape;
  const absl::Span<const float> weight = e.values("weight");
  std::vector<float> turned(weight.size());
  for (int64_t i = 0; i < dims[0]; ++i) {
    for (int64_t j = 0; j < dims[1]; ++j) turned[j * dims[0] + i] = weight[i * dims[1] + j];
  }
  const std::string matrix = e.onnx.Floats(e.ParameterName("weight"), {dims[1], dims[0]}, turned);
  if (!bias) return e.Last("MatMul", {e.in[0], matrix});
  e.Last("Add", {e.Value("MatMul", {e.in[0], matrix}), e.Weight("bias")});
}

// The axes of a tensor of this sample rank with the last one and axis 1 exchanged.
std::vector<int64_t> LastWithFirst(size_t rank) {
  std::vector<int64_t> perm(rank + 1);
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[1], perm[rank]);
  return perm;
}

// A BatchNormalization of ONNX by the node's running statistics, but for its first input.
struct ByStatistics {
  std::vector<std::string> inputs;
  std::vector<OnnxAttribute> attributes;
};

// With the node's weight and bias, or if it has none ones and zeros that are no parameters.
ByStatistics ByStatisticsOf(Emission& e, double default_epsilon) {
  const bool affine = e.spec("weight") != nullptr;
  const int64_t width = e.in_shape(0).last();
  const auto constant = [&](absl::string_view name, float value) {
    return e.onnx.Constant(absl::StrCat(e.node.name, "/", name), {width},
                           std::vector<float>(width, value));
  };
  const double epsilon = e.options.Number("epsilon", default_epsilon, 1e-12, 1);
  const double momentum = e.options.Number("momentum", 0.1, 0, 1);
  return {
      {affine ? e.Weight("weight") : constant("weight", 1),
       affine ? e.Weight("bias") : constant("bias", 0), e.Weight("running_mean"),
       e.Weight("running_var")},
      {{"epsilon", static_cast<float>(epsilon)}, {"momentum", static_cast<float>(1 - momentum)}}};
}

// The dense graph's features are the last axis, ONNX's are axis 1.
void BatchNormalization(Emission& e) {
  ByStatistics by = ByStatisticsOf(e, 1e-5);
  const size_t rank = e.in_shape(0).rank();
  if (rank == 1) {
    by.inputs.insert(by.inputs.begin(), e.in[0]);
    return e.Last("BatchNormalization", by.inputs, by.attributes);
  }
  const std::vector<int64_t> perm = LastWithFirst(rank);
  by.inputs.insert(by.inputs.begin(), e.Value("Transpose", {e.in[0]}, {{"perm", perm}}));
  const std::string y = e.Value("BatchNormalization", by.inputs, by.attributes);
  e.Last("Transpose", {y}, {{"perm", perm}});
}

// p = sigmoid((x - mean) / sqrt(var + eps)); y = (p + (1 - p) alpha) x
void Dice(Emission& e) {
  ByStatistics by = ByStatisticsOf(e, 1e-9);
  const size_t rank = e.in_shape(0).rank();
  const std::vector<int64_t> perm = LastWithFirst(rank);
  const auto turned = [&](const std::string& x) {
    return rank == 1 ? x : e.Value("Transpose", {x}, {{"perm", perm}});
  };
  by.inputs.insert(by.inputs.begin(), turned(e.in[0]));
  const std::string xhat = turned(e.Value("BatchNormalization", by.inputs, by.attributes));
  const std::string p = e.Value("Sigmoid", {xhat});
  const std::string rest = e.Value("Sub", {e.Scalar("one", 1), p});
  const std::string slope = e.Value("Add", {p, e.Value("Mul", {rest, e.Weight("alpha")})});
  e.Last("Mul", {slope, e.in[0]});
}

// ONNX's scale has the normalised axes; the dense graph's may have more before them.
void LayerNormalization(Emission& e) {
  const float epsilon = static_cast<float>(e.options.Number("epsilon", 1e-5, 1e-12, 1));
  if (e.spec("weight")->shape.size() == 1) {
    return e.Last("LayerNormalization", {e.in[0], e.Weight("weight"), e.Weight("bias")},
                  {{"axis", int64_t{-1}}, {"epsilon", epsilon}});
  }
  const std::vector<float> ones(static_cast<size_t>(e.in_shape(0).last()), 1.0f);
  const std::string one =
      e.onnx.Constant(absl::StrCat(e.node.name, "/one"), {e.in_shape(0).last()}, ones);
  const std::string xhat =
      e.Value("LayerNormalization", {e.in[0], one}, {{"axis", int64_t{-1}}, {"epsilon", epsilon}});
  e.Last("Add", {e.Value("Mul", {xhat, e.Weight("weight")}), e.Weight("bias")});
}

void MatMul(Emission& e) {
  const auto turned = [&](size_t i, const std::string& option) {
    if (!e.options.Bool(option, false)) return e.in[i];
    std::vector<int64_t> perm(e.in_shape(i).rank() + 1);
    std::iota(perm.begin(), perm.end(), 0);
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    return e.Value("Transpose", {e.in[i]}, {{"perm", perm}});
  };
  const std::string a = turned(0, "transA"), b = turned(1, "transB");
  const double alpha = e.options.Number("alpha", 1, -1e6, 1e6);
  if (alpha == 1) return e.Last("MatMul", {a, b});
  e.Last("Mul", {e.Value("MatMul", {a, b}), e.Scalar("alpha", static_cast<float>(alpha))});
}

void PRelu(Emission& e) { e.Last("PRelu", {e.in[0], e.Weight("slope")}); }

void Dropout(Emission& e) {
  e.Last("Dropout",
         {e.in[0], e.Scalar("ratio", static_cast<float>(e.options.Number("ratio", 0.5, 0, 1)))});
}

void Flatten(Emission& e) { e.Last("Flatten", e.in, {{"axis", int64_t{1}}}); }

void StopGradient(Emission& e) { e.Last("Identity", e.in); }

void Gather(Emission& e) {
  const std::vector<int64_t> indices = e.options.Ints("indices", {}, INT32_MIN, INT32_MAX);
  e.Last("Gather", {e.in[0], e.Ints("indices", indices)},
         {{"axis", e.options.Int("axis", 1, -8, 8)}});
}

// Axes as an input: ReduceSum since opset 13; ReduceMean and ReduceMax since 18 alone.
void Reduce(Emission& e) {
  std::vector<int64_t> all(e.in_shape(0).rank());
  std::iota(all.begin(), all.end(), 1);
  const std::vector<int64_t> axes = e.options.Ints("axes", all, -8, 8);
  const int64_t keep = e.options.Bool("keepdims", true) ? 1 : 0;
  if (e.node.op_name == "ReduceSum") {
    return e.Last("ReduceSum", {e.in[0], e.Ints("axes", axes)}, {{"keepdims", keep}});
  }
  e.Last(e.node.op_name, e.in, {{"axes", axes}, {"keepdims", keep}});
}

void Reshape(Emission& e) {
  std::vector<int64_t> shape = {0};
  for (size_t i = 0; i < e.out_shape(0).rank(); ++i) shape.push_back(e.out_shape(0).dim(i));
  e.Last("Reshape", {e.in[0], e.Ints("shape", shape)});
}

void Expand(Emission& e) {
  std::vector<int64_t> shape = {1};
  for (size_t i = 0; i < e.out_shape(0).rank(); ++i) shape.push_back(e.out_shape(0).dim(i));
  e.Last("Expand", {e.in[0], e.Ints("shape", shape)});
}

void Slice(Emission& e) {
  const int64_t axis = e.options.Int("axis", 1, -8, 8);
  const size_t at = e.in_shape(0).SampleAxis(axis).value();
  int64_t start = e.options.Int("start", 0, INT32_MIN, INT32_MAX);
  start += start < 0 ? e.in_shape(0).dim(at) : 0;
  const int64_t end = start + e.out_shape(0).dim(at);
  e.Last("Slice",
         {e.in[0], e.Ints("start", {start}), e.Ints("end", {end}), e.Ints("axis", {axis})});
}

void Split(Emission& e) {
  const int64_t axis = e.options.Int("axis", -1, -8, 8);
  const size_t at = e.in_shape(0).SampleAxis(axis).value();
  std::vector<int64_t> sizes;
  for (size_t k = 0; k < e.out.size(); ++k) sizes.push_back(e.out_shape(k).dim(at));
  e.Last("Split", {e.in[0], e.Ints("split", sizes)}, {{"axis", axis}});
}

void Transpose(Emission& e) {
  e.Last("Transpose", e.in, {{"perm", e.options.Ints("perm", {}, 0, 8)}});
}

// ONNX's condition has truth values.
void Where(Emission& e) {
  const std::string condition =
      e.Value("Cast", {e.in[0]}, {{"to", int64_t{onnx::TensorProto::BOOL}}});
  e.Last("Where", {condition, e.in[1], e.in[2]});
}

struct Entry {
  const char* op;
  Emitter emit;
};

// Those that are not in ONNX as they are here.
const Entry kEmitters[] = {
    {"Add", &Add},
    {"Attention", &EmitAttention},
    {"AUGRU", &EmitAugru},
    {"BatchNormalization", &BatchNormalization},
    {"Bias", &Bias},
    {"Bilinear", &EmitBilinear},
    {"Clip", &Clip},
    {"Constant", &EmitConstant},
    {"Dice", &Dice},
    {"DotInteraction", &EmitDotInteraction},
    {"Dropout", &Dropout},
    {"Expand", &Expand},
    {"FFM", &EmitFfm},
    {"FieldPairs", &EmitFieldPairs},
    {"Flatten", &Flatten},
    {"FM", &EmitFm},
    {"Gather", &Gather},
    {"Gelu", &EmitGelu},
    {"Gemm", &Gemm},
    {"GRU", &EmitRecurrence},
    {"LayerNormalization", &LayerNormalization},
    {"LSTM", &EmitRecurrence},
    {"MatMul", &MatMul},
    {"Parameter", &EmitParameter},
    {"Pow", &Pow},
    {"PRelu", &PRelu},
    {"ReduceMax", &Reduce},
    {"ReduceMean", &Reduce},
    {"ReduceSum", &Reduce},
    {"Reshape", &Reshape},
    {"RollBatch", &EmitRollBatch},
    {"SequenceMask", &EmitSequenceMask},
    {"Silu", &EmitSilu},
    {"Slice", &Slice},
    {"Split", &Split},
    {"Step", &EmitStep},
    {"StopGradient", &StopGradient},
    {"Transpose", &Transpose},
    {"Where", &Where},
};

}  // namespace

Emitter FindEmitter(absl::string_view op) {
  for (const Entry& entry : kEmitters) {
    if (op == entry.op) return entry.emit;
  }
  return IsInOnnx(op) ? &EmitSame : nullptr;
}

}  // namespace tessera::worker
