#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "worker/dense/graph.h"
#include "worker/dense/options.h"
#include "worker/onnx/onnx_value.h"

namespace tessera::worker {

// The state of reading a file into the dense graph.
struct OnnxNetwork {
  int64_t opset = 1;
  std::string producer = {};  // of the file
  int64_t example_batch = 0;  // see example_batch.h
  GraphBuilder& graph;
  ParameterStarts& starts;
  std::map<std::string, OnnxValue> values = {};  // by name
  // Owners of weights that equivalent layers share, such as those of other rounds of a loop.
  std::map<std::string, std::string> owners = {};
};

// The graph that a node stands in.
struct OnnxScope {
  std::set<std::string> wanted;  // names that its nodes read, and its outputs
  // For a graph within a node: the prefix of its names, and the prefix that is the same in all
  // rounds of a loop.
  std::string prefix = {};
  std::string alike = {};
};

// One node of an ONNX file. Borrows everything.
class OnnxNodeReader {
 public:
  OnnxNodeReader(const onnx::NodeProto& node, const OnnxScope& scope, OnnxNetwork& network)
      : node_(node), scope_(scope), network_(network) {}

  const onnx::NodeProto& node() const { return node_; }
  int64_t opset() const { return network_.opset; }
  int64_t example_batch() const { return network_.example_batch; }
  // The name of the node's first output that has a name.
  const std::string& name() const;

  // Inputs.
  size_t inputs() const { return static_cast<size_t>(node_.input_size()); }
  bool Has(size_t i) const { return i < inputs() && !node_.input(static_cast<int>(i)).empty(); }
  // INVALID_ARGUMENT: one of the first `least` inputs is missing, or an input's name has no value.
  absl::Status CheckInputs(size_t least) const;
  // UNIMPLEMENTED: an output that is read has not been set, such as the mask of a Dropout.
  absl::Status CheckOutputs() const;
  // Input i; no numbers if it is missing.
  const OnnxValue& in(size_t i) const;
  bool IsTensor(size_t i) const { return Has(i) && in(i).kind == OnnxValue::Kind::kTensor; }
  // Whether one of these inputs is of whole numbers or truth values.
  bool IsWholeOf(const std::set<size_t>& of) const;
  // Whether a normalisation has no scale, input i (`number` 1), or no shift (0): the input is
  // missing or StandsForNone.
  bool HasNone(size_t i, float number) const;
  // Input i as that kind; INVALID_ARGUMENT or UNIMPLEMENTED if it is another. A constant that is
  // repeated for the batch becomes a tensor.
  absl::StatusOr<OnnxValue> TensorIn(size_t i);
  absl::StatusOr<std::vector<int64_t>> IntsIn(size_t i) const;
  absl::StatusOr<std::vector<float>> FloatsIn(size_t i) const;
  // The tensor's shape. If its layer could not be made (the graph keeps the error), axes of size 1.
  const Shape& shape(Tensor tensor) const;

  // Turns input i, trained and without the batch, into a tensor without the batch. UNIMPLEMENTED:
  // it has more than kMostUnbatched numbers, which every sample would compute anew, or is already
  // trained as something else.
  static constexpr size_t kMostUnbatched = 1 << 14;
  absl::Status TakeUnbatched(size_t i);
  // Gives input i, which has no batch and meets it along this axis, the batch there, where that
  // axis is the batch of the exporter's example (example_batch.cc): it has its size, and the same
  // numbers at each place. Else nothing.
  void TakeExample(size_t i, size_t axis);

  // Attributes.
  const onnx::AttributeProto* Attribute(absl::string_view name) const;
  int64_t Int(absl::string_view name, int64_t by_default) const;
  float Float(absl::string_view name, float by_default) const;
  // Numbers such as axes, which are attribute `name` in older opsets and input `i` in newer ones;
  // empty: neither.
  absl::StatusOr<std::vector<int64_t>> IntsOf(absl::string_view name, size_t i) const;

  // Forms of a tensor (read_layout.cc, read_align.cc). These may add layers and change a value's
  // form, but not its meaning.
  //
  // The value's sizes in ONNX's axes; the batch's is BatchTimes.
  std::vector<int64_t> DimsOf(const OnnxValue& value) const;
  int64_t SizeOf(const OnnxValue& value, const OnnxValue::Axes& axes) const;
  // The index of an axis of ONNX, counted from the end if negative. INVALID_ARGUMENT: it does not
  // exist; UNIMPLEMENTED: it is the batch's.
  absl::StatusOr<size_t> SampleAxis(int64_t axis, const OnnxValue& value) const;
  // The tensor with each of `parts`, which are axes without the batch, merged into one axis, in
  // this order after the batch.
  Tensor Arranged(const OnnxValue& value, const std::vector<OnnxValue::Axes>& parts);
  // The tensor with all axes merged into one after the batch.
  Tensor Flat(const OnnxValue& value);
  // Makes an axis of ONNX, not the batch's, one axis of the tensor; returns that axis.
  int OneAxis(OnnxValue& value, size_t axis);
  // Makes all axes from `axis` on, without the batch's, the last axis of the tensor.
  void LastAxis(OnnxValue& value, size_t axis);
  // Removes these axes of the tensor, of size 1 each; one stays beside the batch if there is no
  // other.
  void DropOnes(OnnxValue& value, const OnnxValue::Axes& ones);
  // Splits the last axis of the tensor, as LastAxis made it, into axes of ONNX of these sizes.
  void SplitLast(OnnxValue& value, size_t axis, const std::vector<int64_t>& sizes);
  // Values for an op element by element, in one order of axes: tensors of one rank, whose axis 1 +
  // k is places[k].
  struct Aligned {
    std::vector<Tensor> tensors;  // one for each input; index -1: a constant
    std::vector<int> places;  // axis of ONNX; that of the batch where it has more than the batch
    std::vector<OnnxValue::Axes> axes;  // of the result
  };
  // Aligns all inputs. `free`: an axis along which sizes may differ, counted in the input of most
  // axes; -1: none.
  absl::StatusOr<Aligned> Align(int64_t free = -1);
  // Input i, known numbers, as a tensor aligned with `others`: a Parameter if it is trained, else a
  // Constant.
  absl::StatusOr<Tensor> Materialize(size_t i, const Aligned& others);
  // The same with these dimensions, which hold as many numbers.
  absl::StatusOr<Tensor> Materialize(size_t i, const std::vector<int64_t>& dims);
  // Input i, one number or one for each of the last axis of `shape`, beside tensors of that shape.
  absl::StatusOr<Tensor> OfLast(size_t i, const Shape& shape);
  // Input i, known numbers, as a tensor of these dimensions, which include the batch.
  absl::StatusOr<OnnxValue> Repeated(size_t i, const std::vector<int64_t>& dims);
  // The tensor with another sample shape.
  Tensor Reshaped(Tensor tensor, const Shape& to);

  // Adds a layer named after the node's output; the graph keeps the first error.
  Tensor Layer(absl::string_view op, const std::vector<Tensor>& inputs,
               google::protobuf::Struct options = {});
  std::vector<Tensor> Layers(absl::string_view op, const std::vector<Tensor>& inputs,
                             google::protobuf::Struct options, size_t outputs);
  // A parameter of a layer: its name there, the node's input that it comes from, its initial
  // values, and how these were made from the input.
  struct Weight {
    std::string parameter;
    size_t input = 0;
    std::vector<float> start;
    std::string form = {};
    // The part of the input's numbers, if parts are parameters of their own; empty: all numbers.
    std::string part = {};
  };
  // Adds a layer with these parameters. It shares them with a layer of another node that trains the
  // same inputs as the same parameters; UNIMPLEMENTED if one trains them as others. Inputs whose
  // numbers are all equal do not count for this, but for single numbers other than 0 and 1 of a
  // layer that has no more: a layer whose inputs do not count has its own. Rounds
  // of a loop share all parameters, as do layers of one node with the same `same` (empty: none).
  absl::StatusOr<Tensor> TrainedLayer(absl::string_view op, const std::vector<Tensor>& inputs,
                                      const google::protobuf::Struct& options,
                                      std::vector<Weight> weights, const std::string& same = "");
  absl::StatusOr<std::vector<Tensor>> TrainedLayers(absl::string_view op,
                                                    const std::vector<Tensor>& inputs,
                                                    const google::protobuf::Struct& options,
                                                    std::vector<Weight> weights, size_t outputs,
                                                    const std::string& same = "");

  void Set(OnnxValue value, int output = 0);
  // Sets the output to `form` with `tensor` in place of its tensor.
  void Set(OnnxValue form, Tensor tensor) {
    form.tensor = tensor;
    Set(std::move(form));
  }
  const OnnxValue& out() const { return network_.values.at(node_.output(0)); }  // as set
  // Graphs within the node, and nodes that are not in the file (read_control_flow.cc).
  //
  // Reads all nodes that the graph's outputs need, with `inputs` as the values of its inputs;
  // returns the values of its outputs. `part` names the graph, `round` its run if it may run
  // several times.
  absl::StatusOr<std::vector<OnnxValue>> ReadWithin(const onnx::GraphProto& graph,
                                                    const std::string& part,
                                                    std::optional<int64_t> round,
                                                    const std::vector<OnnxValue>& inputs);
  // The output of a Concat, Gather, Squeeze or Unsqueeze node of `inputs` along the axis.
  absl::StatusOr<OnnxValue> AlongAxis(const std::string& op_type, int64_t axis,
                                      const std::vector<OnnxValue>& inputs);
  // The graph's error.
  const absl::Status& graph_status() const { return network_.graph.status(); }

  // UNIMPLEMENTED: the node divides whole numbers that samples have, which here are floats.
  absl::Status CheckWholeInputs() const;
  // Says of the outputs whether they are whole numbers or truth values in the file, and in which
  // order they have samples.
  void MarkOutputs(const std::string& order);

  // Whether output i is read.
  bool HasOutput(int i) const {
    return i < node_.output_size() && scope_.wanted.contains(node_.output(i));
  }

 private:
  std::string NewName() const;

  // The name that stands for `name` of this node in every round of the loops around it.
  std::string Alike(const std::string& name) const {
    return scope_.alike + name.substr(scope_.prefix.size());
  }

  const onnx::NodeProto& node_;
  const OnnxScope& scope_;
  OnnxNetwork& network_;
  std::map<size_t, OnnxValue> taken_;  // inputs in another form than others read them
};

// Sets the output to `make` of the input's tensor; for functions element by element.
template <typename Make>
absl::Status SetElementwise(OnnxNodeReader& r, const Make& make) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue value, r.TensorIn(0));
  const Tensor made = make(value.tensor);
  r.Set(std::move(value), made);
  return absl::OkStatus();
}

// Sets the output to `make` of the aligned inputs: tensors of one rank whose sizes are equal or 1;
// for functions element by element.
using MakeOfAligned = absl::FunctionRef<Tensor(const std::vector<Tensor>&)>;
absl::Status SetBroadcast(OnnxNodeReader& r, MakeOfAligned make);

}  // namespace tessera::worker
