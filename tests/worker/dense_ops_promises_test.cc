// What worker/dense/op.h lets the executor rely on, of every op of the table.
#include <algorithm>
#include <limits>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/worker/dense_testing.h"
#include "tests/worker/op_cases.h"

namespace tessera::worker::testing {
namespace {

std::vector<GoldenOp> AllCases() {
  std::vector<GoldenOp> cases = GoldenOps();
  for (const std::vector<OpCase>& more : {OpsWithoutNumbers(), CasesOfWidth(67)}) {
    for (const OpCase& given : more) cases.push_back({given, 0, {}});
  }
  return cases;
}

// The numbers of the golden case, sample after sample and from the first one again, each sample a
// little larger than the one before. They are what the op takes: a logarithm's are positive.
void SetInputs(OpRunner& runner, const GoldenOp& given) {
  for (size_t k = 0; k < given.Of("input").size(); ++k) {
    const std::vector<double> values = given.Of("input")[k].values;
    const absl::Span<float> to = runner.inputs[k].span();
    for (size_t i = 0; i < to.size(); ++i) {
      const double larger = 1 + 0.01 * static_cast<double>(i / given.inputs[k].floats());
      to[i] = static_cast<float>(values[i % values.size()] * larger);
    }
  }
}

void Spoil(Guarded& tensor) {
  for (float& x : tensor.span()) x = std::numeric_limits<float>::quiet_NaN();
}

// Numbers for all that is read, and none where the op is to write.
void Prepare(OpRunner& runner, const GoldenOp& given) {
  runner.Fill(5);
  SetInputs(runner, given);
  for (auto* group :
       {&runner.outputs, &runner.input_gradients, &runner.trained_gradients,
        &runner.statistics_gradients, &runner.kept, &runner.shared, &runner.scratch}) {
    for (Guarded& tensor : *group) Spoil(tensor);
  }
}

// How the executor may call an op.
struct Way {
  bool in_place = false;
  size_t cut = 0;
  size_t unneeded = SIZE_MAX;
};

// What one run of the op gave, by what it is.
using Results = std::map<std::string, std::vector<float>>;

// `first`: what stands in the place of the first tensor.
void Keep(const std::string& what, const std::vector<Guarded>& tensors, const Guarded* first,
          Results& results) {
  for (size_t k = 0; k < tensors.size(); ++k) {
    results[absl::StrCat(what, " ", k)] = (k == 0 && first ? *first : tensors[k]).values();
  }
}

Results Run(const GoldenOp& given, size_t batch, const Way& way, cuda::Stream* stream) {
  OpRunner runner(given.op, given.inputs, batch, given.options);
  runner.stream = stream;
  runner.in_place = way.in_place;
  runner.cut = way.cut;
  runner.unneeded = way.unneeded;
  Guarded* const output = way.in_place && runner.op->ForwardInPlace() ? &runner.inputs[0] : nullptr;
  const Guarded* const gradient =
      way.in_place && runner.op->BackwardInPlace() ? &runner.output_gradients[0] : nullptr;
  Results results;
  Prepare(runner, given);
  runner.Forward(false);
  Keep("output in evaluation", runner.outputs, output, results);
  Prepare(runner, given);
  runner.Forward(true);
  Keep("output", runner.outputs, output, results);
  if (!runner.op->ReadsOutputs()) {
    for (Guarded& tensor : runner.outputs) Spoil(tensor);
    if (output != nullptr) Spoil(*output);
  }
  runner.Backward();
  Keep("gradient of input", runner.input_gradients, gradient, results);
  Keep("gradient of parameter", runner.trained_gradients, nullptr, results);
  Keep("statistic", runner.statistics_gradients, nullptr, results);
  results.erase(absl::StrCat("gradient of input ", way.unneeded));
  EXPECT_TRUE(runner.Intact());
  return results;
}

// `tolerance`: of the largest number, or of 1; 0: the same bits. All of `expected` but what was
// left out is there.
void ExpectSame(const Results& expected, const Results& found, float tolerance) {
  for (const auto& [what, values] : found) {
    const std::vector<float>& wanted = expected.at(what);
    if (tolerance == 0) {
      EXPECT_EQ(values, wanted) << what;
      continue;
    }
    float largest = 1;
    for (const float x : wanted) largest = std::max(largest, std::fabs(x));
    EXPECT_THAT(values, ::testing::Pointwise(::testing::FloatNear(tolerance * largest), wanted))
        << what;
  }
}

bool HasGradient(const Results& results) {
  for (const auto& [what, values] : results) {
    if (absl::StartsWith(what, "gradient of input") &&
        std::any_of(values.begin(), values.end(), [](float x) { return x != 0; })) {
      return true;
    }
  }
  return false;
}

void ExpectThatNoSamplesChangeNothing(const GoldenOp& given, cuda::Stream* stream) {
  for (const auto& [what, values] : Run(given, 0, {}, stream)) {
    EXPECT_THAT(values, ::testing::Each(0.0f)) << what << " of an empty batch";
  }
}

// A product of other sizes may add in another order.
constexpr float kOtherOrder = 1e-5f;

// Returns whether some input has a gradient that is not 0.
bool ExpectPromises(const GoldenOp& given, cuda::Stream* stream) {
  constexpr size_t kBatch = 41, kCut = 24;
  const Results whole = Run(given, kBatch, {}, stream);
  if (stream != nullptr) ExpectSame(Run(given, kBatch, {}, nullptr), whole, kOtherOrder);
  // A card takes the batch whole.
  for (const size_t cut :
       stream == nullptr ? std::vector<size_t>{0, kCut} : std::vector<size_t>{0}) {
    for (const bool in_place : {false, true}) {
      for (size_t k = 0; k <= given.inputs.size(); ++k) {
        const bool all_needed = k == given.inputs.size();
        SCOPED_TRACE(absl::StrCat(cut > 0 ? "in parts, " : "", in_place ? "in place, " : "",
                                  all_needed ? "" : "without the gradient of input ",
                                  all_needed ? "" : absl::StrCat(k)));
        const Way way = {in_place, cut, all_needed ? SIZE_MAX : k};
        ExpectSame(whole, Run(given, kBatch, way, stream), cut > 0 ? kOtherOrder : 0);
      }
    }
  }
  ExpectThatNoSamplesChangeNothing(given, stream);
  return HasGradient(whole);
}

void ExpectPromisesOfAllOps(cuda::Stream* stream) {
  int by_sample = 0, in_place = 0;
  std::map<std::string, bool> has_gradient, passes_gradient;
  for (const GoldenOp& given : AllCases()) {
    SCOPED_TRACE(absl::StrCat(given.op, " of ",
                              given.inputs.empty() ? "nothing" : given.inputs[0].ToString(), ", ",
                              given.options.ShortDebugString()));
    const OpRunner runner(given.op, given.inputs, 1, given.options);
    if (runner.op->IsView()) continue;
    if (stream != nullptr && !runner.op->RunsOnCuda()) continue;
    const bool has = ExpectPromises(given, stream);
    if (!given.inputs.empty()) {
      has_gradient[given.op] |= has;
      passes_gradient[given.op] = runner.op->PassesGradient();
    }
    by_sample += runner.op->BySample();
    in_place += runner.op->ForwardInPlace() || runner.op->BackwardInPlace();
  }
  EXPECT_EQ(has_gradient, passes_gradient);
  // Or nothing would be tried in parts, or in place.
  EXPECT_GT(by_sample, 40);
  EXPECT_GT(in_place, 10);
}

TEST(DenseOps, KeepWhatTheyPromise) { ExpectPromisesOfAllOps(nullptr); }

TEST(DenseOps, KeepWhatTheyPromiseOnCuda) {
  std::string why;
  const std::unique_ptr<cuda::Stream> stream = NewStream(&why);
  if (stream == nullptr) GTEST_SKIP() << why;
  ExpectPromisesOfAllOps(stream.get());
}

}  // namespace
}  // namespace tessera::worker::testing
