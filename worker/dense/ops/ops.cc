#include "worker/dense/ops/ops.h"

#include <vector>

namespace tessera::worker {
namespace {

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
    {"Dice", "dice", &NewDice},
    {"Div", "divide", &NewDiv},
    {"DotInteraction", "dot_interaction", &NewDotInteraction},
    {"Dropout", "dropout", &NewDropout},
    {"Elu", "elu", &NewElu},
    {"Erf", "erf", &NewErf},
    {"Exp", "exp", &NewExp},
    {"Expand", "expand", &NewExpand},
    {"FFM", "ffm", &NewFfm},
    {"FieldPairs", "field_pairs", &NewFieldPairs},
    {"Flatten", "flatten", &NewFlatten},
    {"Floor", "floor", &NewFloor},
    {"FM", "fm", &NewFm},
    {"Gather", "gather", &NewGather},
    {"Gelu", "gelu", &NewGelu},
    {"Gemm", "linear", &NewGemm},
    {"GRU", "gru", &NewGru},
    {"HardSigmoid", "hard_sigmoid", &NewHardSigmoid},
    {"LayerNormalization", "layer_norm", &NewLayerNormalization},
    {"LeakyRelu", "leaky_relu", &NewLeakyRelu},
    {"Log", "log", &NewLog},
    {"LSTM", "lstm", &NewLstm},
    {"MatMul", "matmul", &NewMatMul},
    {"Max", "maximum", &NewMax},
    {"Min", "minimum", &NewMin},
    {"Mul", "multiply", &NewMul},
    {"Parameter", "parameter", &NewParameter},
    {"Pow", "power", &NewPow},
    {"PRelu", "prelu", &NewPRelu},
    {"ReduceMax", "reduce_max", &NewReduceMax},
    {"ReduceMean", "reduce_mean", &NewReduceMean},
    {"ReduceSum", "reduce_sum", &NewReduceSum},
    {"Relu", "relu", &NewRelu},
    {"Reshape", "reshape", &NewReshape},
    {"RollBatch", "roll_batch", &NewRollBatch},
    {"Round", "round", &NewRound},
    {"Selu", "selu", &NewSelu},
    {"SequenceMask", "sequence_mask", &NewSequenceMask},
    {"Sigmoid", "sigmoid", &NewSigmoid},
    {"Silu", "silu", &NewSilu},
    {"Sin", "sin", &NewSin},
    {"Slice", "slice", &NewSlice},
    {"Softmax", "softmax", &NewSoftmax},
    {"Softplus", "softplus", &NewSoftplus},
    {"Split", "split", &NewSplit},
    {"Sqrt", "sqrt", &NewSqrt},
    {"Step", "step", &NewStep},
    {"StopGradient", "stop_gradient", &NewStopGradient},
    {"Sub", "subtract", &NewSub},
    {"Tanh", "tanh", &NewTanh},
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

std::string KnownOps(absl::string_view wanted) {
  std::vector<std::string> names;
  for (const OpEntry& entry : kOps) names.push_back(entry.alias);
  return KnownNames(wanted, names);
}

}  // namespace tessera::worker
