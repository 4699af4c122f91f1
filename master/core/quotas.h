#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "tessera/v1/job.pb.h"
#include "tessera/v1/quotas.pb.h"

namespace tessera::master {

// The limits of what each team's jobs may use together. A value type.
class Quotas {
 public:
  Quotas() = default;  // no limits
  // INVALID_ARGUMENT begins with the field: a team without a name, or named twice.
  static absl::StatusOr<Quotas> New(const v1::Quotas& spec);

  // The quota of the job's team; null: no limits. Valid as long as this object.
  const v1::Quota* Of(const v1::JobSpec& spec) const;

 private:
  std::map<std::string, v1::Quota> teams_;
};

// The job's team; "default" if the job names none.
std::string TeamOf(const v1::JobSpec& spec);

// Reads the YAML of v1::Quotas. NOT_FOUND, INVALID_ARGUMENT with file and line.
absl::StatusOr<Quotas> LoadQuotas(const std::string& path);

}  // namespace tessera::master
