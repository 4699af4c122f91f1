#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "tessera/v1/job.pb.h"

// The parts of ValidateJobSpec, for common/job/validate*.cc alone.
namespace tessera::validate {

// INVALID_ARGUMENT "path: text".
template <typename... Text>
absl::Status Wrong(absl::string_view path, const Text&... text) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", text...));
}

// Of numbers that others are made of, with or without their sign.
constexpr float kMostSize = 1e6;

// Every number is finite, every field and every enum has a name, and no list, text or nesting is
// beyond reason.
absl::Status Values(const google::protobuf::Message& message, const std::string& path);
// Letters, digits, '_' and '-', 1 .. 63 of them.
bool IsName(absl::string_view name);
// Relative and without "..".
absl::Status Path(const std::string& file, const std::string& path);
absl::Status Optimizer(bool present, const v1::OptimizerSpec& optimizer, const std::string& path);

// There is a sparse column `name`, which `who` needs to group samples by.
absl::Status SparseColumn(const v1::JobSpec& spec, const std::string& name, const std::string& who,
                          const std::string& path);

absl::Status Data(const v1::JobSpec& spec);
absl::Status Model(const v1::JobSpec& spec);
absl::Status Tables(const v1::JobSpec& spec);
absl::Status Training(const v1::JobSpec& spec);

}  // namespace tessera::validate
