#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace tessera::math {

// Which of two values of a metric is the better one.
enum class Better { kLarger, kSmaller, kNearerToOne };

struct MetricInfo {
  const char* name;  // as evaluation.metrics names it
  Better better;
  bool classes;  // of labels 0 and 1 alone
  bool groups;   // needs groups
};

// All that there are, in the order in which people should see them.
absl::Span<const MetricInfo> AllMetrics();
// Null: there is none of the name.
const MetricInfo* FindMetric(const std::string& name);

// What a split's samples look like to a model. The spans are borrowed for the call.
struct Evaluated {
  absl::Span<const float> outputs;    // [n]: logits where `classes`, else predictions
  absl::Span<const float> labels;     // [n]: 0 or 1 where `classes`
  absl::Span<const uint64_t> groups;  // [n]; empty: not known
  bool classes = true;
};

// Each metric of `names` by its name, one file of this folder each; NaN where it is undefined, is
// unknown, or an output is NaN. Bit-identical for the same samples in the same order.
std::map<std::string, double> ComputeMetrics(const std::vector<std::string>& names,
                                             const Evaluated& evaluated);

}  // namespace tessera::math
