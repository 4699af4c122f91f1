#include "common/config/job_to_yaml.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/struct.pb.h"
#include "yaml-cpp/yaml.h"

namespace tessera {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// The shortest text that reads back as the same number.
std::string Shortest(double value, bool single) {
  for (int digits = 6; digits < 17; ++digits) {
    const std::string text = absl::StrFormat("%.*g", digits, value);
    double back = 0;
    if (!absl::SimpleAtod(text, &back)) continue;
    if (single ? static_cast<float>(back) == static_cast<float>(value) : back == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

void EmitText(const std::string& text, YAML::Emitter& out) {
  double number = 0;
  // Without quotes these would not read back as text.
  const bool looks_other = text.empty() || text == "true" || text == "false" || text == "null" ||
                           text == "~" || absl::SimpleAtod(text, &number);
  if (looks_other) out << YAML::DoubleQuoted;
  out << text;
}

void Emit(const google::protobuf::Value& value, YAML::Emitter& out) {
  switch (value.kind_case()) {
    case google::protobuf::Value::kNumberValue:
      out << Shortest(value.number_value(), false);
      return;
    case google::protobuf::Value::kStringValue:
      EmitText(value.string_value(), out);
      return;
    case google::protobuf::Value::kBoolValue:
      out << (value.bool_value() ? "true" : "false");
      return;
    case google::protobuf::Value::kStructValue: {
      const std::map<std::string, google::protobuf::Value> sorted(
          value.struct_value().fields().begin(), value.struct_value().fields().end());
      out << YAML::BeginMap;
      for (const auto& [key, field] : sorted) {
        out << YAML::Key << key << YAML::Value;
        Emit(field, out);
      }
      out << YAML::EndMap;
      return;
    }
    case google::protobuf::Value::kListValue:
      out << YAML::Flow << YAML::BeginSeq;
      for (const auto& element : value.list_value().values()) Emit(element, out);
      out << YAML::EndSeq;
      return;
    default:
      out << YAML::Null;
  }
}

void Emit(const Message& message, YAML::Emitter& out);

// Emits element i of a repeated field, or the field itself for i < 0.
void Emit(const Message& message, const FieldDescriptor& field, int i, YAML::Emitter& out) {
  const google::protobuf::Reflection& of = *message.GetReflection();
  const bool list = i >= 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return Emit(list ? of.GetRepeatedMessage(message, &field, i) : of.GetMessage(message, &field),
                  out);
    case FieldDescriptor::CPPTYPE_STRING:
      return EmitText(
          list ? of.GetRepeatedString(message, &field, i) : of.GetString(message, &field), out);
    case FieldDescriptor::CPPTYPE_BOOL:
      out << (of.GetBool(message, &field) ? "true" : "false");
      return;
    case FieldDescriptor::CPPTYPE_UINT32:
      out << absl::StrCat(of.GetUInt32(message, &field));
      return;
    case FieldDescriptor::CPPTYPE_UINT64:
      out << absl::StrCat(of.GetUInt64(message, &field));
      return;
    case FieldDescriptor::CPPTYPE_INT32:
      out << absl::StrCat(of.GetInt32(message, &field));
      return;
    case FieldDescriptor::CPPTYPE_INT64:
      out << absl::StrCat(of.GetInt64(message, &field));
      return;
    case FieldDescriptor::CPPTYPE_FLOAT:
      out << Shortest(of.GetFloat(message, &field), true);
      return;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      out << Shortest(of.GetDouble(message, &field), false);
      return;
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int number = of.GetEnumValue(message, &field);
      const auto* value = field.enum_type()->FindValueByNumber(number);
      out << (value == nullptr ? absl::StrCat(number) : absl::AsciiStrToLower(value->name()));
      return;
    }
  }
}

// Small messages without submessages go on one line.
bool OnOneLine(const std::vector<const FieldDescriptor*>& fields) {
  return fields.size() <= 6 &&
         std::all_of(fields.begin(), fields.end(),
                     [](const FieldDescriptor* field) { return field->message_type() == nullptr; });
}

void Emit(const Message& message, YAML::Emitter& out) {
  if (message.GetDescriptor() == google::protobuf::Struct::descriptor()) {
    google::protobuf::Value value;
    *value.mutable_struct_value() = static_cast<const google::protobuf::Struct&>(message);
    return Emit(value, out);
  }
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  if (OnOneLine(fields)) out << YAML::Flow;
  out << YAML::BeginMap;
  for (const FieldDescriptor* field : fields) {
    out << YAML::Key << field->name() << YAML::Value;
    if (!field->is_repeated()) {
      Emit(message, *field, -1, out);
      continue;
    }
    if (field->message_type() == nullptr) out << YAML::Flow;
    out << YAML::BeginSeq;
    for (int i = 0; i < message.GetReflection()->FieldSize(message, field); ++i) {
      Emit(message, *field, i, out);
    }
    out << YAML::EndSeq;
  }
  out << YAML::EndMap;
}

}  // namespace

std::string JobToYaml(const v1::JobSpec& spec) {
  YAML::Emitter out;
  Emit(spec, out);
  return absl::StrCat(out.c_str(), "\n");
}

}  // namespace tessera
