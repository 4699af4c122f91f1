#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/read.h"

namespace tessera::worker {
namespace {

using Kind = OnnxValue::Kind;

// One input, elementwise; what is [batch] stays so.
absl::Status Elementwise(OnnxNodeReader& r, absl::string_view op,
                         google::protobuf::Struct options = {}) {
  if (!r.Has(0) || r.in(0).kind != Kind::kTensor) return r.TensorIn(0).status();
  OnnxValue y = r.in(0);
  y.tensor = r.Layer(op, {y.tensor}, std::move(options));
  r.Set(std::move(y));
  return absl::OkStatus();
}

absl::Status Same(OnnxNodeReader& r) { return Elementwise(r, r.node().op_type()); }

template <int kPercent>
absl::Status WithAlpha(OnnxNodeReader& r) {
  const float alpha = r.Float("alpha", kPercent / 100.0f);
  return Elementwise(r, r.node().op_type(), Options().Set("alpha", static_cast<double>(alpha)));
}

absl::Status HardSigmoid(OnnxNodeReader& r) {
  return Elementwise(r, "HardSigmoid",
                     Options()
                         .Set("alpha", static_cast<double>(r.Float("alpha", 0.2f)))
                         .Set("beta", static_cast<double>(r.Float("beta", 0.5f))));
}

absl::Status Selu(OnnxNodeReader& r) {
  return Elementwise(
      r, "Selu",
      Options()
          .Set("alpha", static_cast<double>(r.Float("alpha", 1.67326319217681884765625f)))
          .Set("gamma", static_cast<double>(r.Float("gamma", 1.05070102214813232421875f))));
}

absl::Status Gelu(OnnxNodeReader& r) {
  const onnx::AttributeProto* form = r.Attribute("approximate");
  if (form != nullptr && form->s() != "none") {
    return absl::UnimplementedError(
        absl::StrCat("approximate \"", form->s(), "\"; expected the exact form, \"none\""));
  }
  return Elementwise(r, "Gelu");
}

// Bounds are attributes before opset 11.
absl::Status Clip(OnnxNodeReader& r) {
  google::protobuf::Struct options;
  for (const auto& [name, i] : {std::pair<std::string, size_t>{"min", 1}, {"max", 2}}) {
    double bound = 0;
    if (r.Has(i)) {
      if (r.in(i).kind != Kind::kFloats || r.in(i).floats.size() != 1) {
        return absl::UnimplementedError(absl::StrCat(name, " is no constant number"));
      }
      bound = static_cast<double>(r.in(i).floats[0]);
    } else if (r.Attribute(name) != nullptr) {
      bound = static_cast<double>(r.Float(name, 0));
    } else {
      continue;
    }
    (*options.mutable_fields())[name].set_number_value(bound);
  }
  return Elementwise(r, "Clip", std::move(options));
}

absl::Status Dropout(OnnxNodeReader& r) {
  double ratio = static_cast<double>(r.Float("ratio", 0.5f));
  if (r.Has(1) && r.in(1).kind == Kind::kFloats && r.in(1).floats.size() == 1) {
    ratio = static_cast<double>(r.in(1).floats[0]);
  }
  return Elementwise(r, "Dropout", Options().Set("ratio", ratio));
}

// Two or more operands that broadcast; the constants among them become tensors.
absl::Status Broadcast(OnnxNodeReader& r) {
  const std::string op = r.node().op_type() == "Sum" ? "Add" : r.node().op_type();
  if (AllInts(r)) return ReadIntArithmetic(r);
  size_t rank = 0;
  bool flat = false, full = false;
  for (size_t i = 0; i < r.inputs(); ++i) {
    if (r.in(i).kind != Kind::kTensor) continue;
    if (!r.in(i).flat) {
      TESSERA_RETURN_IF_ERROR(r.TensorIn(i).status());
    }
    rank = std::max(rank, r.shape(r.in(i).tensor).rank());
    (r.in(i).flat ? flat : full) = true;
  }
  if (rank == 0) return absl::UnimplementedError("all its inputs are constants");
  if (flat && full) {
    return absl::UnimplementedError(
        "[batch] meets a tensor of more dimensions: that would mix samples");
  }
  // A trained vector along the last axis.
  for (size_t i = 0; op == "Add" && r.inputs() == 2 && i < 2; ++i) {
    const OnnxValue& vector = r.in(i);
    const OnnxValue& other = r.in(1 - i);
    if (!vector.trained || vector.dims.size() != 1 || other.kind != Kind::kTensor || other.flat ||
        vector.dims[0] != r.shape(other.tensor).last() || vector.tensor.index >= 0) {
      continue;
    }
    TESSERA_ASSIGN_OR_RETURN(std::vector<float> bias, r.WeightIn(i));
    r.Set(r.Layer("Bias", {other.tensor}));
    r.Start("bias", std::move(bias));
    return absl::OkStatus();
  }
  std::vector<Tensor> operands;
  for (size_t i = 0; i < r.inputs(); ++i) {
    if (r.in(i).kind == Kind::kTensor) {
      operands.push_back(r.in(i).tensor);
      continue;
    }
    if (flat && std::max(r.in(i).floats.size(), r.in(i).ints.size()) != 1) {
      return absl::UnimplementedError("[batch] meets a constant of several numbers");
    }
    TESSERA_ASSIGN_OR_RETURN(operands.emplace_back(), r.Materialize(i, rank));
  }
  r.Set(OnnxValue::Of(operands.size() == 1 ? operands[0] : r.Layer(op, operands), flat));
  return absl::OkStatus();
}

// w [in, units] as our [units, in].
std::vector<float> Turned(const std::vector<float>& w, int64_t in, int64_t units, float factor,
                          bool turned) {
  std::vector<float> out(w.size());
  for (int64_t i = 0; i < in; ++i) {
    for (int64_t k = 0; k < units; ++k) {
      out[k * in + i] = factor * (turned ? w[k * in + i] : w[i * units + k]);
    }
  }
  return out;
}

// x W (+ b): a layer with the weights that the file has.
absl::Status Linear(OnnxNodeReader& r, Tensor x, bool turned, bool bias, float alpha, float beta) {
  const std::vector<int64_t> dims = r.in(1).dims;
  if (dims.size() != 2) {
    return absl::UnimplementedError(
        absl::StrCat("its weights have ", dims.size(), " dimensions; expected a matrix"));
  }
  const int64_t in = dims[turned ? 1 : 0], units = dims[turned ? 0 : 1];
  if (in != r.shape(x).last() || units < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its weights [", dims[0], ", ", dims[1], "] do not fit the input ", r.shape(x).ToString()));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<float> weights, r.WeightIn(1));
  std::vector<float> start;
  if (bias) {
    TESSERA_ASSIGN_OR_RETURN(start, r.WeightIn(2));
    if (start.size() == 1) start.assign(static_cast<size_t>(units), start[0]);
    if (start.size() != static_cast<size_t>(units)) {
      return absl::InvalidArgumentError(
          absl::StrCat("its bias has ", start.size(), " numbers, expected ", units));
    }
    for (float& b : start) b *= beta;
  }
  r.Set(r.Layer("Gemm", {x}, Options().Set("units", static_cast<double>(units)).Set("bias", bias)));
  r.Start("weight", Turned(weights, in, units, alpha, turned));
  if (bias) r.Start("bias", std::move(start));
  return absl::OkStatus();
}

absl::Status Gemm(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const Tensor x, r.TensorIn(0));
  if (r.Int("transA", 0) != 0) return absl::UnimplementedError("transA 1 would mix samples");
  if (r.shape(x).rank() != 1 || !r.Has(1) || r.in(1).kind != Kind::kFloats) {
    return absl::UnimplementedError("expected an input [batch, n] and constant weights");
  }
  return Linear(r, x, r.Int("transB", 0) != 0, r.Has(2), r.Float("alpha", 1), r.Float("beta", 1));
}

absl::Status MatMul(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const Tensor a, r.TensorIn(0));
  if (r.Has(1) && r.in(1).kind == Kind::kFloats) return Linear(r, a, false, false, 1, 1);
  TESSERA_ASSIGN_OR_RETURN(const Tensor b, r.TensorIn(1));
  r.Set(r.Layer("MatMul", {a, b}));
  return absl::OkStatus();
}

absl::Status BatchNormalization(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(Tensor x, r.TensorIn(0));
  const size_t rank = r.shape(x).rank();
  std::vector<float> starts[4];
  for (size_t i = 0; i < 4; ++i) {
    TESSERA_ASSIGN_OR_RETURN(starts[i], r.WeightIn(i + 1));
    if (starts[i].size() != static_cast<size_t>(r.shape(x).dim(0))) {
      return absl::InvalidArgumentError(absl::StrCat("input ", i + 1, " has ", starts[i].size(),
                                                     " numbers, expected ", r.shape(x).dim(0)));
    }
  }
  // ONNX's features are axis 1, ours the last.
  std::vector<int64_t> perm(rank + 1);
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[1], perm[rank]);
  if (rank > 1) x = r.Layer("Transpose", {x}, Options().Set("perm", perm));
  const float momentum = 1 - r.Float("momentum", 0.9f);
  x = r.Layer("BatchNormalization", {x},
              Options()
                  .Set("epsilon", static_cast<double>(r.Float("epsilon", 1e-5f)))
                  .Set("momentum", static_cast<double>(momentum)));
  const char* const names[] = {"weight", "bias", "running_mean", "running_var"};
  for (size_t i = 0; i < 4; ++i) r.Start(names[i], std::move(starts[i]));
  if (rank > 1) x = r.Layer("Transpose", {x}, Options().Set("perm", perm));
  r.Set(x);
  return absl::OkStatus();
}

absl::Status LayerNormalization(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const Tensor x, r.TensorIn(0));
  TESSERA_ASSIGN_OR_RETURN(const int64_t axis, r.Axis(r.Int("axis", -1), r.shape(x)));
  if (axis != static_cast<int64_t>(r.shape(x).rank())) {
    return absl::UnimplementedError(
        absl::StrCat("axis ", axis, "; expected the last, ", r.shape(x).rank()));
  }
  const auto width = static_cast<size_t>(r.shape(x).last());
  std::vector<float> scale, bias(width, 0.0f);
  TESSERA_ASSIGN_OR_RETURN(scale, r.WeightIn(1));
  if (r.Has(2)) {
    TESSERA_ASSIGN_OR_RETURN(bias, r.WeightIn(2));
  }
  if (scale.size() != width || bias.size() != width) {
    return absl::InvalidArgumentError(absl::StrCat("its scale and bias have ", scale.size(),
                                                   " and ", bias.size(), " numbers, expected ",
                                                   width));
  }
  r.Set(r.Layer("LayerNormalization", {x},
                Options().Set("epsilon", static_cast<double>(r.Float("epsilon", 1e-5f)))));
  r.Start("weight", std::move(scale));
  r.Start("bias", std::move(bias));
  return absl::OkStatus();
}

absl::Status PRelu(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const Tensor x, r.TensorIn(0));
  TESSERA_ASSIGN_OR_RETURN(std::vector<float> slope, r.WeightIn(1));
  const auto width = static_cast<size_t>(r.shape(x).last());
  if (slope.size() == 1) slope.assign(width, slope[0]);
  if (slope.size() != width || (r.in(1).dims.size() > 1 && r.in(1).dims.back() == 1 && width > 1 &&
                                r.in(1).floats.size() > 1)) {
    return absl::UnimplementedError(absl::StrCat("its slope has ", slope.size(),
                                                 " numbers, expected 1 or one for each of the ",
                                                 width, " of the last axis"));
  }
  r.Set(r.Layer("PRelu", {x}));
  r.Start("slope", std::move(slope));
  return absl::OkStatus();
}

absl::Status Reduce(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const Tensor x, r.TensorIn(0));
  return ReadReduction(r, r.node().op_type(), x);
}

// Before opset 13 all axes from the given one on were one.
absl::Status Softmax(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const Tensor x, r.TensorIn(0));
  const auto last = static_cast<int64_t>(r.shape(x).rank());
  TESSERA_ASSIGN_OR_RETURN(const int64_t axis,
                           r.Axis(r.Int("axis", r.opset() < 13 ? 1 : -1), r.shape(x)));
  if (r.opset() < 13 && axis != last) {
    return absl::UnimplementedError("over several axes at once; save with opset 13 or later");
  }
  r.Set(r.Layer("Softmax", {x}, Options().Set("axis", static_cast<double>(axis))));
  return absl::OkStatus();
}

absl::Status LogSoftmax(OnnxNodeReader& r) {
  TESSERA_RETURN_IF_ERROR(Softmax(r));
  r.Set(r.Layer("Log", {r.out().tensor}));
  return absl::OkStatus();
}

struct Entry {
  const char* op_type;
  OnnxRead read;
};

const Entry kReads[] = {
    {"Abs", &Same},
    {"Add", &Broadcast},
    {"BatchNormalization", &BatchNormalization},
    {"Cast", &ReadCast},
    {"Celu", &ReadCelu},
    {"Clip", &Clip},
    {"Concat", &ReadConcat},
    {"Constant", &ReadConstant},
    {"ConstantOfShape", &ReadConstantOfShape},
    {"Conv", &ReadConv},
    {"Div", &Broadcast},
    {"Dropout", &Dropout},
    {"Einsum", &ReadEinsum},
    {"Elu", &WithAlpha<100>},
    {"Equal", &ReadIntArithmetic},
    {"Erf", &Same},
    {"Exp", &Same},
    {"Expand", &ReadExpand},
    {"Flatten", &ReadFlatten},
    {"Gather", &ReadGather},
    {"Gelu", &Gelu},
    {"Gemm", &Gemm},
    {"HardSigmoid", &HardSigmoid},
    {"HardSwish", &ReadHardSwish},
    {"Identity", &ReadIdentity},
    {"LayerNormalization", &LayerNormalization},
    {"LeakyRelu", &WithAlpha<1>},
    {"Log", &Same},
    {"LogSoftmax", &LogSoftmax},
    {"MatMul", &MatMul},
    {"Max", &ReadMaxMin},
    {"Min", &ReadMaxMin},
    {"Mul", &Broadcast},
    {"Neg", &ReadNeg},
    {"PRelu", &PRelu},
    {"Pow", &ReadPow},
    {"Reciprocal", &ReadReciprocal},
    {"ReduceL2", &ReadReduceSquares},
    {"ReduceMax", &Reduce},
    {"ReduceMean", &Reduce},
    {"ReduceSum", &Reduce},
    {"ReduceSumSquare", &ReadReduceSquares},
    {"Relu", &Same},
    {"Reshape", &ReadReshape},
    {"Selu", &Selu},
    {"Shape", &ReadShape},
    {"Sigmoid", &Same},
    {"Slice", &ReadSlice},
    {"Softmax", &Softmax},
    {"Softplus", &Same},
    {"Softsign", &ReadSoftsign},
    {"Split", &ReadSplit},
    {"Sqrt", &Same},
    {"Squeeze", &ReadSqueeze},
    {"Sub", &Broadcast},
    {"Sum", &Broadcast},
    {"Tanh", &Same},
    {"Transpose", &ReadTranspose},
    {"Unsqueeze", &ReadUnsqueeze},
    {"Where", &ReadWhere},
};

}  // namespace

absl::Status ReadReduction(OnnxNodeReader& r, absl::string_view op, Tensor x) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> axes, r.IntsOf("axes", 1));
  if (axes.empty()) {
    return absl::UnimplementedError("it has no axes, so it would reduce over the batch too");
  }
  for (int64_t& axis : axes) {
    TESSERA_ASSIGN_OR_RETURN(axis, r.Axis(axis, r.shape(x)));
  }
  const bool keep = r.Int("keepdims", 1) != 0, all = axes.size() == r.shape(x).rank();
  const Tensor reduced = r.Layer(op, {x}, Options().Set("axes", axes).Set("keepdims", keep || all));
  // What is left of a sample is one number.
  const bool flat = all && !keep;
  r.Set(OnnxValue::Of(flat ? r.Reshaped(reduced, Shape{1}) : reduced, flat));
  return absl::OkStatus();
}

OnnxRead FindOnnxRead(absl::string_view op_type) {
  for (const Entry& entry : kReads) {
    if (op_type == entry.op_type) return entry.read;
  }
  return nullptr;
}

std::vector<std::string> ReadableOnnxOps() {
  std::vector<std::string> names;
  for (const Entry& entry : kReads) names.push_back(entry.op_type);
  return names;
}

}  // namespace tessera::worker
