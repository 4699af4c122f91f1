#include "worker/onnx/import.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/tasks.h"
#include "common/status_macros.h"
#include "worker/dense/layers.h"
#include "worker/onnx/check_file.h"
#include "worker/onnx/example_batch.h"
#include "worker/onnx/functions.h"
#include "worker/onnx/initializers.h"
#include "worker/onnx/join_weights.h"
#include "worker/onnx/onnx_graph.h"
#include "worker/onnx/onnx_proto.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

using Values = std::map<std::string, OnnxValue>;

// The job's names for the file's inputs that model.options.inputs renames.
absl::StatusOr<std::map<std::string, std::string>> InputNamesOf(const v1::ModelSpec& model) {
  std::map<std::string, std::string> names;
  for (const auto& [option, value] : model.options().fields()) {
    if (option != "inputs" || !value.has_struct_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.options.", option,
                       ": the model \"onnx\" has one option, inputs: {NAME IN THE FILE: NAME IN "
                       "THE JOB, ...}"));
    }
    for (const auto& [name, target] : value.struct_value().fields()) {
      if (!target.has_string_value()) {
        return absl::InvalidArgumentError(
            absl::StrCat("model.options.inputs.", name, ": expected a name"));
      }
      names[name] = target.string_value();
    }
  }
  return names;
}

// A tensor of the file that a loss reads.
struct Target {
  std::string name;
  std::string option;  // the job's field that names it
  v1::Loss loss;
};

absl::StatusOr<std::vector<Target>> TargetsOf(const v1::ModelSpec& model,
                                              const onnx::GraphProto& graph) {
  std::vector<Target> targets;
  for (const v1::TaskSpec& task : model.tasks()) {
    targets.push_back({task.output().empty() ? task.name() : task.output(),
                       absl::StrCat("model.tasks[", targets.size(), "].output"), task.loss()});
  }
  if (targets.empty() && (!model.output().empty() || graph.output_size() == 1)) {
    targets.push_back({model.output().empty() ? graph.output(0).name() : model.output(),
                       "model.output", model.loss()});
  }
  if (!targets.empty()) return targets;
  std::vector<std::string> names;
  for (const auto& output : graph.output()) names.push_back(output.name());
  return absl::InvalidArgumentError(absl::StrCat("the file has ", names.size(), " outputs (",
                                                 absl::StrJoin(names, ", "),
                                                 "); name one in model.output"));
}

// Checks that a node makes each of them.
absl::Status CheckTargets(const std::vector<Target>& targets, const onnx::GraphProto& graph) {
  std::vector<std::string> known;
  for (const onnx::NodeProto& node : graph.node()) {
    known.insert(known.end(), node.output().begin(), node.output().end());
  }
  for (const Target& target : targets) {
    if (std::count(known.begin(), known.end(), target.name) > 0) continue;
    if (known.size() > 20) known.resize(20);
    return absl::InvalidArgumentError(absl::StrCat("no node makes the output \"", target.name, "\"",
                                                   KnownNames(target.name, known)));
  }
  return absl::OkStatus();
}

// Losses of logits must not read the result of a Sigmoid or Softmax, even if it was moved since.
absl::Status CheckLogits(const Target& target, const std::vector<const onnx::NodeProto*>& nodes) {
  static const auto* const moves = new std::set<std::string>{
      "Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"};
  const math::Outputs kind = OutputsOf(target.loss);
  const bool binary = kind == math::Outputs::kLogits;
  if (!binary && kind != math::Outputs::kClasses) return absl::OkStatus();
  const std::string probability = binary ? "Sigmoid" : "Softmax";
  std::string name = target.name;
  // From the end: what a node reads is made before it.
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (std::count((*node)->output().begin(), (*node)->output().end(), name) == 0) continue;
    const std::string& op = (*node)->op_type();
    if (op == probability) {
      return absl::InvalidArgumentError(
          absl::StrCat("the output \"", target.name, "\" is a probability, and ",
                       LossName(target.loss), " reads logits: set ", target.option, " to \"",
                       (*node)->input(0), "\", what its ", op, " reads"));
    }
    if (!moves->contains(op)) return absl::OkStatus();
    name = (*node)->input(0);
  }
  return absl::OkStatus();
}

absl::Status CheckOps(const std::vector<const onnx::NodeProto*>& nodes) {
  std::set<std::string> unknown;
  for (const onnx::NodeProto* node : WithThoseWithin(nodes)) {
    const bool standard = node->domain().empty() || node->domain() == "ai.onnx";
    if (standard && FindOnnxOp(node->op_type()) != nullptr) continue;
    unknown.insert(standard ? node->op_type() : absl::StrCat(node->domain(), ".", node->op_type()));
  }
  if (unknown.empty()) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("the network has ops that cannot be read: ", absl::StrJoin(unknown, ", "),
                   ". Known are ", absl::StrJoin(ReadableOnnxOps(), ", ")));
}

bool IsLength(const std::string& name, const ModelInputs& inputs) {
  return std::any_of(
      inputs.sequences.begin(), inputs.sequences.end(),
      [&](const ModelInputs::Sequence& of) { return LengthInput(of.column) == name; });
}

// Lengths may also be whole numbers.
absl::Status CheckType(const onnx::ValueInfoProto& input, bool is_length) {
  const int type = input.type().tensor_type().elem_type();
  const bool is_int = type == onnx::TensorProto::INT32 || type == onnx::TensorProto::INT64;
  if (IsFloatType(type) || (is_length && is_int)) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "input \"", input.name(),
      "\" has no floats: a network reads numbers and rows as float32, and the lengths of a "
      "sequence (COLUMN.length) as float32, int32 or int64; no ids (of an exported model: tessera "
      "export --inline-rows 0)"));
}

// Whether the file has the input as [batch], which stands for [batch, 1].
bool IsOfRankOne(const onnx::ValueInfoProto& input) {
  const auto& type = input.type().tensor_type();
  return type.has_shape() && type.shape().dim_size() == 1;
}

// Checks that declared dimensions after the batch, if they are numbers, are those of the tensor.
absl::Status CheckDims(const onnx::ValueInfoProto& input, const Shape& found) {
  const auto& type = input.type().tensor_type();
  if (!type.has_shape() || (IsOfRankOne(input) && found == Shape{1})) return absl::OkStatus();
  bool fits = type.shape().dim_size() == static_cast<int>(found.rank()) + 1;
  std::vector<std::string> dims;
  for (int i = 0; i < type.shape().dim_size(); ++i) {
    const auto& dim = type.shape().dim(i);
    const bool known = i > 0 && dim.has_dim_value() && dim.dim_value() > 0;
    if (fits && known) fits = dim.dim_value() == found.dim(static_cast<size_t>(i - 1));
    dims.push_back(i == 0 ? "batch" : known ? absl::StrCat(dim.dim_value()) : "?");
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("input \"", input.name(), "\" is [", absl::StrJoin(dims, ", "),
                   "] in the file, the job's data gives ", found.ToString(),
                   found == Shape{1} ? " or [batch]" : ""));
}

// `outputs`: the names that the nodes are needed for.
absl::Status ReadInputs(const v1::ModelSpec& model, const ModelInputs& offered,
                        const onnx::ModelProto& whole,
                        const std::vector<const onnx::NodeProto*>& nodes,
                        const std::vector<std::string>& outputs, GraphBuilder& graph,
                        Values* values) {
  const onnx::GraphProto& file = whole.graph();
  TESSERA_ASSIGN_OR_RETURN(const auto names, InputNamesOf(model));
  std::deque<onnx::NodeProto> made;
  const std::set<std::string> several = InSeveralForms(Unfolded(nodes, made));
  const std::set<std::string> with_gradient =
      NamesWithGradient(nodes, outputs, whole.producer_name());
  const ToldNames told = NamesTold(file);
  std::map<std::string, int> read;  // how often
  for (const onnx::NodeProto* node : nodes) {
    for (const std::string& name : node->input()) ++read[name];
    if (GraphsWithin(*node).empty()) continue;
    for (const std::string& name : NamesRead({node})) read[name] += 2;  // in every round
  }
  for (const onnx::SparseTensorProto& tensor : file.sparse_initializer()) {
    if (read.count(tensor.values().name()) == 0) continue;
    return absl::UnimplementedError(absl::StrCat("\"", tensor.values().name(),
                                                 "\" is a sparse_initializer; expected one that "
                                                 "has all its numbers"));
  }
  for (const onnx::TensorProto& tensor : file.initializer()) {
    if (read.count(tensor.name()) == 0) continue;
    TESSERA_ASSIGN_OR_RETURN(OnnxValue value, ValueOfTensor(tensor));
    if (std::any_of(value.floats.begin(), value.floats.end(),
                    [](float number) { return std::isnan(number); })) {
      return absl::InvalidArgumentError(
          absl::StrCat("initializer \"", tensor.name(), "\" has NaN among its numbers"));
    }
    // A mask of infinities is not trained either.
    value.trained = value.kind == OnnxValue::Kind::kFloats &&
                    with_gradient.contains(tensor.name()) &&
                    !told.of_code.contains(tensor.name()) &&
                    (told.of_parameters.contains(tensor.name()) ||
                     !IsOfCode(value, tensor.name(), whole.producer_name())) &&
                    std::all_of(value.floats.begin(), value.floats.end(),
                                [](float number) { return std::isfinite(number); });
    value.source = tensor.name();
    value.read_once = value.trained && read[tensor.name()] == 1;
    // Exporters merge equal initializers, such as the ones that layers begin with.
    value.in_forms = value.trained && several.contains(tensor.name()) &&
                     value.floats.size() <= OnnxNodeReader::kMostUnbatched &&
                     std::adjacent_find(value.floats.begin(), value.floats.end(),
                                        std::not_equal_to<>()) != value.floats.end();
    (*values)[tensor.name()] = std::move(value);
  }
  for (const onnx::ValueInfoProto& input : file.input()) {
    // Old files list initializers here too.
    if (read.count(input.name()) == 0 || values->count(input.name()) > 0) continue;
    const auto named = names.find(input.name());
    const std::string name = named == names.end() ? input.name() : named->second;
    const Tensor tensor = FindLayerInput(name, offered, graph);
    if (tensor.index < 0) {
      TESSERA_RETURN_IF_ERROR(graph.status());
      return absl::InvalidArgumentError(
          absl::StrCat("input \"", name, "\" is nothing that the job's data has",
                       KnownNames(name, KnownLayerInputs(offered, graph)),
                       "; model.options.inputs may give the file's inputs other names"));
    }
    TESSERA_RETURN_IF_ERROR(CheckType(input, IsLength(name, offered)));
    TESSERA_RETURN_IF_ERROR(CheckDims(input, graph.shape(tensor)));
    OnnxValue value = OnnxValue::Of(tensor, graph.shape(tensor).rank());
    value.whole = !IsFloatType(input.type().tensor_type().elem_type());
    if (IsOfRankOne(input)) value.axes.pop_back();
    (*values)[input.name()] = std::move(value);
  }
  return absl::OkStatus();
}

// The target as the loss reads it; in the file it is [batch], [batch, 1] or [batch, classes].
absl::StatusOr<Tensor> OutputOf(const OnnxValue& made, OnnxNodeReader reader) {
  if (made.kind != OnnxValue::Kind::kTensor || made.IsUnbatched()) {
    return absl::InvalidArgumentError("is the same for every sample");
  }
  if (made.CountsSamples()) return absl::InvalidArgumentError("counts the samples of a batch");
  if (!made.order.empty() && made.order != OnnxValue::kAnyOrder) {
    return absl::UnimplementedError(absl::StrCat("has its samples in the order of \"", made.order,
                                                 "\"; expected the file's, by a Gather that leads "
                                                 "back"));
  }
  const std::vector<int64_t> dims = reader.DimsOf(made);
  const auto sizes = std::count_if(dims.begin(), dims.end(), [](int64_t dim) { return dim != 1; });
  if (sizes > 2 || dims[made.batch_axis()] != BatchTimes(1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "is ", DimsText(dims), "; expected one number, or one for each class, a sample"));
  }
  return reader.Flat(made);
}

absl::StatusOr<std::vector<Tensor>> Build(const v1::ModelSpec& model, const ModelInputs& inputs,
                                          absl::string_view bytes, GraphBuilder& graph,
                                          ParameterStarts* starts) {
  onnx::ModelProto file;
  if (bytes.size() > INT32_MAX ||
      !file.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ||
      file.graph().node_size() == 0) {
    return absl::InvalidArgumentError("is no ONNX model, or one without nodes");
  }
  OnnxNetwork network{.producer = file.producer_name(), .graph = graph, .starts = *starts};
  for (const auto& set : file.opset_import()) {
    if (set.domain().empty() || set.domain() == "ai.onnx") network.opset = set.version();
  }
  TESSERA_RETURN_IF_ERROR(InlineFunctions(file));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Target> targets, TargetsOf(model, file.graph()));
  TESSERA_RETURN_IF_ERROR(CheckTargets(targets, file.graph()));
  TESSERA_RETURN_IF_ERROR(CheckNamesMadeOnce(file.graph()));
  HoistConstants(*file.mutable_graph());
  JoinRecurrentWeights(*file.mutable_graph(), network.opset, graph);
  std::vector<std::string> names;
  for (const Target& target : targets) names.push_back(target.name);
  const std::vector<const onnx::NodeProto*> nodes = NeededNodes(file.graph(), names);
  TESSERA_RETURN_IF_ERROR(CheckOps(nodes));
  TESSERA_RETURN_IF_ERROR(ReadInputs(model, inputs, file, nodes, names, graph, &network.values));
  network.example_batch = ExampleBatchOf(file.graph(), [&](const onnx::ValueInfoProto& input) {
    return network.values.contains(input.name()) &&
           network.values.at(input.name()).kind == OnnxValue::Kind::kTensor;
  });
  OnnxScope scope{.wanted = NamesRead(nodes)};
  scope.wanted.insert(names.begin(), names.end());
  for (const onnx::NodeProto* node : nodes) {
    TESSERA_RETURN_IF_ERROR(ReadOnnxNode(OnnxNodeReader(*node, scope, network)));
  }
  for (const Target& target : targets) TESSERA_RETURN_IF_ERROR(CheckLogits(target, nodes));
  std::vector<Tensor> outputs;
  for (const Target& target : targets) {
    const auto maker = std::find_if(nodes.begin(), nodes.end(), [&](const onnx::NodeProto* node) {
      return std::count(node->output().begin(), node->output().end(), target.name) > 0;
    });
    const absl::StatusOr<Tensor> output =
        OutputOf(network.values.at(target.name), OnnxNodeReader(**maker, scope, network));
    if (!output.ok()) {
      return WithContext(output.status(), absl::StrCat("the output \"", target.name, "\""));
    }
    outputs.push_back(*output);
  }
  return outputs;
}

}  // namespace

std::vector<Tensor> BuildOnnx(const v1::ModelSpec& model, const ModelInputs& inputs,
                              absl::string_view file, GraphBuilder& graph,
                              ParameterStarts* starts) {
  absl::StatusOr<std::vector<Tensor>> output = Build(model, inputs, file, graph, starts);
  if (output.ok()) {
    graph.LeaveOutUnread();  // such as what the last round of a loop makes for the next one
    return *std::move(output);
  }
  graph.Replace(WithContext(Printable(output.status()),
                            absl::StrCat("model.onnx_file (", model.onnx_file(), ")")));
  return {};
}

}  // namespace tessera::worker
