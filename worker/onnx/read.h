#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "worker/dense/graph.h"
#include "worker/dense/options.h"
#include "worker/onnx/onnx_value.h"

namespace tessera::worker {

// Where parameters begin, by GraphParameter::name.
using ParameterStarts = std::map<std::string, std::vector<float>>;

// A file on its way into the dense graph, as far as it has been read.
struct OnnxNetwork {
  int64_t opset = 1;
  GraphBuilder& graph;
  ParameterStarts& starts;
  std::map<std::string, OnnxValue> values = {};  // by name
  // Layers with weights whose like comes again, as other rounds of a loop have them: their owner.
  std::map<std::string, std::string> owners = {};
};

// The graph that a node stands in.
struct OnnxScope {
  std::set<std::string> wanted;  // names that its nodes read, and its outputs
  // Of a graph within a node: what its names begin with, and what stands for that where all rounds
  // of a loop are alike.
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
  // Of the first of its outputs that has one.
  const std::string& name() const;

  // Inputs.
  size_t inputs() const { return static_cast<size_t>(node_.input_size()); }
  bool Has(size_t i) const { return i < inputs() && !node_.input(static_cast<int>(i)).empty(); }
  // INVALID_ARGUMENT: one of the first `least` is missing, or nothing has been set under the name
  // of one.
  absl::Status CheckInputs(size_t least) const;
  // UNIMPLEMENTED: an output that somebody reads has not been set, such as the mask of a Dropout.
  absl::Status CheckOutputs() const;
  // No numbers where the input is missing.
  const OnnxValue& in(size_t i) const;
  bool IsTensor(size_t i) const { return Has(i) && in(i).kind == OnnxValue::Kind::kTensor; }
  // INVALID_ARGUMENT, UNIMPLEMENTED where the input is none of that kind. A constant that is
  // repeated for the batch becomes a tensor.
  absl::StatusOr<OnnxValue> TensorIn(size_t i);
  absl::StatusOr<std::vector<int64_t>> IntsIn(size_t i) const;
  absl::StatusOr<std::vector<float>> FloatsIn(size_t i) const;
  // Of a layer that could not be made, whose error the graph keeps: axes of size 1.
  const Shape& shape(Tensor tensor) const;

  // From here on input i, which is trained and without the batch, is a tensor without it.
  // UNIMPLEMENTED: of more than kMostUnbatched numbers, which every sample would compute anew, or
  // trained otherwise.
  static constexpr size_t kMostUnbatched = 1 << 14;
  absl::Status TakeUnbatched(size_t i);

  // Attributes.
  const onnx::AttributeProto* Attribute(absl::string_view name) const;
  int64_t Int(absl::string_view name, int64_t by_default) const;
  float Float(absl::string_view name, float by_default) const;
  // Axes and the like: an attribute in older opsets, input `i` in newer ones; empty: neither.
  absl::StatusOr<std::vector<int64_t>> IntsOf(absl::string_view name, size_t i) const;

  // Forms of a tensor (read_layout.cc, read_align.cc). What adds layers changes the value, not what
  // it stands for.
  //
  // Sizes, the batch's as BatchTimes.
  std::vector<int64_t> DimsOf(const OnnxValue& value) const;
  int64_t SizeOf(const OnnxValue& value, const OnnxValue::Axes& axes) const;
  // An axis of ONNX, counted from the end where negative. INVALID_ARGUMENT: there is none such;
  // UNIMPLEMENTED: the batch's.
  absl::StatusOr<size_t> SampleAxis(int64_t axis, const OnnxValue& value) const;
  // Has each of `parts`, axes of the tensor without the batch, as one axis after the batch, in this
  // order.
  Tensor Arranged(const OnnxValue& value, const std::vector<OnnxValue::Axes>& parts);
  // The same with all of them as one.
  Tensor Flat(const OnnxValue& value);
  // An axis that is not the batch's as one axis of the tensor, whose number it returns.
  int OneAxis(OnnxValue& value, size_t axis);
  // All axes from `axis` on, none of them the batch's, as the last axis of the tensor.
  void LastAxis(OnnxValue& value, size_t axis);
  // Without these axes of the tensor, which are of size 1; one stays beside the batch where there
  // is no other.
  void DropOnes(OnnxValue& value, const OnnxValue::Axes& ones);
  // The last axis of the tensor, as LastAxis made it, under these sizes, an axis of ONNX for each.
  void SplitLast(OnnxValue& value, size_t axis, const std::vector<int64_t>& sizes);
  // Values that meet element by element, in one order of axes: tensors of one rank, of which axis 1
  // + k is one of `places`.
  struct Aligned {
    std::vector<Tensor> tensors;  // one an input; index -1 where a constant is
    std::vector<int> places;  // axis of ONNX; that of the batch where it has more than the batch
    std::vector<OnnxValue::Axes> axes;  // of what is made of them
  };
  // `free`: an axis along which they may differ, counted as those of the longest; -1: none.
  absl::StatusOr<Aligned> Align(int64_t free = -1);
  // Input i, known numbers, as a tensor that meets the others: a Parameter where it is trained,
  // else a Constant.
  absl::StatusOr<Tensor> Materialize(size_t i, const Aligned& others);
  // The same under these dimensions, whose product is that of the numbers.
  absl::StatusOr<Tensor> Materialize(size_t i, const std::vector<int64_t>& dims);
  // Input i, known numbers, as a tensor of these dimensions, which have the batch.
  absl::StatusOr<OnnxValue> Repeated(size_t i, const std::vector<int64_t>& dims);
  // The tensor under another sample shape.
  Tensor Reshaped(Tensor tensor, const Shape& to);

  // A layer named after the node's output; the first error stays in the graph.
  Tensor Layer(absl::string_view op, const std::vector<Tensor>& inputs,
               google::protobuf::Struct options = {});
  std::vector<Tensor> Layers(absl::string_view op, const std::vector<Tensor>& inputs,
                             google::protobuf::Struct options, size_t outputs);
  // A parameter of a layer: its name there, the input of the node that it is made of, where it
  // begins, and how that was made of the input.
  struct Weight {
    std::string parameter;
    size_t input = 0;
    std::vector<float> start;
    std::string form = {};
    // Which part of the input's numbers it is, each a parameter of its own; empty: all of them.
    std::string part = {};
  };
  // A layer with these parameters. Where another node trains the same inputs as the same, they
  // share them; UNIMPLEMENTED where one trains them as something else. Inputs whose numbers are all
  // equal say nothing of that, and are each layer's own where no others do. Rounds of a loop share
  // all of theirs, as do layers of one node that are `same`; empty: alone.
  absl::StatusOr<Tensor> TrainedLayer(absl::string_view op, const std::vector<Tensor>& inputs,
                                      const google::protobuf::Struct& options,
                                      std::vector<Weight> weights, const std::string& same = "");
  absl::StatusOr<std::vector<Tensor>> TrainedLayers(absl::string_view op,
                                                    const std::vector<Tensor>& inputs,
                                                    const google::protobuf::Struct& options,
                                                    std::vector<Weight> weights, size_t outputs,
                                                    const std::string& same = "");

  void Set(OnnxValue value, int output = 0);
  // `tensor` in the place of that of `form`.
  void Set(OnnxValue form, Tensor tensor) {
    form.tensor = tensor;
    Set(std::move(form));
  }
  const OnnxValue& out() const { return network_.values.at(node_.output(0)); }  // as set
  // Graphs within the node, and nodes that are not in the file (read_control_flow.cc).
  //
  // Reads all that the graph's outputs need, its inputs standing for `inputs`; `part` names the
  // graph, `round` which time it runs where it may run several. What the outputs stand for.
  absl::StatusOr<std::vector<OnnxValue>> ReadWithin(const onnx::GraphProto& graph,
                                                    const std::string& part,
                                                    std::optional<int64_t> round,
                                                    const std::vector<OnnxValue>& inputs);
  // What a node of one output gives for `inputs` along the axis: Concat, Gather or Unsqueeze.
  absl::StatusOr<OnnxValue> AlongAxis(const std::string& op_type, int64_t axis,
                                      const std::vector<OnnxValue>& inputs);
  // What the graph found wrong.
  const absl::Status& graph_status() const { return network_.graph.status(); }

  // Whether somebody reads it.
  bool HasOutput(int i) const {
    return i < node_.output_size() && scope_.wanted.contains(node_.output(i));
  }

 private:
  std::string NewName() const;

  // What stands for a name of this node in every round of the loops around it.
  std::string Alike(const std::string& name) const {
    return scope_.alike + name.substr(scope_.prefix.size());
  }

  const onnx::NodeProto& node_;
  const OnnxScope& scope_;
  OnnxNetwork& network_;
  std::map<size_t, OnnxValue> unbatched_;  // inputs
};

// Adds the layers that compute the node and sets its outputs. Errors say what is wrong with this
// node; the caller names it.
using OnnxRead = absl::Status (*)(OnnxNodeReader& r);

// Reads the node, which errors name.
absl::Status ReadOnnxNode(OnnxNodeReader reader);

struct OnnxOp {
  const char* type;
  size_t least_inputs;  // the first of its inputs, which no node of it lacks
  OnnxRead read;
};

// nullptr: cannot be read.
const OnnxOp* FindOnnxOp(absl::string_view op_type);
std::vector<std::string> ReadableOnnxOps();

// Sets what `make`, of one tensor, gives for the input, element by element.
template <typename Make>
absl::Status SetElementwise(OnnxNodeReader& r, const Make& make) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue value, r.TensorIn(0));
  const Tensor made = make(value.tensor);
  r.Set(std::move(value), made);
  return absl::OkStatus();
}

// Sets what `make` gives for the inputs, which meet element by element: tensors of one rank whose
// sizes are equal or 1.
using MakeOfAligned = absl::FunctionRef<Tensor(const std::vector<Tensor>&)>;
absl::Status SetBroadcast(OnnxNodeReader& r, MakeOfAligned make);

// One number beside x.
Tensor NumberBeside(OnnxNodeReader& r, Tensor x, double value);
// Places `begin` to `end` of an axis of the tensor.
Tensor Sliced(OnnxNodeReader& r, Tensor x, int axis, int64_t begin, int64_t end);
// An axis of the tensor with so many places more, which hold `value`.
Tensor Padded(OnnxNodeReader& r, Tensor x, int axis, int64_t before, int64_t after, double value);

// Arithmetic of numbers that are known and stay so (read_known.cc). nullopt: it is none.
std::optional<absl::Status> ReadKnown(OnnxNodeReader& r);
absl::Status ReadTrilu(OnnxNodeReader& r);
// How known numbers meet element by element.
struct KnownBroadcast {
  std::vector<int64_t> dims;
  size_t size = 1;  // for a sample, where the batch is among `dims`

  // Of all inputs, which are known. INVALID_ARGUMENT: sizes that are not equal or 1; UNIMPLEMENTED:
  // more than 2^20 numbers.
  static absl::StatusOr<KnownBroadcast> Of(const OnnxNodeReader& r);
  // Where an operand has what the result has at `i`.
  size_t PlaceIn(const OnnxValue& value, size_t i) const;
};
// Known numbers in another order of axes.
OnnxValue TransposedKnown(OnnxValue value, const std::vector<size_t>& perm);
// Known numbers of one kind, side by side along an axis; their other dimensions are equal.
OnnxValue JoinedKnown(const std::vector<OnnxValue>& parts, size_t axis);
// Those places of an axis of known numbers.
OnnxValue TakenOfKnown(const OnnxValue& value, size_t axis, const std::vector<int64_t>& places);

// Parameters as tensors without the batch (read_unbatched.cc).
//
// Those that products of matrices, or they and others, read in several forms, such as a matrix and
// the same turned. Not those that layers with weights of another kind read. In the order of the
// file.
std::set<std::string> InSeveralForms(const std::vector<const onnx::NodeProto*>& nodes);
// Makes such parameters tensors, and those of a node that reads nothing of a sample, unless it
// moves numbers alone or has them as weights; of what is known alone the first input.
absl::Status TakeParametersUnbatched(OnnxNodeReader& r);

// What has graphs within (read_control_flow.cc). UNIMPLEMENTED: which of them run, or how often,
// depends on samples.
absl::Status ReadIf(OnnxNodeReader& r);
absl::Status ReadLoop(OnnxNodeReader& r);
absl::Status ReadScan(OnnxNodeReader& r);

// Over windows (read_windows.cc).
absl::Status ReadConv(OnnxNodeReader& r);
absl::Status ReadPool(OnnxNodeReader& r);

// Products (read_products.cc, read_einsum.cc).
absl::Status ReadEinsum(OnnxNodeReader& r);
// A tensor times matrices of the file: input 1, of three axes or more.
absl::StatusOr<OnnxValue> TimesStack(OnnxNodeReader& r);
absl::Status ReadGemm(OnnxNodeReader& r);
absl::Status ReadMatMul(OnnxNodeReader& r);

// Sequences (read_sequences.cc, read_attention.cc).
absl::Status ReadAttention(OnnxNodeReader& r);
absl::Status ReadCumSum(OnnxNodeReader& r);
absl::Status ReadGru(OnnxNodeReader& r);
absl::Status ReadLstm(OnnxNodeReader& r);
absl::Status ReadRnn(OnnxNodeReader& r);

// Over whole axes (read_reductions.cc).
absl::Status ReadGlobalPool(OnnxNodeReader& r);
absl::Status ReadReduce(OnnxNodeReader& r);
absl::Status ReadReduceComposed(OnnxNodeReader& r);
absl::Status ReadReduceProd(OnnxNodeReader& r);
absl::Status ReadSoftmax(OnnxNodeReader& r);

// Normalisations over axes of a sample (read_normalizations.cc).
absl::Status ReadGroupNormalization(OnnxNodeReader& r);
absl::Status ReadInstanceNormalization(OnnxNodeReader& r);
absl::Status ReadLayerNormalization(OnnxNodeReader& r);
absl::Status ReadRmsNormalization(OnnxNodeReader& r);

// Arithmetic of known whole numbers, as exporters write it about shapes (read_ints.cc).
bool AllInts(const OnnxNodeReader& r);
absl::Status ReadConstantOfShape(OnnxNodeReader& r);
absl::Status ReadEyeLike(OnnxNodeReader& r);
absl::Status ReadIntArithmetic(OnnxNodeReader& r);
absl::StatusOr<int64_t> IntProduct(int64_t a, int64_t b);
absl::Status ReadOneHot(OnnxNodeReader& r);
absl::Status ReadRange(OnnxNodeReader& r);

// What is written with several of our ops (read_compositions.cc).
absl::Status ReadCelu(OnnxNodeReader& r);
absl::Status ReadCompare(OnnxNodeReader& r);
absl::Status ReadErfc(OnnxNodeReader& r);
absl::Status ReadExpm1(OnnxNodeReader& r);
absl::Status ReadGelu(OnnxNodeReader& r);
absl::Status ReadHardSwish(OnnxNodeReader& r);
absl::Status ReadIsInf(OnnxNodeReader& r);
absl::Status ReadIsNan(OnnxNodeReader& r);
absl::Status ReadLog1p(OnnxNodeReader& r);
absl::Status ReadLogic(OnnxNodeReader& r);
absl::Status ReadMaxMin(OnnxNodeReader& r);
absl::Status ReadMish(OnnxNodeReader& r);
absl::Status ReadNeg(OnnxNodeReader& r);
absl::Status ReadNot(OnnxNodeReader& r);
absl::Status ReadPow(OnnxNodeReader& r);
absl::Status ReadReciprocal(OnnxNodeReader& r);
absl::Status ReadSign(OnnxNodeReader& r);
absl::Status ReadSoftsign(OnnxNodeReader& r);
absl::Status ReadSwish(OnnxNodeReader& r);
absl::Status ReadWhere(OnnxNodeReader& r);

// What only moves numbers or computes shapes (read_shapes.cc, read_gathers.cc).
absl::Status ReadCast(OnnxNodeReader& r);
absl::Status ReadConcat(OnnxNodeReader& r);
absl::Status ReadConstant(OnnxNodeReader& r);
absl::Status ReadExpand(OnnxNodeReader& r);
absl::Status ReadFlatten(OnnxNodeReader& r);
absl::Status ReadGather(OnnxNodeReader& r);
absl::Status ReadGatherNd(OnnxNodeReader& r);
absl::Status ReadIdentity(OnnxNodeReader& r);
absl::Status ReadPad(OnnxNodeReader& r);
absl::Status ReadReshape(OnnxNodeReader& r);
absl::Status ReadReverseSequence(OnnxNodeReader& r);
absl::Status ReadShape(OnnxNodeReader& r);
absl::Status ReadSize(OnnxNodeReader& r);
absl::Status ReadSlice(OnnxNodeReader& r);
absl::Status ReadSplit(OnnxNodeReader& r);
absl::Status ReadSqueeze(OnnxNodeReader& r);
absl::Status ReadTile(OnnxNodeReader& r);
absl::Status ReadTranspose(OnnxNodeReader& r);
absl::Status ReadUnsqueeze(OnnxNodeReader& r);

}  // namespace tessera::worker
