#include "common/math/metrics/evaluation_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "common/math/metrics/absolute_error.h"
#include "common/math/metrics/accuracy.h"
#include "common/math/metrics/auc.h"
#include "common/math/metrics/average_precision.h"
#include "common/math/metrics/calibration.h"
#include "common/math/metrics/grouped_auc.h"
#include "common/math/metrics/log_loss.h"
#include "common/math/metrics/normalized_entropy.h"
#include "common/math/metrics/predictions.h"
#include "common/math/metrics/sorted_scores.h"
#include "common/math/metrics/squared_error.h"
#include "common/math/metrics/top_of_groups.h"

namespace tessera::math {
namespace {

using enum Outputs;

// Sorted once for all metrics that read it so.
class Scores {
 public:
  explicit Scores(const Evaluated& evaluated) : evaluated_(evaluated) {}

  const Evaluated& all() const { return evaluated_; }
  Predictions predictions() const {
    return {evaluated_.outputs, evaluated_.kind == Outputs::kLogits};
  }
  TopOfGroups tops() const {
    return {evaluated_.outputs, evaluated_.labels, evaluated_.groups, evaluated_.weights};
  }
  const SortedScores& sorted() {
    if (!sorted_.has_value())
      sorted_ = SortScores(evaluated_.outputs, evaluated_.labels, evaluated_.weights);
    return *sorted_;
  }

 private:
  const Evaluated& evaluated_;
  std::optional<SortedScores> sorted_;
};

struct Metric {
  MetricInfo info;
  double (*compute)(Scores& scores, uint32_t k);  // k: of the name, else 0
};

double AccuracyOf(const Evaluated& all) {
  return all.kind == kClasses ? ClassAccuracy(all.outputs, all.labels, all.weights)
                              : Accuracy(all.outputs, all.labels, all.weights);
}

double LogLossOf(Scores& s) {
  const Evaluated& all = s.all();
  if (all.kind != kClasses) return LogLoss(s.sorted());
  return ClassLogLoss(all.log_probabilities, all.weights);
}

const std::vector<Metric>& Metrics() {
  static const auto& metrics = *new std::vector<Metric>{
      {{"auc", Better::kLarger, {kLogits, kRanks}},
       [](Scores& s, uint32_t) { return Auc(s.sorted()); }},
      {{"gauc", Better::kLarger, {kLogits, kRanks}, true},
       [](Scores& s, uint32_t) {
         return GroupedAuc(s.all().outputs, s.all().labels, s.all().groups, s.all().weights);
       }},
      {{"pr_auc", Better::kLarger, {kLogits, kRanks}},
       [](Scores& s, uint32_t) { return AveragePrecision(s.sorted()); }},
      {{"logloss", Better::kSmaller, {kLogits, kClasses}},
       [](Scores& s, uint32_t) { return LogLossOf(s); }},
      {{"normalized_entropy", Better::kSmaller, {kLogits}},
       [](Scores& s, uint32_t) { return NormalizedEntropy(s.sorted()); }},
      {{"accuracy", Better::kLarger, {kLogits, kClasses}},
       [](Scores& s, uint32_t) { return AccuracyOf(s.all()); }},
      {{"precision@10", Better::kLarger, {kLogits, kRanks, kGradedRanks}, true},
       [](Scores& s, uint32_t k) { return s.tops().Precision(k); }},
      {{"recall@10", Better::kLarger, {kLogits, kRanks, kGradedRanks}, true},
       [](Scores& s, uint32_t k) { return s.tops().Recall(k); }},
      {{"ndcg@10", Better::kLarger, {kLogits, kRanks, kGradedRanks}, true},
       [](Scores& s, uint32_t k) { return s.tops().Ndcg(k); }},
      {{"calibration", Better::kNearerToOne, {kLogits, kValues}},
       [](Scores& s, uint32_t) {
         return Calibration(s.predictions(), s.all().labels, s.all().weights);
       }},
      {{"rmse", Better::kSmaller, {kLogits, kValues}},
       [](Scores& s, uint32_t) {
         return std::sqrt(MeanSquaredError(s.predictions(), s.all().labels, s.all().weights));
       }},
      {{"mse", Better::kSmaller, {kLogits, kValues}},
       [](Scores& s, uint32_t) {
         return MeanSquaredError(s.predictions(), s.all().labels, s.all().weights);
       }},
      {{"mae", Better::kSmaller, {kLogits, kValues}},
       [](Scores& s, uint32_t) {
         return MeanAbsoluteError(s.predictions(), s.all().labels, s.all().weights);
       }},
  };
  return metrics;
}

// "ndcg" of "ndcg@5", and the number; 0: there is none, or none that can be.
std::pair<std::string, uint32_t> PartName(const std::string& name) {
  const size_t at = name.find('@');
  if (at == std::string::npos) return {name, 0};
  const std::string digits = name.substr(at + 1);
  uint32_t k = 0;
  const bool number =
      !digits.empty() && digits[0] != '0' && digits.size() <= 6 &&
      std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
      absl::SimpleAtoi(digits, &k);
  return {number ? name.substr(0, at) : "", k};
}

const Metric* Find(const std::string& name) {
  const auto [base, k] = PartName(name);
  for (const Metric& metric : Metrics()) {
    const auto [metric_base, metric_k] = PartName(metric.info.name);
    if (base == metric_base && (k > 0) == (metric_k > 0)) return &metric;
  }
  return nullptr;
}

}  // namespace

bool MetricInfo::IsOf(Outputs outputs) const {
  return std::find(of.begin(), of.end(), outputs) != of.end();
}

absl::Span<const MetricInfo> AllMetrics() {
  static const auto& all = *[] {
    auto* infos = new std::vector<MetricInfo>;
    for (const Metric& metric : Metrics()) infos->push_back(metric.info);
    return infos;
  }();
  return all;
}

std::optional<MetricInfo> FindMetric(const std::string& name) {
  const Metric* metric = Find(name);
  if (metric == nullptr) return std::nullopt;
  MetricInfo info = metric->info;
  info.name = name;
  return info;
}

std::map<std::string, double> ComputeMetrics(const std::vector<std::string>& names,
                                             const Evaluated& evaluated) {
  const bool defined = std::none_of(evaluated.outputs.begin(), evaluated.outputs.end(),
                                    [](float x) { return std::isnan(x); });
  Scores scores(evaluated);
  std::map<std::string, double> values;
  for (const std::string& name : names) {
    const Metric* metric = Find(name);
    const bool computable =
        metric != nullptr && defined && metric->info.IsOf(evaluated.kind) &&
        (!metric->info.groups || evaluated.groups.size() == evaluated.outputs.size());
    values[name] = computable ? metric->compute(scores, PartName(name).second)
                              : std::numeric_limits<double>::quiet_NaN();
  }
  return values;
}

}  // namespace tessera::math
