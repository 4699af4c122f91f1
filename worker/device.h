#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/v1/job.pb.h"

namespace tessera::worker {

// The device for a job that wishes `wish`: "auto" (or empty), "cpu", "cuda", "cuda:N". Only "auto"
// may fall back, and it logs its choice; a wish that cannot be met is FAILED_PRECONDITION and says
// why.
absl::StatusOr<std::string> ChooseDevice(absl::string_view wish);

// FAILED_PRECONDITION: this machine cannot compute so, and why.
absl::Status CheckPrecision(v1::TrainSpec::Precision wish);

}  // namespace tessera::worker
