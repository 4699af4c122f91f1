// Ops that take places of tensors by index.
#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/known_numbers.h"
#include "worker/onnx/nodes_within.h"
#include "worker/onnx/read_axes.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
using Kind = OnnxValue::Kind;

// The same places for every sample may be repeated for the batch, of what has none.
absl::Status ReadGather(OnnxNodeReader& r) {
  std::vector<int64_t> dims = r.in(1).dims, indices = r.in(1).ints;
  const auto batch = std::find(dims.begin(), dims.end(), BatchTimes(1));
  const auto batch_at = static_cast<size_t>(batch - dims.begin());
  const bool for_batch = r.in(1).kind == Kind::kInts && batch != dims.end() &&
                         std::count_if(dims.begin(), dims.end(), IsBatch) == 1 &&
                         (r.IsTensor(0) ? r.in(0).IsUnbatched() : !r.in(0).HasBatch());
  if (for_batch) {
    *batch = 1;
    if (r.in(0).trained) TESSERA_RETURN_IF_ERROR(r.TakeUnbatched(0));
  } else if (r.IsTensor(1)) {
    TESSERA_ASSIGN_OR_RETURN(OnnxValue rows, RowsBySample(r));
    r.Set(std::move(rows));
    return absl::OkStatus();
  } else {
    TESSERA_ASSIGN_OR_RETURN(indices, r.IntsIn(1));
  }
  if (ReadsKnown(r)) {
    OnnxValue known = r.in(0);
    TESSERA_ASSIGN_OR_RETURN(const size_t axis, KnownAxis(r.Int("axis", 0), known));
    TESSERA_ASSIGN_OR_RETURN(indices, CountedFromStart(std::move(indices), known.dims[axis]));
    known = TakenOfKnown(known, axis, indices);
    if (for_batch) dims[batch_at] = BatchTimes(1);
    const auto at = known.dims.erase(known.dims.begin() + static_cast<int64_t>(axis));
    known.dims.insert(at, dims.begin(), dims.end());
    r.Set(std::move(known));
    return absl::OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  TESSERA_ASSIGN_OR_RETURN(const size_t axis, r.SampleAxis(r.Int("axis", 0), x));
  TESSERA_ASSIGN_OR_RETURN(indices, CountedFromStart(std::move(indices), r.DimsOf(x)[axis]));
  TakePlaces(r, x, axis, indices);
  if (dims.size() != 1) SplitAxis(r, x, axis, dims);
  if (for_batch) x.axes[axis + batch_at].insert(x.axes[axis + batch_at].begin(), 0);
  r.Set(std::move(x));
  return absl::OkStatus();
}

// Takes known places of the first axes, as PyTorch exports x[:, i, j], or of each sample its own.
absl::Status ReadGatherNd(OnnxNodeReader& r) {
  const std::vector<int64_t> to = r.DimsOf(r.in(1));
  const bool of_one_axis = !to.empty() && to.back() == 1;
  if (of_one_axis && r.Int("batch_dims", 0) == 0 && !r.IsTensor(0) &&
      (r.IsTensor(1) || r.in(1).HasBatch())) {
    // A table of the file, as torch.bucketize searches its bounds.
    TESSERA_ASSIGN_OR_RETURN(OnnxValue indices, r.AlongAxis("Squeeze", -1, {r.in(1)}));
    NodesWithin nodes(r);
    const std::string places = nodes.Input(std::move(indices));
    TESSERA_ASSIGN_OR_RETURN(
        OnnxValue rows, nodes.Read("rows", nodes.Add("Gather", {nodes.Input(r.in(0)), places})));
    r.Set(std::move(rows));
    return absl::OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  const bool by_sample = r.Int("batch_dims", 0) == 1 && !x.IsUnbatched() && x.batch_axis() == 0 &&
                         r.IsTensor(1) && of_one_axis;
  if (by_sample) {
    TESSERA_ASSIGN_OR_RETURN(const OnnxValue indices, r.AlongAxis("Squeeze", -1, {r.in(1)}));
    TESSERA_ASSIGN_OR_RETURN(OnnxValue chosen, ChosenBySample(r, x, indices));
    r.Set(std::move(chosen));
    return absl::OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> indices, r.IntsIn(1));
  const std::vector<int64_t> dims = r.in(1).dims, from = r.DimsOf(x);
  const auto named = dims.empty() ? size_t{0} : static_cast<size_t>(dims.back());
  if (r.Int("batch_dims", 0) != 0 || named < 1 || named > from.size() || x.batch_axis() < named) {
    return absl::UnimplementedError(
        absl::StrCat("indices ", DimsText(dims), " of ", DimsText(from),
                     "; expected them to name axes before the batch's"));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> places,
                           MergedPlaces(indices, {from.data(), named}));
  MergeAxes(x, 0, named);
  TakePlaces(r, x, 0, places);
  if (dims.size() != 2) SplitAxis(r, x, 0, {dims.begin(), dims.end() - 1});
  r.Set(std::move(x));
  return absl::OkStatus();
}

// Read if every sequence is reversed whole, as exporters write a list with its last place first.
absl::Status ReadReverseSequence(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  const int64_t along = r.Int("time_axis", 0), batch = r.Int("batch_axis", 1);
  TESSERA_ASSIGN_OR_RETURN(const size_t axis, r.SampleAxis(along, x));
  const int64_t size = r.DimsOf(x)[axis];
  if (!r.in(1).IsAll(size) || std::min(along, batch) < 0 || std::max(along, batch) != 1) {
    return absl::UnimplementedError(
        absl::StrCat("expected lengths that are known when the file is read, all of them ", size));
  }
  std::vector<int64_t> places(static_cast<size_t>(size));
  std::iota(places.rbegin(), places.rend(), 0);
  TakePlaces(r, x, axis, places);
  r.Set(std::move(x));
  return absl::OkStatus();
}

}  // namespace tessera::worker
