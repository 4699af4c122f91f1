#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "tessera/v1/job.pb.h"
#include "tessera/v1/quotas.pb.h"

namespace tessera::master {

// What teams may use together. A value type.
class Quotas {
 public:
  Quotas() = default;  // no limits
  // INVALID_ARGUMENT begins with the field: a team without a name, or named twice.
  static absl::StatusOr<Quotas> New(const v1::Quotas& spec);

  // Of the job's team; null: it has no limits. Valid as long as this object.
  const v1::Quota* Of(const v1::JobSpec& spec) const;

 private:
  std::map<std::string, v1::Quota> teams_;
};

// "default" where the job names none.
std::string TeamOf(const v1::JobSpec& spec);

// Reads the YAML of v1::Quotas. NOT_FOUND, INVALID_ARGUMENT with file and line.
absl::StatusOr<Quotas> LoadQuotas(const std::string& path);

}  // namespace tessera::master
