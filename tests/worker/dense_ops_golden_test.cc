// Every op of the table against tests/golden/dense_ops.txt: outputs computed by other routes in
// double precision, gradients by central differences in double precision.
#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/paths.h"
#include "tests/worker/dense_testing.h"

namespace tessera::worker::testing {
namespace {

struct GoldenTensor {
  Shape shape;
  std::vector<double> values;
};

struct GoldenCase {
  std::string op;
  size_t batch = 0;
  google::protobuf::Struct options;
  // By the first word of the line.
  std::map<std::string, std::vector<GoldenTensor>> tensors;
};

void ReadOption(std::istringstream& in, google::protobuf::Struct& options) {
  std::string name, kind, word;
  in >> name >> kind;
  auto& value = (*options.mutable_fields())[name];
  while (in >> word) {
    if (kind == "number") value.set_number_value(std::stod(word));
    if (kind == "bool") value.set_bool_value(word == "true");
    if (kind == "numbers") {
      value.mutable_list_value()->add_values()->set_number_value(std::stod(word));
    }
  }
}

std::vector<GoldenCase> ReadCases() {
  std::ifstream file(SourcePath("tests/golden/dense_ops.txt"));
  EXPECT_TRUE(file) << "run tests/golden/dense_ops.py";
  std::vector<GoldenCase> cases;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string kind, word;
    in >> kind;
    if (kind == "#" || kind == "end") continue;
    if (kind == "case") {
      in >> cases.emplace_back().op >> cases.back().batch;
    } else if (kind == "option") {
      ReadOption(in, cases.back().options);
    } else {
      GoldenTensor& tensor = cases.back().tensors[kind].emplace_back();
      if (kind == "input" || kind == "output") {
        while (in >> word && word != ":") tensor.shape.Append(std::stol(word));
      }
      while (in >> word) tensor.values.push_back(std::stod(word));
    }
  }
  return cases;
}

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
  for (const GoldenCase& golden : ReadCases()) {
    SCOPED_TRACE(golden.op + " " + golden.options.ShortDebugString());
    const auto tensors = [&](const std::string& kind) {
      const auto it = golden.tensors.find(kind);
      return it == golden.tensors.end() ? std::vector<GoldenTensor>() : it->second;
    };
    std::vector<Shape> shapes;
    for (const GoldenTensor& input : tensors("input")) shapes.push_back(input.shape);
    OpRunner runner(golden.op, shapes, golden.batch, golden.options);
    if (stream != nullptr && !runner.op->RunsOnCuda()) continue;
    runner.stream = stream;
    seen.insert(golden.op);
    EXPECT_EQ(runner.op->outputs().size(), tensors("output").size());
    for (size_t k = 0; k < tensors("output").size(); ++k) {
      EXPECT_EQ(runner.op->outputs()[k], tensors("output")[k].shape);
    }
    Set(runner.inputs, tensors("input"));
    Set(runner.trained, tensors("trained"));
    Set(runner.statistics, tensors("statistic"));
    Set(runner.output_gradients, tensors("output_gradient"));
    runner.Forward(true);
    ExpectNear(runner.outputs, tensors("output"), "output");
    runner.Backward();
    ExpectNear(runner.input_gradients, tensors("input_gradient"), "gradient of input");
    ExpectNear(runner.trained_gradients, tensors("trained_gradient"), "gradient of parameter");
    ExpectNear(runner.statistics_gradients, tensors("statistic_gradient"), "statistic");
    EXPECT_TRUE(runner.Intact());
  }
  return seen;
}

TEST(DenseOps, HaveTheReferenceOutputsAndGradients) {
  std::set<std::string> seen = RunCases(nullptr);
  // Views only rename, and dropout is random: they have tests of their own.
  seen.insert({"Dropout", "Flatten", "Reshape"});
  for (const OpEntry& entry : AllOps()) {
    EXPECT_TRUE(seen.contains(entry.name)) << entry.name << " has no case in dense_ops.py";
  }
}

TEST(DenseOps, HaveTheReferenceOutputsAndGradientsOnCuda) {
  std::string why;
  const std::unique_ptr<cuda::Stream> stream = NewStream(&why);
  if (stream == nullptr) GTEST_SKIP() << why;
  std::set<std::string> seen = RunCases(stream.get());
  seen.insert({"Dropout", "Flatten", "Reshape"});
  for (const OpEntry& entry : AllOps()) {
    EXPECT_TRUE(seen.contains(entry.name)) << entry.name << " does not run on a card";
  }
}

}  // namespace
}  // namespace tessera::worker::testing
