#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/dense/op.h"

namespace tessera::worker {

// Of an op that may follow a layer's Gemm: it has one input, keeps its shape, and requires no
// option.
constexpr bool kActivation = true;

// An op of the table. Its name is ONNX's if ONNX has the op; the alias is the name used in layers.
struct OpEntry {
  const char* name;
  const char* alias;
  OpFactory factory;
  bool activation = false;
  // Whether it is a function of one input, element by element, that keeps nothing: one of
  // common/math/activation.
  bool elementwise = false;
};

// All ops, sorted by name: what the functions OpsOf... of this folder's files give, such as
// OpsOfSoftmax of softmax.cc (ops.cc). To add one: worker/dense/README.md.
absl::Span<const OpEntry> AllOps();
// By name or alias; nullptr: no such op.
const OpEntry* FindOp(absl::string_view name);
// The aliases of the activations: what the option `activation` of the zoo's models takes.
std::vector<std::string> ActivationOps();
// The end of a message about an unknown op: the nearest name and the list.
std::string KnownOps(absl::string_view wanted);

}  // namespace tessera::worker
