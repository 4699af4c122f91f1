#include "worker/onnx/read.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/check_file.h"
#include "worker/onnx/example_batch.h"
#include "worker/onnx/initializers.h"
#include "worker/onnx/onnx_graph.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

// OnnxValue::trained_as of numbers that layers train in parts.
constexpr char kInParts[] = "in parts";

// A layer's one output has its name.
std::vector<std::string> OutputNames(const std::string& name, size_t outputs) {
  if (outputs == 1) return {name};
  std::vector<std::string> names;
  for (size_t k = 0; k < outputs; ++k) names.push_back(absl::StrCat(name, "/", k));
  return names;
}

}  // namespace

absl::Status ReadOnnxNode(OnnxNodeReader reader) {
  const onnx::NodeProto& node = reader.node();
  const auto read = [&]() -> absl::Status {
    const OnnxOp& op = *FindOnnxOp(node.op_type());
    TESSERA_RETURN_IF_ERROR(reader.CheckInputs(op.least_inputs));
    TESSERA_RETURN_IF_ERROR(CheckNode(node, reader.opset()));
    if (IsOfOrder(reader)) {
      TESSERA_RETURN_IF_ERROR(ReadOfOrder(reader));
      return reader.CheckOutputs();
    }
    TESSERA_ASSIGN_OR_RETURN(const std::string order, OrderOfInputs(reader));
    if (CountsSamples(reader)) {
      TESSERA_RETURN_IF_ERROR(ReadCounted(reader, op.read));
    } else if (const std::optional<absl::Status> known = ReadKnown(reader); known.has_value()) {
      return *known;
    } else {
      TakeExamples(reader);
      TESSERA_RETURN_IF_ERROR(TakeParametersUnbatched(reader));
      TESSERA_RETURN_IF_ERROR(reader.CheckWholeInputs());
      TESSERA_RETURN_IF_ERROR(op.read(reader));
    }
    reader.MarkOutputs(order);
    return reader.CheckOutputs();
  }();
  // The graph's error comes first.
  const bool told = !read.ok() && !GraphsWithin(node).empty();  // by the node within
  const absl::Status found = told || reader.graph_status().ok() ? read : reader.graph_status();
  if (found.ok()) return found;
  return WithContext(
      found, absl::StrCat("node \"", node.name().empty() ? reader.name() : node.name(), "\" (",
                          node.op_type(), ")"));
}

absl::Status OnnxNodeReader::CheckInputs(size_t least) const {
  for (size_t i = 0; i < least; ++i) {
    if (!Has(i)) return absl::InvalidArgumentError(absl::StrCat("input ", i, " is missing"));
  }
  for (const std::string& input : node_.input()) {
    if (input.empty() || network_.values.contains(input)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("reads \"", input, "\", which nothing before it makes"));
  }
  return absl::OkStatus();
}

absl::Status OnnxNodeReader::CheckWholeInputs() const {
  if (node_.op_type() != "ReduceMean" || !IsTensor(0) || !in(0).whole) return absl::OkStatus();
  return absl::UnimplementedError(
      "a mean of whole numbers that samples have; cast them to floats first");
}

bool OnnxNodeReader::IsWholeOf(const std::set<size_t>& of) const {
  return std::any_of(of.begin(), of.end(), [&](size_t i) {
    return Has(i) && (in(i).kind == OnnxValue::Kind::kInts || in(i).whole);
  });
}

// Operands of one op have one type.
void OnnxNodeReader::MarkOutputs(const std::string& order) {
  static const auto* const always = new std::set<std::string>{
      "And",  "ArgMax",      "ArgMin", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN",
      "Less", "LessOrEqual", "Not",    "Or",    "Xor"};
  static const auto* const operands = new std::map<std::string, std::set<size_t>>{
      {"Add", {0, 1}}, {"CastLike", {1}}, {"Concat", {0, 1}}, {"ConstantOfShape", {}},
      {"EyeLike", {}}, {"Max", {0, 1}},   {"Div", {0, 1}},    {"Min", {0, 1}},
      {"Mod", {0, 1}}, {"Mul", {0, 1}},   {"Sub", {0, 1}},    {"Where", {1, 2}}};
  if (!GraphsWithin(node_).empty()) return;  // the nodes within did it
  const std::string& op = node_.op_type();
  const auto found = operands->find(op);
  const bool whole =
      op == "Cast" ? !IsFloatType(Int("to", 0))
                   : always->contains(op) ||
                         IsWholeOf(found == operands->end() ? std::set<size_t>{0} : found->second);
  for (int i = 0; i < node_.output_size(); ++i) {
    const auto value = network_.values.find(node_.output(i));
    const bool places = op == "TopK" && i == 1;
    const bool marks = op == "OneHot" && in(2).kind == OnnxValue::Kind::kFloats;
    if (value == network_.values.end()) continue;
    value->second.whole = (whole || places) && !marks;
    value->second.order = order;
  }
}

absl::Status OnnxNodeReader::CheckOutputs() const {
  for (int i = 0; i < node_.output_size(); ++i) {
    if (!HasOutput(i) || network_.values.contains(node_.output(i))) continue;
    return absl::UnimplementedError(
        absl::StrCat("its output ", i, ", \"", node_.output(i), "\", is read, and is not made"));
  }
  return absl::OkStatus();
}

const OnnxValue& OnnxNodeReader::in(size_t i) const {
  static const OnnxValue none = OnnxValue::OfInts({});
  if (const auto taken = taken_.find(i); taken != taken_.end()) return taken->second;
  return Has(i) ? network_.values.at(node_.input(static_cast<int>(i))) : none;
}

bool OnnxNodeReader::HasNone(size_t i, float number) const {
  return !Has(i) || StandsForNone(in(i), number, network_.producer);
}

absl::StatusOr<OnnxValue> OnnxNodeReader::TensorIn(size_t i) {
  if (!Has(i)) return absl::InvalidArgumentError(absl::StrCat("input ", i, " is missing"));
  if (IsTensor(i)) return in(i);
  if (in(i).HasBatch()) {
    TESSERA_ASSIGN_OR_RETURN(OnnxValue repeated, Repeated(i, in(i).dims));
    // What counts samples is one for this node alone, or its zeros would be taken for the numbers.
    if (in(i).CountsSamples() || taken_.contains(i)) return taken_[i] = std::move(repeated);
    // From here on the input is a tensor.
    return network_.values[node_.input(static_cast<int>(i))] = std::move(repeated);
  }
  return absl::UnimplementedError(
      absl::StrCat("input \"", node_.input(static_cast<int>(i)),
                   "\" is a constant; expected a tensor of the network"));
}

absl::Status OnnxNodeReader::TakeUnbatched(size_t i) {
  const OnnxValue& value = in(i);
  if (value.floats.size() > kMostUnbatched) {
    return absl::UnimplementedError(
        absl::StrCat("arithmetic on \"", node_.input(static_cast<int>(i)), "\" alone, which has ",
                     value.floats.size(), " numbers, above ", kMostUnbatched));
  }
  OnnxValue taken;
  for (size_t k = 0; k < value.dims.size(); ++k) taken.axes.push_back({static_cast<int>(k) + 1});
  std::vector<int64_t> dims = value.dims;
  if (dims.empty()) dims.push_back(1);  // a tensor has an axis besides the batch
  TESSERA_ASSIGN_OR_RETURN(taken.tensor, Materialize(i, dims));
  taken_[i] = std::move(taken);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> OnnxNodeReader::IntsIn(size_t i) const {
  if (!Has(i)) return absl::InvalidArgumentError(absl::StrCat("input ", i, " is missing"));
  const std::vector<int64_t>& ints = in(i).ints;
  if (std::any_of(ints.begin(), ints.end(), [](int64_t n) { return BatchMore(n) != 0; })) {
    return absl::UnimplementedError("a number above a multiple of the batch's size");
  }
  if (in(i).kind == OnnxValue::Kind::kInts && !in(i).HasBatch()) return ints;
  return absl::UnimplementedError(absl::StrCat("input \"", node_.input(static_cast<int>(i)),
                                               "\" is no constant of whole numbers"));
}

absl::StatusOr<std::vector<float>> OnnxNodeReader::FloatsIn(size_t i) const {
  if (!Has(i)) return absl::InvalidArgumentError(absl::StrCat("input ", i, " is missing"));
  if (in(i).kind == OnnxValue::Kind::kFloats) return in(i).floats;
  return absl::UnimplementedError(absl::StrCat("input \"", node_.input(static_cast<int>(i)),
                                               "\" is computed; expected an initializer or a "
                                               "constant"));
}

const onnx::AttributeProto* OnnxNodeReader::Attribute(absl::string_view name) const {
  for (const onnx::AttributeProto& attribute : node_.attribute()) {
    if (name == attribute.name()) return &attribute;
  }
  return nullptr;
}

int64_t OnnxNodeReader::Int(absl::string_view name, int64_t by_default) const {
  const onnx::AttributeProto* attribute = Attribute(name);
  return attribute == nullptr ? by_default : attribute->i();
}

float OnnxNodeReader::Float(absl::string_view name, float by_default) const {
  const onnx::AttributeProto* attribute = Attribute(name);
  return attribute == nullptr ? by_default : attribute->f();
}

absl::StatusOr<std::vector<int64_t>> OnnxNodeReader::IntsOf(absl::string_view name,
                                                            size_t i) const {
  if (Has(i)) return IntsIn(i);
  const onnx::AttributeProto* attribute = Attribute(name);
  if (attribute == nullptr) return std::vector<int64_t>();
  std::vector<int64_t> ints;
  for (const int64_t number : attribute->ints()) ints.push_back(NumberOfFile(number));
  return ints;
}

const Shape& OnnxNodeReader::shape(Tensor tensor) const {
  static const auto* const none = [] {
    auto* const shape = new Shape;
    for (int i = 0; i < 64; ++i) shape->Append(1);  // more than a tensor has
    return shape;
  }();
  return tensor.index < 0 ? *none : network_.graph.shape(tensor);
}

void OnnxNodeReader::Set(OnnxValue value, int output) {
  const std::string& name = node_.output(output);
  if (value.source.empty()) value.source = name;
  network_.values[name] = std::move(value);
}

const std::string& OnnxNodeReader::name() const {
  const auto named = std::find_if(node_.output().begin(), node_.output().end(),
                                  [](const std::string& output) { return !output.empty(); });
  return named == node_.output().end() ? node_.name() : *named;
}

std::string OnnxNodeReader::NewName() const {
  std::string name = this->name();
  for (int i = 2; network_.graph.Find(name).index >= 0; ++i) {
    name = absl::StrCat(this->name(), "_", i);
  }
  return name;
}

Tensor OnnxNodeReader::Layer(absl::string_view op, const std::vector<Tensor>& inputs,
                             google::protobuf::Struct options) {
  return network_.graph.Add(NewName(), op, inputs, options);
}

std::vector<Tensor> OnnxNodeReader::Layers(absl::string_view op, const std::vector<Tensor>& inputs,
                                           google::protobuf::Struct options, size_t outputs) {
  const std::string name = NewName();
  return network_.graph.AddNamed(name, op, inputs, options, OutputNames(name, outputs));
}

absl::StatusOr<Tensor> OnnxNodeReader::TrainedLayer(absl::string_view op,
                                                    const std::vector<Tensor>& inputs,
                                                    const google::protobuf::Struct& options,
                                                    std::vector<Weight> weights,
                                                    const std::string& same) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Tensor> made,
                           TrainedLayers(op, inputs, options, std::move(weights), 1, same));
  return made[0];
}

absl::StatusOr<std::vector<Tensor>> OnnxNodeReader::TrainedLayers(
    absl::string_view op, const std::vector<Tensor>& inputs,
    const google::protobuf::Struct& options, std::vector<Weight> weights, size_t outputs,
    const std::string& same) {
  const std::string name = NewName();
  std::string owner, like;
  if (!same.empty() || !scope_.prefix.empty()) {
    like = absl::StrCat(same.empty() ? Alike(name) : Alike(this->name()), "\n", same, "\n", op, " ",
                        options.ShortDebugString());
    for (const Weight& weight : weights) {
      absl::StrAppend(&like, "\n", in(weight.input).source, " ", in(weight.input).form, " ",
                      weight.part);
    }
    if (const auto first = network_.owners.find(like); first != network_.owners.end()) {
      return network_.graph.AddNamed(name, op, inputs, options, OutputNames(name, outputs),
                                     first->second);
    }
  }
  const bool single = std::all_of(weights.begin(), weights.end(), [&](const Weight& weight) {
    return in(weight.input).floats.size() == 1;
  });
  // Whether layers that have these numbers in common share them. Exporters merge equal
  // initializers, such as the ones and zeros that layers begin with; so numbers that are all equal
  // do not tell, nor does a single one, unless the layer has no others and it is neither.
  const auto tells = [&](const std::vector<float>& numbers) {
    if (op == "Parameter") return true;
    if (numbers.size() == 1) return single && numbers[0] != 0 && numbers[0] != 1;
    return std::any_of(numbers.begin(), numbers.end(),
                       [&](float number) { return number != numbers[0]; });
  };
  size_t telling = 0, shared = 0;
  for (const Weight& weight : weights) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<float> numbers, FloatsIn(weight.input));
    const OnnxValue& value = in(weight.input);
    OnnxValue& whole = network_.values.at(value.source);
    if (!weight.part.empty() && whole.trained_by.empty()) {
      whole.trained_by = name;
      whole.trained_as = kInParts;
    }
    const bool is_part = !weight.part.empty() && whole.trained_as == kInParts;
    OnnxValue& source =
        is_part ? network_.values[absl::StrCat(value.source, "\n", weight.part)] : whole;
    if (!tells(numbers)) continue;
    ++telling;
    const std::string as = absl::StrCat(op, " ", options.ShortDebugString(), weight.parameter, " ",
                                        weight.form, value.form);
    if (source.trained_by.empty()) {
      source.trained_by = name;
      source.trained_as = as;
      continue;
    }
    if (source.trained_as != as || (shared > 0 && source.trained_by != owner)) {
      return absl::UnimplementedError(
          absl::StrCat("\"", value.source, "\" is trained by layer \"", source.trained_by,
                       "\" already, in another form; only nodes of one op that have all weights in "
                       "common share them"));
    }
    owner = source.trained_by;
    ++shared;
  }
  if (shared > 0 && shared != telling) {
    return absl::UnimplementedError(
        absl::StrCat("has some of its weights in common with layer \"", owner, "\" and not all"));
  }
  const std::vector<Tensor> made =
      network_.graph.AddNamed(name, op, inputs, options, OutputNames(name, outputs), owner);
  if (!like.empty()) network_.owners[like] = owner.empty() ? name : owner;
  for (Weight& weight : weights) {
    if (shared > 0) break;
    network_.starts[absl::StrCat(name, "/", weight.parameter)] = std::move(weight.start);
  }
  return made;
}

}  // namespace tessera::worker
