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

  // Checks the operand's letters and learns their sizes, and which is the batch's.
  absl::StatusOr<Operand> Read(size_t i, const std::string& letters) {
    Operand operand;
    if (r_.in(i).dims.size() != letters.size() && !r_.IsTensor(i)) {
      return absl::InvalidArgumentError(absl::StrCat("its equation names ", letters.size(),
                                                     " axes of ", DimsText(r_.in(i).dims)));
    }
    if (r_.IsTensor(i)) {
      const OnnxValue& value = r_.in(i);
      if (value.axes.size() != letters.size()) {
        return absl::InvalidArgumentError(absl::StrCat("its equation names ", letters.size(),
                                                       " axes of ", DimsText(r_.DimsOf(value))));
      }
      std::vector<OnnxValue::Axes> parts;
      OnnxValue::Axes beside;
      for (size_t k = 0; k < letters.size(); ++k) {
        if (k != value.batch_axis()) {
          parts.push_back(value.axes[k]);
          operand.labels += letters[k];
          continue;
        }
        if (r_.SizeOf(value, value.axes[k]) != BatchTimes(1) ||
            (batch_ != 0 && batch_ != letters[k])) {
          return absl::UnimplementedError("expected the batch alone under one letter");
        }
        batch_ = letters[k];
        beside = value.axes[k];
      }
      std::erase(beside, 0);
      if (parts.empty()) parts.emplace_back();
      parts[0].insert(parts[0].end(), beside.begin(), beside.end());
      operand.tensor = r_.Arranged(value, parts);
    } else {
      operand.labels = letters;
      TESSERA_ASSIGN_OR_RETURN(operand.tensor, r_.Materialize(i, r_.in(i).dims));
    }
    const Shape& shape = r_.shape(operand.tensor);
    for (size_t k = 0; k < operand.labels.size(); ++k) {
      const auto [size, is_new] = sizes_.emplace(operand.labels[k], shape.dim(k));
      const bool again = operand.labels.find(operand.labels[k]) != k;
      if (size->second != shape.dim(k) || again) {
        return absl::UnimplementedError(
            absl::StrCat("axis ", std::string(1, operand.labels[k]), " of ", shape.ToString()));
      }
    }
    return operand;
  }

  // 0: no operand has it.
  char batch() const { return batch_; }

  // The operand's sum over the letters that `kept` has not.
  Operand Summed(Operand operand, const std::string& kept) {
    for (const char c : Without(operand.labels, kept)) {
      const auto at = static_cast<int64_t>(operand.labels.find(c)) + 1;
      operand.tensor = r_.Layer("ReduceSum", {operand.tensor},
                                Options()
                                    .Set("axes", std::vector<int64_t>{at})
                                    .Set("keepdims", operand.labels.size() == 1));
      operand.labels.erase(operand.labels.find(c), 1);
    }
    return operand;
  }

  // The operand with its axes in this order, which has its letters.
  Tensor Ordered(const Operand& operand, const std::string& order) {
    if (order == operand.labels) return operand.tensor;
    std::vector<int64_t> perm = {0};
    for (const char c : order) perm.push_back(static_cast<int64_t>(operand.labels.find(c)) + 1);
    return r_.Layer("Transpose", {operand.tensor}, Options().Set("perm", perm));
  }

  // One dimension for each group of letters; an empty group is 1.
  Tensor Grouped(Tensor tensor, const std::vector<std::string>& groups) {
    Shape shape;
    for (const std::string& group : groups) shape.Append(Size(group));
    if (groups.empty()) shape.Append(1);
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
  char batch_ = 0;
};

std::vector<std::string> OneByOne(const std::string& labels) {
  std::vector<std::string> groups;
  for (const char c : labels) groups.emplace_back(1, c);
  return groups;
}

}  // namespace

// Of two operands, as MatMul over the letters that both have: with those that stay in both as the
// axes before the matrices. Of one, its sum over what does not stay.
absl::Status ReadEinsum(OnnxNodeReader& r) {
  const onnx::AttributeProto* attribute = r.Attribute("equation");
  std::string equation = attribute == nullptr ? "" : attribute->s();
  std::erase(equation, ' ');
  const std::vector<std::string> sides = absl::StrSplit(equation, "->");
  const std::vector<std::string> letters = absl::StrSplit(sides[0], ',');
  if (sides.size() != 2 || letters.size() > 2 || r.inputs() != letters.size() ||
      equation.find('.') != std::string::npos) {
    return absl::UnimplementedError(
        absl::StrCat("\"", equation, "\"; expected one or two operands and a result, AB,AC->D"));
  }
  Einsum einsum(r);
  std::vector<Operand> operands;
  for (size_t i = 0; i < letters.size(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(operands.emplace_back(), einsum.Read(i, letters[i]));
  }
  const size_t batch = sides[1].find(einsum.batch());
  if (einsum.batch() == 0 || batch == std::string::npos) {
    return absl::UnimplementedError(
        absl::StrCat("\"", equation, "\": the result has not the batch"));
  }
  const std::string result = Without(sides[1], std::string(1, einsum.batch()));
  const std::string other = operands.size() == 2 ? operands[1].labels : "";
  for (size_t i = 0; i < operands.size(); ++i) {
    const std::string& beside = i == 0 ? other : operands[0].labels;
    operands[i] = einsum.Summed(operands[i], result + beside);
  }
  Operand made = operands[0];
  if (operands.size() == 2) {
    const Operand &a = operands[0], &b = operands[1];
    const std::string both = Common(a.labels, b.labels);
    const std::string stays = Common(both, result), summed = Without(both, result);
    const std::string rows = Without(a.labels, both), columns = Without(b.labels, both);
    made.labels = stays + rows + columns;
    std::vector<std::string> left = OneByOne(stays), right = left;
    left.insert(left.end(), {rows, summed});
    right.insert(right.end(), {summed, columns});
    const Tensor x = einsum.Grouped(einsum.Ordered(a, stays + rows + summed), left);
    const Tensor y = einsum.Grouped(einsum.Ordered(b, stays + summed + columns), right);
    made.tensor = einsum.Grouped(r.Layer("MatMul", {x, y}), OneByOne(made.labels));
  }
  if (made.labels.size() != result.size() || !Without(made.labels, result).empty()) {
    return absl::UnimplementedError(
        absl::StrCat("\"", equation, "\": the result has other letters than the operands"));
  }
  OnnxValue value;
  value.tensor = einsum.Ordered(made, result);
  for (size_t k = 0, next = 0; k < sides[1].size(); ++k) {
    value.axes.push_back({k == batch ? 0 : static_cast<int>(++next)});
  }
  if (result.empty()) value.axes[batch].push_back(1);
  r.Set(std::move(value));
  return absl::OkStatus();
}

}  // namespace tessera::worker
