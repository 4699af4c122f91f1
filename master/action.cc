#include "master/action.h"

namespace tessera::master {

ActionResult Measure(const ComputeMetrics& compute) {
  ActionResult result;
  if (compute.sums != nullptr) {
    result.metrics = compute.sums->Values();
    result.error_bounds = compute.sums->ErrorBounds();
    result.samples = compute.sums->samples();
    return result;
  }
  result.metrics =
      MeasureScores(compute.layout, compute.names, compute.outputs, compute.labels, compute.groups);
  result.samples = compute.labels.size() / compute.layout.label_floats();
  return result;
}

}  // namespace tessera::master
