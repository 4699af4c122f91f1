#include "master/actions/action.h"

#include <algorithm>

namespace tessera::master {

bool Among(const std::vector<RunNode>& nodes, uint64_t incarnation) {
  return std::any_of(nodes.begin(), nodes.end(), [incarnation](const RunNode& node) {
    return node.incarnation == incarnation;
  });
}

ClosePs CloseOf(const std::string& job_id, uint64_t generation) {
  ClosePs close;
  close.request.set_job_id(job_id);
  close.request.set_generation(generation);
  return close;
}

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
