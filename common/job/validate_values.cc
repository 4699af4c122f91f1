#include <algorithm>
#include <cmath>

#include "absl/strings/str_split.h"
#include "common/job/validate_parts.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/unknown_field_set.h"

namespace tessera::validate {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr int kMaxElements = 100000;
constexpr size_t kMaxTextBytes = 4096;
constexpr int kMaxDepth = 32;

absl::Status Number(double value, const std::string& path) {
  if (std::isfinite(value)) return absl::OkStatus();
  return Wrong(path, "found ", value, "; expected a finite number");
}

absl::Status Text(const std::string& text, const std::string& path) {
  if (text.size() > kMaxTextBytes) {
    return Wrong(path, "found a text of ", text.size(), " bytes; expected at most ", kMaxTextBytes);
  }
  if (const size_t zero = text.find('\0'); zero != std::string::npos) {
    return Wrong(path, "found a zero byte at byte ", zero, "; expected none");
  }
  if (IsUtf8(text)) return absl::OkStatus();
  return Wrong(path, "found a text that is not UTF-8; expected UTF-8, as which a file is saved");
}

absl::Status Option(const google::protobuf::Value& value, const std::string& path, int depth) {
  if (depth > kMaxDepth) return Wrong(path, "nested deeper than ", kMaxDepth, " levels");
  switch (value.kind_case()) {
    case google::protobuf::Value::kNumberValue:
      return Number(value.number_value(), path);
    case google::protobuf::Value::kStringValue:
      return Text(value.string_value(), path);
    case google::protobuf::Value::kStructValue:
      for (const auto& [key, field] : value.struct_value().fields()) {
        TESSERA_RETURN_IF_ERROR(Text(key, path));
        TESSERA_RETURN_IF_ERROR(Option(field, absl::StrCat(path, ".", key), depth + 1));
      }
      return absl::OkStatus();
    case google::protobuf::Value::kListValue:
      if (value.list_value().values_size() > kMaxElements) {
        return Wrong(path, "found ", value.list_value().values_size(),
                     " elements; expected at most ", kMaxElements);
      }
      for (int i = 0; i < value.list_value().values_size(); ++i) {
        TESSERA_RETURN_IF_ERROR(
            Option(value.list_value().values(i), absl::StrCat(path, "[", i, "]"), depth + 1));
      }
      return absl::OkStatus();
    default:
      return absl::OkStatus();
  }
}

absl::Status Enum(const google::protobuf::EnumDescriptor& type, int number,
                  const std::string& path) {
  if (type.FindValueByNumber(number) != nullptr) return absl::OkStatus();
  return Wrong(path, "found number ", number, ", which this version does not know");
}

// Checks element i of a repeated field, or the field itself for i < 0.
absl::Status Field(const Message& message, const FieldDescriptor& field, int i,
                   const std::string& path) {
  const google::protobuf::Reflection& of = *message.GetReflection();
  const bool list = i >= 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_FLOAT:
      return Number(list ? of.GetRepeatedFloat(message, &field, i) : of.GetFloat(message, &field),
                    path);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Number(list ? of.GetRepeatedDouble(message, &field, i) : of.GetDouble(message, &field),
                    path);
    case FieldDescriptor::CPPTYPE_ENUM:
      return Enum(
          *field.enum_type(),
          list ? of.GetRepeatedEnumValue(message, &field, i) : of.GetEnumValue(message, &field),
          path);
    case FieldDescriptor::CPPTYPE_STRING:
      return Text(list ? of.GetRepeatedString(message, &field, i) : of.GetString(message, &field),
                  path);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return Values(
          list ? of.GetRepeatedMessage(message, &field, i) : of.GetMessage(message, &field), path);
    default:
      return absl::OkStatus();
  }
}

}  // namespace

absl::Status Values(const Message& message, const std::string& path) {
  if (message.GetDescriptor() == google::protobuf::Struct::descriptor()) {
    const auto& options = static_cast<const google::protobuf::Struct&>(message);
    for (const auto& [key, value] : options.fields()) {
      TESSERA_RETURN_IF_ERROR(Text(key, path));
      TESSERA_RETURN_IF_ERROR(Option(value, absl::StrCat(path, ".", key), 0));
    }
    return absl::OkStatus();
  }
  // A later version's field, which would count as not set.
  if (const auto& unknown = message.GetReflection()->GetUnknownFields(message); !unknown.empty()) {
    return Wrong(path.empty() ? "spec" : path, "found field number ", unknown.field(0).number(),
                 ", which this version does not know");
  }
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string name = absl::StrCat(path, path.empty() ? "" : ".", field->name());
    if (!field->is_repeated()) {
      TESSERA_RETURN_IF_ERROR(Field(message, *field, -1, name));
      continue;
    }
    const int n = message.GetReflection()->FieldSize(message, field);
    if (n > kMaxElements) {
      return Wrong(name, "found ", n, " elements; expected at most ", kMaxElements);
    }
    for (int i = 0; i < n; ++i) {
      TESSERA_RETURN_IF_ERROR(Field(message, *field, i, absl::StrCat(name, "[", i, "]")));
    }
  }
  return absl::OkStatus();
}

bool IsName(absl::string_view name) {
  return !name.empty() && name.size() <= 63 && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
  });
}

absl::Status Path(const std::string& file, const std::string& path) {
  TESSERA_RETURN_IF_ERROR(Text(file, path));
  if (file.empty()) return Wrong(path, "empty; expected a path");
  if (file[0] == '/') {
    return Wrong(path, "found the absolute path '", file,
                 "'; expected one below the processes' root folder, so that the job runs on any "
                 "machine");
  }
  for (absl::string_view part : absl::StrSplit(file, '/')) {
    if (part == "..") {
      return Wrong(path, "found '", file, "'; '..' may not lead out of the root folder");
    }
  }
  return absl::OkStatus();
}

absl::Status NewFile(const std::string& file, const std::string& path) {
  TESSERA_RETURN_IF_ERROR(Path(file, path));
  constexpr size_t kMaxName = 255;  // of Linux
  // PredictionParts and PredictionFile add up to 104 bytes to the file's own.
  constexpr size_t kMaxFileName = 150;
  const std::vector<absl::string_view> parts = absl::StrSplit(file, '/');
  if (parts.back().empty() || parts.back() == ".") {
    return Wrong(path, "found '", file, "', a folder; expected a file's path");
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool last = i + 1 == parts.size();
    const size_t most = last ? kMaxFileName : kMaxName;
    if (parts[i].size() <= most) continue;
    return Wrong(path, "found the name '", parts[i].substr(0, 50), "...' of ", parts[i].size(),
                 " bytes; expected at most ", most,
                 last ? ", since more is added to it while the file is written" : "");
  }
  return absl::OkStatus();
}

}  // namespace tessera::validate
