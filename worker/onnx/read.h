#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/dense/graph.h"
#include "worker/dense/options.h"
#include "worker/onnx/onnx_value.h"

namespace tessera::worker {

// Where parameters begin, by GraphParameter::name.
using ParameterStarts = std::map<std::string, std::vector<float>>;

// One node of an ONNX file on its way into the dense graph. Borrows everything.
class OnnxNodeReader {
 public:
  OnnxNodeReader(const onnx::NodeProto& node, int64_t opset,
                 std::map<std::string, OnnxValue>& values, ParameterStarts& starts,
                 GraphBuilder& graph)
      : node_(node), opset_(opset), values_(values), starts_(starts), graph_(graph) {}

  const onnx::NodeProto& node() const { return node_; }
  int64_t opset() const { return opset_; }

  // Inputs.
  size_t inputs() const { return static_cast<size_t>(node_.input_size()); }
  bool Has(size_t i) const { return i < inputs() && !node_.input(static_cast<int>(i)).empty(); }
  // No numbers where the input is missing.
  const OnnxValue& in(size_t i) const;
  // INVALID_ARGUMENT where the input is none of that kind.
  absl::StatusOr<Tensor> TensorIn(size_t i);
  absl::StatusOr<std::vector<int64_t>> IntsIn(size_t i) const;
  // Numbers that one layer trains: UNIMPLEMENTED where another node trains the same initializer.
  absl::StatusOr<std::vector<float>> WeightIn(size_t i);
  const Shape& shape(Tensor tensor) const { return graph_.shape(tensor); }

  // Attributes.
  const onnx::AttributeProto* Attribute(absl::string_view name) const;
  int64_t Int(absl::string_view name, int64_t by_default) const;
  float Float(absl::string_view name, float by_default) const;
  // Axes and the like: an attribute in older opsets, input `i` in newer ones; empty: neither.
  absl::StatusOr<std::vector<int64_t>> IntsOf(absl::string_view name, size_t i) const;
  // An axis with the batch as 0, of a tensor of this shape. INVALID_ARGUMENT: the batch's.
  absl::StatusOr<int64_t> Axis(int64_t axis, const Shape& shape) const;

  // A layer named after the node's output; the first error stays in the graph.
  Tensor Layer(absl::string_view op, const std::vector<Tensor>& inputs,
               google::protobuf::Struct options = {});
  std::vector<Tensor> Layers(absl::string_view op, const std::vector<Tensor>& inputs,
                             google::protobuf::Struct options, size_t outputs);
  // Where parameter `name` of the layer that was added last begins.
  void Start(absl::string_view name, std::vector<float> values);
  // Input i, known numbers, as a tensor of `rank` sample dimensions: a Parameter where it is
  // trained, else a Constant.
  absl::StatusOr<Tensor> Materialize(size_t i, size_t rank);
  // The tensor under another sample shape.
  Tensor Reshaped(Tensor tensor, const Shape& to);

  void Set(OnnxValue value, int output = 0) { values_[node_.output(output)] = std::move(value); }
  const OnnxValue& out() const { return values_.at(node_.output(0)); }  // as set
  void Set(Tensor tensor) { Set(OnnxValue::Of(tensor)); }

 private:
  std::string NewName() const;

  const onnx::NodeProto& node_;
  const int64_t opset_;
  std::map<std::string, OnnxValue>& values_;
  ParameterStarts& starts_;
  GraphBuilder& graph_;
  std::string last_layer_;
};

// Adds the layers that compute the node and sets its outputs. Errors say what is wrong with this
// node; the caller names it.
using OnnxRead = absl::Status (*)(OnnxNodeReader& r);

// By op type; nullptr: cannot be read.
OnnxRead FindOnnxRead(absl::string_view op_type);
std::vector<std::string> ReadableOnnxOps();

// ReduceSum and its like of x, along the node's axes.
absl::Status ReadReduction(OnnxNodeReader& r, absl::string_view op, Tensor x);

// Arithmetic of known whole numbers, as exporters write it about shapes (read_ints.cc).
bool AllInts(const OnnxNodeReader& r);
absl::Status ReadConstantOfShape(OnnxNodeReader& r);
absl::Status ReadIntArithmetic(OnnxNodeReader& r);
absl::Status ReadWhere(OnnxNodeReader& r);

// What is written with several of our ops (read_compositions.cc).
absl::Status ReadCelu(OnnxNodeReader& r);
absl::Status ReadConv(OnnxNodeReader& r);
absl::Status ReadEinsum(OnnxNodeReader& r);  // read_einsum.cc
absl::Status ReadHardSwish(OnnxNodeReader& r);
absl::Status ReadMaxMin(OnnxNodeReader& r);
absl::Status ReadNeg(OnnxNodeReader& r);
absl::Status ReadPow(OnnxNodeReader& r);
absl::Status ReadReciprocal(OnnxNodeReader& r);
absl::Status ReadReduceSquares(OnnxNodeReader& r);
absl::Status ReadSoftsign(OnnxNodeReader& r);

// What only moves numbers or computes shapes (read_shapes.cc); the rest stands in read_ops.cc.
absl::Status ReadCast(OnnxNodeReader& r);
absl::Status ReadConcat(OnnxNodeReader& r);
absl::Status ReadConstant(OnnxNodeReader& r);
absl::Status ReadExpand(OnnxNodeReader& r);
absl::Status ReadFlatten(OnnxNodeReader& r);
absl::Status ReadGather(OnnxNodeReader& r);
absl::Status ReadIdentity(OnnxNodeReader& r);
absl::Status ReadReshape(OnnxNodeReader& r);
absl::Status ReadShape(OnnxNodeReader& r);
absl::Status ReadSlice(OnnxNodeReader& r);
absl::Status ReadSplit(OnnxNodeReader& r);
absl::Status ReadSqueeze(OnnxNodeReader& r);
absl::Status ReadTranspose(OnnxNodeReader& r);
absl::Status ReadUnsqueeze(OnnxNodeReader& r);

}  // namespace tessera::worker
