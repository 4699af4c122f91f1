#include "common/math/metrics/evaluation_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

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

namespace tessera::math {
namespace {

// Sorted once for all metrics that read it so.
class Scores {
 public:
  explicit Scores(const Evaluated& evaluated) : evaluated_(evaluated) {}

  const Evaluated& all() const { return evaluated_; }
  Predictions predictions() const { return {evaluated_.outputs, evaluated_.classes}; }
  const SortedScores& sorted() {
    if (!sorted_.has_value()) sorted_ = SortScores(evaluated_.outputs, evaluated_.labels);
    return *sorted_;
  }

 private:
  const Evaluated& evaluated_;
  std::optional<SortedScores> sorted_;
};

struct Metric {
  MetricInfo info;
  double (*compute)(Scores& scores);
};

constexpr Metric kMetrics[] = {
    {{"auc", Better::kLarger, true, false}, [](Scores& s) { return Auc(s.sorted()); }},
    {{"gauc", Better::kLarger, true, true},
     [](Scores& s) { return GroupedAuc(s.all().outputs, s.all().labels, s.all().groups); }},
    {{"pr_auc", Better::kLarger, true, false},
     [](Scores& s) { return AveragePrecision(s.sorted()); }},
    {{"logloss", Better::kSmaller, true, false}, [](Scores& s) { return LogLoss(s.sorted()); }},
    {{"normalized_entropy", Better::kSmaller, true, false},
     [](Scores& s) { return NormalizedEntropy(s.sorted()); }},
    {{"accuracy", Better::kLarger, true, false},
     [](Scores& s) { return Accuracy(s.all().outputs, s.all().labels); }},
    {{"calibration", Better::kNearerToOne, false, false},
     [](Scores& s) { return Calibration(s.predictions(), s.all().labels); }},
    {{"rmse", Better::kSmaller, false, false},
     [](Scores& s) { return std::sqrt(MeanSquaredError(s.predictions(), s.all().labels)); }},
    {{"mse", Better::kSmaller, false, false},
     [](Scores& s) { return MeanSquaredError(s.predictions(), s.all().labels); }},
    {{"mae", Better::kSmaller, false, false},
     [](Scores& s) { return MeanAbsoluteError(s.predictions(), s.all().labels); }},
};

const Metric* Find(const std::string& name) {
  const auto* found = std::find_if(std::begin(kMetrics), std::end(kMetrics),
                                   [&](const Metric& metric) { return name == metric.info.name; });
  return found == std::end(kMetrics) ? nullptr : found;
}

}  // namespace

absl::Span<const MetricInfo> AllMetrics() {
  static const auto& all = *[] {
    auto* infos = new std::vector<MetricInfo>;
    for (const Metric& metric : kMetrics) infos->push_back(metric.info);
    return infos;
  }();
  return all;
}

const MetricInfo* FindMetric(const std::string& name) {
  const Metric* metric = Find(name);
  return metric == nullptr ? nullptr : &metric->info;
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
        metric != nullptr && defined && (evaluated.classes || !metric->info.classes) &&
        (!metric->info.groups || evaluated.groups.size() == evaluated.outputs.size());
    values[name] = computable ? metric->compute(scores) : std::numeric_limits<double>::quiet_NaN();
  }
  return values;
}

}  // namespace tessera::math
