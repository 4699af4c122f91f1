#include "common/config/override.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/config/yaml_message.h"
#include "common/status_macros.h"
#include "common/suggest.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/struct.pb.h"

namespace tessera {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// "data.columns[2].type" -> data, columns, 2, type.
absl::StatusOr<std::vector<std::string>> SplitPath(absl::string_view path) {
  const absl::Status malformed = absl::InvalidArgumentError(
      "expected path.to.field=value, such as train.epochs=3, tables.emb.dim=8 or "
      "data.columns[2].type=string");
  std::vector<std::string> parts(1);
  bool bracket = false;
  bool closed = false;  // after "]": only "." or "[" may follow
  for (const char c : path) {
    if (!bracket && (c == '.' || c == '[')) {
      if (parts.back().empty()) return malformed;
      parts.emplace_back();
      bracket = c == '[';
      closed = false;
    } else if (bracket && c == ']') {
      bracket = false;
      closed = true;
    } else if (closed) {
      return malformed;
    } else {
      parts.back() += c;
    }
  }
  if (bracket || parts.back().empty()) return malformed;
  constexpr size_t kMostParts = 64;  // each is a call within the one before
  if (parts.size() > kMostParts) {
    return absl::InvalidArgumentError(
        absl::StrCat("the path has ", parts.size(), " parts; expected at most ", kMostParts));
  }
  return parts;
}

class Override {
 public:
  Override(const YAML::Node& value, yaml::MessageReader& reader, SourceMap& sources,
           std::string origin)
      : value_(value), reader_(reader), sources_(sources), origin_(std::move(origin)) {}

  absl::Status Apply(const std::vector<std::string>& parts, size_t i, const std::string& path,
                     Message& message) {
    if (message.GetDescriptor() == google::protobuf::Struct::descriptor()) {
      return ApplyOption(parts, i, path, static_cast<google::protobuf::Struct&>(message));
    }
    const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(parts[i]);
    const std::string here = absl::StrCat(path, path.empty() ? "" : ".", parts[i]);
    if (field == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          here, ": unknown field; ", yaml::SuggestField(parts[i], *message.GetDescriptor())));
    }
    const google::protobuf::Reflection& to = *message.GetReflection();
    if (i + 1 == parts.size()) return SetField(*field, here, message);
    if (field->message_type() == nullptr) {
      if (!field->is_repeated()) {
        return absl::InvalidArgumentError(
            absl::StrCat(here, ": is a single value and has no '", parts[i + 1], "' in it"));
      }
      return absl::InvalidArgumentError(
          absl::StrCat(here, ": set the whole list: ", here, "=[first,second]"));
    }
    if (!field->is_repeated()) {
      return Apply(parts, i + 1, here, *to.MutableMessage(&message, field));
    }
    TESSERA_ASSIGN_OR_RETURN(const int element, FindElement(parts[i + 1], here, *field, message));
    const std::string there = absl::StrCat(here, "[", element, "]");
    if (i + 2 == parts.size()) {
      Message& target = *to.MutableRepeatedMessage(&message, field, element);
      target.Clear();
      sources_.Remove(there);
      return reader_.ReadMessage(value_, there, target);
    }
    return Apply(parts, i + 2, there, *to.MutableRepeatedMessage(&message, field, element));
  }

 private:
  absl::Status SetField(const FieldDescriptor& field, const std::string& path, Message& message) {
    sources_.Remove(path);
    if (value_.IsNull()) {
      message.GetReflection()->ClearField(&message, &field);
      sources_.Add(path, origin_);
      return absl::OkStatus();
    }
    return reader_.ReadField(value_, path, field, message);
  }

  absl::Status ApplyOption(const std::vector<std::string>& parts, size_t i, const std::string& path,
                           google::protobuf::Struct& options) {
    const std::string here = absl::StrCat(path, ".", parts[i]);
    if (i + 1 == parts.size()) {
      sources_.Remove(here);
      if (value_.IsNull()) {
        options.mutable_fields()->erase(parts[i]);
        return absl::OkStatus();
      }
      google::protobuf::Value value;
      TESSERA_RETURN_IF_ERROR(reader_.ReadValue(value_, here, value));
      (*options.mutable_fields())[parts[i]] = value;
      return absl::OkStatus();
    }
    google::protobuf::Value& inner = (*options.mutable_fields())[parts[i]];
    if (inner.kind_case() != google::protobuf::Value::KIND_NOT_SET && !inner.has_struct_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(here, ": is no mapping and has no '", parts[i + 1], "' in it"));
    }
    return ApplyOption(parts, i + 1, here, *inner.mutable_struct_value());
  }

  // Finds an element by its index or by its field "name".
  static absl::StatusOr<int> FindElement(const std::string& part, const std::string& path,
                                         const FieldDescriptor& field, const Message& message) {
    const google::protobuf::Reflection& of = *message.GetReflection();
    const int n = of.FieldSize(message, &field);
    const FieldDescriptor* name = field.message_type()->FindFieldByName("name");
    std::vector<std::string> names;
    for (int i = 0; name != nullptr && i < n; ++i) {
      const Message& element = of.GetRepeatedMessage(message, &field, i);
      names.push_back(element.GetReflection()->GetString(element, name));
      if (names.back() == part) return i;
    }
    int index = 0;
    if (!absl::SimpleAtoi(part, &index)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": has no element named '", part, "'; ", SuggestName(part, names)));
    }
    if (index >= 0 && index < n) return index;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has no element ", index, "; it has ", n, ", counted from 0"));
  }

  const YAML::Node value_;
  yaml::MessageReader& reader_;
  SourceMap& sources_;
  const std::string origin_;
};

// The value of `path`, as YAML.
absl::StatusOr<YAML::Node> ParseValue(absl::string_view path, absl::string_view value) {
  value = absl::StripAsciiWhitespace(value);
  constexpr absl::string_view kMarks = "*&!%@`#";
  // YAML reads a lone anchor, tag or comment as no value.
  if (!value.empty() && absl::StrContains(kMarks, value[0])) {
    return absl::InvalidArgumentError(
        absl::StrCat("a value that begins with one of * & ! % @ ` # must be quoted: '", path, "=\"",
                     value, "\"'"));
  }
  try {
    YAML::Node node = YAML::Load(std::string(value));
    constexpr absl::string_view kQuoted = "!";  // yaml-cpp's tag
    if (node.IsScalar() && node.Tag() != kQuoted && node.Scalar() != value) {
      return absl::InvalidArgumentError(absl::StrCat("YAML reads only '", node.Scalar(),
                                                     "' of the value; quote it: '", path, "=\"",
                                                     value, "\"'"));
    }
    return node;
  } catch (const YAML::Exception& e) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the value is not YAML: ", e.msg,
        value.find_first_of(kMarks) == absl::string_view::npos
            ? ""
            : "; what begins with one of * & ! % @ ` # must be quoted, such as \"*.csv\""));
  }
}

absl::Status Apply(absl::string_view assignment, const std::string& origin, LoadedJob& job) {
  const size_t equals = assignment.find('=');
  const absl::string_view path = assignment.substr(0, equals);
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> parts, SplitPath(path));
  if (equals == absl::string_view::npos) {
    return absl::InvalidArgumentError("expected path.to.field=value, found no '='");
  }
  TESSERA_ASSIGN_OR_RETURN(const YAML::Node value, ParseValue(path, assignment.substr(equals + 1)));
  const auto name = [&](const YAML::Mark&) { return origin; };
  LoadedJob changed = job;
  yaml::MessageReader reader({.origin = name, .place = name}, &changed.sources);
  try {
    TESSERA_RETURN_IF_ERROR(
        Override(value, reader, changed.sources, origin).Apply(parts, 0, "", changed.spec));
  } catch (const YAML::Exception& e) {
    return absl::InvalidArgumentError(absl::StrCat("the value is not understood: ", e.msg));
  }
  job = std::move(changed);
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyOverride(absl::string_view assignment, LoadedJob& job) {
  const std::string origin = absl::StrCat("--set ", assignment);
  const absl::Status status = Apply(assignment, origin, job);
  // The reader's own messages start with the origin already.
  if (status.ok() || absl::StartsWith(status.message(), origin)) return status;
  return WithContext(status, origin);
}

}  // namespace tessera
