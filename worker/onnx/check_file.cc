#include "worker/onnx/check_file.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/suggest.h"

#define ONNX_NAMESPACE onnx
#include "onnx/defs/schema.h"

namespace tessera::worker {
namespace {

using Type = onnx::AttributeProto::AttributeType;

std::string Maker(const onnx::NodeProto& node) {
  return node.name().empty() ? absl::StrCat("a node ", node.op_type())
                             : absl::StrCat("node \"", node.name(), "\" (", node.op_type(), ")");
}

absl::Status CheckAttributes(const onnx::NodeProto& node, const onnx::OpSchema& schema,
                             bool all_are_known) {
  std::vector<std::string> known;
  for (const auto& [name, attribute] : schema.attributes()) known.push_back(name);
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    const auto found = schema.attributes().find(attribute.name());
    if (found == schema.attributes().end()) {
      // Names with this beginning are exporters' own notes.
      if (!all_are_known || absl::StartsWith(attribute.name(), "__")) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("\"", attribute.name(), "\" is none of its attributes; ",
                       known.empty() ? "it has none" : SuggestName(attribute.name(), known)));
    }
    // Files of the format's first version lack the type.
    const Type type = attribute.type();
    if (type == onnx::AttributeProto::UNDEFINED || type == found->second.type) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "attribute \"", attribute.name(), "\" is ", onnx::AttributeProto::AttributeType_Name(type),
        ", expected ", onnx::AttributeProto::AttributeType_Name(found->second.type)));
  }
  for (const auto& [name, attribute] : schema.attributes()) {
    const bool has = std::any_of(
        node.attribute().begin(), node.attribute().end(),
        [&name = name](const onnx::AttributeProto& given) { return given.name() == name; });
    if (!attribute.required || has || !all_are_known) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("has no attribute \"", name, "\", which it must"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckNamesMadeOnce(const onnx::GraphProto& graph) {
  std::map<std::string, std::string> made;  // name -> what makes it
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    if (made.emplace(tensor.name(), "an initializer").second) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("\"", tensor.name(), "\" is the name of two initializers"));
  }
  for (const onnx::ValueInfoProto& input : graph.input()) made.emplace(input.name(), "an input");
  for (const onnx::NodeProto& node : graph.node()) {
    for (const std::string& output : node.output()) {
      if (output.empty()) continue;
      const auto [before, is_new] = made.emplace(output, absl::StrCat("made by ", Maker(node)));
      if (is_new) continue;
      return absl::InvalidArgumentError(absl::StrCat("\"", output, "\" is ", before->second,
                                                     ", and made by ", Maker(node),
                                                     " too; expected one of both"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNode(const onnx::NodeProto& node, int64_t opset) {
  if (!node.domain().empty() && node.domain() != "ai.onnx") return absl::OkStatus();
  const int newest =
      onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map().at(onnx::ONNX_DOMAIN).second;
  const bool all_are_known = opset <= newest;
  const auto version = static_cast<int>(std::min<int64_t>(opset, newest));
  const onnx::OpSchema* const schema =
      onnx::OpSchemaRegistry::Schema(node.op_type(), version, onnx::ONNX_DOMAIN);
  if (schema == nullptr) return absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(CheckAttributes(node, *schema, all_are_known));
  if (!all_are_known || node.input_size() <= schema->max_input()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("has ", node.input_size(), " inputs, expected at most ", schema->max_input()));
}

}  // namespace tessera::worker
