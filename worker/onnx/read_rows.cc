// Recurrences over sequences that share the batch's axis, such as one for each field of a sample:
// they are read one after another, and train the same parameters.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/read_axes.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

constexpr int64_t kMostRows = 64;  // each is a layer

size_t BatchAxisOf(const std::vector<int64_t>& dims) {
  return static_cast<size_t>(std::find_if(dims.begin(), dims.end(), IsBatch) - dims.begin());
}

// How many sequences of a sample are before and after it in the batch's axis.
struct Beside {
  int64_t before = 1, after = 1;
};

// Row `row` of each sample.
absl::StatusOr<OnnxValue> RowOf(OnnxNodeReader& r, OnnxValue value, Beside beside, int64_t row) {
  const size_t axis = BatchAxisOf(r.DimsOf(value));
  const auto at = static_cast<int64_t>(axis);
  if (value.kind != OnnxValue::Kind::kTensor) {  // which are alike
    if (value.HasBatch()) value.dims[axis] = BatchTimes(1);
    return value;
  }
  if (value.IsUnbatched()) return value;
  const OnnxValue::Axes group = value.axes[axis];
  const auto batch = std::find(group.begin(), group.end(), 0);
  const OnnxValue::Axes before(group.begin(), batch), after(batch + 1, group.end());
  if (r.SizeOf(value, before) != beside.before || r.SizeOf(value, after) != beside.after) {
    return absl::UnimplementedError(
        absl::StrCat(DimsText(r.DimsOf(value)), " beside its input: that would mix samples"));
  }
  value.axes[axis] = before;
  value.axes.insert(value.axes.begin() + at + 1, {OnnxValue::Axes{0}, after});
  TESSERA_ASSIGN_OR_RETURN(
      value, r.AlongAxis("Gather", at + 2, {value, OnnxValue::OfInt(row % beside.after)}));
  return r.AlongAxis("Gather", at, {value, OnnxValue::OfInt(row / beside.after)});
}

// The rows of each sample beside it in the batch's axis again.
absl::StatusOr<OnnxValue> Joined(OnnxNodeReader& r, std::vector<OnnxValue> rows, Beside beside) {
  const size_t axis = BatchAxisOf(r.DimsOf(rows[0]));
  const auto at = static_cast<int64_t>(axis);
  for (OnnxValue& row : rows) {
    TESSERA_ASSIGN_OR_RETURN(row, r.AlongAxis("Unsqueeze", at, {row}));
  }
  TESSERA_ASSIGN_OR_RETURN(OnnxValue joined, r.AlongAxis("Concat", at, rows));
  SplitAxis(r, joined, axis, {beside.before, beside.after});
  std::swap(joined.axes[axis + 1], joined.axes[axis + 2]);
  MergeAxes(joined, axis, 3);
  return joined;
}

}  // namespace

bool HasRowsBesideBatch(const OnnxNodeReader& r) {
  if (!r.IsTensor(0) || r.in(0).IsUnbatched()) return false;
  return BatchFactor(r.DimsOf(r.in(0))[r.in(0).batch_axis()]) > 1;
}

absl::Status ReadRowByRow(OnnxNodeReader& r) {
  const OnnxValue& x = r.in(0);
  const OnnxValue::Axes& group = x.axes[x.batch_axis()];
  const auto batch = std::find(group.begin(), group.end(), 0);
  const Beside beside = {r.SizeOf(x, {group.begin(), batch}),
                         r.SizeOf(x, {batch + 1, group.end()})};
  const int64_t rows = beside.before * beside.after;
  if (rows > kMostRows) {
    return absl::UnimplementedError(absl::StrCat("of ", DimsText(r.DimsOf(x)), ", which are ", rows,
                                                 " sequences of each sample, above ", kMostRows));
  }
  onnx::GraphProto graph;
  onnx::NodeProto& node = *graph.add_node() = r.node();
  std::vector<size_t> inputs;
  std::vector<int> outputs;
  for (size_t i = 0; i < r.inputs(); ++i) {
    if (!r.Has(i)) continue;
    inputs.push_back(i);
    graph.add_input()->set_name(absl::StrCat("input ", i));
    node.set_input(static_cast<int>(i), absl::StrCat("input ", i));
  }
  for (int i = 0; i < node.output_size(); ++i) {
    node.set_output(i, r.HasOutput(i) ? absl::StrCat("output ", i) : "");
    if (!r.HasOutput(i)) continue;
    outputs.push_back(i);
    graph.add_output()->set_name(node.output(i));
  }
  std::vector<std::vector<OnnxValue>> made(outputs.size());
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<OnnxValue> values;
    for (const size_t i : inputs) {
      TESSERA_ASSIGN_OR_RETURN(values.emplace_back(), RowOf(r, r.in(i), beside, row));
    }
    TESSERA_ASSIGN_OR_RETURN(std::vector<OnnxValue> of_row,
                             r.ReadWithin(graph, "row", row, values));
    for (size_t k = 0; k < made.size(); ++k) made[k].push_back(std::move(of_row[k]));
  }
  for (size_t k = 0; k < made.size(); ++k) {
    TESSERA_ASSIGN_OR_RETURN(OnnxValue joined, Joined(r, std::move(made[k]), beside));
    r.Set(std::move(joined), outputs[k]);
  }
  return absl::OkStatus();
}

}  // namespace tessera::worker
