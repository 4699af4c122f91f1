// Interactions, normalisations, products and recurrences on a card against the CPU, at odd sizes.
#include <algorithm>
#include <cfenv>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/worker/dense_testing.h"

namespace tessera::worker::testing {
namespace {

struct CudaCase {
  std::string op;
  std::vector<Shape> inputs;
  google::protobuf::Struct options;
  int lengths_input = -1;  // whose numbers are lengths
};

std::vector<CudaCase> CasesOf(int64_t fields, int64_t dim) {
  std::vector<CudaCase> cases = {
      {"DotInteraction", {{fields, dim}}, Options().Set("self", true)},
      {"FM", {{fields, dim}}, {}},
      {"FM", {{fields, dim}}, Options().Set("sum", false)},
      {"Softmax", {{fields, dim}}, {}},
      {"Softmax", {{fields, dim}}, Options().Set("axis", 1.0)},
      {"LayerNormalization", {{fields, dim}}, {}},
      {"LayerNormalization", {{fields, dim}}, Options().Set("affine_axis", 1.0)},
      {"BatchNormalization", {{dim}}, {}},
      {"BatchNormalization", {{fields, dim}}, Options().Set("momentum", 0.3)},
      {"MatMul", {{fields, dim}, {dim, 2}}, {}},
      {"MatMul", {{dim, fields}, {dim, 2}}, Options().Set("transA", true)},
      {"MatMul", {{fields, dim}, {3, dim}}, Options().Set("transB", true).Set("alpha", 0.5)},
      {"MatMul",
       {{2, dim, fields}, {2, 3, dim}},
       Options().Set("transA", true).Set("transB", true)},
      {"Bilinear", {{fields, dim}, {fields, 2}}, Options().Set("units", 3.0)},
      {"Bilinear", {{fields}, {dim}}, Options().Set("units", 4.0).Set("bias", false)},
      {"Dice", {{fields, dim}}, {}},
      {"Attention", {{fields, dim}, {2, dim}, {2, 3}}, Options().Set("scale", 0.5)},
      {"Attention",
       {{fields + 1, 2 * dim}, {fields + 1, 2 * dim}, {fields + 1, 4}},
       Options().Set("heads", 2.0).Set("causal", true).Set("dropout", 0.25)},
      {"Attention", {{35, 2}, {40, 2}, {40, dim}}, Options().Set("dropout", 0.5)},
      {"Attention", {{2, 3}, {fields + 1, 3}, {fields + 1, dim}, {1}}, {}, 3},
      {"GRU", {{fields, dim}}, Options().Set("units", 3.0)},
      {"GRU", {{fields, 2}, {1}}, Options().Set("units", static_cast<double>(dim)), 1},
      {"GRU", {{fields, dim}, {1}}, Options().Set("units", 2.0).Set("sequence", false), 1},
      {"LSTM", {{fields, dim}}, Options().Set("units", 3.0)},
      {"LSTM",
       {{fields, 2}, {1}},
       Options().Set("units", static_cast<double>(dim)).Set("memory", true),
       1},
      {"LSTM", {{fields, dim}, {1}}, Options().Set("units", 2.0).Set("sequence", false), 1},
      {"AUGRU", {{fields, dim}, {fields, 1}}, Options().Set("units", 3.0).Set("sequence", false)},
      {"AUGRU", {{fields, 2}, {fields, 1}, {1}}, Options().Set("units", 5.0), 2},
  };
  if (fields > 1) {
    cases.push_back({"DotInteraction", {{fields, dim}}, {}});
    cases.push_back({"FieldPairs", {{fields, dim}}, {}});
    cases.push_back({"FFM", {{fields, (fields - 1) * dim}}, {}});
  }
  return cases;
}

class DenseInteractionsOnCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    stream_ = NewStream(&why);
    if (stream_ == nullptr) GTEST_SKIP() << why;
  }

  // Calls test(case, batch) for all cases, and says which it was where it fails.
  template <typename Test>
  void ForEachCase(const Test& test) {
    for (const int64_t fields : {1, 3, 5}) {
      for (const int64_t dim : {1, 8, 17}) {
        for (const CudaCase& c : CasesOf(fields, dim)) {
          for (const size_t batch : {0, 1, 7, 33}) {
            SCOPED_TRACE(absl::StrCat(c.op, " ", c.options.ShortDebugString(), ", ", fields,
                                      " fields of ", dim, ", batch ", batch));
            test(c, batch);
          }
        }
      }
    }
  }

  static OpRunner NewRunner(const CudaCase& c, size_t batch) {
    OpRunner runner(c.op, c.inputs, batch, c.options);
    runner.Fill(11);
    if (c.lengths_input >= 0) {
      // Also none, and more than there are.
      float length = -1;
      for (float& value : runner.inputs[static_cast<size_t>(c.lengths_input)].span()) {
        value = length;
        length = length > static_cast<float>(c.inputs[0].dim(0)) ? 0 : length + 1;
      }
    }
    return runner;
  }
  OpRunner NewCudaRunner(const CudaCase& c, size_t batch) const {
    OpRunner runner = NewRunner(c, batch);
    EXPECT_TRUE(runner.op->RunsOnCuda());
    runner.stream = stream_.get();
    return runner;
  }

  static void ExpectNear(const Guarded& actual, const Guarded& expected, const std::string& what) {
    ASSERT_EQ(actual.view().size(), expected.view().size()) << what;
    float largest = 0;
    for (const float value : expected.view()) largest = std::max(largest, std::fabs(value));
    for (size_t i = 0; i < expected.view().size(); ++i) {
      ASSERT_NEAR(actual.view()[i], expected.view()[i], 1e-5f * largest)
          << what << ", element " << i;
    }
  }
  static void ExpectNear(const std::vector<Guarded>& actual, const std::vector<Guarded>& expected,
                         const std::string& what) {
    ASSERT_EQ(actual.size(), expected.size()) << what;
    for (size_t k = 0; k < expected.size(); ++k) {
      ExpectNear(actual[k], expected[k], absl::StrCat(what, " ", k));
    }
  }
  void ExpectTrainsAsOnTheCpu(const CudaCase& c, size_t batch) const {
    OpRunner expected = NewRunner(c, batch), actual = NewCudaRunner(c, batch);
    for (OpRunner* runner : {&expected, &actual}) {
      runner->Forward(true);
      runner->Backward();
    }
    ExpectNear(actual.outputs, expected.outputs, "output");
    ExpectNear(actual.input_gradients, expected.input_gradients, "gradient of input");
    ExpectSameParameterGradients(actual, expected);
    EXPECT_TRUE(actual.Intact());
  }
  static void ExpectSameParameterGradients(const OpRunner& actual, const OpRunner& expected) {
    ExpectNear(actual.trained_gradients, expected.trained_gradients, "gradient of parameter");
    ExpectNear(actual.statistics_gradients, expected.statistics_gradients, "statistic");
  }

  std::unique_ptr<cuda::Stream> stream_;
};

TEST_F(DenseInteractionsOnCuda, EvaluateAsOnTheCpu) {
  ForEachCase([&](const CudaCase& c, size_t batch) {
    OpRunner expected = NewRunner(c, batch), actual = NewCudaRunner(c, batch);
    // What is for training alone is not there.
    if (!actual.op->UsesRoom()) actual.kept[0] = Guarded(size_t{0});
    actual.shared[0] = Guarded(size_t{0});
    expected.Forward(false);
    actual.Forward(false);
    ExpectNear(actual.outputs, expected.outputs, "output");
    EXPECT_TRUE(actual.Intact());
  });
}

TEST_F(DenseInteractionsOnCuda, TrainAsOnTheCpu) {
  ForEachCase([&](const CudaCase& c, size_t batch) { ExpectTrainsAsOnTheCpu(c, batch); });
}

// As many as a sanitizer that watches every access to shared memory comes to an end with.
TEST_F(DenseInteractionsOnCuda, OfOneShapeTrainAsOnTheCpu) {
  // A recurrence's products lie there, and compute-sanitizer's initcheck does not see cuBLAS write.
  constexpr size_t kScratch = 1 << 16;
  stream_->Zero(stream_->Scratch(kScratch), kScratch);
  for (const CudaCase& c : CasesOf(5, 17)) {
    SCOPED_TRACE(c.op);
    ExpectTrainsAsOnTheCpu(c, 7);
  }
}

// More floats of a sample than a block has shared memory for.
TEST_F(DenseInteractionsOnCuda, OfManyLongVectorsTrainAsOnTheCpu) {
  ExpectTrainsAsOnTheCpu({"DotInteraction", {{70, 260}}, {}}, 3);
}

// What is read lies in a block's shared memory, which no tool of a card watches for that.
TEST_F(DenseInteractionsOnCuda, OfDotProductsComputeWithNothingThatWasNotWritten) {
  if (stream_->native() != nullptr) GTEST_SKIP() << "a card raises no floating-point exceptions";
  for (const int64_t fields : {1, 3, 5, 8}) {
    for (const int64_t dim : {1, 8}) {
      SCOPED_TRACE(absl::StrCat(fields, " fields of ", dim));
      OpRunner runner =
          NewCudaRunner({"DotInteraction", {{fields, dim}}, Options().Set("self", true)}, 2);
      std::feclearexcept(FE_ALL_EXCEPT);
      runner.Forward(true);
      EXPECT_FALSE(std::fetestexcept(FE_INVALID));
      runner.Backward();
      EXPECT_FALSE(std::fetestexcept(FE_INVALID)) << "backward";
    }
  }
}

TEST_F(DenseInteractionsOnCuda, WriteTheGradientOverTheOutputs) {
  std::set<std::string> seen;
  ForEachCase([&](const CudaCase& c, size_t batch) {
    OpRunner expected = NewRunner(c, batch), actual = NewCudaRunner(c, batch);
    EXPECT_FALSE(actual.op->ForwardInPlace());
    if (!actual.op->BackwardInPlace()) return;
    seen.insert(c.op);
    actual.in_place = true;
    for (OpRunner* runner : {&expected, &actual}) {
      runner->Forward(true);
      runner->Backward();
    }
    ExpectNear(actual.output_gradients[0], expected.input_gradients[0], "gradient of input");
    ExpectSameParameterGradients(actual, expected);
    EXPECT_TRUE(actual.Intact());
  });
  EXPECT_THAT(seen, ::testing::ElementsAre("BatchNormalization"));
}

TEST_F(DenseInteractionsOnCuda, LeaveOutGradientsThatNobodyNeeds) {
  ForEachCase([&](const CudaCase& c, size_t batch) {
    OpRunner expected = NewRunner(c, batch);
    expected.Forward(true);
    expected.Backward();
    for (size_t left_out = 0; left_out < c.inputs.size(); ++left_out) {
      OpRunner actual = NewCudaRunner(c, batch);
      actual.input_gradients[left_out] = Guarded(size_t{0});
      actual.Forward(true);
      actual.Backward();
      for (size_t k = 0; k < c.inputs.size(); ++k) {
        if (k == left_out) continue;
        ExpectNear(actual.input_gradients[k], expected.input_gradients[k], "gradient of input");
      }
      ExpectSameParameterGradients(actual, expected);
      EXPECT_TRUE(actual.Intact());
    }
  });
}

}  // namespace
}  // namespace tessera::worker::testing
