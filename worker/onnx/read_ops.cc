#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

using Kind = OnnxValue::Kind;

// Ops of one input, element by element.
absl::Status Elementwise(OnnxNodeReader& r, absl::string_view op,
                         google::protobuf::Struct options = {}) {
  return SetElementwise(r, [&](Tensor x) { return r.Layer(op, {x}, std::move(options)); });
}

// Bounds are attributes before opset 11, and may be parameters.
absl::Status Clip(OnnxNodeReader& r) {
  google::protobuf::Struct options;
  OnnxValue known = r.in(0);
  std::vector<size_t> trained;
  for (const auto& [name, i] : {std::pair<std::string, size_t>{"min", 1}, {"max", 2}}) {
    double bound = 0;
    if (r.Has(i)) {
      const OnnxValue& given = r.in(i);
      const bool of_batch = given.ints.size() == 1 && IsBatch(given.ints[0]);
      if (given.floats.size() + given.ints.size() != 1 || of_batch) {
        return absl::UnimplementedError(absl::StrCat(name, " is no constant number"));
      }
      if (given.trained) {
        trained.push_back(i);
        continue;
      }
      bound = given.ints.empty() ? static_cast<double>(given.floats[0])
                                 : static_cast<double>(given.ints[0]);
    } else if (r.Attribute(name) != nullptr) {
      bound = static_cast<double>(r.Float(name, 0));
    } else {
      continue;
    }
    (*options.mutable_fields())[name].set_number_value(bound);
    for (float& number : known.floats) {
      const auto limit = static_cast<float>(bound);
      number = i == 1 ? std::max(number, limit) : std::min(number, limit);
    }
  }
  if (known.kind == Kind::kFloats && !known.trained) {
    known.source.clear();
    r.Set(std::move(known));
    return absl::OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  if (trained.empty() || !options.fields().empty()) {
    x.tensor = r.Layer("Clip", {x.tensor}, std::move(options));
  }
  for (const size_t i : trained) {
    TESSERA_ASSIGN_OR_RETURN(const Tensor bound, r.OfLast(i, r.shape(x.tensor)));
    x.tensor = r.Layer(i == 1 ? "Max" : "Min", {x.tensor, bound});
  }
  r.Set(std::move(x));
  return absl::OkStatus();
}

absl::Status Dropout(OnnxNodeReader& r) {
  double ratio = static_cast<double>(r.Float("ratio", 0.5f));
  if (r.Has(1) && r.in(1).kind == Kind::kFloats && r.in(1).floats.size() == 1) {
    ratio = static_cast<double>(r.in(1).floats[0]);
  }
  return Elementwise(r, "Dropout", Options().Set("ratio", ratio));
}

// The input that is a trained vector along the last axis, which Bias adds without repeating it for
// every sample; 2: neither.
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

// Ops of two or more operands, element by element.
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
  const bool affine = !r.HasNone(1, 1) || !r.HasNone(2, 0);
  for (size_t i = affine ? 0 : 2; i < 4; ++i) {
    TESSERA_ASSIGN_OR_RETURN(std::vector<float> start, r.FloatsIn(i + 1));
    if (static_cast<int64_t>(start.size()) != features) {
      return absl::InvalidArgumentError(
          absl::StrCat("input ", i + 1, " has ", start.size(), " numbers, expected ", features));
    }
    weights.push_back({names[i], i + 1, std::move(start)});
  }
  // Features are axis 1 in ONNX, the last axis in the dense graph.
  std::swap(x.axes[axis], x.axes.back());
  r.LastAxis(x, x.axes.size() - 1);
  const float momentum = 1 - r.Float("momentum", 0.9f);
  TESSERA_ASSIGN_OR_RETURN(
      x.tensor, r.TrainedLayer("BatchNormalization", {x.tensor},
                               Options()
                                   .Set("epsilon", static_cast<double>(r.Float("epsilon", 1e-5f)))
                                   .Set("momentum", static_cast<double>(momentum))
                                   .Set("affine", affine),
                               std::move(weights)));
  std::swap(x.axes[axis], x.axes.back());
  r.Set(std::move(x));
  return absl::OkStatus();
}

absl::Status PRelu(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  TESSERA_ASSIGN_OR_RETURN(std::vector<float> slope, r.FloatsIn(1));
  if (slope.size() == 1) {  // max(x, 0) + s (x - max(x, 0))
    TESSERA_ASSIGN_OR_RETURN(const Tensor s, r.OfLast(1, r.shape(x.tensor)));
    const Tensor above = r.Layer("Relu", {x.tensor});
    const Tensor below = r.Layer("Sub", {x.tensor, above});
    x.tensor = r.Layer("Add", {above, r.Layer("Mul", {below, s})});
    r.Set(std::move(x));
    return absl::OkStatus();
  }
  // The slopes belong to one axis.
  const std::vector<int64_t>& dims = r.in(1).dims;
  size_t axis = x.axes.size() - 1;
  for (size_t i = 0; i < dims.size() && dims.size() <= x.axes.size(); ++i) {
    if (dims[i] > 1) axis = x.axes.size() - dims.size() + i;
  }
  TESSERA_RETURN_IF_ERROR(r.SampleAxis(static_cast<int64_t>(axis), x).status());
  const auto width = static_cast<size_t>(r.DimsOf(x)[axis]);
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

// Besides SameOnnxOps.
const OnnxOp kReads[] = {
    {"Add", 2, &Broadcast},
    {"And", 2, &ReadLogic},
    {"ArgMax", 1, &ReadArgMax},
    {"ArgMin", 1, &ReadArgMax},
    {"Attention", 3, &ReadAttention},
    {"AveragePool", 1, &ReadPool},
    {"BatchNormalization", 5, &BatchNormalization},
    {"Cast", 1, &ReadCast},
    {"CastLike", 2, &ReadCastLike},
    {"Celu", 1, &ReadCelu},
    {"Clip", 1, &Clip},
    {"Concat", 1, &ReadConcat},
    {"Constant", 0, &ReadConstant},
    {"ConstantOfShape", 1, &ReadConstantOfShape},
    {"Conv", 2, &ReadConv},
    {"CumSum", 2, &ReadCumSum},
    {"Div", 2, &ReadDiv},
    {"Dropout", 1, &Dropout},
    {"Einsum", 1, &ReadEinsum},
    {"Equal", 2, &ReadCompare},
    {"Erfc", 1, &ReadErfc},
    {"Expand", 2, &ReadExpand},
    {"Expm1", 1, &ReadExpm1},
    {"EyeLike", 1, &ReadEyeLike},
    {"Flatten", 1, &ReadFlatten},
    {"Gather", 2, &ReadGather},
    {"GatherElements", 2, &ReadGatherElements},
    {"GatherND", 2, &ReadGatherNd},
    {"Gelu", 1, &ReadGelu},
    {"Gemm", 2, &ReadGemm},
    {"GlobalAveragePool", 1, &ReadGlobalPool},
    {"GlobalMaxPool", 1, &ReadGlobalPool},
    {"Greater", 2, &ReadCompare},
    {"GreaterOrEqual", 2, &ReadCompare},
    {"GroupNormalization", 3, &ReadGroupNormalization},
    {"GRU", 3, &ReadGru},
    {"HardSwish", 1, &ReadHardSwish},
    {"Identity", 1, &ReadIdentity},
    {"If", 1, &ReadIf},
    {"InstanceNormalization", 3, &ReadInstanceNormalization},
    {"IsInf", 1, &ReadIsInf},
    {"IsNaN", 1, &ReadIsNan},
    {"LayerNormalization", 2, &ReadLayerNormalization},
    {"Less", 2, &ReadCompare},
    {"LessOrEqual", 2, &ReadCompare},
    {"Log1p", 1, &ReadLog1p},
    {"LogSoftmax", 1, &ReadSoftmax},
    {"Loop", 0, &ReadLoop},
    {"LpNormalization", 1, &ReadLpNormalization},
    {"LSTM", 3, &ReadLstm},
    {"MatMul", 2, &ReadMatMul},
    {"Max", 1, &ReadMaxMin},
    {"MaxPool", 1, &ReadPool},
    {"Mean", 1, &ReadMean},
    {"Min", 1, &ReadMaxMin},
    {"Mish", 1, &ReadMish},
    {"Mod", 2, &ReadMod},
    {"Mul", 2, &Broadcast},
    {"Neg", 1, &ReadNeg},
    {"NonZero", 1, &ReadNonZero},
    {"Not", 1, &ReadNot},
    {"OneHot", 3, &ReadOneHot},
    {"Or", 2, &ReadLogic},
    {"Pad", 1, &ReadPad},
    {"Pow", 2, &ReadPow},
    {"PRelu", 2, &PRelu},
    {"Range", 3, &ReadRange},
    {"Reciprocal", 1, &ReadReciprocal},
    {"ReduceL1", 1, &ReadReduceComposed},
    {"ReduceL2", 1, &ReadReduceComposed},
    {"ReduceLogSum", 1, &ReadReduceComposed},
    {"ReduceLogSumExp", 1, &ReadReduceComposed},
    {"ReduceMax", 1, &ReadReduce},
    {"ReduceMean", 1, &ReadReduce},
    {"ReduceMin", 1, &ReadReduceComposed},
    {"ReduceProd", 1, &ReadReduceProd},
    {"ReduceSum", 1, &ReadReduce},
    {"ReduceSumSquare", 1, &ReadReduceComposed},
    {"Reshape", 1, &ReadReshape},
    {"ReverseSequence", 2, &ReadReverseSequence},
    {"RMSNormalization", 2, &ReadRmsNormalization},
    {"RNN", 3, &ReadRnn},
    {"Scan", 1, &ReadScan},
    {"ScatterElements", 3, &ReadScatterElements},
    {"ScatterND", 3, &ReadScatterNd},
    {"Shape", 1, &ReadShape},
    {"Sign", 1, &ReadSign},
    {"Sinh", 1, &ReadSinh},
    {"Size", 1, &ReadSize},
    {"Slice", 1, &ReadSlice},
    {"Softmax", 1, &ReadSoftmax},
    {"Softsign", 1, &ReadSoftsign},
    {"Split", 1, &ReadSplit},
    {"Squeeze", 1, &ReadSqueeze},
    {"Sub", 2, &Broadcast},
    {"Sum", 1, &Broadcast},
    {"Swish", 1, &ReadSwish},
    {"ThresholdedRelu", 1, &ReadThresholdedRelu},
    {"Tile", 2, &ReadTile},
    {"TopK", 1, &ReadTopK},
    {"Transpose", 1, &ReadTranspose},
    {"Trilu", 1, &ReadTrilu},
    {"Unsqueeze", 1, &ReadUnsqueeze},
    {"Where", 3, &ReadWhere},
    {"Xor", 2, &ReadLogic},
};

// Sorted by name; what stands above comes before what is the same.
const std::vector<OnnxOp>& Readable() {
  static const auto* const ops = [] {
    auto* all = new std::vector<OnnxOp>(std::begin(kReads), std::end(kReads));
    for (const OnnxOp& same : SameOnnxOps()) {
      const auto is_same = [&](const OnnxOp& op) {
        return absl::string_view(op.type) == same.type;
      };
      if (std::none_of(std::begin(kReads), std::end(kReads), is_same)) all->push_back(same);
    }
    std::sort(all->begin(), all->end(), [](const OnnxOp& a, const OnnxOp& b) {
      return absl::AsciiStrToLower(a.type) < absl::AsciiStrToLower(b.type);
    });
    return all;
  }();
  return *ops;
}

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

const OnnxOp* FindOnnxOp(absl::string_view op_type) {
  for (const OnnxOp& op : Readable()) {
    if (op_type == op.type) return &op;
  }
  return nullptr;
}

std::vector<std::string> ReadableOnnxOps() {
  std::vector<std::string> names;
  for (const OnnxOp& op : Readable()) names.push_back(op.type);
  return names;
}

}  // namespace tessera::worker
