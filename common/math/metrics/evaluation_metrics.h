#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace tessera::math {

// The meaning of a model's outputs and its labels.
enum class Outputs {
  kLogits,       // of label 1 against label 0
  kValues,       // predictions of real numbers
  kClasses,      // the number of the likeliest of several classes; labels are numbers of classes
  kRanks,        // scores to rank by; labels are 0 or 1
  kGradedRanks,  // the same; labels are relevances: 0 or more
};

// Which of two values of a metric is the better one.
enum class Better { kLarger, kSmaller, kNearerToOne };

struct MetricInfo {
  // The name in evaluation.metrics. "@10" stands for any number from 1 on.
  std::string name;
  Better better;
  std::vector<Outputs> of;
  bool groups = false;  // needs groups
  bool sums = false;    // MetricSums can add it up from parts, without keeping samples

  bool IsOf(Outputs outputs) const;
};

// All metrics, in the order in which people should see them.
absl::Span<const MetricInfo> AllMetrics();
// The metric, with its `name` as given ("ndcg@5"); nullopt: there is no such metric.
std::optional<MetricInfo> FindMetric(const std::string& name);

// The outputs and labels of a split's samples. The spans are borrowed for the call.
struct Evaluated {
  absl::Span<const float> outputs = {};            // [n], of kind `kind`
  absl::Span<const float> labels = {};             // [n], of kind `kind`
  absl::Span<const uint64_t> groups = {};          // [n]; empty: not known
  absl::Span<const float> weights = {};            // [n], 0 or more; empty: all 1
  absl::Span<const float> log_probabilities = {};  // kClasses: [n], of the label's class
  Outputs kind = Outputs::kLogits;
};

// The metrics `names` by name, each computed by one file of this folder; NaN if it is undefined or
// unknown, or an output is NaN. A sample of weight w counts as w samples. Bit-identical for the
// same samples in the same order.
std::map<std::string, double> ComputeMetrics(const std::vector<std::string>& names,
                                             const Evaluated& evaluated);

// The sums of one metric.
class MetricSum;

// Computes the same values, bit for bit, from samples that come in parts and are not kept. Its
// memory does not grow with the samples: 6 to 10 MB with binned_auc, a few KB without. Neither the
// samples' order nor how they were divided among merged objects changes a bit. Not thread-safe.
class MetricSums {
 public:
  // For outputs of `kind`, with weights or without. A metric that is not `sums` is NaN.
  MetricSums(const std::vector<std::string>& names, Outputs kind, bool weighted);
  MetricSums(MetricSums&&) noexcept;
  MetricSums& operator=(MetricSums&&) noexcept;
  ~MetricSums();

  void Add(const Evaluated& part);
  // `other` was made with the same arguments.
  void Merge(const MetricSums& other);

  std::map<std::string, double> Values() const;
  // How far a value may be from the metric that it approximates; only for approximations.
  std::map<std::string, double> ErrorBounds() const;

 private:
  std::vector<std::pair<std::string, std::unique_ptr<MetricSum>>> sums_;  // by name; null: NaN
  bool defined_ = true;                                                   // no output is NaN
};

}  // namespace tessera::math
