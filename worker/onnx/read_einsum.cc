#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "worker/onnx/read.h"

namespace tessera::worker {
namespace {

// An operand: a tensor and the letters of its axes after the batch.
struct Operand {
  Tensor tensor;
  std::string labels;
};

std::string Without(const std::string& labels, const std::string& gone) {
  std::string kept;
  for (const char c : labels) {
    if (gone.find(c) == std::string::npos) kept += c;
  }
  return kept;
}

// Those of `labels` that `other` has, in the order of `labels`.
std::string Common(const std::string& labels, const std::string& other) {
  return Without(labels, Without(labels, other));
}

class Einsum {
 public:
  explicit Einsum(OnnxNodeReader& r) : r_(r) {}

  // Checks the operand's letters and learns their sizes.
  absl::StatusOr<Operand> Read(size_t i, const std::string& labels, char batch) {
    const bool constant = r_.in(i).kind != OnnxValue::Kind::kTensor;
    Operand operand;
    operand.labels = constant ? labels : labels.substr(std::min<size_t>(1, labels.size()));
    if (!constant && (labels.empty() || labels[0] != batch)) {
      return absl::UnimplementedError("expected the batch as the first axis of every tensor");
    }
    if (constant) {
      TESSERA_ASSIGN_OR_RETURN(operand.tensor, r_.Materialize(i, operand.labels.size()));
    } else {
      TESSERA_ASSIGN_OR_RETURN(operand.tensor, r_.TensorIn(i));
    }
    const Shape& shape = r_.shape(operand.tensor);
    if (shape.rank() != operand.labels.size()) {
      return absl::InvalidArgumentError(absl::StrCat("its equation names ", operand.labels.size(),
                                                     " axes of ", shape.ToString()));
    }
    for (size_t k = 0; k < shape.rank(); ++k) {
      const auto [size, is_new] = sizes_.emplace(operand.labels[k], shape.dim(k));
      const bool again = operand.labels.find(operand.labels[k]) != k;
      if (size->second != shape.dim(k) || again || operand.labels[k] == batch) {
        return absl::UnimplementedError(
            absl::StrCat("axis ", std::string(1, operand.labels[k]), " of ", shape.ToString()));
      }
    }
    return operand;
  }

  // The operand with its axes in this order, which has its letters.
  Tensor Ordered(const Operand& operand, const std::string& order) {
    std::vector<int64_t> perm = {0};
    for (const char c : order) perm.push_back(static_cast<int64_t>(operand.labels.find(c)) + 1);
    if (order == operand.labels) return operand.tensor;
    return r_.Layer("Transpose", {operand.tensor}, Options().Set("perm", perm));
  }

  // One dimension for each group of letters; an empty group is 1.
  Tensor Grouped(Tensor tensor, const std::vector<std::string>& groups) {
    Shape shape;
    for (const std::string& group : groups) shape.Append(Size(group));
    return r_.Reshaped(tensor, shape);
  }

  int64_t Size(const std::string& labels) const {
    int64_t size = 1;
    for (const char c : labels) size *= sizes_.at(c);
    return size;
  }

 private:
  OnnxNodeReader& r_;
  std::map<char, int64_t> sizes_;
};

std::vector<std::string> OneByOne(const std::string& labels) {
  std::vector<std::string> groups;
  for (const char c : labels) groups.emplace_back(1, c);
  return groups;
}

}  // namespace

// Of two operands, as MatMul over the letters that both have: with those that stay in both as the
// axes before the matrices.
absl::Status ReadEinsum(OnnxNodeReader& r) {
  const onnx::AttributeProto* attribute = r.Attribute("equation");
  std::string equation = attribute == nullptr ? "" : attribute->s();
  equation.erase(std::remove(equation.begin(), equation.end(), ' '), equation.end());
  const std::vector<std::string> sides = absl::StrSplit(equation, "->");
  const std::vector<std::string> letters = absl::StrSplit(sides[0], ',');
  if (sides.size() != 2 || letters.size() != 2 || r.inputs() != 2 || sides[1].empty() ||
      equation.find('.') != std::string::npos) {
    return absl::UnimplementedError(
        absl::StrCat("\"", equation, "\"; expected two operands and a result, AB,AC->D"));
  }
  const char batch = sides[1][0];
  Einsum einsum(r);
  TESSERA_ASSIGN_OR_RETURN(const Operand a, einsum.Read(0, letters[0], batch));
  TESSERA_ASSIGN_OR_RETURN(const Operand b, einsum.Read(1, letters[1], batch));
  const std::string result = sides[1].substr(1);
  const std::string both = Common(a.labels, b.labels);
  const std::string stays = Common(both, result), summed = Without(both, result);
  const std::string rows = Without(a.labels, both), columns = Without(b.labels, both);
  const std::string made = stays + rows + columns;
  if (made.size() != result.size() || !Without(made, result).empty() || result.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("\"", equation,
                     "\": letters of one operand alone must stay, and the result has no others"));
  }
  std::vector<std::string> left = OneByOne(stays), right = left;
  left.insert(left.end(), {rows, summed});
  right.insert(right.end(), {summed, columns});
  const Tensor x = einsum.Grouped(einsum.Ordered(a, stays + rows + summed), left);
  const Tensor y = einsum.Grouped(einsum.Ordered(b, stays + summed + columns), right);
  const Tensor product = einsum.Grouped(r.Layer("MatMul", {x, y}), OneByOne(made));
  r.Set(einsum.Ordered({product, made}, result));
  return absl::OkStatus();
}

}  // namespace tessera::worker
