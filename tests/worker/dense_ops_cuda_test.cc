// Ops on a card, or an emulated one, against the same ops on the CPU.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/worker/dense_testing.h"
#include "tests/worker/op_cases.h"

namespace tessera::worker::testing {
namespace {

using Ints = std::vector<int64_t>;

// The broadcasts of ONNX: each axis of either operand.
std::vector<OpCase> BroadcastCases(int64_t n) {
  const std::vector<std::vector<Shape>> pairs = {{{n}, {n}},
                                                 {{n}, {1}},
                                                 {{1}, {n}},
                                                 {{n, 3}, {n, 1}},
                                                 {{1, 3}, {n, 1}},
                                                 {{3, n}, {1, n}},
                                                 {{3, n}, {1, 1}},
                                                 {{2, n, 3}, {2, n, 3}},
                                                 {{2, n, 3}, {1, n, 3}},
                                                 {{2, 1, 3}, {2, n, 1}},
                                                 {{1, n, 1}, {2, 1, 3}},
                                                 {{2, 1, n}, {2, 3, n}},
                                                 {{1, n, 1}, {2, n, 3}},
                                                 {{20, n}, {1, n}},
                                                 {{3, 20 * n}, {3, 1}}};
  std::vector<OpCase> cases;
  for (const std::vector<Shape>& pair : pairs) {
    for (const char* op : {"Add", "Sub", "Mul", "Div", "Max", "Min"}) cases.push_back({op, pair});
  }
  for (const std::vector<Shape>& pair : pairs) {
    cases.push_back({"Where", {pair[0], pair[1], pair[0]}});
    cases.push_back({"Where", {pair[1], pair[0], pair[1]}});
  }
  cases.push_back({"Where", {{1, 1}, {n, 3}, {1, 3}}});
  cases.push_back({"Add", {{n, 1}, {1, 3}, {n, 3}}});
  cases.push_back({"Add", {{2, n}, {2, 1}, {1, n}, {1, 1}}});
  const Ints all = {0, 3, n, 2};
  for (const Shape& from : {Shape{3, n, 2}, Shape{1, n, 2}, Shape{3, 1, 2}, Shape{3, n, 1},
                            Shape{1, n, 1}, Shape{1, 1, 2}, Shape{1, 1, 1}}) {
    cases.push_back({"Expand", {from}, Options().Set("shape", all)});
  }
  cases.push_back({"Expand", {{1}}, Options().Set("shape", Ints{0, 40 * n})});
  return cases;
}

std::vector<OpCase> ReductionCases(int64_t n) {
  std::vector<OpCase> cases;
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax"}) {
    cases.push_back({op, {{n}}});
    cases.push_back({op, {{70 * n}}});
    for (const Ints& axes : {Ints{1}, Ints{2}, Ints{3}, Ints{1, 2}, Ints{2, 3}, Ints{1, 2, 3}}) {
      cases.push_back({op, {{2, n, 3}}, Options().Set("axes", axes)});
      cases.push_back({op, {{n, 3, 20}}, Options().Set("axes", axes)});
    }
  }
  return cases;
}

std::vector<OpCase> MovingCases(int64_t n) {
  std::vector<OpCase> cases;
  for (const double axis : {1.0, 2.0, 3.0}) {
    const auto k = static_cast<size_t>(axis) - 1;
    Shape more = {2, n, 3}, one = {2, n, 3};
    more.set_dim(k, 5);
    one.set_dim(k, 1);
    cases.push_back({"Concat", {{2, n, 3}}, Options().Set("axis", axis)});
    cases.push_back({"Concat", {{2, n, 3}, more, one}, Options().Set("axis", axis)});
    Shape cut = {2, n, 3};
    cut.set_dim(k, 7);
    cases.push_back({"Slice", {cut}, Options().Set("axis", axis)});
    cases.push_back(
        {"Slice", {cut}, Options().Set("axis", axis).Set("start", 2.0).Set("end", 6.0)});
    cases.push_back({"Split", {cut}, Options().Set("axis", axis).Set("split", Ints{1, 4, 2})});
    cases.push_back({"Split", {cut}, Options().Set("axis", axis).Set("num_outputs", 7.0)});
    for (const Ints& indices : {Ints{6}, Ints{0, 1, 2, 3, 4, 5, 6}, Ints{6, 0, 6, 3, 0, 6}}) {
      cases.push_back({"Gather", {cut}, Options().Set("axis", axis).Set("indices", indices)});
    }
  }
  // More indices than one kernel carries.
  Ints many;
  for (int64_t i = 0; i < 700; ++i) many.push_back(i * i % (n + 600));
  cases.push_back({"Gather", {{n + 600}}, Options().Set("indices", many)});
  cases.push_back({"Transpose", {{n, 3}}, Options().Set("perm", Ints{0, 2, 1})});
  Ints perm = {1, 2, 3};
  do {
    cases.push_back(
        {"Transpose", {{2, n, 3}}, Options().Set("perm", Ints{0, perm[0], perm[1], perm[2]})});
  } while (std::next_permutation(perm.begin(), perm.end()));
  return cases;
}

std::vector<OpCase> OtherCases(int64_t n) {
  Ints values;
  for (int64_t i = 0; i < 70 * n; ++i) values.push_back(i % 1000 - 300);
  return {{"Constant", {}, Options().Set("shape", Ints{n, 2}).Set("value", 0.75)},
          {"Constant", {}, Options().Set("shape", Ints{70 * n}).Set("value", values)},
          {"Parameter", {}, Options().Set("shape", Ints{n})},
          {"Parameter", {}, Options().Set("shape", Ints{2, n, 3})},
          {"PRelu", {{n}}},
          {"RollBatch", {{2, n}}},
          {"PRelu", {{2, 3, n}}},
          {"StopGradient", {{2, n}}},
          {"SequenceMask", {{1}}, Options().Set("size", static_cast<double>(n))},
          {"SequenceMask",
           {{1}},
           Options().Set("size", static_cast<double>(n)).Set("valid", -2.0).Set("padding", 1e9)},
          {"Dropout", {{n}}},
          {"Dropout", {{2, n, 3}}, Options().Set("ratio", 0.1)},
          {"Bias", {{n}}},
          {"Gemm", {{n}}, Options().Set("units", 3.0)},
          {"Tanh", {{2, n}}}};
}

void ExpectSame(const std::vector<Guarded>& expected, const std::vector<Guarded>& found,
                const char* what) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t k = 0; k < found.size(); ++k) {
    float largest = 0;
    for (const float value : expected[k].view()) largest = std::max(largest, std::fabs(value));
    for (size_t i = 0; i < found[k].view().size(); ++i) {
      ASSERT_NEAR(found[k].view()[i], expected[k].view()[i], 1e-5f * largest)
          << what << " " << k << ", element " << i;
    }
  }
}

void FillAndRun(OpRunner& runner, const std::string& op, bool training) {
  runner.Fill(11);
  // Quotients of normal numbers near 0 have no scale.
  if (op == "Div") {
    for (float& b : runner.inputs[1].span()) b = std::copysign(std::fabs(b) + 0.5f, b);
  }
  if (op == "Where") {
    for (float& c : runner.inputs[0].span()) c = std::max(c, 0.0f);
  }
  if (op == "SequenceMask") {
    for (float& length : runner.inputs[0].span()) length *= 8;
  }
  runner.Forward(training);
  if (training) runner.Backward();
}

void ExpectTheCpusResults(const OpCase& given, size_t batch, cuda::Stream* stream) {
  SCOPED_TRACE(absl::StrCat(given.op, " of ",
                            given.inputs.empty() ? "nothing" : given.inputs[0].ToString(), ", ",
                            given.options.ShortDebugString(), ", batch ", batch));
  OpRunner on_cpu(given.op, given.inputs, batch, given.options);
  OpRunner on_card(given.op, given.inputs, batch, given.options);
  if (!on_card.op->RunsOnCuda()) return;
  on_card.stream = stream;
  for (const bool training : {false, true}) {
    FillAndRun(on_cpu, given.op, training);
    FillAndRun(on_card, given.op, training);
    ExpectSame(on_cpu.outputs, on_card.outputs, "output");
  }
  ExpectSame(on_cpu.input_gradients, on_card.input_gradients, "gradient of input");
  ExpectSame(on_cpu.trained_gradients, on_card.trained_gradients, "gradient of parameter");
  ExpectSame(on_cpu.statistics_gradients, on_card.statistics_gradients, "statistic");
  EXPECT_TRUE(on_card.Intact());
  // Without the gradient of one input the others stay as they were.
  for (size_t k = 0; k < given.inputs.size(); ++k) {
    OpRunner without(given.op, given.inputs, batch, given.options);
    without.stream = stream;
    without.unneeded = k;
    FillAndRun(without, given.op, true);
    for (size_t other = 0; other < given.inputs.size(); ++other) {
      if (other == k) continue;
      EXPECT_EQ(without.input_gradients[other].values(), on_card.input_gradients[other].values());
    }
    for (size_t p = 0; p < without.trained_gradients.size(); ++p) {
      EXPECT_EQ(without.trained_gradients[p].values(), on_card.trained_gradients[p].values());
    }
    EXPECT_TRUE(without.Intact());
  }
}

class DenseOpsOnCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    stream_ = NewStream(&why);
    if (stream_ == nullptr) GTEST_SKIP() << why;
  }

  void ExpectTheCpusResultsAtAllSizes(std::vector<OpCase> (*cases)(int64_t)) {
    for (const int64_t n : {1, 3, 17}) {
      for (const size_t batch : {0, 1, 7, 33}) {
        for (const OpCase& given : cases(n)) {
          ExpectTheCpusResults(given, batch, stream_.get());
          if (HasFailure()) return;
        }
      }
    }
  }

  std::unique_ptr<cuda::Stream> stream_;
};

TEST_F(DenseOpsOnCuda, BroadcastAsOnTheCpu) { ExpectTheCpusResultsAtAllSizes(BroadcastCases); }
TEST_F(DenseOpsOnCuda, ReduceAsOnTheCpu) { ExpectTheCpusResultsAtAllSizes(ReductionCases); }
TEST_F(DenseOpsOnCuda, MoveFloatsAsOnTheCpu) { ExpectTheCpusResultsAtAllSizes(MovingCases); }
TEST_F(DenseOpsOnCuda, GiveTheCpusResults) { ExpectTheCpusResultsAtAllSizes(OtherCases); }

TEST_F(DenseOpsOnCuda, DropWhatTheCpuDropsToTheBit) {
  for (const double ratio : {0.0, 0.3, 0.5, 0.999}) {
    OpRunner on_cpu("Dropout", {{37}}, 129, Options().Set("ratio", ratio));
    OpRunner on_card("Dropout", {{37}}, 129, Options().Set("ratio", ratio));
    on_card.stream = stream_.get();
    for (OpRunner* runner : {&on_cpu, &on_card}) {
      runner->Fill(3);
      runner->Forward(true, 12345);
      runner->Backward(12345);
    }
    EXPECT_EQ(on_card.outputs[0].values(), on_cpu.outputs[0].values());
    EXPECT_EQ(on_card.input_gradients[0].values(), on_cpu.input_gradients[0].values());
  }
}

TEST_F(DenseOpsOnCuda, GiveTheGradientOfAMaximumToTheFirstOfEquals) {
  OpRunner runner("ReduceMax", {{4, 2}}, 1, Options().Set("axes", Ints{1}));
  runner.stream = stream_.get();
  runner.inputs[0] = Guarded({1, 5, 2, 5, 2, 5, 0, 5});
  runner.output_gradients[0] = Guarded({3, 4});
  runner.Forward(true);
  runner.Backward();
  EXPECT_EQ(runner.outputs[0].values(), (std::vector<float>{2, 5}));
  EXPECT_EQ(runner.input_gradients[0].values(), (std::vector<float>{0, 4, 3, 0, 0, 0, 0, 0}));
}

TEST_F(DenseOpsOnCuda, TakeTheLargerOrSmallerNumberWholeAndOfEqualsTheFirst) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = INFINITY;
  for (cuda::Stream* const stream : {static_cast<cuda::Stream*>(nullptr), stream_.get()}) {
    for (const bool max : {true, false}) {
      OpRunner runner(max ? "Max" : "Min", {{6}, {6}}, 1);
      runner.stream = stream;
      runner.inputs[0] = Guarded({-1e9f, 0.5f, 2, inf, nan, 1});
      runner.inputs[1] = Guarded({0.25f, -1e9f, 2, -inf, 1, nan});
      runner.output_gradients[0] = Guarded({1, 2, 3, 4, 5, 6});
      runner.Forward(true);
      runner.Backward();
      const std::vector<float> y = runner.outputs[0].values();
      EXPECT_EQ(std::vector<float>(y.begin(), y.begin() + 4),
                max ? (std::vector<float>{0.25f, 0.5f, 2, inf})
                    : (std::vector<float>{-1e9f, -1e9f, 2, -inf}));
      EXPECT_TRUE(std::isnan(y[4]) && std::isnan(y[5]));
      EXPECT_EQ(runner.input_gradients[0].values(), max ? (std::vector<float>{0, 2, 3, 4, 5, 0})
                                                        : (std::vector<float>{1, 0, 3, 0, 5, 0}));
      EXPECT_EQ(runner.input_gradients[1].values(), max ? (std::vector<float>{1, 0, 0, 0, 0, 6})
                                                        : (std::vector<float>{0, 2, 0, 4, 0, 6}));
    }
  }
}

TEST_F(DenseOpsOnCuda, FindThatTheLargestOfWhatHoldsNaNIsNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (cuda::Stream* const stream : {static_cast<cuda::Stream*>(nullptr), stream_.get()}) {
    for (const Ints& axes : {Ints{1}, Ints{2}}) {
      OpRunner runner("ReduceMax", {{3, 3}}, 1, Options().Set("axes", axes));
      runner.stream = stream;
      runner.inputs[0] = Guarded({nan, 1, 2, 3, nan, 4, 5, 6, nan});
      runner.Forward(false);
      for (const float y : runner.outputs[0].view()) EXPECT_TRUE(std::isnan(y)) << y;
    }
  }
}

TEST_F(DenseOpsOnCuda, TakeNothingOfWhatIsNotChosen) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = INFINITY;
  for (cuda::Stream* const stream : {static_cast<cuda::Stream*>(nullptr), stream_.get()}) {
    OpRunner runner("Where", {{4}, {4}, {1}}, 1);
    runner.stream = stream;
    runner.inputs[0] = Guarded({nan, 1, -2, inf});
    runner.inputs[1] = Guarded({1, -inf, 3, 4});
    runner.inputs[2] = Guarded(std::vector<float>{nan});
    runner.output_gradients[0] = Guarded({5, 6, 7, inf});
    runner.Forward(true);
    runner.Backward();
    EXPECT_EQ(runner.outputs[0].values(), (std::vector<float>{1, -inf, 3, 4}));
    EXPECT_EQ(runner.input_gradients[1].values(), (std::vector<float>{5, 6, 7, inf}));
    EXPECT_EQ(runner.input_gradients[2].values(), (std::vector<float>{0}));
    EXPECT_EQ(runner.input_gradients[0].values(), (std::vector<float>{0, 0, 0, 0}));
    runner.inputs[0] = Guarded({0, -0.0f, 1, 0});
    runner.inputs[1] = Guarded({nan, inf, 3, -inf});
    runner.inputs[2] = Guarded(std::vector<float>{2});
    runner.Forward(true);
    EXPECT_EQ(runner.outputs[0].values(), (std::vector<float>{2, 2, 3, 2}));
  }
}

TEST_F(DenseOpsOnCuda, MaskNoneOfWhatIsNoLength) {
  OpRunner runner("SequenceMask", {{1}}, 5, Options().Set("size", 3.0));
  runner.stream = stream_.get();
  runner.inputs[0] = Guarded({std::numeric_limits<float>::quiet_NaN(), -1, 2.9f, 3, 1e30f});
  runner.Forward(false);
  EXPECT_EQ(runner.outputs[0].values(),
            (std::vector<float>{0, 0, 0, 0, 0, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1}));
}

}  // namespace
}  // namespace tessera::worker::testing
