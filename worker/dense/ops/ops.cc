#include "worker/dense/ops/ops.h"

#include <vector>

namespace tessera::worker {
namespace {

const OpEntry kOps[] = {
    {"Add", "add", &NewAdd},
    {"BatchNormalization", "batch_norm", &NewBatchNormalization},
    {"Bias", "bias", &NewBias},
    {"Concat", "concat", &NewConcat},
    {"Dropout", "dropout", &NewDropout},
    {"Elu", "elu", &NewElu},
    {"Flatten", "flatten", &NewFlatten},
    {"FM", "fm", &NewFm},
    {"Gelu", "gelu", &NewGelu},
    {"Gemm", "linear", &NewGemm},
    {"LeakyRelu", "leaky_relu", &NewLeakyRelu},
    {"Mul", "multiply", &NewMul},
    {"ReduceSum", "reduce_sum", &NewReduceSum},
    {"Relu", "relu", &NewRelu},
    {"Reshape", "reshape", &NewReshape},
    {"Sigmoid", "sigmoid", &NewSigmoid},
    {"Silu", "silu", &NewSilu},
    {"Slice", "slice", &NewSlice},
    {"Softplus", "softplus", &NewSoftplus},
    {"Tanh", "tanh", &NewTanh},
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
