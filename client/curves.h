#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"

namespace tessera::client {

// Along what curves are drawn.
enum class CurveAxis { kSteps, kSamples, kMinutes };

// A page for a browser, complete in itself and without scripts: how jobs have learned, side by
// side, what their specs have that is not the same, and what happened to them. `jobs` [1 to
// kChartColors], as JobJson makes them (then perhaps read from files). Pure.
//   INVALID_ARGUMENT     one is no such object, or predicts, or they are too many
//   FAILED_PRECONDITION  one has trained nothing yet
absl::StatusOr<std::string> CurvesPage(absl::Span<const nlohmann::json> jobs, CurveAxis axis);

}  // namespace tessera::client
