// Ops that ONNX lacks, as graphs of standard ops. Formulas and shapes: worker/dense/ops/*.cc.
#include "absl/strings/str_cat.h"
#include "worker/onnx/emit.h"

namespace tessera::worker {
namespace {

// x * (1 + Erf(x / sqrt(2))) / 2 and the like need numbers, not parameters.
constexpr float kInverseRootTwo = 0.707106781186547524f;

// Indices i and j of all pairs i < j of n, in the order (0, 1), (0, 2), ..., (1, 2), ...
std::pair<std::vector<int64_t>, std::vector<int64_t>> Pairs(int64_t n) {
  std::vector<int64_t> left, right;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = i + 1; j < n; ++j) {
      left.push_back(i);
      right.push_back(j);
    }
  }
  return {left, right};
}

// [batch, pairs, dim]: the products of the rows `left` and `right` of v [batch, rows, dim].
std::string RowProducts(Emission& e, const std::string& v, absl::Span<const int64_t> left,
                        absl::Span<const int64_t> right) {
  const std::string a = e.Value("Gather", {v, e.Ints("left", left)}, {{"axis", int64_t{1}}});
  const std::string b = e.Value("Gather", {v, e.Ints("right", right)}, {{"axis", int64_t{1}}});
  return e.Value("Mul", {a, b});
}

// [1, shape] with the batch in place of the 1.
void ForAll(Emission& e, const std::string& value) {
  std::vector<int64_t> sample;
  for (size_t i = 0; i < e.out_shape(0).rank(); ++i) sample.push_back(e.out_shape(0).dim(i));
  const std::string shape =
      e.Value("Concat", {e.onnx.Batch(), e.Ints("shape", sample)}, {{"axis", int64_t{0}}});
  e.Last("Expand", {value, shape});
}

std::vector<int64_t> OfOneSample(const Emission& e) {
  std::vector<int64_t> dims = {1};
  for (size_t i = 0; i < e.out_shape(0).rank(); ++i) dims.push_back(e.out_shape(0).dim(i));
  return dims;
}

}  // namespace

// y = (a b^T as one row) W^T + bias
void EmitBilinear(Emission& e) {
  const Shape& a = e.in_shape(0);
  const int64_t m = a.last(), n = e.in_shape(1).last(), units = e.out_shape(0).last();
  const std::string column = e.Value("Unsqueeze", {e.in[0], e.Ints("column", {-1})});
  const std::string row = e.Value("Unsqueeze", {e.in[1], e.Ints("row", {-2})});
  std::vector<int64_t> shape = {0};
  for (size_t i = 0; i + 1 < a.rank(); ++i) shape.push_back(a.dim(i));
  shape.push_back(m * n);
  const std::string products =
      e.Value("Reshape", {e.Value("Mul", {column, row}), e.Ints("shape", shape)});
  const absl::Span<const float> weight = e.values("weight");  // [units, m n]
  std::vector<float> turned(weight.size());
  for (int64_t k = 0; k < units; ++k) {
    for (int64_t i = 0; i < m * n; ++i) turned[i * units + k] = weight[k * m * n + i];
  }
  const std::string matrix = e.onnx.Floats(e.ParameterName("weight"), {m * n, units}, turned);
  if (e.spec("bias") == nullptr) return e.Last("MatMul", {products, matrix});
  e.Last("Add", {e.Value("MatMul", {products, matrix}), e.Weight("bias")});
}

// The lower triangle of v v^T.
void EmitDotInteraction(Emission& e) {
  const int64_t fields = e.in_shape(0).dim(0);
  const int64_t self = e.options.Bool("self", false) ? 1 : 0;
  const std::string turned =
      e.Value("Transpose", {e.in[0]}, {{"perm", std::vector<int64_t>{0, 2, 1}}});
  const std::string products = e.Value("MatMul", {e.in[0], turned});
  const std::string flat = e.Value("Flatten", {products}, {{"axis", int64_t{1}}});
  std::vector<int64_t> triangle;
  for (int64_t i = 0; i < fields; ++i) {
    for (int64_t j = 0; j < i + self; ++j) triangle.push_back(i * fields + j);
  }
  e.Last("Gather", {flat, e.Ints("triangle", triangle)}, {{"axis", int64_t{1}}});
}

// The vectors as rows [batch, fields (fields - 1), k], each multiplied with its opposite.
void EmitFfm(Emission& e) {
  const int64_t fields = e.in_shape(0).dim(0), dim = e.in_shape(0).dim(1) / (fields - 1);
  const std::string rows =
      e.Value("Reshape", {e.in[0], e.Ints("shape", {0, fields * (fields - 1), dim})});
  const auto towards = [&](int64_t i, int64_t j) { return i * (fields - 1) + (j < i ? j : j - 1); };
  auto [left, right] = Pairs(fields);
  for (size_t p = 0; p < left.size(); ++p) {
    const int64_t i = left[p], j = right[p];
    left[p] = towards(i, j);
    right[p] = towards(j, i);
  }
  const std::string flat =
      e.Value("Flatten", {RowProducts(e, rows, left, right)}, {{"axis", int64_t{1}}});
  e.Last("ReduceSum", {flat, e.Ints("axes", {1})}, {{"keepdims", int64_t{1}}});
}

void EmitFieldPairs(Emission& e) {
  const auto [left, right] = Pairs(e.in_shape(0).dim(0));
  const std::string a = e.Value("Gather", {e.in[0], e.Ints("left", left)}, {{"axis", int64_t{1}}});
  const std::string b =
      e.Value("Gather", {e.in[0], e.Ints("right", right)}, {{"axis", int64_t{1}}});
  e.Last("Mul", {a, b});
}

// ((sum v)^2 - sum v^2) / 2, summed over dim or not
void EmitFm(Emission& e) {
  const std::string fields = e.Ints("fields", {1});
  const auto sum_fields = [&](const std::string& x) {
    return e.Value("ReduceSum", {x, fields}, {{"keepdims", int64_t{0}}});
  };
  const std::string sum = sum_fields(e.in[0]);
  const std::string squares = sum_fields(e.Value("Mul", {e.in[0], e.in[0]}));
  const std::string twice = e.Value("Sub", {e.Value("Mul", {sum, sum}), squares});
  const std::string half = e.Scalar("half", 0.5f);
  if (!e.options.Bool("sum", true)) return e.Last("Mul", {twice, half});
  const std::string pairs = e.Value("Mul", {twice, half});
  e.Last("ReduceSum", {pairs, e.Ints("dim", {1})}, {{"keepdims", int64_t{1}}});
}

// ONNX has Gelu since opset 20.
void EmitGelu(Emission& e) {
  const std::string erf =
      e.Value("Erf", {e.Value("Mul", {e.in[0], e.Scalar("scale", kInverseRootTwo)})});
  const std::string twice = e.Value("Add", {erf, e.Scalar("one", 1)});
  const std::string distribution = e.Value("Mul", {twice, e.Scalar("half", 0.5f)});
  e.Last("Mul", {e.in[0], distribution});
}

// The same for every sample.
void EmitParameter(Emission& e) {
  ForAll(e, e.onnx.Floats(e.ParameterName("value"), OfOneSample(e), e.values("value")));
}

void EmitConstant(Emission& e) {
  const std::vector<double> given = e.options.Numbers("value", {});
  std::vector<float> value(given.begin(), given.end());
  if (value.size() == 1) value.assign(e.out_shape(0).floats(), value[0]);
  ForAll(e, e.onnx.Constant(absl::StrCat(e.node.name, "/value"), OfOneSample(e), value));
}

// A batch of one gets zeros here too.
void EmitRollBatch(Emission& e) {
  const std::string batch = e.onnx.Batch(), axis = e.Ints("axis", {0});
  const std::string half = e.Value("Div", {batch, e.Ints("two", {2})});
  const std::string tail = e.Value("Slice", {e.in[0], half, batch, axis});
  const std::string head = e.Value("Slice", {e.in[0], e.Ints("first", {0}), half, axis});
  const std::string rolled = e.Value("Concat", {tail, head}, {{"axis", int64_t{0}}});
  const std::string others = e.Value("Cast", {e.Value("Greater", {batch, e.Ints("one", {1})})},
                                     {{"to", int64_t{onnx::TensorProto::FLOAT}}});
  e.Last("Mul", {rolled, others});
}

void EmitSilu(Emission& e) { e.Last("Mul", {e.in[0], e.Value("Sigmoid", {e.in[0]})}); }

void EmitStep(Emission& e) {
  e.Last("Cast", {e.Value("Greater", {e.in[0], e.Scalar("zero", 0)})},
         {{"to", int64_t{onnx::TensorProto::FLOAT}}});
}

}  // namespace tessera::worker
