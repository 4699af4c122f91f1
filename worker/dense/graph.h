#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/dense/op.h"

namespace tessera::worker {

// A tensor of the graph under construction; a value that only its builder understands.
struct Tensor {
  int32_t index = -1;
};

struct GraphTensor {
  std::string name;
  Shape shape;
  int32_t producer = -1;  // node; -1: an input of the graph
  // Whether it is computed from rows or parameters, running statistics among them, by ops that pass
  // a gradient to them.
  bool needs_gradient = false;
};

struct GraphParameter {
  std::string name;  // "node/weight"
  ParameterSpec spec;
  uint64_t floats = 0;
  uint64_t offset = 0;  // in the flat trained (statistics) array
};

// Initial values of parameters, by GraphParameter::name.
using ParameterStarts = std::map<std::string, std::vector<float>>;

struct GraphNode {
  std::string name;
  std::string op_name;
  std::unique_ptr<const Op> op;
  google::protobuf::Struct options;  // those that `op` was made with
  std::vector<int32_t> inputs;       // tensors
  std::vector<int32_t> outputs;      // tensors
  std::vector<int32_t> parameters;
  std::string parameters_of;   // the earlier node that owns `parameters`; empty: this node
  bool training_only = false;  // only losses of the graph need it, no output
};

// A tensor [batch, 1] that holds a loss of each sample. Training adds `weight` times the tensor to
// the losses of the tasks; evaluation and prediction ignore it.
struct GraphLoss {
  int32_t tensor = -1;
  float weight = 1;
};

// A checked graph of named ops, in an order in which every node follows its inputs. Immutable and
// thread-safe; made by GraphBuilder.
class Graph {
 public:
  const std::vector<GraphTensor>& tensors() const { return tensors_; }
  const std::vector<GraphNode>& nodes() const { return nodes_; }
  const std::vector<GraphParameter>& parameters() const { return parameters_; }
  // Tensors, in the order of GraphBuilder::Input.
  const std::vector<int32_t>& inputs() const { return inputs_; }
  // One for each task, in their order: [batch, 1], or of a loss of classes [batch, classes].
  const std::vector<int32_t>& outputs() const { return outputs_; }
  // The first of them.
  int32_t output() const { return outputs_[0]; }
  const std::vector<GraphLoss>& losses() const { return losses_; }
  // The tensors that a training pass computes: the outputs and those of the losses.
  const std::vector<int32_t>& ends() const { return ends_; }
  uint64_t trained_floats() const { return trained_floats_; }
  uint64_t statistics_floats() const { return statistics_floats_; }
  // Whether a node reads the tensor, or it is an output or a loss.
  bool IsUsed(int32_t tensor) const;
  // Whether an output depends on it.
  bool IsUsedByOutputs(int32_t tensor) const;

  // What Summary says of a node.
  struct Layer {
    std::string name;
    std::string op;
    std::vector<std::string> inputs;
    std::vector<std::string> outputs;
    std::vector<Shape> shapes;       // of the outputs
    uint64_t trained_floats = 0;     // of its own parameters
    std::string parameters_of = {};  // the node whose parameters it uses; empty: none
  };
  // The inputs that are used, as nodes of the op "Input", and then all nodes.
  std::vector<Layer> Layers() const;
  // A table to read: node, op, output shape, parameters; totals at the end.
  std::string Summary() const;

 private:
  friend class GraphBuilder;
  std::vector<GraphTensor> tensors_;
  std::vector<GraphNode> nodes_;
  std::vector<GraphParameter> parameters_;
  std::vector<int32_t> inputs_;
  std::vector<int32_t> outputs_;
  std::vector<GraphLoss> losses_;
  std::vector<int32_t> ends_;
  uint64_t trained_floats_ = 0;
  uint64_t statistics_floats_ = 0;
};

// Builds a Graph. The first error is kept and makes all later calls do nothing, so that a model is
// written without checks; Build reports it. Not thread-safe.
class GraphBuilder {
 public:
  // An input [batch, shape]. `needs_gradient`: a pass computes its gradient, for the caller to
  // read.
  Tensor Input(const std::string& name, const Shape& shape, bool needs_gradient);
  // A node with one output, which has the node's name.
  Tensor Add(const std::string& name, absl::string_view op, const std::vector<Tensor>& inputs,
             const google::protobuf::Struct& options = {}, const std::string& parameters_of = "");
  // A node with these outputs. It has its own parameters, or shares those of the earlier node
  // `parameters_of`, whose names and shapes must be the same.
  std::vector<Tensor> AddNamed(const std::string& name, absl::string_view op,
                               const std::vector<Tensor>& inputs,
                               const google::protobuf::Struct& options,
                               const std::vector<std::string>& outputs,
                               const std::string& parameters_of = "");
  // Adds the tensor, [batch, 1], to the loss (GraphLoss); a weight above 0.
  void AddLoss(Tensor tensor, float weight);
  // The tensor of that name, or index -1.
  Tensor Find(absl::string_view name) const;
  const Shape& shape(Tensor tensor) const;
  std::vector<std::string> TensorNames() const;

  // From here on nodes that no output needs are left out, instead of being an error.
  void LeaveOutUnread() { leaves_out_unread_ = true; }

  // Makes `status` the builder's error unless it has one.
  void Fail(absl::Status status);
  // Replaces the builder's error by `status`, to add context.
  void Replace(absl::Status status) { status_ = std::move(status); }
  const absl::Status& status() const { return status_; }

  // What a loss reads.
  struct Output {
    Tensor tensor;
    bool classes = false;             // [batch, 2 or more], else [batch, 1]
    std::string owner = "the model";  // whose output it is, for messages
    uint32_t count = 0;               // of classes; 0: 2 or more
  };
  // The graph with these outputs, one or more; the builder is spent. INVALID_ARGUMENT: the first
  // error; an output or a loss of another shape, or the same as an earlier one; a node that nothing
  // reads.
  absl::StatusOr<std::unique_ptr<const Graph>> Build(std::vector<Output> outputs);
  // One output, [batch, 1].
  absl::StatusOr<std::unique_ptr<const Graph>> Build(Tensor output) {
    return Build({{output, false, "the model"}});
  }

 private:
  int32_t NewTensor(const std::string& name, const Shape& shape, int32_t producer,
                    bool needs_gradient);
  absl::Status TryAdd(const std::string& name, absl::string_view op,
                      const std::vector<Tensor>& inputs, const google::protobuf::Struct& options,
                      const std::vector<std::string>& outputs, const std::string& parameters_of);
  // The steps of TryAdd. Errors do not name the node.
  absl::Status CheckNames(const std::vector<std::string>& outputs) const;
  void AddTensors(const std::vector<std::string>& outputs, GraphNode& node);
  void AddParameters(GraphNode& node);  // of its own
  // Gives `node` the parameters of node `of`. Errors do not name `node`.
  absl::Status ShareParameters(const std::string& of, GraphNode& node) const;
  absl::Status CheckOutput(const Output& output) const;
  void MarkTrainingOnly();
  // Drops tensors and nodes that no output needs, and parameters that only those nodes have; the
  // indices of the others move up.
  void DropUnread(std::vector<Output>& outputs);
  // The tensor that `tensor` is a view of, or `tensor` itself.
  int32_t Viewed(int32_t tensor) const;

  std::unique_ptr<Graph> graph_ = std::make_unique<Graph>();
  absl::flat_hash_map<std::string, int32_t> by_name_;
  absl::Status status_;
  bool leaves_out_unread_ = false;
};

}  // namespace tessera::worker
