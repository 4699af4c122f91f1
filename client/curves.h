#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"

namespace tessera::client {

// The x axis of curves.
enum class CurveAxis { kSteps, kSamples, kMinutes };

// A page for a browser, complete in itself and without scripts: the learning curves of jobs side by
// side, the differences of their specs, and their events. `jobs` [1 to kChartColors]: as JobJson
// makes them (perhaps read back from files). Pure.
//   INVALID_ARGUMENT     an object is none of JobJson, a job does not train, or there are too many
//   FAILED_PRECONDITION  none of them has trained anything yet
absl::StatusOr<std::string> CurvesPage(absl::Span<const nlohmann::json> jobs, CurveAxis axis);

}  // namespace tessera::client
