#include "worker/onnx/initializers.h"

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "worker/onnx/onnx_graph.h"

namespace tessera::worker {
namespace {

// Exporters whose names of numbers tell those of the code, see IsOfCode.
bool NamesTell(absl::string_view producer) {
  return producer == "pytorch" || producer == "tf2onnx";
}

// Whether a gradient passes from the node's output to its input.
bool PassesGradient(const onnx::NodeProto& node, int input, absl::string_view producer) {
  static const auto* const none =
      new std::set<std::string>{"And",   "ArgMax",  "ArgMin", "Ceil",        "ConstantOfShape",
                                "Equal", "EyeLike", "Floor",  "Greater",     "GreaterOrEqual",
                                "IsInf", "IsNaN",   "Less",   "LessOrEqual", "NonZero",
                                "Not",   "OneHot",  "Or",     "Range",       "Round",
                                "Shape", "Sign",    "Size",   "Xor"};
  // Inputs after the first only say how, and get no gradient.
  static const auto* const first = new std::set<std::string>{"CastLike", "Dropout", "Pad"};
  const std::string& op = node.op_type();
  if (op == "Where") return input > 0;
  // Exponents and bounds, mostly the code's.
  if ((op == "Clip" || op == "Pow") && input > 0) return NamesTell(producer);
  if (op == "Cast") {
    return std::none_of(node.attribute().begin(), node.attribute().end(),
                        [](const auto& to) { return to.name() == "to" && !IsFloatType(to.i()); });
  }
  return !none->contains(op) && !(first->contains(op) && input > 0);
}

// The name without the number that exporters append to equal names.
absl::string_view WithoutNumber(absl::string_view name) {
  const absl::string_view whole = name;
  while (!name.empty() && absl::ascii_isdigit(static_cast<unsigned char>(name.back()))) {
    name.remove_suffix(1);
  }
  return name.size() < whole.size() && absl::ConsumeSuffix(&name, "_") ? name : whole;
}

// The metadata_props of ONNX 1.16, later than the messages that this is built with.
std::map<std::string, std::string> MetadataOf(const onnx::ValueInfoProto& value) {
  constexpr int kMetadataProps = 4;
  std::map<std::string, std::string> metadata;
  const auto& fields = value.unknown_fields();
  for (int i = 0; i < fields.field_count(); ++i) {
    const auto& field = fields.field(i);
    onnx::StringStringEntryProto entry;
    if (field.number() == kMetadataProps &&
        field.type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED &&
        entry.ParseFromString(field.length_delimited())) {
      metadata[entry.key()] = entry.value();
    }
  }
  return metadata;
}

// Whether torch.export gives the name to what a function of PyTorch makes. Parameters have the
// names of the network's attributes, within modules with a point.
bool IsOfFunction(absl::string_view name) {
  static const auto* const functions = new std::set<absl::string_view>(absl::StrSplit(
      "_to_copy abs add arange bitwise_and bitwise_not bitwise_or cat ceil clamp clone "
      "const convert_element_type copy cos cumsum detach div empty eq exp expand eye fill "
      "flip floor floor_divide full full_like ge gt le lift_fresh_copy linspace log "
      "logical_and logical_not logical_or logspace lt masked_fill mul ne neg new_full "
      "new_ones new_zeros ones ones_like permute pow reciprocal remainder repeat reshape "
      "rsqrt rsub scalar_tensor select select_scatter sin slice slice_scatter sqrt squeeze "
      "stack sub transpose tril triu unsqueeze val view where zeros zeros_like",
      ' '));
  absl::ConsumeSuffix(&name, "_cast");
  name = WithoutNumber(name);
  absl::ConsumeSuffix(&name, "_default");
  return functions->contains(name);
}

}  // namespace

ToldNames NamesTold(const onnx::GraphProto& file) {
  ToldNames told;
  std::set<std::string>& of_code = told.of_code;
  // Only their sizes can be known.
  for (const onnx::ValueInfoProto& input : file.input()) of_code.insert(input.name());
  std::map<std::string, std::vector<std::string>> computed;  // of what
  for (const onnx::ValueInfoProto& value : file.value_info()) {
    std::map<std::string, std::string> metadata = MetadataOf(value);
    const std::string& kind = metadata["pkg.torch.export.graph_signature.InputSpec.kind"];
    if (kind == "BUFFER" || kind == "CONSTANT_TENSOR") of_code.insert(value.name());
    // A list as Python prints it.
    const std::string& of = metadata["pkg.onnxscript.optimizer.folded_from"];
    if (!of.empty()) {
      computed[value.name()] = absl::StrSplit(of, absl::ByAnyChar("[]', "), absl::SkipEmpty());
    }
  }
  // Some were computed of others.
  for (size_t before = 0; before != of_code.size();) {
    before = of_code.size();
    for (const auto& [name, parts] : computed) {
      if (std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
            return of_code.contains(part) || IsOfFunction(part);
          })) {
        of_code.insert(name);
      }
    }
  }
  for (const auto& [name, parts] : computed) {
    if (!of_code.contains(name)) told.of_parameters.insert(name);
  }
  return told;
}

std::set<std::string> NamesWithGradient(const std::vector<const onnx::NodeProto*>& nodes,
                                        const std::vector<std::string>& outputs,
                                        absl::string_view producer) {
  std::set<std::string> reached(outputs.begin(), outputs.end());
  // From the end: what a node reads is made before it.
  for (auto at = nodes.rbegin(); at != nodes.rend(); ++at) {
    const onnx::NodeProto& node = **at;
    if (std::none_of(node.output().begin(), node.output().end(),
                     [&](const std::string& name) { return reached.contains(name); })) {
      continue;
    }
    if (!GraphsWithin(node).empty()) reached.merge(NamesRead({&node}));
    for (int i = 0; i < node.input_size(); ++i) {
      if (PassesGradient(node, i, producer)) reached.insert(node.input(i));
    }
  }
  return reached;
}

bool IsOfCode(const OnnxValue& value, absl::string_view name, absl::string_view producer) {
  // Names by PyTorch's exporter for torch.arange, torch.full and casts of them, of any size.
  static const auto* const of_torch = new std::set<absl::string_view>{
      "_to_copy", "arange", "convert_element_type", "full", "full_like", "scalar_tensor"};
  absl::string_view op = WithoutNumber(name);
  absl::ConsumeSuffix(&op, "_default");
  if (of_torch->contains(op)) return true;
  const size_t numbers = value.floats.size();
  if (numbers == 1 && (absl::StartsWith(name, "val_") || absl::StartsWith(name, "p2o.pd_op."))) {
    return true;
  }
  if (!value.dims.empty()) return false;
  // TensorFlow's variables are those that are read as variables.
  if (producer == "tf2onnx") return !absl::StrContains(name, "ReadVariableOp");
  // Arguments of PyTorch's functions, and what its older exporter folds.
  return absl::EndsWith(name, "_cast") || absl::StartsWith(name, "onnx::");
}

bool StandsForNone(const OnnxValue& value, float number, absl::string_view producer) {
  if (value.floats.empty() || std::any_of(value.floats.begin(), value.floats.end(),
                                          [&](float found) { return found != number; })) {
    return false;
  }
  if (!value.trained) return true;
  // PyTorch's exporter of torch.export makes initializers of constants, and merges equal ones: of
  // those under running statistics none was a parameter.
  return producer == "pytorch" &&
         (absl::StartsWith(value.source, "val_") || absl::EndsWith(value.source, "running_mean") ||
          absl::EndsWith(value.source, "running_var"));
}

}  // namespace tessera::worker
