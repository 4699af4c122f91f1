#include "common/job/scores.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/common/evaluation_testing.h"

namespace tessera::math {
namespace {

TEST(MeasureScores, TakesEachTasksColumnsAndNamesItsMetrics) {
  ScoreLayout layout = {.tasks = {}, .label_columns = 2, .weighted = true};
  JobTask click, price;
  click.name = "click";
  click.label = 1;
  price.name = "price";
  price.loss = v1::MEAN_SQUARED_ERROR;
  layout.tasks = {click, price};
  // Price, click, weight.
  const std::vector<float> labels = {10, 1, 1, 20, 0, 1, 30, 1, 2};
  const std::vector<float> outputs = {1, 11, 2, 20, 3, 31};
  const auto values = MeasureScores(layout, {"auc/click", "mae/price"}, outputs, labels, {});
  ASSERT_EQ(values.size(), 2u);
  EXPECT_DOUBLE_EQ(values.at("auc/click"), 2.0 / 3);
  EXPECT_DOUBLE_EQ(values.at("mae/price"), 3.0 / 4);
}

// A task of each loss.
ScoreLayout LayoutOfAllLosses() {
  ScoreLayout layout = {.tasks = {}, .label_columns = 0, .weighted = true};
  for (const LossInfo& info : AllLosses()) {
    JobTask& task = layout.tasks.emplace_back();
    task.name = LossName(info.loss);
    task.loss = info.loss;
    task.label = layout.label_columns++;
  }
  return layout;
}

using Rows = std::pair<std::vector<float>, std::vector<float>>;  // outputs, labels and weight

// n samples of LayoutOfAllLosses, with values and weights that no sum of doubles keeps.
std::vector<Rows> RowsOfAllLosses(int n) {
  std::vector<Rows> rows(n);
  std::mt19937 random(32);
  std::normal_distribution<float> normal;
  for (const LossInfo& info : AllLosses()) {
    const EvaluatedSamples s = SamplesOf(info.outputs, n, 1, 31);
    const bool classes = info.outputs == Outputs::kClasses;
    const float scale = info.outputs == Outputs::kValues ? 1e6f : 1;
    for (int i = 0; i < n; ++i) {
      auto& [outputs, labels] = rows[i];
      outputs.push_back(classes ? s.outputs[i] : scale * (s.outputs[i] + normal(random)));
      if (classes) outputs.insert(outputs.end(), {0, s.log_probabilities[i]});
      labels.push_back(s.labels[i]);
    }
  }
  for (auto& [outputs, labels] : rows) labels.push_back(std::exp(5 * normal(random)));
  return rows;
}

// All metrics that can be added up, of all losses that they are of.
TEST(ScoreSums, AreWhatIsMeasuredOfAllAtOnceBitForBit) {
  const ScoreLayout layout = LayoutOfAllLosses();
  std::vector<std::string> names;
  for (const MetricInfo& metric : AllMetrics()) {
    const size_t before = names.size();
    for (const JobTask& task : layout.tasks) {
      if (!metric.IsOf(OutputsOf(task.loss))) continue;
      names.push_back(task.MetricName(metric.name));
    }
    EXPECT_GT(names.size(), before) << metric.name << " is of no loss";
    if (!metric.sums) names.resize(before);
  }
  const int n = 3000;
  std::vector<Rows> samples = RowsOfAllLosses(n);
  std::mt19937 random(33);
  const auto add = [](const Rows& sample, std::vector<float>& outputs, std::vector<float>& labels) {
    outputs.insert(outputs.end(), sample.first.begin(), sample.first.end());
    labels.insert(labels.end(), sample.second.begin(), sample.second.end());
  };
  std::vector<float> outputs, labels;
  for (const Rows& sample : samples) add(sample, outputs, labels);
  const auto expected = MeasureScores(layout, names, outputs, labels, {});
  EXPECT_EQ(expected.size(), names.size());
  for (int round = 0; round < 3; ++round) {
    std::shuffle(samples.begin(), samples.end(), random);
    ScoreSums all(layout, names);
    for (size_t at = 0; at < samples.size();) {
      outputs.clear(), labels.clear();
      const size_t end = std::min(samples.size(), at + 1 + random() % 700);
      for (; at < end; ++at) add(samples[at], outputs, labels);
      ScoreSums part(layout, names);
      part.Add(outputs, labels);
      all.Merge(part);
    }
    EXPECT_EQ(all.samples(), static_cast<uint64_t>(n));
    EXPECT_EQ(all.Values(), expected);
    const auto bounds = all.ErrorBounds();
    EXPECT_TRUE(bounds.contains("binned_auc/binary_cross_entropy"));
    for (const auto& [name, bound] : bounds) EXPECT_LT(bound, 1e-3) << name;
  }
  for (const auto& [name, value] : expected) EXPECT_TRUE(std::isfinite(value)) << name;
}

// Each task's metrics are those of the samples that have its label, in one piece or in parts.
TEST(MeasureScores, TakeNoPartFromSamplesWithoutALabel) {
  const ScoreLayout layout = LayoutOfAllLosses();
  std::vector<std::string> names, sums;
  for (const MetricInfo& metric : AllMetrics()) {
    for (const JobTask& task : layout.tasks) {
      if (!metric.IsOf(OutputsOf(task.loss))) continue;
      names.push_back(task.MetricName(metric.name));
      if (metric.sums) sums.push_back(names.back());
    }
  }
  constexpr int kSamples = 600;
  const std::vector<Rows> all = RowsOfAllLosses(kSamples);
  std::vector<float> outputs, labels;
  std::vector<uint64_t> groups;
  std::mt19937 random(34);
  for (const Rows& row : all) {
    outputs.insert(outputs.end(), row.first.begin(), row.first.end());
    labels.insert(labels.end(), row.second.begin(), row.second.end());
    for (size_t l = 0; l < layout.label_columns; ++l) {
      if (random() % 3 == 0) labels[labels.size() - layout.label_floats() + l] = std::nanf("");
    }
    groups.push_back(random() % 40);
  }
  const auto found = MeasureScores(layout, names, outputs, labels, groups);
  ScoreSums parts(layout, sums);
  const size_t cut = 250;
  parts.Add({outputs.data(), cut * layout.output_floats()},
            {labels.data(), cut * layout.label_floats()});
  parts.Add(
      {outputs.data() + cut * layout.output_floats(), (kSamples - cut) * layout.output_floats()},
      {labels.data() + cut * layout.label_floats(), (kSamples - cut) * layout.label_floats()});
  EXPECT_EQ(parts.samples(), uint64_t{kSamples});
  for (const JobTask& task : layout.tasks) {
    std::vector<float> own_outputs, own_labels;
    std::vector<uint64_t> own_groups;
    for (int i = 0; i < kSamples; ++i) {
      const auto row = labels.begin() + i * static_cast<int64_t>(layout.label_floats());
      if (std::isnan(row[task.label])) continue;
      const Rows& whole = all[static_cast<size_t>(i)];
      own_outputs.insert(own_outputs.end(), whole.first.begin(), whole.first.end());
      own_labels.insert(own_labels.end(), whole.second.begin(), whole.second.end());
      own_groups.push_back(groups[static_cast<size_t>(i)]);
    }
    ASSERT_LT(own_groups.size(), static_cast<size_t>(kSamples) * 3 / 4);
    const auto expected = MeasureScores(layout, names, own_outputs, own_labels, own_groups);
    for (const std::string& name : names) {
      if (!name.ends_with("/" + task.name)) continue;
      EXPECT_TRUE(std::isfinite(expected.at(name))) << name;
      EXPECT_EQ(found.at(name), expected.at(name)) << name;
      if (!parts.Values().contains(name)) continue;
      EXPECT_EQ(parts.Values().at(name), expected.at(name)) << name;
    }
  }
}

TEST(MeasureScores, OfATaskWithoutLabelsAreUndefined) {
  const ScoreLayout layout = {.tasks = {JobTask()}};
  const std::vector<float> none = {std::nanf(""), std::nanf("")};
  const std::vector<std::string> names = {"auc", "logloss", "accuracy", "binned_auc"};
  for (const auto& [name, value] : MeasureScores(layout, names, {1, 2}, none, {})) {
    EXPECT_TRUE(std::isnan(value)) << name;
  }
}

TEST(ScoreSums, AreUndefinedOnceAnOutputIsNotANumber) {
  const ScoreLayout layout = {.tasks = {JobTask()}};
  const std::vector<std::string> names = {"binned_auc", "logloss"};
  ScoreSums sums(layout, names), with_nan(layout, names);
  sums.Add({1, 2}, {0, 1});
  EXPECT_EQ(sums.Values().at("binned_auc"), 1);
  with_nan.Add({std::nanf("")}, {1});
  sums.Merge(with_nan);
  for (const auto& [name, value] : sums.Values()) EXPECT_TRUE(std::isnan(value)) << name;
  EXPECT_TRUE(std::isnan(sums.ErrorBounds().at("binned_auc")));
}

}  // namespace
}  // namespace tessera::math
