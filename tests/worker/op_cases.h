#pragma once

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/paths.h"
#include "worker/dense/options.h"
#include "worker/dense/shape.h"

namespace tessera::worker::testing {

// An op with its options, and the shapes of its inputs.
struct OpCase {
  std::string op;
  std::vector<Shape> inputs;
  google::protobuf::Struct options = {};
};

struct GoldenTensor {
  Shape shape;  // of inputs and outputs
  std::vector<double> values;
};

// The same with numbers.
struct GoldenOp : OpCase {
  size_t batch = 0;
  // "input", "trained", "output_gradient": by the first word of the line.
  std::map<std::string, std::vector<GoldenTensor>> tensors;

  std::vector<GoldenTensor> Of(const std::string& kind) const {
    const auto it = tensors.find(kind);
    return it == tensors.end() ? std::vector<GoldenTensor>() : it->second;
  }
};

inline void ReadGoldenOption(std::istringstream& in, google::protobuf::Struct& options) {
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

// The cases of tests/golden/dense_ops.txt.
inline std::vector<GoldenOp> GoldenOps() {
  std::ifstream file(SourcePath("tests/golden/dense_ops.txt"));
  EXPECT_TRUE(file) << "run tests/golden/dense_ops.py";
  std::vector<GoldenOp> cases;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string kind, word;
    in >> kind;
    if (kind == "#" || kind == "end") continue;
    if (kind == "case") {
      in >> cases.emplace_back().op >> cases.back().batch;
    } else if (kind == "option") {
      ReadGoldenOption(in, cases.back().options);
    } else {
      GoldenTensor& tensor = cases.back().tensors[kind].emplace_back();
      if (kind == "input" || kind == "output") {
        while (in >> word && word != ":") tensor.shape.Append(std::stol(word));
      }
      if (kind == "input") cases.back().inputs.push_back(tensor.shape);
      while (in >> word) tensor.values.push_back(std::stod(word));
    }
  }
  return cases;
}

// Views only rename, and dropout is random: they have no golden numbers, but tests of their own.
inline std::vector<OpCase> OpsWithoutNumbers() {
  return {{"Dropout", {{5}}, Options().Set("ratio", 0.25)},
          {"Flatten", {{3, 4}}},
          {"Reshape", {{3, 4}}, Options().Set("shape", std::vector<int64_t>{0, 2, -1})}};
}

// Ops whose loops depend on how wide a tensor is.
inline std::vector<OpCase> CasesOfWidth(int64_t n) {
  return {
      {"Add", {{n}, {n}}, {}},
      {"Mul", {{n}, {n}}, {}},
      {"Bias", {{n}}, {}},
      {"Gemm", {{n}}, Options().Set("units", 3.0)},
      {"Gemm", {{3}}, Options().Set("units", static_cast<double>(n))},
      {"Concat", {{n}, {2}}, {}},
      {"Slice", {{n, 2}}, Options().Set("axis", 1.0).Set("start", static_cast<double>(n - 1))},
      {"ReduceSum", {{n, 2}}, Options().Set("axes", std::vector<int64_t>{1})},
      {"FM", {{2, n}}, {}},
      {"FM", {{n, 2}}, {}},
      {"BatchNormalization", {{n}}, {}},
      {"BatchNormalization", {{n}}, Options().Set("affine", false)},
      {"Dice", {{n}}, {}},
      {"PRelu", {{n}}, {}},
      {"Div", {{n}, {n}}, {}},
      {"Max", {{n}, {n}}, {}},
      {"Min", {{n}, {n}}, {}},
      {"ReduceMax", {{n, 2}}, Options().Set("axes", std::vector<int64_t>{1})},
      {"ReduceMax", {{2, n}}, Options().Set("axes", std::vector<int64_t>{2})},
      {"Tanh", {{n}}, {}},
      {"Add", {{n, 1}, {1, 3}, {n, 3}}, {}},
      {"Mul", {{n, 1}, {n, 3}}, {}},
      {"Mul", {{n}, {1}}, {}},
      {"Sub", {{1}, {n}}, {}},
      {"Where", {{n}, {n}, {n}}, {}},
      {"Where", {{1, n}, {3, 1}, {3, n}}, {}},
      {"Parameter", {}, Options().Set("shape", std::vector<int64_t>{n})},
      {"Softmax", {{n}}, {}},
      {"Softmax", {{3, n}}, Options().Set("axis", 1.0)},
      {"ReduceMean", {{2, n}}, Options().Set("axes", std::vector<int64_t>{2})},
      {"ReduceMean", {{2, n}}, Options().Set("axes", std::vector<int64_t>{1})},
      {"MatMul", {{2, n}, {n, 3}}, {}},
      {"MatMul", {{n, 2}, {3, 2}}, Options().Set("transB", true)},
      {"MatMul", {{n, 2}, {n, 3}}, Options().Set("transA", true)},
      {"Bilinear", {{3, n}, {3, 2}}, Options().Set("units", 2.0)},
      {"Bilinear", {{2}, {n}}, Options().Set("units", 3.0).Set("bias", false)},
      {"Transpose", {{n, 3}}, Options().Set("perm", std::vector<int64_t>{0, 2, 1})},
      {"Split", {{n, 2}}, Options().Set("num_outputs", 2.0)},
      {"Gather", {{n, 2}}, Options().Set("indices", std::vector<int64_t>{n - 1, 0, n - 1})},
      {"FieldPairs", {{3, n}}, {}},
      {"FFM", {{3, 2 * n}}, {}},
      {"DotInteraction", {{3, n}}, {}},
      {"FM", {{2, n}}, Options().Set("sum", false)},
      {"Dropout", {{n}}, {}},
      {"Expand", {{1, n}}, Options().Set("shape", std::vector<int64_t>{0, 3, n})},
      {"Expand", {{n, 1}}, Options().Set("shape", std::vector<int64_t>{0, n, 3})},
      {"RollBatch", {{n}}, {}},
      {"Attention", {{2, n}, {3, n}, {3, 2}}, {}},
      {"Attention", {{3, 2}, {n, 2}, {n, 5}}, {}},
      {"Attention", {{n, 4}, {3, 4}, {3, 2}}, Options().Set("heads", 2.0).Set("causal", true)},
      {"GRU", {{3, n}}, Options().Set("units", 5.0)},
      {"GRU", {{std::min<int64_t>(n, 20), 2}}, Options().Set("units", 3.0).Set("sequence", false)},
      {"LSTM", {{3, n}}, Options().Set("units", 5.0)},
      {"LSTM",
       {{3, 2}},
       Options()
           .Set("units", static_cast<double>(std::min<int64_t>(n, 64)))
           .Set("sequence", false)
           .Set("memory", true)},
      {"AUGRU",
       {{2, 3}, {2, 1}},
       Options().Set("units", static_cast<double>(std::min<int64_t>(n, 64)))},
  };
}

}  // namespace tessera::worker::testing
