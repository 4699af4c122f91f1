// Turns parameters into tensors without the batch: for arithmetic on parameters alone, and if nodes
// read one in several forms.
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/known_numbers.h"
#include "worker/onnx/onnx_graph.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

// Whether the op only moves numbers, trained or not, or reads only their shape.
bool Moves(const std::string& op_type) {
  static const auto* const moves =
      new std::set<std::string>{"Cast",  "Expand", "EyeLike", "Identity",  "OneHot",   "Reshape",
                                "Shape", "Size",   "Squeeze", "Transpose", "Unsqueeze"};
  return moves->contains(op_type);
}

// Whether the op can read known numbers that are not trained.
bool ReadsKnown(const std::string& op_type) {
  static const auto* const ops = new std::set<std::string>{
      "Clip", "Concat", "ConstantOfShape", "Gather", "NonZero", "Range", "Slice", "Split", "Trilu"};
  return ops->contains(op_type);
}

// Whether inputs after the first are the op's own weights.
bool HasWeights(const std::string& op_type) {
  static const auto* const ops = new std::set<std::string>{"BatchNormalization",
                                                           "Conv",
                                                           "Gemm",
                                                           "GroupNormalization",
                                                           "GRU",
                                                           "InstanceNormalization",
                                                           "LayerNormalization",
                                                           "LSTM",
                                                           "MatMul",
                                                           "PRelu",
                                                           "RNN",
                                                           "RMSNormalization"};
  return ops->contains(op_type);
}

// The form in which a node reads its input; `moved` says how the input was moved before. Empty: a
// form that only this op has.
std::string FormOf(const onnx::NodeProto& node, int input, const std::string& moved) {
  const std::string& op = node.op_type();
  if (op != "MatMul" && op != "Gemm") {
    return HasWeights(op) ? "" : absl::StrCat(op == "Add" ? "added" : "a number", moved);
  }
  std::string form = absl::StrCat(op, " ", input, moved, input < 2 ? node.input_size() : 0);
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    absl::StrAppend(&form, " ", attribute.ShortDebugString());
  }
  return form;
}

}  // namespace

std::set<std::string> InSeveralForms(const std::vector<const onnx::NodeProto*>& nodes) {
  std::map<std::string, std::pair<std::string, std::string>> moved;  // from where, and how
  std::map<std::string, std::set<std::string>> forms;
  for (const onnx::NodeProto* node : nodes) {
    if (node->op_type() == "Shape") continue;
    for (int i = 0; i < node->input_size(); ++i) {
      const auto from = moved.find(node->input(i));
      auto [name, how] =
          from != moved.end() ? from->second : std::pair(node->input(i), std::string());
      if (!Moves(node->op_type())) {
        forms[name].insert(FormOf(*node, i, how));
      } else if (i == 0 && node->output_size() == 1) {
        if (node->op_type() == "Transpose") {
          absl::StrAppend(&how, " turned ");
          for (const auto& perm : node->attribute()) absl::StrAppend(&how, perm.ShortDebugString());
        }
        moved[node->output(0)] = {name, how};
      }
    }
  }
  std::set<std::string> several;
  for (const auto& [name, in] : forms) {
    if (in.size() > 1 && !in.contains("")) several.insert(name);
  }
  return several;
}

absl::Status TakeParametersUnbatched(OnnxNodeReader& r) {
  if (!GraphsWithin(r.node()).empty()) return absl::OkStatus();  // nodes within read them
  for (size_t i = 0; i < r.inputs(); ++i) {
    if (r.Has(i) && r.in(i).in_forms) TESSERA_RETURN_IF_ERROR(r.TakeUnbatched(i));
  }
  const std::string& op = r.node().op_type();
  // Numbers that were moved on their way here may be read elsewhere too.
  const bool cut = op == "Split" && r.in(0).read_once && r.in(0).source == r.node().input(0);
  if (Moves(op) || cut) return absl::OkStatus();
  for (size_t i = 0; i < r.inputs(); ++i) {
    const bool batched = r.IsTensor(i) ? !r.in(i).IsUnbatched() : r.in(i).HasBatch();
    if (batched) return absl::OkStatus();
  }
  for (size_t i = 0; i < r.inputs(); ++i) {
    if (i > 0 && HasWeights(op)) break;
    if (!r.IsTensor(i) && r.in(i).trained) TESSERA_RETURN_IF_ERROR(r.TakeUnbatched(i));
  }
  // The other inputs become tensors if one is.
  const bool tensor = r.IsTensor(0) || r.IsTensor(1) || r.IsTensor(2);
  if (!tensor && !ReadsKnown(op) && r.in(0).kind == OnnxValue::Kind::kFloats) {
    return r.TakeUnbatched(0);
  }
  return absl::OkStatus();
}

}  // namespace tessera::worker
