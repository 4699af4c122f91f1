#include "worker/onnx/functions.h"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "google/protobuf/unknown_field_set.h"
#include "worker/onnx/onnx_graph.h"

namespace tessera::worker {
namespace {

constexpr int kMostNodes = 200'000;
// Of what functions become, beyond the nodes of their first calls: those the file has, too.
constexpr size_t kMostMadeBytes = 256 << 20;
constexpr size_t kMostDepth = 64;

// Fields that are newer than Debian's messages.
constexpr int kOverloadOfNode = 8;
constexpr int kOverloadOfFunction = 13;
constexpr int kDefaultsOfFunction = 11;  // AttributeProto, repeated

using google::protobuf::UnknownFieldSet;

// The values of such a field of texts or messages.
std::vector<std::string> NewField(const UnknownFieldSet& fields, int number) {
  std::vector<std::string> values;
  for (int i = 0; i < fields.field_count(); ++i) {
    const google::protobuf::UnknownField& field = fields.field(i);
    const bool text = field.type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED;
    if (text && field.number() == number) values.push_back(field.length_delimited());
  }
  return values;
}

std::string KeyOf(const std::string& domain, const std::string& name,
                  const UnknownFieldSet& unknown, int overload_field) {
  const std::vector<std::string> overload = NewField(unknown, overload_field);
  return absl::StrCat(domain == "ai.onnx" ? "" : domain, ".", name,
                      overload.empty() ? "" : absl::StrCat(":", overload.back()));
}

int64_t OpsetOf(const google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>& imports) {
  for (const onnx::OperatorSetIdProto& set : imports) {
    if (set.domain().empty() || set.domain() == "ai.onnx") return set.version();
  }
  return 0;
}

// One call of a function: the names and attributes that stand for the function's own.
class Call {
 public:
  // `defaults`: the function's values of attributes.
  Call(const onnx::NodeProto& node, const onnx::FunctionProto& function,
       std::map<std::string, onnx::AttributeProto> defaults)
      : attributes_(std::move(defaults)) {
    for (const std::string& output : node.output()) {
      if (prefix_.empty()) prefix_ = output;
    }
    for (const onnx::AttributeProto& given : node.attribute()) attributes_[given.name()] = given;
    for (int i = 0; i < function.input_size(); ++i) {
      names_[function.input(i)] = i < node.input_size() ? node.input(i) : "";
    }
    for (int i = 0; i < node.output_size(); ++i) {
      if (node.output(i).empty()) continue;
      const auto [of, is_new] = names_.emplace(function.output(i), node.output(i));
      if (!is_new) not_made_ = of->first;
    }
  }

  // An output of the function that is its input, or an output before; empty: there is none.
  const std::string& not_made() const { return not_made_; }

  // The function's nodes, of the caller's names and attributes, whose bytes are added to `bytes`.
  // Unfinished where these come to be more than kMostMadeBytes.
  onnx::GraphProto Body(const onnx::FunctionProto& function, size_t& bytes) const {
    onnx::GraphProto body;
    *body.mutable_node() = function.node();
    RenameAll(body, [&](std::string& name) {
      if (name.empty() || bytes > kMostMadeBytes) return;
      const auto known = names_.find(name);
      name = known != names_.end() ? known->second : absl::StrCat(prefix_, "/", name);
      bytes += name.size();
    });
    TakeAttributes(body, bytes);
    return body;
  }

 private:
  void TakeAttributes(onnx::GraphProto& graph, size_t& bytes) const {
    for (onnx::NodeProto& node : *graph.mutable_node()) {
      if (bytes > kMostMadeBytes) return;
      if (!node.name().empty()) {
        node.set_name(absl::StrCat(prefix_, "/", node.name()));
        bytes += node.name().size();
      }
      google::protobuf::RepeatedPtrField<onnx::AttributeProto> attributes;
      for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
        if (attribute.ref_attr_name().empty()) {
          if (attribute.has_g()) TakeAttributes(*attribute.mutable_g(), bytes);
          *attributes.Add() = std::move(attribute);
        } else if (const auto given = attributes_.find(attribute.ref_attr_name());
                   given != attributes_.end()) {
          bytes += given->second.ByteSizeLong();
          if (bytes > kMostMadeBytes) return;
          *attributes.Add() = given->second;
          attributes.rbegin()->set_name(attribute.name());
        }
      }
      node.mutable_attribute()->Swap(&attributes);
    }
  }

  std::string prefix_;
  std::map<std::string, std::string> names_;
  std::map<std::string, onnx::AttributeProto> attributes_;
  std::string not_made_;
};

class Inliner {
 public:
  explicit Inliner(const onnx::ModelProto& file) : opset_(OpsetOf(file.opset_import())) {}

  absl::Status Learn(const onnx::ModelProto& file) {
    for (const onnx::FunctionProto& function : file.functions()) {
      const std::string key =
          KeyOf(function.domain(), function.name(), function.unknown_fields(), kOverloadOfFunction);
      if (functions_.emplace(key, &function).second) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("\"", key, "\" is the name of two of its functions"));
    }
    return absl::OkStatus();
  }

  // `depth`: the number of functions that the graph is within.
  absl::Status Inline(onnx::GraphProto& graph, size_t depth) {
    google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
    nodes.Swap(graph.mutable_node());
    for (onnx::NodeProto& node : nodes) {
      TESSERA_RETURN_IF_ERROR(Add(std::move(node), depth, graph));
    }
    return absl::OkStatus();
  }

 private:
  // Adds the node to the graph, or the nodes that it stands for.
  absl::Status Add(onnx::NodeProto node, size_t depth, onnx::GraphProto& graph) {
    const std::string key =
        KeyOf(node.domain(), node.op_type(), node.unknown_fields(), kOverloadOfNode);
    if (++nodes_ > kMostNodes) {
      return absl::InvalidArgumentError(
          absl::StrCat("its functions, put in place, are more than ", kMostNodes, " nodes"));
    }
    const auto found = functions_.find(key);
    if (found == functions_.end()) {
      for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
        if (attribute.has_g()) TESSERA_RETURN_IF_ERROR(Inline(*attribute.mutable_g(), depth));
      }
      *graph.add_node() = std::move(node);
      return absl::OkStatus();
    }
    const onnx::FunctionProto& function = *found->second;
    const auto wrong = [&key](const auto&... what) {
      return absl::InvalidArgumentError(absl::StrCat("the function \"", key, "\" ", what...));
    };
    if (depth >= kMostDepth) {
      return wrong("is called within functions, ", kMostDepth, " deep: do they call themselves?");
    }
    if (node.input_size() > function.input_size() || node.output_size() > function.output_size()) {
      return wrong("has ", function.input_size(), " inputs and ", function.output_size(),
                   " outputs, and a node that calls it ", node.input_size(), " and ",
                   node.output_size());
    }
    if (const int64_t own = OpsetOf(function.opset_import()); own != 0 && own != opset_) {
      return absl::UnimplementedError(absl::StrCat("the function \"", key, "\" is of opset ", own,
                                                   ", and the file of ", opset_,
                                                   "; expected one for both"));
    }
    if (!called_.insert(&function).second) bytes_ += function.ByteSizeLong();
    const auto too_large = [&] {
      return wrong("brings what is put in the place of calls, with the names and attributes that ",
                   "these give, to more than ", kMostMadeBytes >> 20, " MiB");
    };
    if (bytes_ > kMostMadeBytes) return too_large();
    std::map<std::string, onnx::AttributeProto> defaults;
    for (const std::string& bytes : NewField(function.unknown_fields(), kDefaultsOfFunction)) {
      onnx::AttributeProto attribute;
      if (!attribute.ParseFromString(bytes)) return wrong("has a damaged value of an attribute");
      defaults[attribute.name()] = std::move(attribute);
    }
    const Call call(node, function, std::move(defaults));
    if (!call.not_made().empty()) {
      return wrong("gives \"", call.not_made(), "\", which it has not made, or gives it twice");
    }
    onnx::GraphProto body = call.Body(function, bytes_);
    if (bytes_ > kMostMadeBytes) return too_large();
    for (onnx::NodeProto& inner : *body.mutable_node()) {
      TESSERA_RETURN_IF_ERROR(Add(std::move(inner), depth + 1, graph));
    }
    return absl::OkStatus();
  }

  const int64_t opset_;
  std::map<std::string, const onnx::FunctionProto*> functions_;
  int nodes_ = 0;
  std::set<const onnx::FunctionProto*> called_;
  size_t bytes_ = 0;  // of all calls, as kMostMadeBytes bounds them
};

}  // namespace

absl::Status InlineFunctions(onnx::ModelProto& file) {
  if (file.functions().empty()) return absl::OkStatus();
  Inliner inliner(file);
  TESSERA_RETURN_IF_ERROR(inliner.Learn(file));
  return inliner.Inline(*file.mutable_graph(), 0);
}

}  // namespace tessera::worker
