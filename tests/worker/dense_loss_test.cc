#include "worker/dense/loss.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/paths.h"
#include "worker/dense/graph.h"
#include "worker/dense/options.h"

namespace tessera::worker {
namespace {

using Floats = std::vector<float>;

LossFunction Named(v1::Loss kind) {
  JobTask task;
  task.loss = kind;
  return LossFunction::Of(task);
}

double Evaluate(const LossFunction& loss, const Floats& outputs, const Targets& targets,
                float scale, Floats& gradient, size_t width = 1) {
  std::vector<uint32_t> order;
  SortByGroup(targets.groups, &order);
  return loss.Evaluate(outputs, width, targets, order, scale, absl::MakeSpan(gradient));
}

// Against differences of the double sum, of fourth order, at outputs away from the kinks of Huber.
void CheckGradient(const LossFunction& loss, const Targets& targets, size_t width = 1) {
  const Floats outputs = {-3.5f, -0.75f, 0.3f, 0.6f, 1.875f, 4.25f};
  Floats gradient(outputs.size());
  Evaluate(loss, outputs, targets, 0.25f, gradient, width);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto at = [&](double t) {
      Floats moved = outputs;
      moved[i] += static_cast<float>(t);
      Floats unused(outputs.size());
      return Evaluate(loss, moved, targets, 1, unused, width);
    };
    constexpr double h = 1.0 / 64;
    const double numeric = (at(-2 * h) - 8 * at(-h) + 8 * at(h) - at(2 * h)) / (12 * h);
    EXPECT_NEAR(gradient[i], 0.25 * numeric, 2e-5) << i;
  }
}

// What CheckGradient's outputs are held against, as the loss takes it.
struct Labels {
  explicit Labels(const LossInfo& loss) {
    switch (loss.labels) {
      case LabelKind::kBinary:
        labels = {0, 1, 1, 0, 1, 0};
        break;
      case LabelKind::kReal:
        labels = {-3.2f, 2, 0.1f, 0.5f, -6, 4.5f};
        break;
      case LabelKind::kClass:
        labels = {2, 0};
        width = 3;
        break;
      case LabelKind::kGrade:
        labels = {0, 3, 1, 0, 1, 0};
        break;
    }
    if (loss.ranks) groups = {7, 3, 7, 7, 3, 9};
  }
  Floats labels;
  std::vector<uint64_t> groups;
  size_t width = 1;
};

TEST(LossFunction, HasTheGradientOfItsValue) {
  for (const LossInfo& info : AllLosses()) {
    SCOPED_TRACE(LossName(info.loss));
    const Labels of(info);
    CheckGradient(Named(info.loss), Targets(of.labels, 1, {}, of.groups), of.width);
  }
}

TEST(LossFunction, WithOptionsHasTheGradientOfItsValue) {
  const Floats classes = {0, 1, 1, 0, 1, 0};
  const Floats values = {-3.2f, 2, 0.1f, 0.5f, -6, 4.5f};
  LossFunction weighted;
  weighted.positive_weight = 2.5f;
  v1::JobSpec spec;
  spec.mutable_model()->set_loss(v1::HUBER);
  spec.mutable_model()->set_huber_delta(0.75f);
  const LossFunction huber = LossFunction::Of(TasksOf(spec)[0]);
  EXPECT_EQ(huber.huber_delta, 0.75f);
  CheckGradient(weighted, classes);
  CheckGradient(huber, values);
}

TEST(LossFunction, SumsTheLossesOfSamples) {
  const Floats outputs = {1, -2, 5};
  const Floats labels = {1.5f, -1, 1};
  Floats gradient(3);
  EXPECT_DOUBLE_EQ(Evaluate(Named(v1::MEAN_SQUARED_ERROR), outputs, labels, 1, gradient),
                   0.25 + 1 + 16);
  EXPECT_THAT(gradient, ::testing::ElementsAre(-1, -2, 8));
  EXPECT_DOUBLE_EQ(Evaluate(Named(v1::HUBER), outputs, labels, 2, gradient), 0.125 + 0.5 + 3.5);
  EXPECT_THAT(gradient, ::testing::ElementsAre(-1, -2, 2));
}

TEST(LossFunction, WeighsPositiveSamplesAlone) {
  const Floats outputs = {0, 0};
  const Floats labels = {1, 0};
  LossFunction loss;
  loss.positive_weight = 3;
  Floats gradient(2);
  EXPECT_DOUBLE_EQ(Evaluate(loss, outputs, labels, 1, gradient), 4 * std::log(2.0));
  EXPECT_THAT(gradient, ::testing::ElementsAre(-1.5f, 0.5f));
}

TEST(LossFunction, OfWeightedSamplesHasTheGradientOfItsValue) {
  const Floats weights = {0.5f, 2, 0, 1, 3, 1.25f};
  for (const LossInfo& info : AllLosses()) {
    if (info.ranks) continue;
    SCOPED_TRACE(LossName(info.loss));
    const Labels of(info);
    CheckGradient(Named(info.loss), Targets(of.labels, 1, {weights.data(), of.labels.size()}, {}),
                  of.width);
  }
}

TEST(LossFunction, MultipliesEachSampleByItsWeightAndTheTaskByIts) {
  LossFunction loss = Named(v1::MEAN_SQUARED_ERROR);
  loss.label = 1;
  loss.task_weight = 0.5f;
  const Floats labels = {9, 1, 9, 5};  // the second column counts
  const Floats weights = {2, 0};
  Floats gradient(2);
  EXPECT_DOUBLE_EQ(Evaluate(loss, {4, 4}, Targets(labels, 2, weights, {}), 1, gradient), 9);
  EXPECT_THAT(gradient, ::testing::ElementsAre(6, 0));
}

TEST(LossFunction, OfSeveralClassesIsTheirCrossEntropy) {
  const LossFunction loss = Named(v1::SOFTMAX_CROSS_ENTROPY);
  const Floats labels = {2, 0};
  // Probabilities 1/7, 2/7, 4/7, and the same far from 0.
  const float a = std::log(2.0f);
  const Floats outputs = {0, a, 2 * a, 1000, 1000, 1000};
  Floats gradient(6);
  EXPECT_NEAR(Evaluate(loss, outputs, Targets(labels), 1, gradient, 3),
              std::log(7.0 / 4) + std::log(3.0), 1e-6);
  const double third = 1.0 / 3;
  const double expected[] = {1.0 / 7, 2.0 / 7, -3.0 / 7, third - 1, third, third};
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(gradient[i], expected[i], 1e-6) << i;
}

TEST(LossFunction, OfPairsComparesPositiveAndNegativeSamplesOfAGroup) {
  const LossFunction loss = Named(v1::BAYESIAN_PERSONALIZED_RANKING);
  const Floats labels = {0, 1, 1, 0, 1, 0};
  const std::vector<uint64_t> groups = {7, 3, 7, 7, 3, 9};
  // The pairs are samples (2, 0) and (2, 3): group 3 has no negative one, group 9 no positive one.
  const Floats outputs = {1, 0, 2, -1, 0, 0};
  Floats gradient(6);
  const double losses = std::log1p(std::exp(-1.0)) + std::log1p(std::exp(-3.0));
  EXPECT_NEAR(Evaluate(loss, outputs, Targets(labels, 1, {}, groups), 1, gradient), 6 * losses / 2,
              1e-6);
  EXPECT_EQ(gradient[1], 0);
  EXPECT_NEAR(gradient[0], 3 / (1 + std::exp(1.0)), 1e-6);
  EXPECT_NEAR(gradient[0] + gradient[2] + gradient[3], 0, 1e-6);
}

TEST(LossFunction, OfListsIsTheCrossEntropyOfSoftmaxAndLabelsInAGroup) {
  const LossFunction loss = Named(v1::LISTWISE_SOFTMAX);
  const Floats labels = {0, 3, 1, 0, 1, 0};
  const std::vector<uint64_t> groups = {7, 3, 7, 7, 3, 9};
  // Equal outputs: probabilities 1/3 and 1/2, whatever the labels; group 9 has none above 0.
  const Floats outputs = {5, -2, 5, 5, -2, 0};
  Floats gradient(6);
  EXPECT_NEAR(Evaluate(loss, outputs, Targets(labels, 1, {}, groups), 1, gradient),
              6 * (std::log(3.0) + std::log(2.0)) / 2, 1e-6);
  EXPECT_NEAR(gradient[1], 3 * (0.5 - 0.75), 1e-6);
  EXPECT_NEAR(gradient[2], 3 * (1.0 / 3 - 1), 1e-6);
  EXPECT_EQ(gradient[5], 0);
}

TEST(LossFunction, HasTheReferenceValuesAndGradients) {
  std::ifstream file(SourcePath("tests/golden/losses.txt"));
  ASSERT_TRUE(file) << "run tests/golden/losses.py";
  std::string name;
  size_t width = 1;
  std::map<std::string, std::vector<double>> lines;
  std::set<int> seen;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string kind;
    in >> kind;
    if (kind == "case") {
      in >> name >> width;
    } else if (kind != "end") {
      std::vector<double>& numbers = lines[kind];
      numbers.clear();
      for (std::string number; in >> number;) {
        numbers.push_back(std::strtod(number.c_str(), nullptr));  // which takes nan
      }
    } else {
      SCOPED_TRACE(name);
      v1::Loss loss;
      ASSERT_TRUE(v1::Loss_Parse(name, &loss));
      seen.insert(loss);
      const Floats outputs(lines["outputs"].begin(), lines["outputs"].end());
      const Floats labels(lines["labels"].begin(), lines["labels"].end());
      const std::vector<uint64_t> groups(lines["groups"].begin(), lines["groups"].end());
      Floats gradient(outputs.size());
      EXPECT_NEAR(
          Evaluate(Named(loss), outputs, Targets(labels, 1, {}, groups), 1, gradient, width),
          lines["value"].at(0), 1e-9 * lines["value"].at(0));
      for (size_t i = 0; i < gradient.size(); ++i) {
        EXPECT_NEAR(gradient[i], lines["gradient"].at(i), 2e-6) << i;
      }
    }
  }
  for (const LossInfo& info : AllLosses()) {
    EXPECT_TRUE(seen.contains(info.loss))
        << LossName(info.loss) << " has no case in tests/golden/losses.py";
  }
}

TEST(LossFunction, OfRankingIsZeroWhereNothingCanBeCompared) {
  const Floats labels = {0, 0};
  const std::vector<uint64_t> groups = {1, 1};
  for (const LossInfo& info : AllLosses()) {
    if (!info.ranks) continue;
    Floats gradient(2, 5);
    EXPECT_EQ(Evaluate(Named(info.loss), {1, 2}, Targets(labels, 1, {}, groups), 1, gradient), 0);
    EXPECT_THAT(gradient, ::testing::ElementsAre(0, 0));
  }
}

TEST(AddedLoss, IsTheWeightedSumAndItsGradientTheWeights) {
  const Floats values = {1, 2, 4};
  Floats gradient(3, 5);
  const Floats labels(3);
  EXPECT_EQ(AddedLoss(values, 0.5f, Targets(labels), 0.25f, absl::MakeSpan(gradient)), 3.5);
  EXPECT_THAT(gradient, ::testing::Each(0.125f));
  const Floats weights = {0, 1, 2};
  const Targets weighted(labels, 1, weights, {});
  EXPECT_EQ(AddedLoss(values, 0.5f, weighted, 0.25f, absl::MakeSpan(gradient)), 5);
  EXPECT_THAT(gradient, ::testing::ElementsAre(0, 0.125f, 0.25f));
}

// A layer and its output, and a second layer over the same input.
struct TwoHeads {
  TwoHeads() {
    x = builder.Input("x", {3}, true);
    aside = builder.Input("aside", {3}, true);
    shared = builder.Add("shared", "Gemm", {x}, Options().Set("units", 3.0));
    output = builder.Add("output", "Gemm", {shared}, Options().Set("units", 1.0));
    both = builder.Add("both", "Add", {shared, aside});
  }
  Tensor Head(const std::string& name, double units) {
    return builder.Add(name, "Gemm", {both}, Options().Set("units", units));
  }
  std::string Error() {
    const absl::Status status = builder.Build(output).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }
  GraphBuilder builder;
  Tensor x, aside, shared, output, both;
};

TEST(GraphLoss, LeavesToTrainingWhatNoOutputNeeds) {
  TwoHeads heads;
  heads.builder.AddLoss(heads.Head("loss", 1), 0.5f);
  const auto graph = heads.builder.Build(heads.output);
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_EQ((*graph)->losses().size(), 1u);
  EXPECT_EQ((*graph)->losses()[0].weight, 0.5f);
  std::vector<std::string> names;
  for (const GraphNode& node : (*graph)->nodes()) {
    if (node.training_only) names.push_back(node.name);
  }
  EXPECT_THAT(names, ::testing::ElementsAre("both", "loss"));
  EXPECT_TRUE((*graph)->IsUsedByOutputs(heads.x.index));
  EXPECT_TRUE((*graph)->IsUsedByOutputs(heads.shared.index));
  EXPECT_TRUE((*graph)->IsUsed(heads.aside.index));
  EXPECT_FALSE((*graph)->IsUsedByOutputs(heads.aside.index));
}

TEST(GraphLoss, IsRefusedWhereItIsNone) {
  using ::testing::HasSubstr;
  TwoHeads wide;
  wide.builder.AddLoss(wide.Head("wide", 2), 1);
  EXPECT_THAT(wide.Error(), HasSubstr("an auxiliary loss's output \"wide\" has the shape"));
  TwoHeads same;
  same.builder.AddLoss(same.output, 1);
  EXPECT_THAT(same.Error(),
              HasSubstr("an auxiliary loss's output \"output\" is that of an earlier"));
  TwoHeads nothing;
  nothing.builder.AddLoss(nothing.Head("nothing", 1), 0);
  EXPECT_THAT(nothing.Error(), HasSubstr("a loss has the weight 0, expected a number above 0"));
}

}  // namespace
}  // namespace tessera::worker
