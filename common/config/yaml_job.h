#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/config/source_map.h"
#include "tessera/v1/job.pb.h"

namespace tessera {

struct LoadedJob {
  v1::JobSpec spec;
  SourceMap sources;
};

// Reads a job's YAML, a mapping whose keys are the fields of v1::JobSpec. INVALID_ARGUMENT is
// "FILE:LINE:COLUMN: PATH: what is wrong and what was expected". Does not validate the job: do that
// after the overrides, with job.sources.Locate(ValidateJobSpec(job.spec)).
// Pure; `file` is for messages only.
absl::StatusOr<LoadedJob> ParseJobYaml(absl::string_view text, absl::string_view file);

// ParseJobYaml of a file. NOT_FOUND: no such file; INVALID_ARGUMENT: also a file above 1 MiB.
absl::StatusOr<LoadedJob> LoadJobFile(const std::string& path);

}  // namespace tessera
