#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "common/config/source_map.h"
#include "google/protobuf/message.h"
#include "google/protobuf/struct.pb.h"
#include "yaml-cpp/yaml.h"

namespace tessera::yaml {

// Fills messages from YAML nodes by reflection. A mapping's keys are field names; enums are their
// values' lower-case names; a single scalar may stand for a list of one; an empty value is an empty
// message; google.protobuf.Struct takes any mapping. In a list of messages, an element whose `name`
// is a list stands for one message per name, with all other fields equal. Unknown fields, duplicate
// keys, wrong types, numbers out of range and two members of a oneof are INVALID_ARGUMENT, "ORIGIN:
// PATH: what is wrong", where ORIGIN is file:line:column.
//
// Not thread-safe; borrows `sources`, which outlives the reader.
class MessageReader {
 public:
  // Tells where a node stands: `origin(mark)` for error messages, `place(mark)` for the source map.
  struct Names {
    std::function<std::string(const YAML::Mark&)> origin;
    std::function<std::string(const YAML::Mark&)> place;
  };
  MessageReader(Names names, SourceMap* sources);

  // Merges the mapping into the message. `path` is the message's own ("" for the top).
  absl::Status ReadMessage(const YAML::Node& node, const std::string& path,
                           google::protobuf::Message& message);
  // Replaces one field.
  absl::Status ReadField(const YAML::Node& node, const std::string& path,
                         const google::protobuf::FieldDescriptor& field,
                         google::protobuf::Message& message);
  absl::Status ReadValue(const YAML::Node& node, const std::string& path,
                         google::protobuf::Value& value);

 private:
  // Reads an element of a list of messages: one message, or one for each of its names.
  absl::Status ReadNamed(const YAML::Node& node, const std::string& path,
                         const google::protobuf::FieldDescriptor& field,
                         google::protobuf::Message& message);
  absl::Status ReadElement(const YAML::Node& node, const std::string& path,
                           const google::protobuf::FieldDescriptor& field,
                           google::protobuf::Message& message);
  absl::Status ReadStruct(const YAML::Node& node, const std::string& path,
                          google::protobuf::Struct& options);
  // Calls visit(name, key node, value node) for every entry; duplicate and non-scalar keys are
  // errors.
  absl::Status VisitMapping(const YAML::Node& node, const std::string& path,
                            const std::function<absl::Status(const std::string&, const YAML::Node&,
                                                             const YAML::Node&)>& visit);
  // ReadMessage; if `name` is not null, it replaces the value of the field `name`.
  absl::Status ReadMapping(const YAML::Node& node, const std::string& path,
                           google::protobuf::Message& message, const YAML::Node* name);
  absl::Status Enter(const YAML::Node& node, const std::string& path);
  absl::Status Wrong(const YAML::Node& node, const std::string& path, absl::string_view text) const;
  absl::Status WrongStatus(const YAML::Node& node, const std::string& path,
                           const absl::Status& status) const;

  const Names names_;
  SourceMap* const sources_;
  int visited_ = 0;
  size_t text_bytes_ = 0;
  int depth_ = 0;
};

// The end of a message about an unknown field of `type`.
std::string SuggestField(absl::string_view name, const google::protobuf::Descriptor& type);

}  // namespace tessera::yaml
