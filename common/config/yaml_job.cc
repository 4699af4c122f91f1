#include "common/config/yaml_job.h"

#include "common/config/yaml_file.h"
#include "common/status_macros.h"

namespace tessera {
namespace {

constexpr char kExpected[] = "a job (deploy/jobs/ has examples)";

}  // namespace

absl::StatusOr<LoadedJob> ParseJobYaml(absl::string_view text, absl::string_view file) {
  LoadedJob job;
  TESSERA_RETURN_IF_ERROR(ParseYaml(text, file, kExpected, job.spec, job.sources));
  return job;
}

absl::StatusOr<LoadedJob> LoadJobFile(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadYamlFile(path, kExpected));
  return ParseJobYaml(text, path);
}

}  // namespace tessera
