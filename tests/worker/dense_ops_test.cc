// What golden values of small cases cannot show: sizes, evaluation, dropout.
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "tests/worker/dense_testing.h"
#include "tests/worker/op_cases.h"

namespace tessera::worker::testing {
namespace {

// Along a random direction of everything that has a gradient.
void ExpectDirectionalDerivative(OpRunner& runner) {
  runner.Loss();
  runner.Backward();
  constexpr double kStep = 1e-2;
  double analytic = 0, size = 0;
  std::vector<std::pair<Guarded*, std::vector<float>>> directions;
  uint64_t seed = 900;
  const auto along = [&](std::vector<Guarded>& tensors, std::vector<Guarded>& gradients) {
    for (size_t k = 0; k < tensors.size(); ++k) {
      directions.push_back({&tensors[k], Normals(seed++, tensors[k].span().size())});
      for (size_t i = 0; i < tensors[k].span().size(); ++i) {
        const double term =
            static_cast<double>(directions.back().second[i]) * gradients[k].view()[i];
        analytic += term;
        size += std::fabs(term);
      }
    }
  };
  along(runner.inputs, runner.input_gradients);
  along(runner.trained, runner.trained_gradients);
  const auto loss_at = [&](double step) {
    std::vector<std::vector<float>> before;
    for (auto& [tensor, direction] : directions) {
      before.push_back(tensor->values());
      for (size_t i = 0; i < direction.size(); ++i) {
        tensor->span()[i] += static_cast<float>(step) * direction[i];
      }
    }
    const double loss = runner.Loss();
    for (size_t d = 0; d < directions.size(); ++d) {
      std::copy(before[d].begin(), before[d].end(), directions[d].first->span().begin());
    }
    return loss;
  };
  // Fourth order; float32 losses of about `size` are good to 1e-6 of it, divided by the step.
  const double numeric =
      (loss_at(-2 * kStep) - 8 * loss_at(-kStep) + 8 * loss_at(kStep) - loss_at(2 * kStep)) /
      (12 * kStep);
  EXPECT_NEAR(analytic, numeric, 2e-3 * size + 1e-6);
}

// Ops whose slope jumps where numbers meet.
bool HasKinks(const std::string& op) {
  return op == "PRelu" || op == "Max" || op == "Min" || op == "ReduceMax";
}

// Of single numbers of everything that has a gradient, the last among them: a wrong one would
// hardly show along a direction of all.
void ExpectDerivativesOfSingleNumbers(OpRunner& runner, bool has_kinks) {
  constexpr double kStep = 1e-2;
  const double here = runner.Loss();
  runner.Backward();
  const auto expect = [&](std::vector<Guarded>& tensors, std::vector<Guarded>& gradients) {
    for (size_t k = 0; k < tensors.size(); ++k) {
      const absl::Span<const float> gradient = gradients[k].view();
      double squares = 0;
      for (const float g : gradient) squares += static_cast<double>(g) * g;
      const size_t size = gradient.size();
      const double usual = std::sqrt(squares / static_cast<double>(size));
      for (const size_t i :
           std::set<size_t>{0, size / 2, size - std::min<size_t>(size, 8), size - 1}) {
        float& number = tensors[k].span()[i];
        const auto loss_at = [&](double step) {
          const float before = std::exchange(number, number + static_cast<float>(step));
          const double loss = runner.Loss();
          number = before;
          return loss;
        };
        const double below = loss_at(-kStep), above = loss_at(kStep);
        const double bend = std::fabs(below + above - 2 * here) / kStep;
        if (has_kinks && bend > 1e-3) continue;
        const double g = gradient[i];
        EXPECT_NEAR(g, (above - below) / (2 * kStep), 5e-3 * (std::fabs(g) + usual) + 1e-4)
            << "number " << i << " of " << size << " of tensor " << k;
      }
    }
  };
  expect(runner.inputs, runner.input_gradients);
  expect(runner.trained, runner.trained_gradients);
}

TEST(DenseOps, HaveRightGradientsAndWriteNothingBesideAtEverySize) {
  for (const int64_t width : {1, 7, 8, 9, 63, 64, 65, 257, 1001}) {
    for (const size_t batch : {1, 5, 64, 65}) {
      if (width * static_cast<int64_t>(batch) > 20000) continue;
      for (const OpCase& sized : CasesOfWidth(width)) {
        SCOPED_TRACE(sized.op + " of width " + std::to_string(width) + ", batch " +
                     std::to_string(batch));
        OpRunner runner(sized.op, sized.inputs, batch, sized.options);
        runner.Fill(width * 1000 + static_cast<int64_t>(batch));
        if (sized.op == "Div") {  // whose slope is infinite at 0
          for (float& number : runner.inputs[1].span()) number += std::copysign(1.0f, number);
        }
        // One or two samples: normalisation turns x into nearly a sign, with no use for
        // differences.
        if ((sized.op == "BatchNormalization" || sized.op == "Dice") && batch < 5) {
          runner.Forward(true);
          runner.Backward();
        } else {
          if (!HasKinks(sized.op)) ExpectDirectionalDerivative(runner);
          ExpectDerivativesOfSingleNumbers(runner, HasKinks(sized.op));
        }
        runner.Forward(false);
        ASSERT_TRUE(runner.Intact());
      }
    }
  }
}

TEST(DenseOps, OfPairsOfManyFieldsHaveRightGradients) {
  for (const int64_t fields : {2, 15, 16, 17, 18, 33, 40}) {
    for (const bool self : {false, true}) {
      SCOPED_TRACE(std::to_string(fields) + (self ? " with themselves" : ""));
      OpRunner runner("DotInteraction", {{fields, 65}}, 3, Options().Set("self", self));
      runner.Fill(fields);
      ExpectDirectionalDerivative(runner);
      ASSERT_TRUE(runner.Intact());
    }
  }
}

TEST(MatMul, OfLargeMatricesHasRightGradients) {
  // Above the size from which products go to the library.
  for (const bool a : {false, true}) {
    for (const bool b : {false, true}) {
      OpRunner runner(
          "MatMul",
          {a ? Shape{2, 70, 65} : Shape{2, 65, 70}, b ? Shape{2, 66, 70} : Shape{2, 70, 66}}, 2,
          Options().Set("transA", a).Set("transB", b).Set("alpha", 0.25));
      runner.Fill(5);
      ExpectDirectionalDerivative(runner);
      ASSERT_TRUE(runner.Intact());
    }
  }
}

TEST(Bilinear, GoesOnWhereTheScratchIsFull) {
  OpRunner runner("Bilinear", {{2, 300}, {2, 200}}, 5, Options().Set("units", 2.0));
  ASSERT_LT(runner.op->ScratchFloats(), 2u * 5 * 300 * 200);
  runner.Fill(9);
  ExpectDirectionalDerivative(runner);
  ASSERT_TRUE(runner.Intact());
}

TEST(Softmax, StaysFiniteAtHugeInputs) {
  OpRunner runner("Softmax", {{3}}, 1);
  runner.inputs[0] = Guarded({3e38f, -3e38f, 3e38f});
  runner.Forward(false);
  EXPECT_EQ(runner.outputs[0].values(), (std::vector<float>{0.5f, 0.0f, 0.5f}));
}

// Where the divisor's square is not a float32.
TEST(Div, HasAFiniteGradientAtSmallAndLargeDivisors) {
  OpRunner runner("Div", {{4}, {4}}, 1);
  runner.inputs[0] = Guarded({0, 1e-23f, 2e20f, 3});
  runner.inputs[1] = Guarded({1e-23f, 1e-23f, 1e20f, -2});
  runner.output_gradients[0] = Guarded({1, 1, 2, 1});
  runner.Forward(true);
  runner.Backward();
  EXPECT_THAT(runner.input_gradients[1].values(),
              ::testing::Pointwise(::testing::FloatEq(), {0.0f, -1e23f, -4e-20f, -0.75f}));
}

TEST(Relu, OfWhatIsNoNumberIsNone) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {nan, -1, 0, 2, -infinity, infinity, -nan};
  const std::vector<float> y = {nan, 0, 0, 2, 0, infinity, nan};
  // In vectors and in what is left over.
  OpRunner runner("Relu", {{7}}, 5);
  std::vector<float> all;
  for (int i = 0; i < 5; ++i) all.insert(all.end(), x.begin(), x.end());
  runner.inputs[0] = Guarded(all);
  runner.Forward(true);
  const std::vector<float> found = runner.outputs[0].values();
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_THAT(found[i], ::testing::NanSensitiveFloatEq(y[i % y.size()])) << i;
  }
}

TEST(LayerNormalization, HasRightGradientsAtEverySize) {
  for (const int64_t width : {3, 7, 8, 9, 65, 257}) {
    for (const double affine : {-1.0, 1.0}) {
      OpRunner runner("LayerNormalization", {{2, width}}, 5, Options().Set("affine_axis", affine));
      runner.Fill(width);
      ExpectDirectionalDerivative(runner);
      runner.Forward(true);
      const std::vector<float> training = runner.outputs[0].values();
      runner.Forward(false);
      EXPECT_EQ(runner.outputs[0].values(), training);
      ASSERT_TRUE(runner.Intact());
    }
  }
}

TEST(ReduceMax, GivesTheGradientToTheFirstOfEquals) {
  OpRunner runner("ReduceMax", {{4}}, 1);
  runner.inputs[0] = Guarded({1, 2, 2, 0});
  runner.output_gradients[0] = Guarded(std::vector<float>{3});
  runner.Forward(true);
  runner.Backward();
  EXPECT_EQ(runner.outputs[0].values(), std::vector<float>{2});
  EXPECT_EQ(runner.input_gradients[0].values(), (std::vector<float>{0, 3, 0, 0}));
}

TEST(Gru, OfManySamplesAndUnitsHasRightGradients) {
  for (const char* op : {"GRU", "AUGRU"}) {
    const bool attention = std::string(op) == "AUGRU";
    std::vector<Shape> inputs = {{7, 5}};
    if (attention) inputs.push_back({7, 1});
    OpRunner runner(op, inputs, 33, Options().Set("units", 19.0));
    runner.Fill(3);
    // Weights of size 1 make so wide a recurrence too steep for differences.
    for (Guarded& tensor : runner.trained) {
      for (float& value : tensor.span()) value *= 0.2f;
    }
    ExpectDirectionalDerivative(runner);
  }
}

TEST(Gru, StopsAtTheLengthOfEachSample) {
  OpRunner all("GRU", {{4, 3}, {1}}, 2, Options().Set("units", 2.0));
  OpRunner last("GRU", {{4, 3}, {1}}, 2, Options().Set("units", 2.0).Set("sequence", false));
  for (OpRunner* runner : {&all, &last}) {
    runner->Fill(8);
    runner->inputs[1].span()[0] = 2;
    runner->inputs[1].span()[1] = 9;  // no more than there are
    runner->Forward(false);
  }
  const std::vector<float> states = all.outputs[0].values(), ends = last.outputs[0].values();
  for (size_t j = 0; j < 2; ++j) {
    EXPECT_EQ(ends[j], states[1 * 2 + j]);
    EXPECT_EQ(states[2 * 2 + j], 0);
    EXPECT_EQ(ends[2 + j], states[8 + 3 * 2 + j]);
    EXPECT_NE(ends[2 + j], 0);
  }
}

TEST(Dice, UsesTheRunningStatisticsInEvaluation) {
  OpRunner runner("Dice", {{1}}, 2, Options().Set("epsilon", 1e-9));
  runner.Fill(1);
  runner.inputs[0] = Guarded({1, 3});
  runner.statistics[0] = Guarded(std::vector<float>{1});
  runner.statistics[1] = Guarded(std::vector<float>{4});
  runner.trained[0] = Guarded(std::vector<float>{0.5f});
  runner.Forward(false);
  // sigmoid(0) = 0.5 and sigmoid(1) = 0.731059
  EXPECT_THAT(runner.outputs[0].values(),
              ::testing::Pointwise(::testing::FloatNear(1e-5f), {0.75f, 2.596588f}));
}

TEST(BatchNormalization, UsesTheRunningStatisticsInEvaluation) {
  OpRunner runner("BatchNormalization", {{2}}, 2);
  runner.Fill(1);
  runner.inputs[0] = Guarded({1, 2, 3, 4});
  runner.statistics[0] = Guarded({1, 0});
  runner.statistics[1] = Guarded({4 - 1e-5f, 1 - 1e-5f});
  runner.trained[0] = Guarded({2, 10});
  runner.trained[1] = Guarded({5, 0});
  runner.Forward(false);
  EXPECT_THAT(runner.outputs[0].values(),
              ::testing::Pointwise(::testing::FloatNear(1e-4f), {5.0f, 20.0f, 7.0f, 40.0f}));
}

TEST(BatchNormalization, OfOneSampleGivesTheBiasAndLeavesTheRunningVariance) {
  OpRunner runner("BatchNormalization", {{3}}, 1);
  runner.Fill(2);
  runner.Forward(true);
  runner.Backward();
  EXPECT_EQ(runner.outputs[0].values(), runner.trained[1].values());
  EXPECT_THAT(runner.input_gradients[0].values(), ::testing::Each(0.0f));
  EXPECT_THAT(runner.statistics_gradients[1].values(), ::testing::Each(0.0f));
  for (size_t j = 0; j < 3; ++j) {
    EXPECT_FLOAT_EQ(runner.statistics_gradients[0].view()[j],
                    0.1f * (runner.statistics[0].view()[j] - runner.inputs[0].view()[j]));
  }
}

TEST(BatchNormalization, KeepsItsPrecisionFarFromZero) {
  // A mean of 10,000 times the deviation; sums of squares would lose it.
  const size_t batch = 1000;
  OpRunner runner("BatchNormalization", {{1}}, batch);
  runner.Fill(4);
  for (size_t i = 0; i < batch; ++i) {
    runner.inputs[0].span()[i] = 10000.0f + (i % 2 == 0 ? 1.0f : -1.0f);
  }
  runner.trained[0] = Guarded(std::vector<float>{1});
  runner.trained[1] = Guarded(std::vector<float>{0});
  runner.Forward(true);
  for (size_t i = 0; i < batch; ++i) {
    ASSERT_NEAR(runner.outputs[0].view()[i], i % 2 == 0 ? 1 : -1, 2e-3);
  }
}

TEST(Dropout, ZeroesItsShareAndScalesTheRest) {
  const size_t count = 100000;
  OpRunner runner("Dropout", {{1000}}, count / 1000, Options().Set("ratio", 0.2));
  for (float& x : runner.inputs[0].span()) x = 1;
  for (float& dy : runner.output_gradients[0].span()) dy = 1;
  runner.Forward(true);
  size_t zeroed = 0;
  double sum = 0;
  for (const float y : runner.outputs[0].view()) {
    ASSERT_TRUE(y == 0 || std::fabs(y - 1.25f) < 1e-4f) << y;
    zeroed += y == 0;
    sum += y;
  }
  // Four standard deviations of a binomial count: 4 * sqrt(n * 0.2 * 0.8) = 506.
  EXPECT_NEAR(static_cast<double>(zeroed), 0.2 * count, 506);
  EXPECT_NEAR(sum / count, 1, 0.007);
  runner.Backward();
  EXPECT_EQ(runner.input_gradients[0].values(), runner.outputs[0].values());
}

TEST(Dropout, DependsOnItsKeyAloneAndIsOffInEvaluation) {
  const auto outputs = [](size_t batch, uint64_t key, bool training) {
    OpRunner runner("Dropout", {{37}}, batch);
    for (float& x : runner.inputs[0].span()) x = 3;
    runner.Forward(training, key);
    return runner.outputs[0].values();
  };
  EXPECT_EQ(outputs(5, 1, true), outputs(5, 1, true));
  EXPECT_NE(outputs(5, 1, true), outputs(5, 2, true));
  // The first samples of a larger batch draw the same.
  std::vector<float> larger = outputs(9, 1, true);
  larger.resize(5 * 37);
  EXPECT_EQ(outputs(5, 1, true), larger);
  EXPECT_THAT(outputs(5, 1, false), ::testing::Each(3.0f));
}

TEST(Dropout, OfRatioZeroIsTheIdentity) {
  OpRunner runner("Dropout", {{9}}, 3, Options().Set("ratio", 0.0));
  runner.Fill(1);
  runner.Forward(true);
  runner.Backward();
  EXPECT_EQ(runner.outputs[0].values(), runner.inputs[0].values());
  EXPECT_EQ(runner.input_gradients[0].values(), runner.output_gradients[0].values());
}

TEST(Views, KeepTheFloatsAndChangeTheShape) {
  const google::protobuf::Struct no_options;
  OptionReader none(no_options, "options");
  const std::vector<Shape> input = {{4, 6}};
  auto flatten = FindOp("Flatten")->factory(input, none);
  ASSERT_TRUE(flatten.ok());
  EXPECT_TRUE((*flatten)->IsView());
  EXPECT_EQ((*flatten)->outputs()[0], (Shape{24}));
  const google::protobuf::Struct options =
      Options().Set("shape", std::vector<int64_t>{0, 3, -1, 2});
  OptionReader reader(options, "options");
  auto reshape = FindOp("reshape")->factory(input, reader);
  ASSERT_TRUE(reshape.ok()) << reshape.status();
  EXPECT_EQ((*reshape)->outputs()[0], (Shape{3, 4, 2}));
}

}  // namespace
}  // namespace tessera::worker::testing
