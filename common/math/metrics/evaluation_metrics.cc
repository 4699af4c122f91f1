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
#include "common/math/metrics/binned_auc.h"
#include "common/math/metrics/calibration.h"
#include "common/math/metrics/grouped_auc.h"
#include "common/math/metrics/log_loss.h"
#include "common/math/metrics/normalized_entropy.h"
#include "common/math/metrics/predictions.h"
#include "common/math/metrics/sorted_scores.h"
#include "common/math/metrics/squared_error.h"
#include "common/math/metrics/top_of_groups.h"
#include "common/math/metrics/weighted_mean.h"

namespace tessera::math {

class MetricSum {
 public:
  virtual ~MetricSum() = default;
  // Requires that no output is NaN.
  virtual void Add(const Evaluated& part) = 0;
  // `other` is of the same class, with weights if this is.
  virtual void Merge(const MetricSum& other) = 0;
  virtual double value() const = 0;
  virtual std::optional<double> error_bound() const = 0;
};

namespace {

using enum Outputs;

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

bool AllAreNumbers(absl::Span<const float> outputs) {
  return std::none_of(outputs.begin(), outputs.end(), [](float x) { return std::isnan(x); });
}

// Sorts the scores once for all metrics that need them sorted.
class Scores {
 public:
  explicit Scores(const Evaluated& evaluated) : evaluated_(evaluated) {}

  const Evaluated& all() const { return evaluated_; }
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
  // Exactly one of the two is set.
  double (*compute)(Scores& scores, uint32_t k) = nullptr;  // k: the name's number, else 0
  std::unique_ptr<MetricSum> (*sum)(bool weighted) = nullptr;
};

Predictions PredictionsOf(const Evaluated& all) { return {all.outputs, all.kind == kLogits}; }

WeightedMean LogLossOf(const Evaluated& all) {
  return all.kind == kClasses ? ClassLogLoss(all.log_probabilities, all.weights)
                              : LogLoss(all.outputs, all.labels, all.weights);
}

WeightedMean AccuracyOf(const Evaluated& all) {
  return all.kind == kClasses ? ClassAccuracy(all.outputs, all.labels, all.weights)
                              : Accuracy(all.outputs, all.labels, all.weights);
}

WeightedMean SquaredErrorOf(const Evaluated& all) {
  return MeanSquaredError(PredictionsOf(all), all.labels, all.weights);
}

WeightedMean AbsoluteErrorOf(const Evaluated& all) {
  return MeanAbsoluteError(PredictionsOf(all), all.labels, all.weights);
}

// The sum of a metric that is a mean; kOf computes the mean of one part.
template <WeightedMean (*kOf)(const Evaluated&)>
struct Mean {
  explicit Mean(bool /*weighted*/) {}
  void Add(const Evaluated& part) { mean.Merge(kOf(part)); }
  void Merge(const Mean& other) { mean.Merge(other.mean); }
  double value() const { return mean.value(); }
  WeightedMean mean;
};

struct RootMean : Mean<SquaredErrorOf> {
  using Mean::Mean;
  double value() const { return std::sqrt(mean.value()); }
};

struct Entropy : NormalizedEntropy {
  explicit Entropy(bool /*weighted*/) {}
  void Add(const Evaluated& part) {
    NormalizedEntropy::Add(part.outputs, part.labels, part.weights);
  }
};

struct Bias : Calibration {
  explicit Bias(bool /*weighted*/) {}
  void Add(const Evaluated& part) {
    Calibration::Add(PredictionsOf(part), part.labels, part.weights);
  }
};

struct Binned : BinnedAuc {
  using BinnedAuc::BinnedAuc;
  void Add(const Evaluated& part) { BinnedAuc::Add(part.outputs, part.labels, part.weights); }
};

template <typename Sums>
class SumOf final : public MetricSum {
 public:
  explicit SumOf(bool weighted) : sums_(weighted) {}
  void Add(const Evaluated& part) override { sums_.Add(part); }
  void Merge(const MetricSum& other) override {
    sums_.Merge(static_cast<const SumOf&>(other).sums_);
  }
  double value() const override { return sums_.value(); }
  std::optional<double> error_bound() const override {
    if constexpr (requires(const Sums& sums) { sums.error_bound(); }) return sums_.error_bound();
    return std::nullopt;
  }

 private:
  Sums sums_;
};

template <typename Sums>
Metric Summed(MetricInfo info) {
  info.sums = true;
  return {.info = std::move(info), .sum = [](bool weighted) -> std::unique_ptr<MetricSum> {
            return std::make_unique<SumOf<Sums>>(weighted);
          }};
}

// To add one, see common/math/README.md.
const std::vector<Metric>& Metrics() {
  static const auto& metrics = *new std::vector<Metric>{
      {{"auc", Better::kLarger, {kLogits, kRanks}},
       [](Scores& s, uint32_t) { return Auc(s.sorted()); }},
      Summed<Binned>({"binned_auc", Better::kLarger, {kLogits, kRanks}}),
      {{"gauc", Better::kLarger, {kLogits, kRanks}, true},
       [](Scores& s, uint32_t) {
         return GroupedAuc(s.all().outputs, s.all().labels, s.all().groups, s.all().weights);
       }},
      {{"pr_auc", Better::kLarger, {kLogits, kRanks}},
       [](Scores& s, uint32_t) { return AveragePrecision(s.sorted()); }},
      Summed<Mean<LogLossOf>>({"logloss", Better::kSmaller, {kLogits, kClasses}}),
      Summed<Entropy>({"normalized_entropy", Better::kSmaller, {kLogits}}),
      Summed<Mean<AccuracyOf>>({"accuracy", Better::kLarger, {kLogits, kClasses}}),
      {{"precision@10", Better::kLarger, {kLogits, kRanks, kGradedRanks}, true},
       [](Scores& s, uint32_t k) { return s.tops().Precision(k); }},
      {{"recall@10", Better::kLarger, {kLogits, kRanks, kGradedRanks}, true},
       [](Scores& s, uint32_t k) { return s.tops().Recall(k); }},
      {{"ndcg@10", Better::kLarger, {kLogits, kRanks, kGradedRanks}, true},
       [](Scores& s, uint32_t k) { return s.tops().Ndcg(k); }},
      Summed<Bias>({"calibration", Better::kNearerToOne, {kLogits, kValues}}),
      Summed<RootMean>({"rmse", Better::kSmaller, {kLogits, kValues}}),
      Summed<Mean<SquaredErrorOf>>({"mse", Better::kSmaller, {kLogits, kValues}}),
      Summed<Mean<AbsoluteErrorOf>>({"mae", Better::kSmaller, {kLogits, kValues}}),
  };
  return metrics;
}

// Splits "ndcg@5" into "ndcg" and 5; 0: there is no number, or no valid one.
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
  const bool defined = AllAreNumbers(evaluated.outputs);
  Scores scores(evaluated);
  MetricSums sums(names, evaluated.kind, !evaluated.weights.empty());
  sums.Add(evaluated);
  std::map<std::string, double> values = sums.Values();
  for (const std::string& name : names) {
    const Metric* metric = Find(name);
    const bool computable =
        metric != nullptr && metric->compute != nullptr && defined &&
        metric->info.IsOf(evaluated.kind) &&
        (!metric->info.groups || evaluated.groups.size() == evaluated.outputs.size());
    if (computable) values[name] = metric->compute(scores, PartName(name).second);
  }
  return values;
}

MetricSums::MetricSums(const std::vector<std::string>& names, Outputs kind, bool weighted) {
  for (const std::string& name : names) {
    const Metric* metric = Find(name);
    const bool known = metric != nullptr && metric->sum != nullptr && metric->info.IsOf(kind);
    sums_.emplace_back(name, known ? metric->sum(weighted) : nullptr);
  }
}

MetricSums::MetricSums(MetricSums&&) noexcept = default;
MetricSums& MetricSums::operator=(MetricSums&&) noexcept = default;
MetricSums::~MetricSums() = default;

void MetricSums::Add(const Evaluated& part) {
  defined_ = defined_ && AllAreNumbers(part.outputs);
  if (!defined_) return;
  for (auto& [name, sum] : sums_) {
    if (sum != nullptr) sum->Add(part);
  }
}

void MetricSums::Merge(const MetricSums& other) {
  defined_ = defined_ && other.defined_;
  for (size_t i = 0; i < sums_.size(); ++i) {
    if (sums_[i].second != nullptr) sums_[i].second->Merge(*other.sums_[i].second);
  }
}

std::map<std::string, double> MetricSums::Values() const {
  std::map<std::string, double> values;
  for (const auto& [name, sum] : sums_) {
    values[name] = sum != nullptr && defined_ ? sum->value() : kUndefined;
  }
  return values;
}

std::map<std::string, double> MetricSums::ErrorBounds() const {
  std::map<std::string, double> bounds;
  for (const auto& [name, sum] : sums_) {
    const std::optional<double> bound = sum != nullptr ? sum->error_bound() : std::nullopt;
    if (bound.has_value()) bounds[name] = defined_ ? *bound : kUndefined;
  }
  return bounds;
}

}  // namespace tessera::math
