#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "worker/onnx/onnx_proto.h"

namespace tessera::worker {

// An attribute of an ONNX node.
class OnnxAttribute {
 public:
  OnnxAttribute(const std::string& name, int64_t value);
  OnnxAttribute(const std::string& name, float value);
  OnnxAttribute(const std::string& name, absl::Span<const int64_t> values);
  const onnx::AttributeProto& proto() const { return proto_; }

 private:
  onnx::AttributeProto proto_;
};

// Writes a graph of ONNX nodes, one after another. Operators are those of opset 17 and of
// ai.onnx.ml 3, which onnxruntime reads from 1.12 on. Not thread-safe.
class OnnxWriter {
 public:
  static constexpr int64_t kOpset = 17;
  static constexpr int64_t kMlOpset = 3;

  // Reserves and returns `name`, or if it is taken `name` with a number.
  std::string Unique(const std::string& name);

  // An input or an output [batch, dims] of the graph; a dimension of `axis` -1 has any size.
  void Input(const std::string& name, onnx::TensorProto::DataType type,
             absl::Span<const int64_t> dims);
  void Output(const std::string& name, absl::Span<const int64_t> dims);

  // Add constants and return their new names, which are like `name`. If the same floats exist under
  // `name` already, Floats returns that name.
  std::string Floats(const std::string& name, absl::Span<const int64_t> dims,
                     absl::Span<const float> values);
  std::string Ints(const std::string& name, absl::Span<const int64_t> values);  // [n]
  // Adds numbers that are no parameters: as a node, where the others are initializers.
  std::string Constant(const std::string& name, absl::Span<const int64_t> dims,
                       absl::Span<const float> values);
  std::string Scalar(const std::string& name, float value) {
    return Constant(name, {}, {&value, 1});
  }

  // A node whose outputs have these names.
  void Node(const std::string& op, const std::vector<std::string>& inputs,
            const std::vector<std::string>& outputs,
            const std::vector<OnnxAttribute>& attributes = {});
  // A node whose one output has a new name like `name`, which is returned.
  std::string Value(const std::string& name, const std::string& op,
                    const std::vector<std::string>& inputs,
                    const std::vector<OnnxAttribute>& attributes = {});
  // LabelEncoder of ai.onnx.ml: keys[i] becomes values[i], every other key `otherwise`.
  std::string Encode(const std::string& name, const std::string& input,
                     absl::Span<const int64_t> keys, absl::Span<const int64_t> values,
                     int64_t otherwise);
  // [1]: the size of the run's batch. There must be an input.
  std::string Batch();

  // The model written so far; the writer is spent.
  onnx::ModelProto Finish(const std::string& graph_name);

 private:
  onnx::GraphProto graph_;
  absl::flat_hash_set<std::string> taken_;
  std::string batch_;
};

}  // namespace tessera::worker
