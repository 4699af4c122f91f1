// Graphs within nodes. Which of them run, and how often, must be known when a file is read: a loop
// is unrolled, and all its rounds train the same parameters.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/onnx_graph.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

constexpr int64_t kMostRounds = 1024;
constexpr size_t kMostNames = 1 << 16;

absl::StatusOr<const onnx::GraphProto*> GraphOf(const OnnxNodeReader& r, absl::string_view name) {
  const onnx::AttributeProto* const attribute = r.Attribute(name);
  if (attribute != nullptr && attribute->has_g()) return &attribute->g();
  return absl::InvalidArgumentError(absl::StrCat("it has no graph \"", name, "\""));
}

// UNIMPLEMENTED: it depends on samples.
absl::StatusOr<int64_t> KnownNumber(const OnnxValue& value, absl::string_view what) {
  if (value.kind == OnnxValue::Kind::kInts && value.ints.size() == 1 && !IsBatch(value.ints[0])) {
    return value.ints[0];
  }
  return absl::UnimplementedError(
      absl::StrCat(what, " is not known when the file is read: it depends on the samples"));
}

// The outputs of a loop's rounds side by side along a new axis.
absl::StatusOr<OnnxValue> Stacked(OnnxNodeReader& r, std::vector<OnnxValue> rounds, int64_t axis) {
  for (OnnxValue& value : rounds) {
    TESSERA_ASSIGN_OR_RETURN(value, r.AlongAxis("Unsqueeze", axis, {value}));
  }
  if (rounds.size() == 1) return rounds[0];
  return r.AlongAxis("Concat", axis, rounds);
}

// Entry i of a list of axes or directions; 0 if the list ends before it.
int64_t EntryOf(const OnnxNodeReader& r, absl::string_view attribute, size_t i) {
  const onnx::AttributeProto* const list = r.Attribute(attribute);
  const bool has = list != nullptr && i < static_cast<size_t>(list->ints_size());
  return has ? list->ints(static_cast<int>(i)) : 0;
}

// Sets the outputs from `first` on to the rounds' outputs side by side; `axis_of` gives the axis
// for output i.
template <typename AxisOf>
absl::Status SetStacked(OnnxNodeReader& r, std::vector<std::vector<OnnxValue>> given, size_t first,
                        const AxisOf& axis_of) {
  for (size_t i = 0; i < given.size(); ++i) {
    const auto output = static_cast<int>(first + i);
    if (!r.HasOutput(output)) continue;
    if (given[i].empty()) {
      return absl::UnimplementedError("its graph runs no time, and would give nothing of a round");
    }
    TESSERA_ASSIGN_OR_RETURN(OnnxValue stacked, Stacked(r, std::move(given[i]), axis_of(i)));
    r.Set(std::move(stacked), output);
  }
  return absl::OkStatus();
}

void SetAll(OnnxNodeReader& r, const std::vector<OnnxValue>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (r.HasOutput(static_cast<int>(i))) r.Set(values[i], static_cast<int>(i));
  }
}

// From `first` on, `count` of them.
absl::StatusOr<std::vector<OnnxValue>> InputsOf(const OnnxNodeReader& r, size_t first,
                                                size_t count) {
  std::vector<OnnxValue> values;
  for (size_t i = first; i < first + count; ++i) {
    if (!r.Has(i)) return absl::InvalidArgumentError(absl::StrCat("input ", i, " is missing"));
    values.push_back(r.in(i));
  }
  return values;
}

absl::Status CheckSizes(const onnx::GraphProto& graph, size_t inputs, size_t least_outputs) {
  const auto found = static_cast<size_t>(graph.input_size());
  const auto outputs = static_cast<size_t>(graph.output_size());
  if (found == inputs && outputs >= least_outputs) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("its graph has ", found, " inputs and ", outputs,
                                                 " outputs, expected ", inputs, " and at least ",
                                                 least_outputs));
}

}  // namespace

absl::StatusOr<std::vector<OnnxValue>> OnnxNodeReader::ReadWithin(
    const onnx::GraphProto& graph, const std::string& part, std::optional<int64_t> round,
    const std::vector<OnnxValue>& inputs) {
  if (network_.values.size() > kMostNames) {
    return absl::UnimplementedError(
        absl::StrCat("the network would have more than ", kMostNames, " nodes"));
  }
  OnnxScope scope;
  scope.prefix = absl::StrCat(name(), "/", part, "/");
  scope.alike = absl::StrCat(Alike(name()), "/", part, "/");
  if (round.has_value()) absl::StrAppend(&scope.prefix, *round, "/");
  const onnx::GraphProto named = Renamed(graph, scope.prefix);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string& name = named.input(static_cast<int>(i)).name();
    network_.values[name] = inputs[i];
    if (inputs[i].source.empty()) network_.values[name].source = name;
  }
  std::vector<std::string> outputs;
  for (const auto& output : named.output()) outputs.push_back(output.name());
  const std::vector<const onnx::NodeProto*> nodes = NeededNodes(named, outputs);
  scope.wanted = NamesRead(nodes);
  scope.wanted.insert(outputs.begin(), outputs.end());
  for (const onnx::NodeProto* node : nodes) {
    TESSERA_RETURN_IF_ERROR(ReadOnnxNode(OnnxNodeReader(*node, scope, network_)));
  }
  std::vector<OnnxValue> made;
  for (const std::string& output : outputs) {
    const auto found = network_.values.find(output);
    if (found == network_.values.end()) {
      return absl::InvalidArgumentError(absl::StrCat("no node makes the output \"", output, "\""));
    }
    made.push_back(found->second);
  }
  return made;
}

absl::StatusOr<OnnxValue> OnnxNodeReader::AlongAxis(const std::string& op_type, int64_t axis,
                                                    const std::vector<OnnxValue>& inputs) {
  onnx::NodeProto node;
  node.set_op_type(op_type);
  const bool is_list = op_type == "Squeeze" || op_type == "Unsqueeze";
  const bool is_input = is_list && opset() >= 13;
  if (!is_input) {
    onnx::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(is_list ? "axes" : "axis");
    is_list ? attribute.add_ints(axis) : attribute.set_i(axis);
  }
  std::string made = name();
  for (int i = 2; network_.values.contains(made); ++i) made = absl::StrCat(name(), "/", i);
  node.add_output(made);
  for (size_t i = 0; i < inputs.size(); ++i) {
    node.add_input(absl::StrCat(made, "/input ", i));
    network_.values[node.input(static_cast<int>(i))] = inputs[i];
  }
  if (is_input) {
    node.add_input(absl::StrCat(made, "/axes"));
    network_.values[node.input(node.input_size() - 1)] = OnnxValue::OfInts({axis});
  }
  const OnnxScope scope = {{made}, scope_.prefix, scope_.alike};
  TESSERA_RETURN_IF_ERROR(ReadOnnxNode(OnnxNodeReader(node, scope, network_)));
  return network_.values.at(made);
}

absl::Status ReadIf(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const int64_t condition, KnownNumber(r.in(0), "its condition"));
  const std::string branch = condition != 0 ? "then_branch" : "else_branch";
  TESSERA_ASSIGN_OR_RETURN(const onnx::GraphProto* const graph, GraphOf(r, branch));
  const auto outputs = static_cast<size_t>(r.node().output_size());
  TESSERA_RETURN_IF_ERROR(CheckSizes(*graph, 0, outputs));
  TESSERA_ASSIGN_OR_RETURN(std::vector<OnnxValue> made, r.ReadWithin(*graph, branch, {}, {}));
  made.resize(outputs);
  SetAll(r, made);
  return absl::OkStatus();
}

// Loop. Inputs: the most rounds, whether to start, then the values carried from round to round. Its
// graph reads the round's number, whether to go on, and the carried values; it gives whether to go
// on, the carried values, and the values kept of each round.
absl::Status ReadLoop(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const onnx::GraphProto* const graph, GraphOf(r, "body"));
  const size_t states = std::max<size_t>(r.inputs(), 2) - 2;
  TESSERA_RETURN_IF_ERROR(CheckSizes(*graph, states + 2, states + 1));
  int64_t rounds = kMostRounds + 1, goes_on = 1;
  if (r.Has(0)) {
    TESSERA_ASSIGN_OR_RETURN(rounds, KnownNumber(r.in(0), "how often it runs"));
  }
  if (r.Has(1)) {
    TESSERA_ASSIGN_OR_RETURN(goes_on, KnownNumber(r.in(1), "whether it runs"));
  }
  TESSERA_ASSIGN_OR_RETURN(std::vector<OnnxValue> state, InputsOf(r, 2, states));
  std::vector<std::vector<OnnxValue>> kept(static_cast<size_t>(graph->output_size()) - states - 1);
  for (int64_t round = 0; round < rounds && goes_on != 0; ++round) {
    if (round == kMostRounds) {
      return absl::UnimplementedError(absl::StrCat("runs more than ", kMostRounds, " times"));
    }
    std::vector<OnnxValue> inputs = {OnnxValue::OfInt(round), OnnxValue::OfInt(1)};
    inputs.insert(inputs.end(), state.begin(), state.end());
    TESSERA_ASSIGN_OR_RETURN(std::vector<OnnxValue> made,
                             r.ReadWithin(*graph, "body", round, inputs));
    TESSERA_ASSIGN_OR_RETURN(goes_on, KnownNumber(made[0], "whether it goes on"));
    for (size_t i = 0; i < states; ++i) state[i] = std::move(made[1 + i]);
    for (size_t i = 0; i < kept.size(); ++i) kept[i].push_back(std::move(made[1 + states + i]));
  }
  SetAll(r, state);
  return SetStacked(r, std::move(kept), states, [](size_t) { return 0; });
}

// Scan. Inputs: the values carried from round to round, then tensors of which each round reads one
// place.
absl::Status ReadScan(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const onnx::GraphProto* const graph, GraphOf(r, "body"));
  const int64_t walked = r.Int("num_scan_inputs", 0);
  if (walked < 1 || walked > static_cast<int64_t>(r.inputs())) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_scan_inputs is ", walked, " of ", r.inputs(), " inputs"));
  }
  const size_t states = r.inputs() - static_cast<size_t>(walked);
  TESSERA_RETURN_IF_ERROR(CheckSizes(*graph, r.inputs(), states));
  TESSERA_ASSIGN_OR_RETURN(std::vector<OnnxValue> state, InputsOf(r, 0, states));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<OnnxValue> sequences,
                           InputsOf(r, states, static_cast<size_t>(walked)));
  int64_t rounds = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const std::vector<int64_t> dims = r.DimsOf(sequences[i]);
    const auto rank = static_cast<int64_t>(dims.size());
    int64_t axis = EntryOf(r, "scan_input_axes", i);
    if (axis < 0) axis += rank;
    const int64_t size = axis < 0 || axis >= rank ? -1 : dims[static_cast<size_t>(axis)];
    if (size < 1 || size > kMostRounds || (i > 0 && size != rounds)) {
      return absl::UnimplementedError(absl::StrCat(
          "it walks along axis ", axis, " of ", DimsText(dims), ", input ", states + i,
          "; expected at most ", kMostRounds, " places, as many as its other inputs have"));
    }
    rounds = size;
  }
  std::vector<std::vector<OnnxValue>> kept(static_cast<size_t>(graph->output_size()) - states);
  for (int64_t round = 0; round < rounds; ++round) {
    std::vector<OnnxValue> inputs = state;
    for (size_t i = 0; i < sequences.size(); ++i) {
      const bool backward = EntryOf(r, "scan_input_directions", i) != 0;
      const int64_t place = backward ? rounds - 1 - round : round;
      const int64_t axis = EntryOf(r, "scan_input_axes", i);
      TESSERA_ASSIGN_OR_RETURN(
          inputs.emplace_back(),
          r.AlongAxis("Gather", axis, {sequences[i], OnnxValue::OfInt(place)}));
    }
    TESSERA_ASSIGN_OR_RETURN(std::vector<OnnxValue> made,
                             r.ReadWithin(*graph, "body", round, inputs));
    for (size_t i = 0; i < states; ++i) state[i] = std::move(made[i]);
    for (size_t i = 0; i < kept.size(); ++i) kept[i].push_back(std::move(made[states + i]));
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    if (EntryOf(r, "scan_output_directions", i) != 0) std::reverse(kept[i].begin(), kept[i].end());
  }
  SetAll(r, state);
  return SetStacked(r, std::move(kept), states,
                    [&](size_t i) { return EntryOf(r, "scan_output_axes", i); });
}

}  // namespace tessera::worker
