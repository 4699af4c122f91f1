#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "tessera/v1/job.pb.h"

// The parts of ValidateJobSpec, only for common/job/validate*.cc.
namespace tessera::validate {

// INVALID_ARGUMENT "path: text".
template <typename... Text>
absl::Status Wrong(absl::string_view path, const Text&... text) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", text...));
}

// The bound of numbers that others are computed from, with or without their sign.
constexpr float kMostSize = 1e6;

// Every number is finite, every text is UTF-8, every field and every enum has a name, and no list,
// text or nesting is excessive.
absl::Status Values(const google::protobuf::Message& message, const std::string& path);
// Whether `name` has 1 .. 63 characters, each a letter, a digit, '_' or '-'.
bool IsName(absl::string_view name);
// Checks that `file` is relative, without ".." and without zero bytes.
absl::Status Path(const std::string& file, const std::string& path);
// Checks besides that a file can be made there.
absl::Status NewFile(const std::string& file, const std::string& path);
absl::Status Optimizer(bool present, const v1::OptimizerSpec& optimizer, const std::string& path);

// Checks that there is a sparse column `name`, by which `who` groups samples.
absl::Status SparseColumn(const v1::JobSpec& spec, const std::string& name, const std::string& who,
                          const std::string& path);

absl::Status Data(const v1::JobSpec& spec);
absl::Status Model(const v1::JobSpec& spec);
absl::Status Tables(const v1::JobSpec& spec);
absl::Status Training(const v1::JobSpec& spec);

}  // namespace tessera::validate
