#include "common/config/yaml_file.h"

#include <filesystem>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/config/yaml_message.h"
#include "common/file_system.h"
#include "common/status_macros.h"

namespace tessera {
namespace {

constexpr uint64_t kMaxFileBytes = 1 << 20;

std::string At(absl::string_view file, const YAML::Mark& mark) {
  if (mark.is_null()) return std::string(file);
  return absl::StrCat(file, ":", mark.line + 1, ":", mark.column + 1);
}

// Explains the parser's message to the file's author.
absl::string_view Hint(absl::string_view message) {
  if (absl::StrContains(message, "end of sequence flow")) {
    return "; a list that '[' opens ends with ']', its values parted by ','";
  }
  if (absl::StrContains(message, "end of map flow")) {
    return "; a mapping that '{' opens ends with '}', its fields parted by ','";
  }
  if (absl::StrContains(message, "illegal map value") || absl::StrContains(message, "end of map")) {
    return "; expected 'name: value' lines, all of a mapping equally far indented";
  }
  if (absl::StrContains(message, "anchor")) {
    return "; a value that begins with '*' must be quoted, such as \"*.csv\"";
  }
  if (absl::StrContains(message, "tab")) return "; indent with spaces";
  return "; check indentation, colons, quotes and brackets here and on the line above";
}

absl::StatusOr<YAML::Node> ParseDocument(absl::string_view text, absl::string_view file,
                                         absl::string_view expected) {
  // yaml-cpp reports errors by exceptions, which are caught here.
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    if (documents.size() > 1) {
      return absl::InvalidArgumentError(absl::StrCat(file, ": found ", documents.size(),
                                                     " documents parted by '---'; expected one, ",
                                                     expected));
    }
    if (documents.empty() || documents[0].IsNull()) {
      return absl::InvalidArgumentError(
          absl::StrCat(file, ": the file is empty; expected ", expected));
    }
    return documents[0];
  } catch (const YAML::Exception& e) {
    return absl::InvalidArgumentError(
        absl::StrCat(At(file, e.mark), ": not YAML: ", e.msg, Hint(e.msg)));
  }
}

}  // namespace

absl::Status ParseYaml(absl::string_view text, absl::string_view file, absl::string_view expected,
                       google::protobuf::Message& message, SourceMap& sources) {
  if (text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", text.size(), " bytes; expected ",
                                                   expected, " of at most ", kMaxFileBytes));
  }
  TESSERA_ASSIGN_OR_RETURN(const YAML::Node document, ParseDocument(text, file, expected));
  yaml::MessageReader reader(
      {.origin = [file](const YAML::Mark& mark) { return At(file, mark); },
       .place = [file](const YAML::Mark& mark) { return absl::StrCat(file, ":", mark.line + 1); }},
      &sources);
  try {
    TESSERA_RETURN_IF_ERROR(reader.ReadMessage(document, "", message));
  } catch (const YAML::Exception& e) {
    return absl::InvalidArgumentError(absl::StrCat(At(file, e.mark), ": ", e.msg));
  }
  sources.Add("", file);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadYamlFile(const std::string& path, absl::string_view expected) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is a folder; expected the YAML file of ", expected));
  }
  absl::StatusOr<std::string> text = ReadStream(path, kMaxFileBytes);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(
        absl::StrCat(path, ": no such file; expected the YAML file of ", expected));
  }
  if (absl::IsInvalidArgument(text.status())) {
    return absl::InvalidArgumentError(
        absl::StrCat(text.status().message(), "; expected ", expected));
  }
  return text;
}

}  // namespace tessera
