#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "common/config/source_map.h"
#include "google/protobuf/message.h"
#include "google/protobuf/struct.pb.h"
#include "yaml-cpp/yaml.h"

namespace tessera::yaml {

// Fills messages from YAML nodes by reflection: a mapping's keys are field names, enums are their
// values' lower-case names, one value may stand for a list of one, an empty value for an empty
// message, and google.protobuf.Struct takes any mapping. In a list of messages an element whose
// `name` is a list stands for one message of each name, alike in all else. Unknown fields, doubled
// keys, wrong types, numbers out of range and two members of a oneof are INVALID_ARGUMENT, "ORIGIN:
// PATH: what is wrong", where ORIGIN is file:line:column.
//
// Not thread-safe; borrows nothing but `sources`, which outlives it.
class MessageReader {
 public:
  // Says where a node stands. `origin(mark)` for error messages, `place(mark)` for the source map.
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
  // A message of a list, or those of each of its names.
  absl::Status ReadNamed(const YAML::Node& node, const std::string& path,
                         const google::protobuf::FieldDescriptor& field,
                         google::protobuf::Message& message);
  absl::Status ReadElement(const YAML::Node& node, const std::string& path,
                           const google::protobuf::FieldDescriptor& field,
                           google::protobuf::Message& message);
  absl::Status ReadStruct(const YAML::Node& node, const std::string& path,
                          google::protobuf::Struct& options);
  // Calls visit(name, key node, value node) for every entry; doubled and non-scalar keys are
  // errors.
  absl::Status VisitMapping(const YAML::Node& node, const std::string& path,
                            const std::function<absl::Status(const std::string&, const YAML::Node&,
                                                             const YAML::Node&)>& visit);
  // ReadMessage; where `name` is not null it stands for the field of that name.
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

// What a message about an unknown field of `type` ends with.
std::string SuggestField(absl::string_view name, const google::protobuf::Descriptor& type);

}  // namespace tessera::yaml
