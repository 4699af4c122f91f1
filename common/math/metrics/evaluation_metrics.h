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

// What a model's outputs are, and its labels with them.
enum class Outputs {
  kLogits,       // of label 1 against label 0
  kValues,       // predictions of any numbers
  kClasses,      // the number of the likeliest of several classes; labels are numbers of classes
  kRanks,        // scores to rank by; labels are 0 or 1
  kGradedRanks,  // the same; labels say how relevant: 0 or more
};

// Which of two values of a metric is the better one.
enum class Better { kLarger, kSmaller, kNearerToOne };

struct MetricInfo {
  // As evaluation.metrics names it. "@10" stands for any number from 1 on.
  std::string name;
  Better better;
  std::vector<Outputs> of;
  bool groups = false;  // needs groups
  bool sums = false;    // samples may come in parts, and need not be kept: MetricSums

  bool IsOf(Outputs outputs) const;
};

// All that there are, in the order in which people should see them.
absl::Span<const MetricInfo> AllMetrics();
// With `name` as it was given ("ndcg@5"); nullopt: there is none of the name.
std::optional<MetricInfo> FindMetric(const std::string& name);

// What a split's samples look like to a model. The spans are borrowed for the call.
struct Evaluated {
  absl::Span<const float> outputs = {};            // [n], as `kind` says
  absl::Span<const float> labels = {};             // [n], the same
  absl::Span<const uint64_t> groups = {};          // [n]; empty: not known
  absl::Span<const float> weights = {};            // [n], 0 or more; empty: all 1
  absl::Span<const float> log_probabilities = {};  // kClasses: [n], of the label's class
  Outputs kind = Outputs::kLogits;
};

// Each metric of `names` by its name, one file of this folder each; NaN where it is undefined, is
// unknown, or an output is NaN. A sample of weight w counts as w samples. Bit-identical for the
// same samples in the same order.
std::map<std::string, double> ComputeMetrics(const std::vector<std::string>& names,
                                             const Evaluated& evaluated);

// What one metric adds up of samples.
class MetricSum;

// The same values, bit for bit, of samples that come in parts and are forgotten, in memory that
// does not grow with their number: 6 to 10 MB with binned_auc, a few KB without. A function of the
// samples as a set: neither their order nor how they were divided among those that were merged
// changes a bit. Not thread-safe.
class MetricSums {
 public:
  // Of such outputs, with weights or without. A metric that is not `sums` is NaN.
  MetricSums(const std::vector<std::string>& names, Outputs kind, bool weighted);
  MetricSums(MetricSums&&) noexcept;
  MetricSums& operator=(MetricSums&&) noexcept;
  ~MetricSums();

  void Add(const Evaluated& part);
  // `other` was made with the same arguments.
  void Merge(const MetricSums& other);

  std::map<std::string, double> Values() const;
  // How far a value may be from the metric that it stands for; of those that stand for one.
  std::map<std::string, double> ErrorBounds() const;

 private:
  std::vector<std::pair<std::string, std::unique_ptr<MetricSum>>> sums_;  // by name; null: NaN
  bool defined_ = true;                                                   // no output is NaN
};

}  // namespace tessera::math
