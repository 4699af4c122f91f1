#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "worker/dense/op.h"

namespace tessera::worker {

// An op of the table. Its name is ONNX's if ONNX has the op; the alias is the name used in layers.
struct OpEntry {
  const char* name;
  const char* alias;
  OpFactory factory;
  // Whether it may follow a layer's Gemm: it has one input, keeps its shape, and requires no
  // option.
  bool activation = false;
};

// All ops, sorted by name. To add one: worker/dense/README.md.
absl::Span<const OpEntry> AllOps();
// By name or alias; nullptr: no such op.
const OpEntry* FindOp(absl::string_view name);
// The aliases of the activations: what the option `activation` of the zoo's models takes.
std::vector<std::string> ActivationOps();
// The end of a message about an unknown op: the nearest name and the list.
std::string KnownOps(absl::string_view wanted);

// One per file, named after it. Those that differ by a formula share one: the activations
// (common/math/activation), Sub, Mul, Div, Max and Min (binary.cc), the two sums (reduce_sum.cc),
// GRU and AUGRU (gru.cc).
absl::StatusOr<std::unique_ptr<Op>> NewAbs(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewAdd(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewAttention(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewAugru(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewBatchNormalization(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewBias(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewBilinear(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewClip(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewConcat(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewConstant(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewCos(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewDice(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewDiv(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewDotInteraction(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewDropout(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewElu(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewErf(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewExp(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewExpand(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewFfm(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewFieldPairs(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewFlatten(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewFm(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewGather(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewGelu(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewGemm(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewGru(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewHardSigmoid(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewLayerNormalization(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewLeakyRelu(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewLog(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewLstm(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewMatMul(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewMax(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewMin(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewMul(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewParameter(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewPow(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewPRelu(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewReduceMax(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewReduceMean(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewReduceSum(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewRelu(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewReshape(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewRollBatch(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewSelu(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewSequenceMask(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewSigmoid(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewSilu(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewAtan(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewCeil(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewFloor(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewRound(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewSin(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewSlice(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewSoftmax(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewSoftplus(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewSplit(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewSqrt(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewStep(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewStopGradient(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewSub(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewTanh(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewTranspose(absl::Span<const Shape>, OptionReader&);
absl::StatusOr<std::unique_ptr<Op>> NewWhere(absl::Span<const Shape>, OptionReader&);

}  // namespace tessera::worker
