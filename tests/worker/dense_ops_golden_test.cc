// Every op of the table against tests/golden/dense_ops.txt: outputs computed by other routes in
// double precision, gradients by central differences in double precision.
#include <algorithm>
#include <set>

#include "tests/worker/dense_testing.h"
#include "tests/worker/op_cases.h"

namespace tessera::worker::testing {
namespace {

void Set(std::vector<Guarded>& tensors, const std::vector<GoldenTensor>& golden) {
  ASSERT_EQ(tensors.size(), golden.size());
  for (size_t k = 0; k < tensors.size(); ++k) {
    ASSERT_EQ(tensors[k].span().size(), golden[k].values.size());
    std::copy(golden[k].values.begin(), golden[k].values.end(), tensors[k].span().begin());
  }
}

// float32 rounds each of at most a hundred terms of size up to about 10.
void ExpectNear(const std::vector<Guarded>& tensors, const std::vector<GoldenTensor>& golden,
                const std::string& what) {
  ASSERT_EQ(tensors.size(), golden.size()) << what;
  for (size_t k = 0; k < tensors.size(); ++k) {
    ASSERT_EQ(tensors[k].view().size(), golden[k].values.size()) << what;
    double largest = 1;
    for (const double value : golden[k].values) largest = std::max(largest, std::fabs(value));
    for (size_t i = 0; i < golden[k].values.size(); ++i) {
      EXPECT_NEAR(tensors[k].view()[i], golden[k].values[i], 3e-6 * largest)
          << what << " " << k << ", element " << i;
    }
  }
}

// Where the op has an implementation there: all cases, on the CPU or through `stream`. Gives the
// ops that were run.
std::set<std::string> RunCases(cuda::Stream* stream) {
  std::set<std::string> seen;
  for (const GoldenOp& golden : GoldenOps()) {
    SCOPED_TRACE(golden.op + " " + golden.options.ShortDebugString());
    OpRunner runner(golden.op, golden.inputs, golden.batch, golden.options);
    if (stream != nullptr && !runner.op->RunsOnCuda()) continue;
    runner.stream = stream;
    seen.insert(golden.op);
    EXPECT_EQ(runner.op->outputs().size(), golden.Of("output").size());
    for (size_t k = 0; k < golden.Of("output").size(); ++k) {
      EXPECT_EQ(runner.op->outputs()[k], golden.Of("output")[k].shape);
    }
    Set(runner.inputs, golden.Of("input"));
    Set(runner.trained, golden.Of("trained"));
    Set(runner.statistics, golden.Of("statistic"));
    Set(runner.output_gradients, golden.Of("output_gradient"));
    runner.Forward(true);
    ExpectNear(runner.outputs, golden.Of("output"), "output");
    runner.Backward();
    ExpectNear(runner.input_gradients, golden.Of("input_gradient"), "gradient of input");
    ExpectNear(runner.trained_gradients, golden.Of("trained_gradient"), "gradient of parameter");
    ExpectNear(runner.statistics_gradients, golden.Of("statistic_gradient"), "statistic");
    EXPECT_TRUE(runner.Intact());
  }
  return seen;
}

TEST(DenseOps, HaveTheReferenceOutputsAndGradients) {
  std::set<std::string> seen = RunCases(nullptr);
  for (const OpCase& other : OpsWithoutNumbers()) seen.insert(other.op);
  for (const OpEntry& entry : AllOps()) {
    EXPECT_TRUE(seen.contains(entry.name))
        << entry.name << " has no case: add one to tests/golden/dense_ops.py and run it";
  }
}

TEST(DenseOps, HaveTheReferenceOutputsAndGradientsOnCuda) {
  std::string why;
  const std::unique_ptr<cuda::Stream> stream = NewStream(&why);
  if (stream == nullptr) GTEST_SKIP() << why;
  const std::set<std::string> seen = RunCases(stream.get());
  for (const GoldenOp& golden : GoldenOps()) {
    EXPECT_TRUE(seen.contains(golden.op))
        << golden.op << " does not run on a card: its file in worker/dense/ops has no CudaForward";
  }
}

}  // namespace
}  // namespace tessera::worker::testing
