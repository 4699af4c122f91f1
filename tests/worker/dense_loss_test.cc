#include "worker/dense/loss.h"

#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::worker {
namespace {

using Floats = std::vector<float>;

LossFunction Named(v1::Loss kind) {
  v1::ModelSpec model;
  model.set_loss(kind);
  return LossFunction::Of(model);
}

// Against differences of the double sum, of fourth order, at outputs away from the kinks of Huber.
void CheckGradient(const LossFunction& loss, const Floats& labels) {
  const Floats outputs = {-3.5f, -0.75f, 0.3f, 0.6f, 1.875f, 4.25f};
  Floats gradient(outputs.size());
  loss.Evaluate(outputs, labels, 0.25f, absl::MakeSpan(gradient));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto at = [&](double t) {
      Floats moved = outputs;
      moved[i] += static_cast<float>(t);
      Floats unused(outputs.size());
      return loss.Evaluate(moved, labels, 1, absl::MakeSpan(unused));
    };
    constexpr double h = 1.0 / 64;
    const double numeric = (at(-2 * h) - 8 * at(-h) + 8 * at(h) - at(2 * h)) / (12 * h);
    EXPECT_NEAR(gradient[i], 0.25 * numeric, 2e-5) << i;
  }
}

TEST(LossFunction, HasTheGradientOfItsValue) {
  const Floats classes = {0, 1, 1, 0, 1, 0};
  const Floats values = {-3.2f, 2, 0.1f, 0.5f, -6, 4.5f};
  LossFunction weighted;
  weighted.positive_weight = 2.5f;
  v1::ModelSpec spec;
  spec.set_loss(v1::HUBER);
  spec.set_huber_delta(0.75f);
  const LossFunction huber = LossFunction::Of(spec);
  EXPECT_EQ(huber.huber_delta, 0.75f);
  CheckGradient(LossFunction(), classes);
  CheckGradient(weighted, classes);
  CheckGradient(Named(v1::MEAN_SQUARED_ERROR), values);
  CheckGradient(huber, values);
}

TEST(LossFunction, SumsTheLossesOfSamples) {
  const Floats outputs = {1, -2, 5};
  const Floats labels = {1.5f, -1, 1};
  Floats gradient(3);
  EXPECT_DOUBLE_EQ(
      Named(v1::MEAN_SQUARED_ERROR).Evaluate(outputs, labels, 1, absl::MakeSpan(gradient)),
      0.25 + 1 + 16);
  EXPECT_THAT(gradient, testing::ElementsAre(-1, -2, 8));
  EXPECT_DOUBLE_EQ(Named(v1::HUBER).Evaluate(outputs, labels, 2, absl::MakeSpan(gradient)),
                   0.125 + 0.5 + 3.5);
  EXPECT_THAT(gradient, testing::ElementsAre(-1, -2, 2));
}

TEST(LossFunction, WeighsPositiveSamplesAlone) {
  const Floats outputs = {0, 0};
  const Floats labels = {1, 0};
  v1::ModelSpec model;
  model.set_positive_weight(3);
  Floats gradient(2);
  EXPECT_DOUBLE_EQ(LossFunction::Of(model).Evaluate(outputs, labels, 1, absl::MakeSpan(gradient)),
                   4 * std::log(2.0));
  EXPECT_THAT(gradient, testing::ElementsAre(-1.5f, 0.5f));
}

}  // namespace
}  // namespace tessera::worker
