#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/dense/graph.h"
#include "worker/dense/options.h"
#include "worker/onnx/writer.h"

namespace tessera::worker {

// Writes one node of the dense graph into an ONNX file. Borrows everything.
struct Emission {
  const Graph& graph;
  const GraphNode& node;
  OptionReader options;                         // of the node
  std::vector<std::string> in;                  // ONNX names of the node's inputs
  std::vector<std::string> out;                 // names that its outputs must get
  absl::Span<const float> trained, statistics;  // of the whole graph
  OnnxWriter& onnx;

  const Shape& in_shape(size_t i) const { return graph.tensors()[node.inputs[i]].shape; }
  const Shape& out_shape(size_t i) const { return graph.tensors()[node.outputs[i]].shape; }
  // Parameter `name` of the op.
  absl::Span<const float> values(absl::string_view name) const;
  const ParameterSpec* spec(absl::string_view name) const;  // nullptr: the node has none
  std::string ParameterName(absl::string_view name) const;
  // The parameter as an initializer of its own shape; nodes that share it name the same one.
  std::string Weight(absl::string_view name);
  // Intermediate values and constants, with names below the node's.
  std::string Value(const std::string& op, const std::vector<std::string>& inputs,
                    const std::vector<OnnxAttribute>& attributes = {});
  std::string Ints(const std::string& name, absl::Span<const int64_t> values);
  std::string Scalar(const std::string& name, float value);
  // Adds the last node of the emission, which makes the op's one output.
  void Last(const std::string& op, const std::vector<std::string>& inputs,
            const std::vector<OnnxAttribute>& attributes = {});
};

// Writes the op, as it computes in evaluation, as ONNX nodes: one if ONNX has the op, else a
// subgraph of standard ops.
using Emitter = void (*)(Emission& e);

// Finds an emitter by the op's name in AllOps(): EmitSame if ONNX has an op of that name and
// emit.cc knows nothing else of it. nullptr: there is none. Every op must have one (a test checks
// it).
Emitter FindEmitter(absl::string_view op);

// An op without parameters that ONNX has as it is here: of its name, with the options as attributes
// (same_op.cc).
void EmitSame(Emission& e);
// Whether OnnxWriter::kOpset has an op of that name.
bool IsInOnnx(absl::string_view op);

// Ops that ONNX lacks (emit_compositions.cc); the others are in emit.cc.
void EmitBilinear(Emission& e);
void EmitConstant(Emission& e);
void EmitDotInteraction(Emission& e);
void EmitFfm(Emission& e);
void EmitFieldPairs(Emission& e);
void EmitFm(Emission& e);
void EmitGelu(Emission& e);
void EmitParameter(Emission& e);
void EmitRollBatch(Emission& e);
void EmitSilu(Emission& e);
void EmitStep(Emission& e);

// Sequences (emit_sequences.cc).
void EmitAttention(Emission& e);
void EmitAugru(Emission& e);
void EmitRecurrence(Emission& e);  // GRU, LSTM
void EmitSequenceMask(Emission& e);

}  // namespace tessera::worker
