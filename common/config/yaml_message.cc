#include "common/config/yaml_message.h"

#include <limits>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/yaml_scalar.h"
#include "common/status_macros.h"
#include "common/suggest.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/struct.pb.h"

namespace tessera::yaml {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Aliases can make a small file a huge tree, and a tree a part of itself.
constexpr int kMaxNodes = 200000;
constexpr size_t kMaxTextBytes = size_t{64} << 20;  // of values, and of the paths to them
constexpr int kMaxDepth = 64;

Scalar ToScalar(const YAML::Node& node) { return {node.Scalar(), node.Tag() == "!"}; }

const char* KindOf(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Map:
      return "a mapping";
    case YAML::NodeType::Scalar:
      return "a single value";
    default:
      return "nothing";
  }
}

// The message for a field without a value.
const char* Nothing(const FieldDescriptor& field) {
  if (field.is_repeated()) return "expected a list, found nothing; write [] or leave it out";
  return field.cpp_type() == FieldDescriptor::CPPTYPE_STRING
             ? "has no value; write \"\" for an empty text, or leave it out"
             : "has no value; give one or leave it out";
}

std::string Below(const std::string& path, const std::string& name) {
  return path.empty() ? name : absl::StrCat(path, ".", name);
}

// Sets the field, or adds to it if it is repeated.
absl::Status SetScalar(const Scalar& scalar, const FieldDescriptor& field, Message& message) {
  const Reflection& to = *message.GetReflection();
  const bool add = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      add ? to.AddString(&message, &field, scalar.text)
          : to.SetString(&message, &field, scalar.text);
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_BOOL: {
      TESSERA_ASSIGN_OR_RETURN(const bool value, ToBool(scalar));
      add ? to.AddBool(&message, &field, value) : to.SetBool(&message, &field, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_UINT32: {
      TESSERA_ASSIGN_OR_RETURN(const uint64_t value,
                               ToUnsigned(scalar, std::numeric_limits<uint32_t>::max()));
      const auto narrow = static_cast<uint32_t>(value);
      add ? to.AddUInt32(&message, &field, narrow) : to.SetUInt32(&message, &field, narrow);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      TESSERA_ASSIGN_OR_RETURN(const uint64_t value,
                               ToUnsigned(scalar, std::numeric_limits<uint64_t>::max()));
      add ? to.AddUInt64(&message, &field, value) : to.SetUInt64(&message, &field, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_INT32: {
      TESSERA_ASSIGN_OR_RETURN(const int64_t value,
                               ToSigned(scalar, std::numeric_limits<int32_t>::min(),
                                        std::numeric_limits<int32_t>::max()));
      const auto narrow = static_cast<int32_t>(value);
      add ? to.AddInt32(&message, &field, narrow) : to.SetInt32(&message, &field, narrow);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      TESSERA_ASSIGN_OR_RETURN(const int64_t value,
                               ToSigned(scalar, std::numeric_limits<int64_t>::min(),
                                        std::numeric_limits<int64_t>::max()));
      add ? to.AddInt64(&message, &field, value) : to.SetInt64(&message, &field, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_FLOAT: {
      TESSERA_ASSIGN_OR_RETURN(const double value, ToReal(scalar, true));
      const auto narrow = static_cast<float>(value);
      add ? to.AddFloat(&message, &field, narrow) : to.SetFloat(&message, &field, narrow);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      TESSERA_ASSIGN_OR_RETURN(const double value, ToReal(scalar, false));
      add ? to.AddDouble(&message, &field, value) : to.SetDouble(&message, &field, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      TESSERA_ASSIGN_OR_RETURN(const int value, ToEnum(scalar, *field.enum_type()));
      add ? to.AddEnumValue(&message, &field, value) : to.SetEnumValue(&message, &field, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
  return absl::InternalError(absl::StrCat("field ", field.full_name(), " is not a scalar"));
}

}  // namespace

std::string SuggestField(absl::string_view name, const Descriptor& type) {
  std::vector<std::string> known;
  for (int i = 0; i < type.field_count(); ++i) known.push_back(type.field(i)->name());
  if (known.empty()) return "there are no fields here; write {}";
  const std::string nearest = NearestName(name, known);
  return absl::StrCat(nearest.empty() ? "" : absl::StrCat("did you mean '", nearest, "'? "),
                      nearest.empty() ? "known: " : "Known: ", absl::StrJoin(known, ", "));
}

MessageReader::MessageReader(Names names, SourceMap* sources)
    : names_(std::move(names)), sources_(sources) {}

absl::Status MessageReader::Wrong(const YAML::Node& node, const std::string& path,
                                  absl::string_view text) const {
  return absl::InvalidArgumentError(
      absl::StrCat(names_.origin(node.Mark()), ": ", path, path.empty() ? "" : ": ", text));
}

absl::Status MessageReader::WrongStatus(const YAML::Node& node, const std::string& path,
                                        const absl::Status& status) const {
  return status.ok() ? status : Wrong(node, path, status.message());
}

absl::Status MessageReader::Enter(const YAML::Node& node, const std::string& path) {
  if (++visited_ > kMaxNodes) {
    return Wrong(node, path, absl::StrCat("more than ", kMaxNodes, " values (through aliases?)"));
  }
  text_bytes_ += path.size() + node.Scalar().size();
  if (text_bytes_ > kMaxTextBytes) {
    return Wrong(node, "",
                 absl::StrCat("more than ", kMaxTextBytes >> 20,
                              " MiB of values and their names (through aliases?)"));
  }
  if (depth_ > kMaxDepth) {
    return Wrong(node, path, absl::StrCat("nested deeper than ", kMaxDepth, " levels"));
  }
  sources_->Add(path, names_.place(node.Mark()));
  return absl::OkStatus();
}

absl::Status MessageReader::VisitMapping(
    const YAML::Node& node, const std::string& path,
    const std::function<absl::Status(const std::string&, const YAML::Node&, const YAML::Node&)>&
        visit) {
  std::set<std::string> seen;
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) {
      return Wrong(entry.first, path,
                   absl::StrCat("expected a field's name, found ", KindOf(entry.first)));
    }
    const std::string& name = entry.first.Scalar();
    if (!seen.insert(name).second) {
      return Wrong(entry.first, Below(path, name), "stands here twice; leave out one of them");
    }
    TESSERA_RETURN_IF_ERROR(visit(name, entry.first, entry.second));
  }
  return absl::OkStatus();
}

absl::Status MessageReader::ReadMessage(const YAML::Node& node, const std::string& path,
                                        Message& message) {
  return ReadMapping(node, path, message, nullptr);
}

absl::Status MessageReader::ReadMapping(const YAML::Node& node, const std::string& path,
                                        Message& message, const YAML::Node* one_name) {
  TESSERA_RETURN_IF_ERROR(Enter(node, path));
  ++depth_;
  const auto leave = absl::MakeCleanup([this] { --depth_; });
  const Descriptor& type = *message.GetDescriptor();
  if (&type == google::protobuf::Struct::descriptor()) {
    return ReadStruct(node, path, static_cast<google::protobuf::Struct&>(message));
  }
  if (node.IsNull()) return absl::OkStatus();
  if (!node.IsMap()) {
    return Wrong(node, path,
                 absl::StrCat("expected a mapping of fields, found ", KindOf(node), "; ",
                              SuggestField("", type)));
  }
  std::set<std::string> oneofs;
  return VisitMapping(
      node, path,
      [&](const std::string& name, const YAML::Node& key, const YAML::Node& read) -> absl::Status {
        const YAML::Node value = name == "name" && one_name != nullptr ? *one_name : read;
        const FieldDescriptor* field = type.FindFieldByName(name);
        if (field == nullptr) {
          return Wrong(key, Below(path, name),
                       absl::StrCat("unknown field; ", SuggestField(name, type)));
        }
        const auto* oneof = field->real_containing_oneof();
        if (oneof != nullptr && !oneofs.insert(oneof->name()).second) {
          std::string members;
          for (int i = 0; i < oneof->field_count(); ++i) {
            absl::StrAppend(&members, i == 0 ? "" : ", ", oneof->field(i)->name());
          }
          return Wrong(key, Below(path, name),
                       absl::StrCat("only one of ", members, " may stand here"));
        }
        if (value.IsNull() && (field->is_repeated() || field->message_type() == nullptr)) {
          return Wrong(key, Below(path, name), Nothing(*field));
        }
        TESSERA_RETURN_IF_ERROR(ReadField(value, Below(path, name), *field, message));
        // Records the name's line, since a value may begin on a later one.
        sources_->Add(Below(path, name), names_.place(key.Mark()));
        return absl::OkStatus();
      });
}

absl::Status MessageReader::ReadField(const YAML::Node& node, const std::string& path,
                                      const FieldDescriptor& field, Message& message) {
  message.GetReflection()->ClearField(&message, &field);
  if (!field.is_repeated()) return ReadElement(node, path, field, message);
  TESSERA_RETURN_IF_ERROR(Enter(node, path));
  if (!node.IsSequence()) {
    if (field.message_type() == nullptr) return ReadElement(node, path, field, message);
    return Wrong(
        node, path,
        absl::StrCat("expected a list (lines that start with '- '), found ", KindOf(node)));
  }
  for (size_t i = 0; i < node.size(); ++i) {
    TESSERA_RETURN_IF_ERROR(ReadNamed(node[i], path, field, message));
  }
  return absl::OkStatus();
}

absl::Status MessageReader::ReadNamed(const YAML::Node& node, const std::string& path,
                                      const FieldDescriptor& field, Message& message) {
  const Reflection& to = *message.GetReflection();
  const auto element = [&] { return absl::StrCat(path, "[", to.FieldSize(message, &field), "]"); };
  const FieldDescriptor* name =
      field.message_type() == nullptr ? nullptr : field.message_type()->FindFieldByName("name");
  const bool named = name != nullptr && !name->is_repeated() && node.IsMap() && node["name"];
  if (!named || !node["name"].IsSequence()) return ReadElement(node, element(), field, message);
  const YAML::Node names = node["name"];
  if (names.size() == 0) {
    return Wrong(names, Below(element(), "name"), "expected a name or a list of names, found []");
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const YAML::Node one = names[i];
    const std::string at = element();
    TESSERA_RETURN_IF_ERROR(ReadMapping(node, at, *to.AddMessage(&message, &field), &one));
  }
  return absl::OkStatus();
}

absl::Status MessageReader::ReadElement(const YAML::Node& node, const std::string& path,
                                        const FieldDescriptor& field, Message& message) {
  if (field.message_type() != nullptr) {
    const Reflection& to = *message.GetReflection();
    return ReadMessage(node, path,
                       field.is_repeated() ? *to.AddMessage(&message, &field)
                                           : *to.MutableMessage(&message, &field));
  }
  TESSERA_RETURN_IF_ERROR(Enter(node, path));
  if (node.IsNull()) return Wrong(node, path, Nothing(field));
  if (!node.IsScalar()) {
    return Wrong(node, path, absl::StrCat("expected a single value, found ", KindOf(node)));
  }
  return WrongStatus(node, path, SetScalar(ToScalar(node), field, message));
}

absl::Status MessageReader::ReadStruct(const YAML::Node& node, const std::string& path,
                                       google::protobuf::Struct& options) {
  if (node.IsNull()) return absl::OkStatus();
  if (!node.IsMap()) {
    return Wrong(node, path, absl::StrCat("expected a mapping of options, found ", KindOf(node)));
  }
  return VisitMapping(
      node, path, [&](const std::string& name, const YAML::Node&, const YAML::Node& value) {
        return ReadValue(value, Below(path, name), (*options.mutable_fields())[name]);
      });
}

absl::Status MessageReader::ReadValue(const YAML::Node& node, const std::string& path,
                                      google::protobuf::Value& value) {
  TESSERA_RETURN_IF_ERROR(Enter(node, path));
  ++depth_;
  const auto leave = absl::MakeCleanup([this] { --depth_; });
  if (node.IsMap()) return ReadStruct(node, path, *value.mutable_struct_value());
  if (node.IsSequence()) {
    google::protobuf::ListValue& list = *value.mutable_list_value();
    for (size_t i = 0; i < node.size(); ++i) {
      TESSERA_RETURN_IF_ERROR(
          ReadValue(node[i], absl::StrCat(path, "[", i, "]"), *list.add_values()));
    }
    return absl::OkStatus();
  }
  value = ToValue(node.IsScalar() ? ToScalar(node) : Scalar());
  return absl::OkStatus();
}

}  // namespace tessera::yaml
