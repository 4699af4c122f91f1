#include "worker/onnx/example_batch.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/known_numbers.h"

namespace tessera::worker {
namespace {

// Their product, an open one left out; nullopt: 2^31 or more, or one below 1.
std::optional<int64_t> NumbersOf(const std::vector<int64_t>& dims, int64_t example) {
  int64_t total = 1;
  for (const int64_t dim : dims) {
    if (dim == -1) continue;
    const int64_t size = IsBatch(dim) ? BatchFactor(dim) * example : dim;
    if (size < 1 || size > INT32_MAX / total) return std::nullopt;
    total *= size;
  }
  return total;
}

}  // namespace

int64_t ExampleBatchOf(const onnx::GraphProto& graph,
                       const std::function<bool(const onnx::ValueInfoProto&)>& is_read) {
  int64_t example = 0;
  for (const onnx::ValueInfoProto& input : graph.input()) {
    if (!is_read(input)) continue;
    const auto& shape = input.type().tensor_type().shape();
    const int64_t size = shape.dim_size() > 0 ? shape.dim(0).dim_value() : 0;
    if (size < 1) continue;
    if (size > INT32_MAX || (example != 0 && size != example)) return 0;
    example = size;
  }
  return example;
}

std::vector<int64_t> OfAnyBatch(const OnnxNodeReader& r, const std::vector<int64_t>& dims,
                                const OnnxValue& value, bool allow_zero) {
  const int64_t example = r.example_batch();
  const std::vector<int64_t> from = r.DimsOf(value);
  const auto batch = std::find_if(from.begin(), from.end(), IsBatch);
  if (example == 0 || batch == from.end()) return dims;
  std::vector<int64_t> any = dims;
  for (size_t i = 0; i < any.size() && !allow_zero; ++i) {
    if (any[i] == 0 && i < from.size()) any[i] = from[i];
  }
  const std::optional<int64_t> all = NumbersOf(from, example), known = NumbersOf(any, example);
  const auto open = std::count(any.begin(), any.end(), -1);
  const bool has_batch = std::any_of(any.begin(), any.end(), IsBatch);
  if (has_batch || !all.has_value() || !known.has_value() || open > 1) return dims;
  if (open == 0 ? *all != *known : *all % *known != 0) return dims;
  std::replace(any.begin(), any.end(), int64_t{-1}, *all / *known);
  // Numbers before the batch's, also within its axis.
  const size_t was = static_cast<size_t>(batch - from.begin());
  int64_t before = 1;
  for (size_t i = 0; i < was; ++i) before *= from[i];
  if (value.kind == OnnxValue::Kind::kTensor) {
    const OnnxValue::Axes& group = value.axes[was];
    before *= r.SizeOf(value, {group.begin(), std::find(group.begin(), group.end(), 0)});
  }
  // An axis has the batch's place if it has it whole, between what lies before and behind it.
  std::optional<size_t> place;
  int best = -1;
  int64_t passed = 1;
  for (size_t i = 0; i < any.size() && passed <= before; passed *= any[i++]) {
    if (before % passed != 0 || any[i] % (before / passed * example) != 0) continue;
    const bool last = any[i] == before / passed * example;
    const int fits = 4 * (any[i] == example) + (any.size() < from.size() ? 2 : 1) * last +
                     (any.size() < from.size() ? 1 : 2) * (i == was);
    if (fits > best) place = i;
    best = std::max(best, fits);
  }
  if (!place.has_value()) return dims;
  any[*place] = BatchTimes(any[*place] / example);
  return any;
}

void TakeExamples(OnnxNodeReader& r) {
  const std::string& op = r.node().op_type();
  const bool product = op == "MatMul" || op == "Gemm";
  if (r.example_batch() > 1) {  // the numbers of one sample need no batch here
    const bool rows = r.Has(0) && !r.IsTensor(0) && r.in(0).dims.size() > (r.in(0).trained ? 2 : 1);
    const bool by_weights = r.IsTensor(1) ? r.in(1).IsUnbatched() : !r.in(1).HasBatch();
    if (product && rows && by_weights) r.TakeExample(0, 0);
    if (op == "Gather" && r.in(1).dims.size() > 1) r.TakeExample(1, 0);
  }
  if (op != "Concat" && (op != "MatMul" || r.example_batch() == 1)) return;
  for (size_t i = 0; i < r.inputs(); ++i) {
    if (!r.IsTensor(i) || r.in(i).IsUnbatched()) continue;
    const size_t axis = r.in(i).batch_axis(), rank = r.in(i).axes.size();
    for (size_t k = 0; k < r.inputs(); ++k) {
      // Rows and columns of a matrix are no samples.
      const bool meets = op == "Concat" || (axis + 2 < rank && r.DimsOf(r.in(k)).size() == rank);
      if (k != i && r.Has(k) && meets) r.TakeExample(k, axis);
    }
    return;
  }
}

std::optional<size_t> RepeatedToExample(const OnnxNodeReader& r, const std::vector<int64_t>& from,
                                        const std::vector<int64_t>& to) {
  const OnnxValue& x = r.in(0);
  const bool of_parameters = r.IsTensor(0) ? x.IsUnbatched() : x.trained;
  if (r.example_batch() < 2 || !of_parameters || to.size() < 2) return std::nullopt;
  const auto repeats = [&](size_t k) { return from[k] == 1 && to[k] == r.example_batch(); };
  if (repeats(0)) return 0;
  return to.size() > 2 && to[0] == from[0] && repeats(1) ? std::optional<size_t>(1) : std::nullopt;
}

void OnnxNodeReader::TakeExample(size_t i, size_t axis) {
  if (IsTensor(i) ? !in(i).IsUnbatched() : in(i).HasBatch()) return;
  const std::vector<int64_t> dims = DimsOf(in(i));
  if (example_batch() == 0 || axis >= dims.size() || dims[axis] != example_batch()) return;
  OnnxValue value = in(i);
  if (IsTensor(i)) {  // its numbers are not known
    if (dims[axis] != 1) return;
    DropOnes(value, value.axes[axis]);
    value.axes[axis] = {0};
    taken_[i] = std::move(value);
    return;
  }
  OnnxValue one = TakenOfKnown(value, axis, {0});
  const std::vector<int64_t> places(static_cast<size_t>(dims[axis]), 0);
  const OnnxValue again = TakenOfKnown(one, axis, places);
  if (again.floats != value.floats || again.ints != value.ints) return;
  if (value.trained) {  // as an initializer of its own
    one.source = dims[axis] == 1 ? value.source : absl::StrCat(value.source, "\nof one sample");
    network_.values.emplace(one.source, one);
  }
  one.dims[axis] = BatchTimes(1);
  taken_[i] = std::move(one);
}

}  // namespace tessera::worker
