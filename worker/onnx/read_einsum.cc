// Einsum, and products that are written as one.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "worker/onnx/known_numbers.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

// The most places; each is a layer.
constexpr int64_t kMostPlaces = 256;
// Letters for the parts of an axis before and after the batch.
constexpr char kBefore = '<', kAfter = '>';

// The letters of its axes after the batch.
struct Operand {
  Tensor tensor;  // of index -1: a weight, as the file has it
  std::string labels;
  size_t input = 0;  // of the node
};

std::string Without(const std::string& labels, const std::string& gone) {
  std::string kept;
  for (const char c : labels) {
    if (gone.find(c) == std::string::npos) kept += c;
  }
  return kept;
}

// The letters of `labels` that `other` has too, in the order of `labels`.
std::string Common(const std::string& labels, const std::string& other) {
  return Without(labels, Without(labels, other));
}

std::vector<std::string> OneByOne(const std::string& labels) {
  std::vector<std::string> groups;
  for (const char c : labels) groups.emplace_back(1, c);
  return groups;
}

// Computes a node as sums of products over letters.
class Contraction {
 public:
  explicit Contraction(OnnxNodeReader& r) : r_(r) {}

  // Input i, which `value` stands for: checks its letters, one for each axis, and learns their
  // sizes, and which is the batch's.
  absl::StatusOr<Operand> Read(size_t i, const OnnxValue& value, const std::string& letters) {
    const std::vector<int64_t> dims = r_.DimsOf(value);
    if (dims.size() != letters.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("its equation names ", letters.size(), " axes of ", DimsText(dims)));
    }
    Operand operand = {{}, letters, i};
    if (value.kind == OnnxValue::Kind::kTensor) {
      TESSERA_ASSIGN_OR_RETURN(operand, ReadTensor(i, value, letters));
    }
    for (size_t k = 0; k < operand.labels.size(); ++k) {
      const char c = operand.labels[k];
      const bool of_tensor = operand.tensor.index >= 0;
      const int64_t found = of_tensor ? r_.shape(operand.tensor).dim(k) : dims[k];
      const auto [size, is_new] = sizes_.emplace(c, found);
      if (size->second != found || operand.labels.find(c) != k) {
        return absl::UnimplementedError(
            absl::StrCat("axis ", std::string(1, c), " of ", DimsText(dims)));
      }
    }
    // An input that nothing else reads is a layer's weight.
    const bool weight = value.kind != OnnxValue::Kind::kTensor && value.trained &&
                        value.read_once && value.source == r_.node().input(static_cast<int>(i));
    if (operand.tensor.index < 0 && !weight) return Materialized(std::move(operand));
    return operand;
  }

  // The product of all operands, summed over the letters that are not in `result`, one operand
  // after another.
  absl::StatusOr<OnnxValue> Make(std::vector<Operand> operands, const std::string& result) {
    const size_t batch = batch_ == 0 ? result.size() : result.find(batch_);
    if (batch_ != 0 && batch == std::string::npos) {
      return absl::UnimplementedError("the result has not the batch");
    }
    for (const Operand& operand : operands) {
      if (operand.labels.find(batch_) == std::string::npos) continue;
      return absl::UnimplementedError("the batch meets a constant's axis: it has any size");
    }
    OnnxValue value;
    std::string order;
    const auto add = [&](char c) {
      order += c;
      value.axes.back().push_back(static_cast<int>(order.size()));
    };
    for (size_t k = 0; k < result.size(); ++k) {
      value.axes.emplace_back();
      if (k != batch) {
        add(result[k]);
        continue;
      }
      if (sizes_.contains(kBefore)) add(kBefore);
      value.axes.back().push_back(0);
      if (sizes_.contains(kAfter)) add(kAfter);
    }
    // Letters that are read behind an operand: the result's, and those of the operands to come.
    std::vector<std::string> behind(operands.size(), order);
    for (size_t i = operands.size(); i-- > 1;) behind[i - 1] = behind[i] + operands[i].labels;
    TESSERA_ASSIGN_OR_RETURN(Operand made, Summed(operands[0], behind[0]));
    for (size_t i = 1; i < operands.size(); ++i) {
      TESSERA_ASSIGN_OR_RETURN(const Operand next, Summed(operands[i], behind[i] + made.labels));
      TESSERA_ASSIGN_OR_RETURN(made, Product(made, next, behind[i]));
    }
    if (made.labels.size() != order.size() || !Without(made.labels, order).empty()) {
      return absl::UnimplementedError("the result has other letters than the operands");
    }
    TESSERA_ASSIGN_OR_RETURN(made, Materialized(std::move(made)));
    value.tensor = Ordered(made, order);
    if (order.empty() && batch < result.size()) value.axes[batch].push_back(1);
    return value;
  }

 private:
  absl::StatusOr<Operand> ReadTensor(size_t i, const OnnxValue& value, const std::string& letters) {
    Operand operand = {{}, "", i};
    std::vector<OnnxValue::Axes> parts;
    OnnxValue::Axes ones;
    std::string beside;
    for (size_t k = 0; k < letters.size(); ++k) {
      if (k != value.batch_axis()) {
        parts.push_back(value.axes[k]);
        operand.labels += letters[k];
        continue;
      }
      if (batch_ != 0 && batch_ != letters[k]) {
        return absl::UnimplementedError("expected the batch under one letter");
      }
      const OnnxValue::Axes& group = value.axes[k];
      const auto at = std::find(group.begin(), group.end(), 0);
      for (const auto& [c, axes] : {std::pair(kBefore, OnnxValue::Axes(group.begin(), at)),
                                    std::pair(kAfter, OnnxValue::Axes(at + 1, group.end()))}) {
        if (r_.SizeOf(value, axes) == 1) {
          ones.insert(ones.end(), axes.begin(), axes.end());
          continue;
        }
        parts.push_back(axes);
        operand.labels += c;
        beside += c;
      }
      if (batch_ != 0 && beside != beside_) {
        return absl::UnimplementedError("that would mix samples");
      }
      beside_ = beside;
      batch_ = letters[k];
    }
    if (parts.empty()) parts.emplace_back();
    parts[0].insert(parts[0].end(), ones.begin(), ones.end());
    operand.tensor = r_.Arranged(value, parts);
    return operand;
  }

  absl::StatusOr<Operand> Materialized(Operand operand) {
    if (operand.tensor.index >= 0) return operand;
    std::vector<int64_t> dims;
    for (const char c : operand.labels) dims.push_back(sizes_.at(c));
    if (dims.empty()) dims.push_back(1);
    TESSERA_ASSIGN_OR_RETURN(operand.tensor, r_.Materialize(operand.input, dims));
    return operand;
  }

  // The operand summed over its letters that are not in `kept`.
  absl::StatusOr<Operand> Summed(Operand operand, const std::string& kept) {
    const std::string gone = Without(operand.labels, kept);
    if (gone.empty()) return operand;
    TESSERA_ASSIGN_OR_RETURN(operand, Materialized(std::move(operand)));
    for (const char c : gone) {
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

  // The product of two operands, summed over the letters of both that are not in `kept`.
  absl::StatusOr<Operand> Product(Operand a, Operand b, const std::string& kept) {
    if (a.tensor.index < 0) std::swap(a, b);
    const std::string both = Common(a.labels, b.labels);
    const std::string stays = Common(both, kept), summed = Without(both, kept);
    const std::string rows = Without(a.labels, both), columns = Without(b.labels, both);
    const bool linear = a.tensor.index >= 0 && b.tensor.index < 0 && !summed.empty();
    if (linear && Size(stays) <= kMostPlaces) return Linear(a, b, stays, rows, columns, summed);
    TESSERA_ASSIGN_OR_RETURN(a, Materialized(std::move(a)));
    TESSERA_ASSIGN_OR_RETURN(b, Materialized(std::move(b)));
    std::vector<std::string> left = OneByOne(stays), right = left;
    left.insert(left.end(), {rows, summed});
    right.insert(right.end(), {summed, columns});
    const Tensor x = Grouped(Ordered(a, stays + rows + summed), left);
    const Tensor y = Grouped(Ordered(b, stays + summed + columns), right);
    Operand made = {{}, stays + rows + columns};
    made.tensor = Grouped(r_.Layer("MatMul", {x, y}), OneByOne(made.labels));
    return made;
  }

  // The same where b is a weight: a linear layer, and one for each place of what stays in both.
  absl::StatusOr<Operand> Linear(const Operand& a, const Operand& b, const std::string& stays,
                                 const std::string& rows, const std::string& columns,
                                 const std::string& summed) {
    OnnxValue weights = r_.in(b.input);
    weights.dims.clear();
    for (const char c : b.labels) weights.dims.push_back(sizes_.at(c));
    std::vector<size_t> perm;
    for (const char c : stays + columns + summed) perm.push_back(b.labels.find(c));
    weights = TransposedKnown(std::move(weights), perm);
    const int64_t places = Size(stays), units = Size(columns), each = units * Size(summed);
    const google::protobuf::Struct options =
        Options().Set("units", static_cast<double>(units)).Set("bias", false);
    std::vector<std::string> groups = {summed};
    if (!rows.empty()) groups.insert(groups.begin(), rows);
    std::vector<std::string> all = groups;
    if (places > 1) all.insert(all.begin(), stays);
    const Tensor x = Grouped(Ordered(a, stays + rows + summed), all);
    std::vector<Tensor> parts = {x};
    if (places > 1) {
      const std::vector<int64_t> ones(static_cast<size_t>(places), 1);
      parts = r_.Layers("Split", {x}, Options().Set("split", ones).Set("axis", 1.0), ones.size());
    }
    for (size_t p = 0; p < parts.size(); ++p) {
      const auto from = weights.floats.begin() + static_cast<int64_t>(p) * each;
      OnnxNodeReader::Weight weight = {"weight", b.input, {from, from + each}, weights.form};
      if (places > 1) weight.part = absl::StrCat("place ", p);
      TESSERA_ASSIGN_OR_RETURN(
          parts[p], r_.TrainedLayer("Gemm", {Grouped(parts[p], groups)}, options, {weight}));
      if (places == 1) break;
      Shape one = {1};
      for (size_t k = 0; k < r_.shape(parts[p]).rank(); ++k) one.Append(r_.shape(parts[p]).dim(k));
      parts[p] = r_.Reshaped(parts[p], one);
    }
    Operand made = {parts[0], stays + rows + columns};
    if (places > 1) made.tensor = r_.Layer("Concat", parts, Options().Set("axis", 1.0));
    made.tensor = Grouped(made.tensor, OneByOne(made.labels));
    return made;
  }

  OnnxNodeReader& r_;
  std::map<char, int64_t> sizes_;
  char batch_ = 0;  // 0: no operand has it
  std::string beside_;
};

// Replaces "..." by a digit for each axis that it stands for; the last one is 0.
absl::StatusOr<std::string> Expanded(std::string letters, size_t rank) {
  std::string named = letters, digits;
  const size_t at = letters.find("...");
  if (at != std::string::npos) named.erase(at, 3);
  const bool fits =
      std::all_of(named.begin(), named.end(),
                  [](char c) { return absl::ascii_isalpha(static_cast<unsigned char>(c)); }) &&
      (at == std::string::npos || (rank >= named.size() && rank - named.size() <= 10));
  if (!fits) {
    return absl::UnimplementedError(
        absl::StrCat("\"", letters, "\" as the letters of ", rank, " axes"));
  }
  if (at == std::string::npos) return letters;
  for (size_t k = rank - named.size(); k-- > 0;) digits += static_cast<char>('0' + k);
  return letters.replace(at, 3, digits);
}

// Removes an axis of ONNX, of size 1.
void DropOne(OnnxNodeReader& r, OnnxValue& value, size_t axis) {
  const auto at = static_cast<int64_t>(axis);
  if (value.kind != OnnxValue::Kind::kTensor) {
    value.dims.erase(value.dims.begin() + at);
    return;
  }
  if (!value.axes[axis].empty()) r.DropOnes(value, OnnxValue::Axes(value.axes[axis]));
  value.axes.erase(value.axes.begin() + at);
}

}  // namespace

absl::Status ReadEinsum(OnnxNodeReader& r) {
  const onnx::AttributeProto* attribute = r.Attribute("equation");
  std::string equation = attribute == nullptr ? "" : attribute->s();
  std::erase(equation, ' ');
  const std::vector<std::string> sides = absl::StrSplit(equation, "->");
  std::vector<std::string> letters = absl::StrSplit(sides[0], ',');
  if (sides.size() != 2 || r.inputs() != letters.size()) {
    return absl::UnimplementedError(
        absl::StrCat("\"", equation, "\"; expected operands and a result, AB,AC->D"));
  }
  Contraction contraction(r);
  std::vector<Operand> operands;
  size_t open = 0;  // axes that "..." stands for
  for (size_t i = 0; i < letters.size(); ++i) {
    if (!r.Has(i) || r.in(i).HasBatch()) TESSERA_RETURN_IF_ERROR(r.TensorIn(i).status());
    const size_t rank = r.DimsOf(r.in(i)).size();
    TESSERA_ASSIGN_OR_RETURN(letters[i], Expanded(letters[i], rank));
    const auto digits = std::count_if(letters[i].begin(), letters[i].end(), [](char c) {
      return absl::ascii_isdigit(static_cast<unsigned char>(c));
    });
    open = std::max(open, static_cast<size_t>(digits));
    TESSERA_ASSIGN_OR_RETURN(operands.emplace_back(), contraction.Read(i, r.in(i), letters[i]));
  }
  const size_t named = sides[1].size() - (sides[1].find("...") == std::string::npos ? 0 : 3);
  TESSERA_ASSIGN_OR_RETURN(const std::string result, Expanded(sides[1], named + open));
  absl::StatusOr<OnnxValue> value = contraction.Make(std::move(operands), result);
  if (!value.ok()) return WithContext(value.status(), absl::StrCat("\"", equation, "\""));
  r.Set(*std::move(value));
  return absl::OkStatus();
}

absl::StatusOr<OnnxValue> TimesStack(OnnxNodeReader& r) {
  OnnxValue sides[] = {r.in(0), r.in(1)};
  const std::vector<int64_t> dims[] = {r.DimsOf(sides[0]), r.DimsOf(sides[1])};
  if (std::min(dims[0].size(), dims[1].size()) < 2 ||
      dims[0].back() != dims[1][dims[1].size() - 2]) {
    const bool left = r.IsTensor(1) && !sides[1].IsUnbatched();
    return absl::InvalidArgumentError(absl::StrCat("its weights ", DimsText(dims[left ? 0 : 1]),
                                                   " do not fit the input ",
                                                   DimsText(dims[left ? 1 : 0])));
  }
  // The letters of axes before the last two; what has size 1 has none.
  const size_t rank = std::max(dims[0].size(), dims[1].size());
  std::string letters[] = {"RK", "KC"}, result = "RC";
  std::vector<size_t> ones;  // of the result
  for (size_t k = rank - 2; k-- > 0;) {
    const char c = static_cast<char>('a' + k);
    bool in_result = false;
    for (const size_t i : {0, 1}) {
      if (k + dims[i].size() < rank) continue;
      const size_t at = k + dims[i].size() - rank;
      if (dims[i][at] == 1) {
        DropOne(r, sides[i], at);
      } else {
        letters[i].insert(0, 1, c);
        in_result = true;
      }
    }
    if (in_result) {
      result.insert(0, 1, c);
    } else {
      ones.insert(ones.begin(), k);
    }
  }
  Contraction contraction(r);
  std::vector<Operand> operands;
  for (const size_t i : {0, 1}) {
    TESSERA_ASSIGN_OR_RETURN(operands.emplace_back(), contraction.Read(i, sides[i], letters[i]));
  }
  TESSERA_ASSIGN_OR_RETURN(OnnxValue value, contraction.Make(std::move(operands), result));
  for (const size_t k : ones) {
    value.axes.insert(value.axes.begin() + static_cast<int64_t>(k), OnnxValue::Axes());
  }
  return value;
}

}  // namespace tessera::worker
