#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/read.h"

namespace tessera::worker {
namespace {

using Kind = OnnxValue::Kind;

// One input, element by element.
absl::Status Elementwise(OnnxNodeReader& r, absl::string_view op,
                         google::protobuf::Struct options = {}) {
  return SetElementwise(r, [&](Tensor x) { return r.Layer(op, {x}, std::move(options)); });
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

// A trained vector along the last axis, which Bias adds without repeating it for every sample.
// Which input it is; 2: neither.
size_t BiasOf(const OnnxNodeReader& r) {
  for (size_t i = 0; i < 2 && r.inputs() == 2; ++i) {
    if (r.IsTensor(i) || !r.IsTensor(1 - i)) continue;
    const OnnxValue &vector = r.in(i), &other = r.in(1 - i);
    const std::vector<int64_t> dims = r.DimsOf(other);
    const bool fits = vector.trained && vector.tensor.index < 0 && vector.dims.size() == 1 &&
                      dims.size() > 1 && dims.back() == vector.dims[0];
    if (fits) return i;
  }
  return 2;
}

// Two or more operands that meet element by element.
absl::Status Broadcast(OnnxNodeReader& r) {
  const std::string op = r.node().op_type() == "Sum" ? "Add" : r.node().op_type();
  if (AllInts(r)) return ReadIntArithmetic(r);
  const size_t bias = op == "Add" ? BiasOf(r) : 2;
  if (bias == 2) {
    return SetBroadcast(r, [&](const std::vector<Tensor>& operands) {
      return operands.size() == 1 ? operands[0] : r.Layer(op, operands);
    });
  }
  OnnxValue x = r.in(1 - bias);
  r.LastAxis(x, x.axes.size() - 1);
  TESSERA_ASSIGN_OR_RETURN(
      x.tensor, r.TrainedLayer("Bias", {x.tensor}, {}, {{"bias", bias, r.in(bias).floats}}));
  r.Set(std::move(x));
  return absl::OkStatus();
}

absl::Status BatchNormalization(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  TESSERA_ASSIGN_OR_RETURN(const size_t axis, r.SampleAxis(1, x));
  const int64_t features = r.DimsOf(x)[axis];
  const char* const names[] = {"weight", "bias", "running_mean", "running_var"};
  std::vector<OnnxNodeReader::Weight> weights;
  for (size_t i = 0; i < 4; ++i) {
    TESSERA_ASSIGN_OR_RETURN(std::vector<float> start, r.FloatsIn(i + 1));
    if (static_cast<int64_t>(start.size()) != features) {
      return absl::InvalidArgumentError(
          absl::StrCat("input ", i + 1, " has ", start.size(), " numbers, expected ", features));
    }
    weights.push_back({names[i], i + 1, std::move(start)});
  }
  // ONNX's features are axis 1, ours the last.
  std::swap(x.axes[axis], x.axes.back());
  r.LastAxis(x, x.axes.size() - 1);
  const float momentum = 1 - r.Float("momentum", 0.9f);
  TESSERA_ASSIGN_OR_RETURN(
      x.tensor, r.TrainedLayer("BatchNormalization", {x.tensor},
                               Options()
                                   .Set("epsilon", static_cast<double>(r.Float("epsilon", 1e-5f)))
                                   .Set("momentum", static_cast<double>(momentum)),
                               std::move(weights)));
  std::swap(x.axes[axis], x.axes.back());
  r.Set(std::move(x));
  return absl::OkStatus();
}

absl::Status PRelu(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  TESSERA_ASSIGN_OR_RETURN(std::vector<float> slope, r.FloatsIn(1));
  // The slopes are of one axis, or one number.
  const std::vector<int64_t>& dims = r.in(1).dims;
  size_t axis = x.axes.size() - 1;
  for (size_t i = 0; i < dims.size() && dims.size() <= x.axes.size(); ++i) {
    if (dims[i] > 1) axis = x.axes.size() - dims.size() + i;
  }
  TESSERA_RETURN_IF_ERROR(r.SampleAxis(static_cast<int64_t>(axis), x).status());
  const auto width = static_cast<size_t>(r.DimsOf(x)[axis]);
  if (slope.size() == 1) slope.assign(width, slope[0]);
  if (slope.size() != width) {
    return absl::UnimplementedError(absl::StrCat("its slope has ", slope.size(),
                                                 " numbers, expected 1 or one for each of the ",
                                                 width, " of an axis"));
  }
  std::swap(x.axes[axis], x.axes.back());
  r.LastAxis(x, x.axes.size() - 1);
  TESSERA_ASSIGN_OR_RETURN(
      x.tensor, r.TrainedLayer("PRelu", {x.tensor}, {}, {{"slope", 1, std::move(slope)}}));
  std::swap(x.axes[axis], x.axes.back());
  r.Set(std::move(x));
  return absl::OkStatus();
}

struct Entry {
  const char* op_type;
  OnnxRead read;
};

const Entry kReads[] = {
    {"Abs", &Same},
    {"Add", &Broadcast},
    {"And", &ReadLogic},
    {"Atan", &Same},
    {"Attention", &ReadAttention},
    {"AveragePool", &ReadPool},
    {"BatchNormalization", &BatchNormalization},
    {"Cast", &ReadCast},
    {"Ceil", &Same},
    {"Celu", &ReadCelu},
    {"Clip", &Clip},
    {"Concat", &ReadConcat},
    {"Constant", &ReadConstant},
    {"ConstantOfShape", &ReadConstantOfShape},
    {"Conv", &ReadConv},
    {"Cos", &Same},
    {"CumSum", &ReadCumSum},
    {"Div", &Broadcast},
    {"Dropout", &Dropout},
    {"Einsum", &ReadEinsum},
    {"Elu", &WithAlpha<100>},
    {"Equal", &ReadCompare},
    {"Erf", &Same},
    {"Erfc", &ReadErfc},
    {"Exp", &Same},
    {"Expand", &ReadExpand},
    {"Expm1", &ReadExpm1},
    {"EyeLike", &ReadEyeLike},
    {"Flatten", &ReadFlatten},
    {"Floor", &Same},
    {"Gather", &ReadGather},
    {"GatherND", &ReadGatherNd},
    {"Gelu", &ReadGelu},
    {"Gemm", &ReadGemm},
    {"GlobalAveragePool", &ReadGlobalPool},
    {"GlobalMaxPool", &ReadGlobalPool},
    {"Greater", &ReadCompare},
    {"GreaterOrEqual", &ReadCompare},
    {"GroupNormalization", &ReadGroupNormalization},
    {"GRU", &ReadGru},
    {"HardSigmoid", &HardSigmoid},
    {"HardSwish", &ReadHardSwish},
    {"Identity", &ReadIdentity},
    {"If", &ReadIf},
    {"InstanceNormalization", &ReadInstanceNormalization},
    {"IsInf", &ReadIsInf},
    {"IsNaN", &ReadIsNan},
    {"LayerNormalization", &ReadLayerNormalization},
    {"LeakyRelu", &WithAlpha<1>},
    {"Less", &ReadCompare},
    {"LessOrEqual", &ReadCompare},
    {"Log", &Same},
    {"Log1p", &ReadLog1p},
    {"LogSoftmax", &ReadSoftmax},
    {"Loop", &ReadLoop},
    {"LSTM", &ReadLstm},
    {"MatMul", &ReadMatMul},
    {"Max", &ReadMaxMin},
    {"MaxPool", &ReadPool},
    {"Min", &ReadMaxMin},
    {"Mish", &ReadMish},
    {"Mod", &ReadIntArithmetic},
    {"Mul", &Broadcast},
    {"Neg", &ReadNeg},
    {"Not", &ReadNot},
    {"OneHot", &ReadOneHot},
    {"Or", &ReadLogic},
    {"Pad", &ReadPad},
    {"Pow", &ReadPow},
    {"PRelu", &PRelu},
    {"Range", &ReadRange},
    {"Reciprocal", &ReadReciprocal},
    {"ReduceL1", &ReadReduceComposed},
    {"ReduceL2", &ReadReduceComposed},
    {"ReduceLogSum", &ReadReduceComposed},
    {"ReduceLogSumExp", &ReadReduceComposed},
    {"ReduceMax", &ReadReduce},
    {"ReduceMean", &ReadReduce},
    {"ReduceMin", &ReadReduceComposed},
    {"ReduceProd", &ReadReduceProd},
    {"ReduceSum", &ReadReduce},
    {"ReduceSumSquare", &ReadReduceComposed},
    {"Relu", &Same},
    {"Reshape", &ReadReshape},
    {"ReverseSequence", &ReadReverseSequence},
    {"RMSNormalization", &ReadRmsNormalization},
    {"RNN", &ReadRnn},
    {"Round", &Same},
    {"Scan", &ReadScan},
    {"Selu", &Selu},
    {"Shape", &ReadShape},
    {"Sigmoid", &Same},
    {"Sign", &ReadSign},
    {"Sin", &Same},
    {"Size", &ReadSize},
    {"Slice", &ReadSlice},
    {"Softmax", &ReadSoftmax},
    {"Softplus", &Same},
    {"Softsign", &ReadSoftsign},
    {"Split", &ReadSplit},
    {"Sqrt", &Same},
    {"Squeeze", &ReadSqueeze},
    {"Sub", &Broadcast},
    {"Sum", &Broadcast},
    {"Swish", &ReadSwish},
    {"Tanh", &Same},
    {"Tile", &ReadTile},
    {"Transpose", &ReadTranspose},
    {"Trilu", &ReadTrilu},
    {"Unsqueeze", &ReadUnsqueeze},
    {"Where", &ReadWhere},
};

}  // namespace

absl::Status SetBroadcast(OnnxNodeReader& r, MakeOfAligned make) {
  TESSERA_ASSIGN_OR_RETURN(OnnxNodeReader::Aligned aligned, r.Align());
  for (size_t i = 0; i < r.inputs(); ++i) {
    if (aligned.tensors[i].index >= 0) continue;
    TESSERA_ASSIGN_OR_RETURN(aligned.tensors[i], r.Materialize(i, aligned));
  }
  OnnxValue value;
  value.axes = aligned.axes;
  value.tensor = make(aligned.tensors);
  r.Set(std::move(value));
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
