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

// Initial values of parameters, by GraphParameter::name.
using ParameterStarts = std::map<std::string, std::vector<float>>;

// The state of reading a file into the dense graph.
struct OnnxNetwork {
  int64_t opset = 1;
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
  // numbers are all equal do not count for this: a layer with only such inputs has its own. Rounds
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
  // Whether one of these inputs is a tensor of whole numbers or truth values.
  bool IsWholeOf(const std::set<size_t>& of) const;

  // The name that stands for `name` of this node in every round of the loops around it.
  std::string Alike(const std::string& name) const {
    return scope_.alike + name.substr(scope_.prefix.size());
  }

  const onnx::NodeProto& node_;
  const OnnxScope& scope_;
  OnnxNetwork& network_;
  std::map<size_t, OnnxValue> taken_;  // inputs in another form than others read them
};

// Adds the layers that compute the node and sets its outputs. Errors say what is wrong; the caller
// adds the node's name.
using OnnxRead = absl::Status (*)(OnnxNodeReader& r);

// Reads the node; errors name it.
absl::Status ReadOnnxNode(OnnxNodeReader reader);

struct OnnxOp {
  const char* type;
  size_t least_inputs;  // the number of first inputs that every node of the op must have
  OnnxRead read;
};

// nullptr: the op cannot be read.
const OnnxOp* FindOnnxOp(absl::string_view op_type);
std::vector<std::string> ReadableOnnxOps();

// Functions element by element (OpEntry::elementwise) that ONNX has as they are here: attributes
// are options (same_op.cc). All of them, for the table of those that can be read.
std::vector<OnnxOp> SameOnnxOps();

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

// The given places of an axis of ONNX.
void TakePlaces(OnnxNodeReader& r, OnnxValue& x, size_t axis, const std::vector<int64_t>& indices);
// Splits the axis into axes of ONNX of these sizes, whose product is its size.
void SplitAxis(OnnxNodeReader& r, OnnxValue& x, size_t axis, const std::vector<int64_t>& sizes);
// Makes `count` axes of ONNX from `first` on one.
void MergeAxes(OnnxValue& x, size_t first, size_t count);
// For lists of `named` indices, one after another, of axes of these sizes: the place of each list
// where the axes are one. INVALID_ARGUMENT: an index does not exist.
absl::StatusOr<std::vector<int64_t>> MergedPlaces(const std::vector<int64_t>& indices,
                                                  absl::Span<const int64_t> sizes);

// A constant number of the rank of x.
Tensor NumberBeside(OnnxNodeReader& r, Tensor x, double value);
// Places `begin` to `end` of an axis of the tensor.
Tensor Sliced(OnnxNodeReader& r, Tensor x, int axis, int64_t begin, int64_t end);
// The tensor with `before` and `after` more places at the ends of an axis, which hold `value`.
Tensor Padded(OnnxNodeReader& r, Tensor x, int axis, int64_t before, int64_t after, double value);

// Computes a node of untrained known numbers (read_known.cc). nullopt: the node is no such
// arithmetic.
std::optional<absl::Status> ReadKnown(OnnxNodeReader& r);
absl::Status ReadTrilu(OnnxNodeReader& r);
// Broadcasting of known numbers.
struct KnownBroadcast {
  std::vector<int64_t> dims;
  size_t size = 1;  // for one sample, if the batch is among `dims`

  // Broadcasts all inputs, which are known. INVALID_ARGUMENT: sizes that are not equal or 1;
  // UNIMPLEMENTED: more than 2^20 numbers.
  static absl::StatusOr<KnownBroadcast> Of(const OnnxNodeReader& r);
  // The place in an operand that belongs to place `i` of the result.
  size_t PlaceIn(const OnnxValue& value, size_t i) const;
};
// Known numbers in another order of axes.
OnnxValue TransposedKnown(OnnxValue value, const std::vector<size_t>& perm);
// Known numbers of one kind, side by side along an axis; their other dimensions are equal.
OnnxValue JoinedKnown(const std::vector<OnnxValue>& parts, size_t axis);
// The given places of an axis of known numbers.
OnnxValue TakenOfKnown(const OnnxValue& value, size_t axis, const std::vector<int64_t>& places);

// Parameters as tensors without the batch (read_unbatched.cc).
//
// The parameters that nodes, matrix products among them, read in several forms, such as a matrix
// and its transpose. Without those that layers with weights of another kind read. Nodes come in the
// order of the file.
std::set<std::string> InSeveralForms(const std::vector<const onnx::NodeProto*>& nodes);
// Makes inputs that are such parameters tensors. Does the same with those of a node that reads
// nothing of a sample, unless the node only moves numbers or has them as weights; if all inputs are
// known, with the first.
absl::Status TakeParametersUnbatched(OnnxNodeReader& r);

// Nodes with graphs within (read_control_flow.cc). UNIMPLEMENTED: which graph runs, or how often,
// depends on samples.
absl::Status ReadIf(OnnxNodeReader& r);
absl::Status ReadLoop(OnnxNodeReader& r);
absl::Status ReadScan(OnnxNodeReader& r);

// Over windows (read_windows.cc).
absl::Status ReadConv(OnnxNodeReader& r);
absl::Status ReadPool(OnnxNodeReader& r);

// Products (read_products.cc, read_einsum.cc).
absl::Status ReadEinsum(OnnxNodeReader& r);
// A tensor times matrices that all samples share, or they times a tensor: a stack of three axes or
// more, of the file or computed of parameters alone.
absl::StatusOr<OnnxValue> TimesStack(OnnxNodeReader& r);
absl::Status ReadGemm(OnnxNodeReader& r);
absl::Status ReadMatMul(OnnxNodeReader& r);

// Sequences (read_sequences.cc, read_attention.cc).
absl::Status ReadAttention(OnnxNodeReader& r);
absl::Status ReadCumSum(OnnxNodeReader& r);
absl::Status ReadGru(OnnxNodeReader& r);
absl::Status ReadLstm(OnnxNodeReader& r);
absl::Status ReadRnn(OnnxNodeReader& r);
// Whether the input of a recurrence has other axes with the batch in one (read_rows.cc).
bool HasRowsBesideBatch(const OnnxNodeReader& r);
absl::Status ReadRowByRow(OnnxNodeReader& r);

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
absl::Status ReadLpNormalization(OnnxNodeReader& r);
absl::Status ReadRmsNormalization(OnnxNodeReader& r);

// Arithmetic of known whole numbers, as exporters write it about shapes (read_ints.cc).
bool AllInts(const OnnxNodeReader& r);
absl::Status ReadConstantOfShape(OnnxNodeReader& r);
absl::Status ReadEyeLike(OnnxNodeReader& r);
absl::Status ReadNonZero(OnnxNodeReader& r);
absl::Status ReadIntArithmetic(OnnxNodeReader& r);
absl::StatusOr<int64_t> IntProduct(int64_t a, int64_t b);
absl::Status ReadOneHot(OnnxNodeReader& r);
absl::Status ReadRange(OnnxNodeReader& r);

// Ops made of several ops of the dense graph (read_compositions.cc).
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
absl::Status ReadMean(OnnxNodeReader& r);
absl::Status ReadMish(OnnxNodeReader& r);
absl::Status ReadNeg(OnnxNodeReader& r);
absl::Status ReadNot(OnnxNodeReader& r);
absl::Status ReadPow(OnnxNodeReader& r);
absl::Status ReadReciprocal(OnnxNodeReader& r);
absl::Status ReadSign(OnnxNodeReader& r);
absl::Status ReadSoftsign(OnnxNodeReader& r);
absl::Status ReadSwish(OnnxNodeReader& r);
absl::Status ReadThresholdedRelu(OnnxNodeReader& r);
absl::Status ReadWhere(OnnxNodeReader& r);

// Whether an input counts the samples of a batch (OnnxValue::CountsSamples).
bool CountsSamples(const OnnxNodeReader& r);
// Reads such a node with `read`, which need not know it (read_counted.cc). UNIMPLEMENTED: it is
// none of those that only lead to an index of the batch's axis.
absl::Status ReadCounted(OnnxNodeReader& r, OnnxRead read);

// The most numbers that a sample may choose from or compare, for all places that it wants.
constexpr int64_t kMostChosen = 1 << 20;
// How many numbers of these dimensions a sample has; at most kMostChosen + 1.
int64_t NumbersOf(const std::vector<int64_t>& dims);

// Gathers by indices that samples may compute (read_chosen.cc).
//
// INVALID_ARGUMENT: one that is known when the file is read is below `least`, or not below `size`.
absl::Status CheckPlaces(const OnnxValue& indices, int64_t least, int64_t size);
// Of data [batch, size, ...] and indices [batch, places...] the places [batch, places..., ...].
// INVALID_ARGUMENT: known ones are not from -size to size - 1; UNIMPLEMENTED: they have other
// forms, or too many numbers to choose from.
absl::StatusOr<OnnxValue> ChosenBySample(OnnxNodeReader& r, const OnnxValue& data,
                                         const OnnxValue& indices);
absl::Status ReadGatherElements(OnnxNodeReader& r);
// Gather of a table of the file, and OneHot, by indices that samples compute: input 1 and input 0.
absl::StatusOr<OnnxValue> RowsBySample(OnnxNodeReader& r);
absl::StatusOr<OnnxValue> OneHotBySample(OnnxNodeReader& r);

// The largest or smallest numbers of an axis (read_ranks.cc).
absl::Status ReadArgMax(OnnxNodeReader& r);
absl::Status ReadTopK(OnnxNodeReader& r);

// Samples in another order (read_sorted.cc).
//
// Whether the node sorts the batch, takes samples in a sorted order or leads back from it.
bool IsOfOrder(const OnnxNodeReader& r);
absl::Status ReadOfOrder(OnnxNodeReader& r);
// In which order the node's inputs have their samples. UNIMPLEMENTED: in different ones.
absl::StatusOr<std::string> OrderOfInputs(const OnnxNodeReader& r);

// What takes the place of other numbers (read_scattered.cc).
absl::Status ReadScatterElements(OnnxNodeReader& r);
absl::Status ReadScatterNd(OnnxNodeReader& r);
// The value with `updates`, [places, ...], at these places of the axes from `first` on: lists of
// `named` indices each, one after another. UNIMPLEMENTED: they do not fit.
absl::StatusOr<OnnxValue> WithPlaces(OnnxNodeReader& r, OnnxValue x, size_t first, size_t named,
                                     const std::vector<int64_t>& indices, OnnxValue updates);

// Ops that only move numbers or compute shapes (read_shapes.cc, read_gathers.cc).
absl::Status ReadCast(OnnxNodeReader& r);
absl::Status ReadCastLike(OnnxNodeReader& r);
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
