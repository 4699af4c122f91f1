#include "common/math/metrics/evaluation_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "common/job/metric_names.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/evaluation_testing.h"

namespace tessera::math {
namespace {

double Probability(float x) { return 1 / (1 + std::exp(-static_cast<double>(x))); }

TEST(EvaluationMetrics, AreTheirDefinitions) {
  for (int n : {2, 3, 17, 1000}) {
    SCOPED_TRACE(n);
    const EvaluatedSamples s = RandomSamples(n, 5, n);
    double loss = 0, positives = 0, predicted = 0, squared = 0, absolute = 0, right = 0;
    for (int i = 0; i < n; ++i) {
      const double p = Probability(s.outputs[i]);
      const double y = s.labels[i];
      loss -= std::log(y > 0 ? p : 1 - p) / n;
      positives += y;
      predicted += p;
      squared += (p - y) * (p - y) / n;
      absolute += std::fabs(p - y) / n;
      right += (p >= 0.5) == (y > 0);
    }
    const double c = positives / n;
    const double entropy = -c * std::log(c) - (1 - c) * std::log(1 - c);
    EXPECT_NEAR(s.Measure("logloss"), loss, 1e-12);
    EXPECT_NEAR(s.Measure("normalized_entropy"), loss / entropy, 1e-12);
    EXPECT_NEAR(s.Measure("calibration"), predicted / positives, 1e-12);
    EXPECT_NEAR(s.Measure("mse"), squared, 1e-12);
    EXPECT_NEAR(s.Measure("rmse"), std::sqrt(squared), 1e-12);
    EXPECT_NEAR(s.Measure("mae"), absolute, 1e-12);
    EXPECT_EQ(s.Measure("accuracy"), right / n);
  }
}

TEST(EvaluationMetrics, AveragePrecisionIsTheSumOverThresholds) {
  for (int n : {2, 3, 17, 1000}) {
    const EvaluatedSamples s = RandomSamples(n, 1, 100 + n);
    const double positives = std::accumulate(s.labels.begin(), s.labels.end(), 0.0);
    std::set<float, std::greater<float>> thresholds(s.outputs.begin(), s.outputs.end());
    double sum = 0, recall_before = 0;
    for (float t : thresholds) {
      double named = 0, found = 0;
      for (int i = 0; i < n; ++i) {
        named += s.outputs[i] >= t;
        found += s.outputs[i] >= t && s.labels[i] > 0;
      }
      sum += (found / positives - recall_before) * (found / named);
      recall_before = found / positives;
    }
    EXPECT_NEAR(s.Measure("pr_auc"), sum, 1e-12) << n;
  }
}

TEST(EvaluationMetrics, AveragePrecisionOfAHandMadeListIsKnown) {
  // Positives at ranks 1 and 3 of four: (1 + 2/3) / 2.
  const EvaluatedSamples s = {{4, 3, 2, 1}, {1, 0, 1, 0}, {}};
  EXPECT_DOUBLE_EQ(s.Measure("pr_auc"), (1 + 2.0 / 3) / 2);
}

TEST(EvaluationMetrics, GroupedAucWeighsTheGroupsThatHaveBothClasses) {
  for (int groups : {1, 7, 300}) {
    const EvaluatedSamples s = RandomSamples(1000, groups, groups);
    std::map<uint64_t, EvaluatedSamples> parts;
    for (size_t i = 0; i < s.outputs.size(); ++i) {
      parts[s.groups[i]].outputs.push_back(s.outputs[i]);
      parts[s.groups[i]].labels.push_back(s.labels[i]);
    }
    double sum = 0, samples = 0;
    for (const auto& [group, part] : parts) {
      const double auc = part.Measure("auc");
      if (std::isnan(auc)) continue;
      sum += auc * static_cast<double>(part.outputs.size());
      samples += static_cast<double>(part.outputs.size());
    }
    EXPECT_NEAR(s.Measure("gauc"), sum / samples, 1e-12) << groups;
  }
}

TEST(EvaluationMetrics, GroupedAucIsUndefinedWithoutGroupsOrPairs) {
  EvaluatedSamples s = {{1, 2, 3}, {0, 1, 0}, {}};
  EXPECT_TRUE(std::isnan(s.Measure("gauc")));
  s.groups = {1, 2, 3};
  EXPECT_TRUE(std::isnan(s.Measure("gauc")));
  s.groups = {1, 1, 3};
  EXPECT_EQ(s.Measure("gauc"), 1);
}

TEST(EvaluationMetrics, OfARegressionTakeOutputsAsTheyAre) {
  EvaluatedSamples s = {{1, 2, -4}, {1.5f, 4, -3}, {}, Outputs::kValues};
  EXPECT_DOUBLE_EQ(s.Measure("mse"), (0.25 + 4 + 1) / 3);
  EXPECT_DOUBLE_EQ(s.Measure("rmse"), std::sqrt((0.25 + 4 + 1) / 3));
  EXPECT_DOUBLE_EQ(s.Measure("mae"), 3.5 / 3);
  EXPECT_DOUBLE_EQ(s.Measure("calibration"), -1 / 2.5);
  EXPECT_TRUE(std::isnan(s.Measure("auc")));
}

TEST(EvaluationMetrics, AreUndefinedWhereThereIsNothingToMeasure) {
  for (const Outputs kind : AllOutputs()) {
    SCOPED_TRACE(static_cast<int>(kind));
    const EvaluatedSamples some = SamplesOf(kind, 100, 3, 9);
    EvaluatedSamples none, with_nan = some;
    none.kind = kind;
    with_nan.outputs[50] = std::numeric_limits<float>::quiet_NaN();
    for (const MetricInfo& metric : AllMetrics()) {
      EXPECT_TRUE(std::isnan(with_nan.Measure(metric.name))) << metric.name;
      EXPECT_TRUE(std::isnan(none.Measure(metric.name))) << metric.name;
      EXPECT_EQ(std::isnan(some.Measure(metric.name)), !metric.IsOf(kind)) << metric.name;
    }
  }
  const EvaluatedSamples one_class = {{1, 2}, {0, 0}, {1, 1}};
  for (const char* name :
       {"auc", "binned_auc", "pr_auc", "gauc", "normalized_entropy", "calibration"}) {
    EXPECT_TRUE(std::isnan(one_class.Measure(name))) << name;
  }
  // Nor is there a class whose samples all weigh nothing.
  const EvaluatedSamples both = {{1, 2, 3}, {0, 1, 1}, {1, 1, 1}};
  for (const std::vector<float>& weights : {std::vector<float>{0, 1, 1}, {1, 0, 0}}) {
    for (const std::string name : {"auc", "binned_auc", "pr_auc", "gauc", "normalized_entropy"}) {
      EXPECT_TRUE(std::isnan(ComputeMetrics({name}, both.WithWeights(weights)).at(name))) << name;
    }
  }
}

TEST(EvaluationMetrics, AllAreComputedAtOnceAsAlone) {
  for (const Outputs kind : AllOutputs()) {
    SCOPED_TRACE(static_cast<int>(kind));
    const EvaluatedSamples s = SamplesOf(kind, 100, 3, 9);
    std::vector<std::string> names;
    for (const MetricInfo& metric : AllMetrics()) {
      if (metric.IsOf(kind)) names.push_back(metric.name);
    }
    const auto all = ComputeMetrics(names, s.WithWeights({}));
    EXPECT_EQ(all.size(), names.size());
    for (const auto& [name, value] : all) EXPECT_EQ(value, s.Measure(name)) << name;
  }
}

// A sample of weight w counts as w samples.
TEST(EvaluationMetrics, CountASampleAsOftenAsItWeighs) {
  for (const Outputs kind : AllOutputs()) {
    SCOPED_TRACE(static_cast<int>(kind));
    const EvaluatedSamples once = SamplesOf(kind, 300, 7, 21);
    EvaluatedSamples repeated;
    repeated.kind = kind;
    std::vector<float> weights;
    std::mt19937 random(5);
    for (size_t i = 0; i < once.outputs.size(); ++i) {
      const int times = static_cast<int>(random() % 4);
      weights.push_back(static_cast<float>(times));
      for (int k = 0; k < times; ++k) {
        repeated.outputs.push_back(once.outputs[i]);
        repeated.labels.push_back(once.labels[i]);
        repeated.groups.push_back(once.groups[i]);
        if (kind != Outputs::kClasses) continue;
        repeated.log_probabilities.push_back(once.log_probabilities[i]);
      }
    }
    for (const MetricInfo& metric : AllMetrics()) {
      if (!metric.IsOf(kind)) continue;
      if (metric.name.find('@') != std::string::npos) continue;  // they weigh groups
      const auto weighted = ComputeMetrics({metric.name}, once.WithWeights(weights));
      EXPECT_NEAR(weighted.at(metric.name), repeated.Measure(metric.name), 1e-12) << metric.name;
    }
  }
}

TEST(EvaluationMetrics, OfSeveralClassesAreAccuracyAndLogLoss) {
  const std::vector<float> found = {0, 2, 1, 1}, labels = {0, 1, 1, 1};
  const std::vector<float> log_probabilities = {-0.5f, -2, -0.25f, -0.75f};
  const std::vector<float> weights = {1, 1, 2, 0};
  Evaluated of = {.outputs = found,
                  .labels = labels,
                  .log_probabilities = log_probabilities,
                  .kind = Outputs::kClasses};
  EXPECT_DOUBLE_EQ(ComputeMetrics({"accuracy"}, of).at("accuracy"), 0.75);
  EXPECT_DOUBLE_EQ(ComputeMetrics({"logloss"}, of).at("logloss"), 3.5 / 4);
  of.weights = weights;
  EXPECT_DOUBLE_EQ(ComputeMetrics({"accuracy"}, of).at("accuracy"), 0.75);
  EXPECT_DOUBLE_EQ(ComputeMetrics({"logloss"}, of).at("logloss"), 3.0 / 4);
  EXPECT_TRUE(std::isnan(ComputeMetrics({"auc"}, of).at("auc")));
}

TEST(EvaluationMetrics, AtKLookAtTheBestOfEachGroup) {
  // Group 1 in the order of scores: labels 0, 3, 1; group 2: 1; group 3: 0, 0.
  const std::vector<float> scores = {2, 3, 1, 5, 0, 1};
  const std::vector<float> labels = {3, 0, 1, 1, 0, 0};
  const std::vector<uint64_t> groups = {1, 1, 1, 2, 3, 3};
  const Evaluated of = {
      .outputs = scores, .labels = labels, .groups = groups, .kind = Outputs::kGradedRanks};
  const auto at = [&](const std::string& name) { return ComputeMetrics({name}, of).at(name); };
  EXPECT_DOUBLE_EQ(at("precision@1"), (0 + 1 + 0) / 3.0);
  EXPECT_DOUBLE_EQ(at("precision@2"), (0.5 + 0.5 + 0) / 3.0);
  EXPECT_DOUBLE_EQ(at("recall@1"), (0 + 1) / 2.0);
  EXPECT_DOUBLE_EQ(at("recall@2"), (0.5 + 1) / 2.0);
  EXPECT_DOUBLE_EQ(at("recall@3"), 1);
  const double dcg = 7 / std::log2(3) + 1 / std::log2(4), best = 7 + 1 / std::log2(3);
  EXPECT_DOUBLE_EQ(at("ndcg@3"), (dcg / best + 1) / 2);
  EXPECT_DOUBLE_EQ(at("ndcg@1"), (0 + 1) / 2.0);
}

TEST(EvaluationMetrics, EqualScoresStandInEveryOrder) {
  const std::vector<float> scores = {2, 1, 1, 1, 0};
  const std::vector<uint64_t> groups = {7, 7, 7, 7, 7};
  // The second and third place are each taken by the three in the middle for a third of the orders.
  const double gain = (3 + 1 + 0) / 3.0, dcg = gain / std::log2(3) + gain / std::log2(4);
  const double best = 3 + 1 / std::log2(3) + 1 / std::log2(4);
  for (const std::vector<float>& labels :
       {std::vector<float>{0, 2, 1, 0, 1}, std::vector<float>{0, 0, 1, 2, 1}}) {
    const Evaluated of = {
        .outputs = scores, .labels = labels, .groups = groups, .kind = Outputs::kGradedRanks};
    const auto at = [&](const std::string& name) { return ComputeMetrics({name}, of).at(name); };
    EXPECT_DOUBLE_EQ(at("precision@1"), 0);
    EXPECT_DOUBLE_EQ(at("precision@3"), 2 * (2 / 3.0) / 3);
    EXPECT_DOUBLE_EQ(at("recall@2"), (2 / 3.0) / 3);
    EXPECT_DOUBLE_EQ(at("recall@5"), 1);
    EXPECT_DOUBLE_EQ(at("ndcg@3"), dcg / best);
  }
}

TEST(EvaluationMetrics, GainsOfAnyLabelAreFinite) {
  // One place down costs the same share of any large label: 1 / log2(3) is left.
  for (const float label : {127.0f, 128.0f, 150.0f, 2000.0f}) {
    const std::vector<float> scores = {2, 1, 1, 2}, labels = {0, label, 0, label};
    const std::vector<uint64_t> groups = {1, 1, 2, 2};
    const Evaluated of = {
        .outputs = scores, .labels = labels, .groups = groups, .kind = Outputs::kGradedRanks};
    EXPECT_DOUBLE_EQ(ComputeMetrics({"ndcg@2"}, of).at("ndcg@2"), (1 / std::log2(3) + 1) / 2)
        << label;
  }
  // Between labels that are 1 apart there is a factor of 2, where 1 is nothing beside them.
  const std::vector<float> scores = {2, 1}, labels = {149, 150};
  const std::vector<uint64_t> groups = {1, 1};
  const Evaluated of = {
      .outputs = scores, .labels = labels, .groups = groups, .kind = Outputs::kGradedRanks};
  EXPECT_DOUBLE_EQ(ComputeMetrics({"ndcg@2"}, of).at("ndcg@2"),
                   (0.5 + 1 / std::log2(3)) / (1 + 0.5 / std::log2(3)));
}

TEST(FindMetric, TakesAnyNumberBehindAnAtSign) {
  EXPECT_TRUE(FindMetric("ndcg@5").has_value());
  EXPECT_EQ(FindMetric("ndcg@5")->name, "ndcg@5");
  for (const char* name : {"ndcg", "ndcg@", "ndcg@0", "ndcg@05", "ndcg@-1", "ndcg@1.5", "auc@5",
                           "ndcg@9999999", "ndcg@x"}) {
    EXPECT_FALSE(FindMetric(name).has_value()) << name;
  }
}

TEST(Follow, LooksPastTheTaskAndTheNumber) {
  EXPECT_FALSE(Follow("logloss/click", 0.7).larger_is_better);
  EXPECT_TRUE(Follow("ndcg@3/click", 0.7).larger_is_better);
}

TEST(Follow, ComparesInTheDirectionOfEachMetric) {
  const std::map<std::string, Better> directions = {
      {"auc", Better::kLarger},
      {"binned_auc", Better::kLarger},
      {"gauc", Better::kLarger},
      {"pr_auc", Better::kLarger},
      {"logloss", Better::kSmaller},
      {"normalized_entropy", Better::kSmaller},
      {"accuracy", Better::kLarger},
      {"precision@10", Better::kLarger},
      {"recall@10", Better::kLarger},
      {"ndcg@10", Better::kLarger},
      {"calibration", Better::kNearerToOne},
      {"rmse", Better::kSmaller},
      {"mse", Better::kSmaller},
      {"mae", Better::kSmaller},
  };
  for (const MetricInfo& metric : AllMetrics()) {
    SCOPED_TRACE(metric.name);
    EXPECT_TRUE(directions.contains(metric.name)) << "has no line in this test";
    if (!directions.contains(metric.name)) continue;
    const Better better = directions.at(metric.name);
    EXPECT_EQ(Follow(metric.name, 0.75).larger_is_better, better == Better::kLarger);
    const bool distance = better == Better::kNearerToOne;
    EXPECT_EQ(Follow(metric.name, 0.75).value, distance ? 0.25 : 0.75);
    EXPECT_EQ(Follow(metric.name, 1.25).value, distance ? 0.25 : 1.25);
  }
  EXPECT_EQ(directions.size(), AllMetrics().size());
}

// Outputs that agree with the labels, or do not.
EvaluatedSamples Predicted(bool rightly, Outputs kind) {
  EvaluatedSamples samples = SamplesOf(kind, 60, 3, 5);
  for (size_t i = 0; i < samples.labels.size(); ++i) {
    const float label = samples.labels[i];
    switch (kind) {
      case Outputs::kLogits:
        samples.outputs[i] = (label > 0) == rightly ? 5 : -5;
        break;
      case Outputs::kValues:
        samples.outputs[i] = rightly ? label : label + 3;
        break;
      case Outputs::kClasses:
        samples.outputs[i] = rightly ? label : label + 1;
        samples.log_probabilities[i] = rightly ? -0.1f : -3;
        break;
      case Outputs::kRanks:
      case Outputs::kGradedRanks:
        samples.outputs[i] = rightly ? label : -label;
        break;
    }
  }
  return samples;
}

TEST(Follow, PrefersOutputsThatAreRight) {
  for (const Outputs kind : AllOutputs()) {
    const EvaluatedSamples right = Predicted(true, kind), wrong = Predicted(false, kind);
    for (const MetricInfo& metric : AllMetrics()) {
      if (!metric.IsOf(kind)) continue;
      const Followed good = Follow(metric.name, right.Measure(metric.name));
      const Followed bad = Follow(metric.name, wrong.Measure(metric.name));
      EXPECT_TRUE(good.larger_is_better ? good.value > bad.value : good.value < bad.value)
          << metric.name << " is " << good.value << " of right outputs and " << bad.value
          << " of wrong ones";
    }
  }
}

}  // namespace
}  // namespace tessera::math
