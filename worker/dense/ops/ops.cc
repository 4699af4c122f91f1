#include "worker/dense/ops/ops.h"

#include <vector>

namespace tessera::worker {
namespace {

constexpr bool kActivation = true;

const OpEntry kOps[] = {
    {"Abs", "abs", &NewAbs},
    {"Add", "add", &NewAdd},
    {"Atan", "atan", &NewAtan},
    {"Attention", "attention", &NewAttention},
    {"AUGRU", "augru", &NewAugru},
    {"BatchNormalization", "batch_norm", &NewBatchNormalization},
    {"Bias", "bias", &NewBias},
    {"Bilinear", "bilinear", &NewBilinear},
    {"Ceil", "ceil", &NewCeil},
    {"Clip", "clip", &NewClip},
    {"Concat", "concat", &NewConcat},
    {"Constant", "constant", &NewConstant},
    {"Cos", "cos", &NewCos},
    {"Dice", "dice", &NewDice, kActivation},
    {"Div", "divide", &NewDiv},
    {"DotInteraction", "dot_interaction", &NewDotInteraction},
    {"Dropout", "dropout", &NewDropout},
    {"Elu", "elu", &NewElu, kActivation},
    {"Erf", "erf", &NewErf},
    {"Exp", "exp", &NewExp},
    {"Expand", "expand", &NewExpand},
    {"FFM", "ffm", &NewFfm},
    {"FieldPairs", "field_pairs", &NewFieldPairs},
    {"Flatten", "flatten", &NewFlatten},
    {"Floor", "floor", &NewFloor},
    {"FM", "fm", &NewFm},
    {"Gather", "gather", &NewGather},
    {"Gelu", "gelu", &NewGelu, kActivation},
    {"Gemm", "linear", &NewGemm},
    {"GRU", "gru", &NewGru},
    {"HardSigmoid", "hard_sigmoid", &NewHardSigmoid, kActivation},
    {"LayerNormalization", "layer_norm", &NewLayerNormalization},
    {"LeakyRelu", "leaky_relu", &NewLeakyRelu, kActivation},
    {"Log", "log", &NewLog},
    {"LSTM", "lstm", &NewLstm},
    {"MatMul", "matmul", &NewMatMul},
    {"Max", "maximum", &NewMax},
    {"Min", "minimum", &NewMin},
    {"Mul", "multiply", &NewMul},
    {"Parameter", "parameter", &NewParameter},
    {"Pow", "power", &NewPow},
    {"PRelu", "prelu", &NewPRelu, kActivation},
    {"ReduceMax", "reduce_max", &NewReduceMax},
    {"ReduceMean", "reduce_mean", &NewReduceMean},
    {"ReduceSum", "reduce_sum", &NewReduceSum},
    {"Relu", "relu", &NewRelu, kActivation},
    {"Reshape", "reshape", &NewReshape},
    {"RollBatch", "roll_batch", &NewRollBatch},
    {"Round", "round", &NewRound},
    {"Selu", "selu", &NewSelu, kActivation},
    {"SequenceMask", "sequence_mask", &NewSequenceMask},
    {"Sigmoid", "sigmoid", &NewSigmoid, kActivation},
    {"Silu", "silu", &NewSilu, kActivation},
    {"Sin", "sin", &NewSin},
    {"Slice", "slice", &NewSlice},
    {"Softmax", "softmax", &NewSoftmax},
    {"Softplus", "softplus", &NewSoftplus, kActivation},
    {"Split", "split", &NewSplit},
    {"Sqrt", "sqrt", &NewSqrt},
    {"Step", "step", &NewStep},
    {"StopGradient", "stop_gradient", &NewStopGradient},
    {"Sub", "subtract", &NewSub},
    {"Tanh", "tanh", &NewTanh, kActivation},
    {"Transpose", "transpose", &NewTranspose},
    {"Where", "where", &NewWhere},
};

}  // namespace

absl::Span<const OpEntry> AllOps() { return kOps; }

const OpEntry* FindOp(absl::string_view name) {
  for (const OpEntry& entry : kOps) {
    if (name == entry.name || name == entry.alias) return &entry;
  }
  return nullptr;
}

std::vector<std::string> ActivationOps() {
  std::vector<std::string> names;
  for (const OpEntry& entry : kOps) {
    if (entry.activation) names.push_back(entry.alias);
  }
  return names;
}

std::string KnownOps(absl::string_view wanted) {
  std::vector<std::string> names;
  for (const OpEntry& entry : kOps) names.push_back(entry.alias);
  return KnownNames(wanted, names);
}

}  // namespace tessera::worker
