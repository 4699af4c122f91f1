// Ops that take parts of tensors, join them or repeat them.
#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/read.h"

namespace tessera::worker {
namespace {

using Axes = OnnxValue::Axes;
using Kind = OnnxValue::Kind;

int64_t Within(int64_t index, int64_t low, int64_t size, int64_t high) {
  if (index < 0) index = index < -size ? low : index + size;
  return std::clamp(index, low, high);
}

// The indices below `size` that a slice takes.
struct Range {
  int64_t begin = 0, end = 0, step = 1;
  Range(int64_t start, int64_t stop, int64_t by, int64_t size) : step(by) {
    begin = by > 0 ? Within(start, 0, size, size) : Within(start, -1, size, size - 1);
    end = by > 0 ? Within(stop, 0, size, size) : Within(stop, -1, size, size - 1);
  }
  std::vector<int64_t> Indices() const {
    std::vector<int64_t> indices;
    for (int64_t at = begin; step > 0 ? at < end : at > end; at += step) indices.push_back(at);
    return indices;
  }
};

// `indices` of a list of this size, counted from its end where negative.
absl::StatusOr<std::vector<int64_t>> Checked(std::vector<int64_t> indices, int64_t size) {
  for (int64_t& index : indices) {
    if (index < -size || index >= size) {
      return absl::InvalidArgumentError(absl::StrCat("index ", index, " of ", size));
    }
    if (index < 0) index += size;
  }
  return indices;
}

// Takes parts of known numbers that are not trained.
bool IsKnown(const OnnxNodeReader& r) { return !r.IsTensor(0) && !r.in(0).trained; }

// An axis of known numbers that is not the batch's, counted from the end where negative.
absl::StatusOr<size_t> KnownAxis(int64_t axis, const OnnxValue& known) {
  const auto rank = static_cast<int64_t>(known.dims.size());
  const int64_t at = axis < 0 ? axis + rank : axis;
  if (at >= 0 && at < rank && !IsBatch(known.dims[static_cast<size_t>(at)])) {
    return static_cast<size_t>(at);
  }
  return absl::UnimplementedError(
      absl::StrCat("axis ", axis, " of the constant ", DimsText(known.dims)));
}

// Batches `begin` to `end` of the axis that has several, one after another, or with `each` numbers
// a sample.
absl::StatusOr<OnnxValue> Batches(OnnxNodeReader& r, OnnxValue x, int64_t begin, int64_t end) {
  const size_t axis = x.batch_axis();
  const Axes group = x.axes[axis];
  const auto batch = std::find(group.begin(), group.end(), 0);
  const int64_t each = BatchFactor(r.SizeOf(x, {batch, group.end()}));
  const int64_t all = r.SizeOf(x, {group.begin(), batch});
  if (begin < 0 || end <= begin || begin % each != 0 || end % each != 0 || end > all * each) {
    return r.SampleAxis(static_cast<int64_t>(axis), x).status();
  }
  if (end - begin == all * each) return x;
  x.axes[axis] = {group.begin(), batch};
  x.axes.insert(x.axes.begin() + static_cast<int64_t>(axis) + 1, {batch, group.end()});
  const int at = r.OneAxis(x, axis);
  x.tensor = Sliced(r, x.tensor, at, begin / each, end / each);
  if (end - begin == each) {
    r.DropOnes(x, {at});
    x.axes.erase(x.axes.begin() + static_cast<int64_t>(axis));
  } else {
    MergeAxes(x, axis, 2);
  }
  return x;
}

bool IsBatchAxis(int64_t axis, const OnnxValue& x) {
  const auto at = static_cast<int64_t>(x.batch_axis()), rank = static_cast<int64_t>(x.axes.size());
  return !x.IsUnbatched() && (axis == at || axis == at - rank);
}

// A number of batches; -1: it is none.
int64_t BatchesIn(int64_t number) {
  return number == 0 ? 0 : IsBatch(number) ? BatchFactor(number) : -1;
}

// Batches one after another along the batch's axis.
absl::Status ConcatBatches(OnnxNodeReader& r, size_t axis) {
  std::vector<OnnxValue> parts;
  const std::vector<int64_t> dims = r.DimsOf(r.in(0));
  for (size_t i = 0; i < r.inputs(); ++i) {
    if (r.in(i).IsUnbatched() || r.DimsOf(r.in(i)) != dims) {
      return absl::UnimplementedError(absl::StrCat(DimsText(dims), " beside ",
                                                   DimsText(r.DimsOf(r.in(i))), ", axis ", axis,
                                                   ", the batch's; expected batches of one form"));
    }
    TESSERA_ASSIGN_OR_RETURN(parts.emplace_back(),
                             r.AlongAxis("Unsqueeze", static_cast<int64_t>(axis), {r.in(i)}));
  }
  TESSERA_ASSIGN_OR_RETURN(OnnxValue joined,
                           r.AlongAxis("Concat", static_cast<int64_t>(axis), parts));
  MergeAxes(joined, axis, 2);
  r.Set(std::move(joined));
  return absl::OkStatus();
}

// Repeats axes of size 1 to `dims`, in which -1 and 1 leave an axis as it is.
absl::Status SetRepeated(OnnxNodeReader& r, OnnxValue x, const std::vector<int64_t>& dims) {
  const std::vector<int64_t> from = r.DimsOf(x);
  std::vector<std::pair<size_t, int64_t>> more;
  for (size_t k = 0; k < dims.size(); ++k) {
    if (dims[k] == from[k] || dims[k] == 1 || dims[k] == -1) continue;
    if (from[k] == 1 && dims[k] == BatchTimes(1) && x.IsUnbatched()) {
      x.axes[k].insert(x.axes[k].begin(), 0);
      continue;
    }
    if (from[k] != 1 || dims[k] < 1 || dims[k] > 1 << 20) {
      return absl::UnimplementedError("to " + DimsText(dims) + " from " + DimsText(from));
    }
    more.emplace_back(k, dims[k]);
    (void)r.OneAxis(x, k);
  }
  if (!more.empty()) {
    std::vector<int64_t> shape = {0};
    for (size_t i = 0; i < r.shape(x.tensor).rank(); ++i) shape.push_back(r.shape(x.tensor).dim(i));
    for (const auto& [k, size] : more) shape[static_cast<size_t>(x.axes[k][0])] = size;
    x.tensor = r.Layer("Expand", {x.tensor}, Options().Set("shape", shape));
  }
  r.Set(std::move(x));
  return absl::OkStatus();
}

absl::Status ConcatKnown(OnnxNodeReader& r) {
  std::vector<OnnxValue> parts;
  for (size_t i = 0; i < r.inputs(); ++i) {
    parts.push_back(r.in(i));
    if (parts[i].dims.empty()) parts[i].dims = {1};  // a number among lists
  }
  TESSERA_ASSIGN_OR_RETURN(const size_t axis, KnownAxis(r.Int("axis", 0), parts[0]));
  size_t total = 0;
  for (const OnnxValue& part : parts) {
    std::vector<int64_t> dims = part.dims;
    if (dims.size() == parts[0].dims.size()) dims[axis] = parts[0].dims[axis];
    if (dims != parts[0].dims || IsBatch(part.dims[axis])) {
      return absl::InvalidArgumentError(
          absl::StrCat(DimsText(parts[0].dims), " beside ", DimsText(part.dims)));
    }
    total += std::max(part.floats.size(), part.ints.size());
  }
  if (total > 1 << 20) return absl::UnimplementedError("gives more than 2^20 numbers");
  r.Set(JoinedKnown(parts, axis));
  return absl::OkStatus();
}

}  // namespace

void TakePlaces(OnnxNodeReader& r, OnnxValue& x, size_t axis, const std::vector<int64_t>& indices) {
  const int at = r.OneAxis(x, axis);
  x.tensor = r.Layer("Gather", {x.tensor},
                     Options().Set("indices", indices).Set("axis", static_cast<double>(at)));
}

void SplitAxis(OnnxNodeReader& r, OnnxValue& x, size_t axis, const std::vector<int64_t>& sizes) {
  if (sizes.empty()) {
    r.DropOnes(x, OnnxValue::Axes(x.axes[axis]));
    x.axes.erase(x.axes.begin() + static_cast<int64_t>(axis));
    return;
  }
  // As the last, where it may be anything.
  std::rotate(x.axes.begin() + static_cast<int64_t>(axis),
              x.axes.begin() + static_cast<int64_t>(axis) + 1, x.axes.end());
  const size_t last = x.axes.size() - 1;
  r.LastAxis(x, last);
  r.SplitLast(x, last, sizes);
  std::rotate(x.axes.begin() + static_cast<int64_t>(axis),
              x.axes.begin() + static_cast<int64_t>(last), x.axes.end());
}

void MergeAxes(OnnxValue& x, size_t first, size_t count) {
  Axes& merged = x.axes[first];
  for (size_t k = first + 1; k < first + count; ++k) {
    merged.insert(merged.end(), x.axes[k].begin(), x.axes[k].end());
  }
  const auto next = x.axes.begin() + static_cast<int64_t>(first) + 1;
  x.axes.erase(next, next + static_cast<int64_t>(count) - 1);
}

absl::StatusOr<std::vector<int64_t>> MergedPlaces(const std::vector<int64_t>& indices,
                                                  absl::Span<const int64_t> sizes) {
  std::vector<int64_t> places;
  for (size_t i = 0; i < indices.size(); i += sizes.size()) {
    int64_t place = 0;
    for (size_t k = 0; k < sizes.size(); ++k) {
      TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> index,
                               Checked({indices[i + k]}, sizes[k]));
      place = place * sizes[k] + index[0];
    }
    places.push_back(place);
  }
  return places;
}

Tensor Sliced(OnnxNodeReader& r, Tensor x, int axis, int64_t begin, int64_t end) {
  return r.Layer("Slice", {x},
                 Options()
                     .Set("axis", static_cast<double>(axis))
                     .Set("start", static_cast<double>(begin))
                     .Set("end", static_cast<double>(end)));
}

Tensor Padded(OnnxNodeReader& r, Tensor x, int axis, int64_t before, int64_t after, double value) {
  const auto filled = [&](int64_t size) {
    std::vector<int64_t> shape;
    for (size_t a = 0; a < r.shape(x).rank(); ++a) shape.push_back(r.shape(x).dim(a));
    shape[static_cast<size_t>(axis) - 1] = size;
    return r.Layer("Constant", {}, Options().Set("shape", shape).Set("value", value));
  };
  std::vector<Tensor> parts = {x};
  if (before > 0) parts.insert(parts.begin(), filled(before));
  if (after > 0) parts.push_back(filled(after));
  if (parts.size() == 1) return x;
  return r.Layer("Concat", parts, Options().Set("axis", static_cast<double>(axis)));
}

absl::Status ReadConcat(OnnxNodeReader& r) {
  size_t tensors = 0, known = 0;
  for (size_t i = 0; i < r.inputs(); ++i) {
    tensors += r.IsTensor(i) || r.in(i).HasBatch();
    known += !r.IsTensor(i) && !r.in(i).trained && r.in(i).kind == r.in(0).kind;
  }
  if (known == r.inputs()) return ConcatKnown(r);
  if (tensors != r.inputs()) {
    return absl::UnimplementedError("expected tensors of the network alone");
  }
  for (size_t i = 1; i < r.inputs(); ++i) TESSERA_RETURN_IF_ERROR(r.TensorIn(i).status());
  TESSERA_ASSIGN_OR_RETURN(const OnnxValue first, r.TensorIn(0));
  if (IsBatchAxis(r.Int("axis", 0), first)) return ConcatBatches(r, first.batch_axis());
  TESSERA_ASSIGN_OR_RETURN(const size_t axis, r.SampleAxis(r.Int("axis", 0), first));
  for (size_t i = 1; i < r.inputs(); ++i) {
    if (r.DimsOf(r.in(i)).size() != first.axes.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(DimsText(r.DimsOf(first)), " beside ", DimsText(r.DimsOf(r.in(i)))));
    }
  }
  TESSERA_ASSIGN_OR_RETURN(const OnnxNodeReader::Aligned parts,
                           r.Align(static_cast<int64_t>(axis)));
  OnnxValue value;
  value.axes = parts.axes;
  value.tensor = r.Layer("Concat", parts.tensors,
                         Options().Set("axis", static_cast<double>(value.axes[axis][0])));
  r.Set(std::move(value));
  return absl::OkStatus();
}

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
  if (IsKnown(r)) {
    OnnxValue known = r.in(0);
    TESSERA_ASSIGN_OR_RETURN(const size_t axis, KnownAxis(r.Int("axis", 0), known));
    TESSERA_ASSIGN_OR_RETURN(indices, Checked(std::move(indices), known.dims[axis]));
    known = TakenOfKnown(known, axis, indices);
    if (for_batch) dims[batch_at] = BatchTimes(1);
    const auto at = known.dims.erase(known.dims.begin() + static_cast<int64_t>(axis));
    known.dims.insert(at, dims.begin(), dims.end());
    r.Set(std::move(known));
    return absl::OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  TESSERA_ASSIGN_OR_RETURN(const size_t axis, r.SampleAxis(r.Int("axis", 0), x));
  TESSERA_ASSIGN_OR_RETURN(indices, Checked(std::move(indices), r.DimsOf(x)[axis]));
  TakePlaces(r, x, axis, indices);
  if (dims.size() != 1) SplitAxis(r, x, axis, dims);
  if (for_batch) x.axes[axis + batch_at].insert(x.axes[axis + batch_at].begin(), 0);
  r.Set(std::move(x));
  return absl::OkStatus();
}

// Takes known places of the first axes, as PyTorch exports x[:, i, j], or of each sample its own.
absl::Status ReadGatherNd(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  const std::vector<int64_t> to = r.DimsOf(r.in(1));
  const bool by_sample = r.Int("batch_dims", 0) == 1 && !x.IsUnbatched() && x.batch_axis() == 0 &&
                         r.IsTensor(1) && !to.empty() && to.back() == 1;
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

absl::Status ReadSlice(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> starts, r.IntsOf("starts", 1));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> ends, r.IntsOf("ends", 2));
  TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> axes, r.IntsOf("axes", 3));
  TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> steps, r.IntsOf("steps", 4));
  if (starts.empty() || starts.size() != ends.size()) {
    return absl::InvalidArgumentError("starts and ends differ in number, or are missing");
  }
  for (size_t i = axes.size(); i < starts.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  steps.resize(std::max(steps.size(), starts.size()), 1);
  if (std::count(steps.begin(), steps.end(), 0) > 0) {
    return absl::InvalidArgumentError("a step of 0");
  }
  if (IsKnown(r)) {
    OnnxValue known = r.in(0);
    for (size_t i = 0; i < starts.size(); ++i) {
      TESSERA_ASSIGN_OR_RETURN(const size_t axis, KnownAxis(axes[i], known));
      known = TakenOfKnown(known, axis,
                           Range(starts[i], ends[i], steps[i], known.dims[axis]).Indices());
    }
    r.Set(std::move(known));
    return absl::OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  for (size_t i = 0; i < starts.size(); ++i) {
    if (IsBatchAxis(axes[i], x) && steps[i] == 1) {
      const int64_t all = BatchFactor(r.DimsOf(x)[x.batch_axis()]);
      const int64_t end = ends[i] >= INT32_MAX ? all : BatchesIn(ends[i]);
      TESSERA_ASSIGN_OR_RETURN(x, Batches(r, std::move(x), BatchesIn(starts[i]), end));
      continue;
    }
    TESSERA_ASSIGN_OR_RETURN(const size_t axis, r.SampleAxis(axes[i], x));
    const int64_t size = r.DimsOf(x)[axis];
    const Range range(starts[i], ends[i], steps[i], size);
    if (range.step != 1) {
      TakePlaces(r, x, axis, range.Indices());
    } else if (range.begin != 0 || range.end != size) {
      const int at = r.OneAxis(x, axis);
      x.tensor = Sliced(r, x.tensor, at, range.begin, range.end);
    }
  }
  r.Set(std::move(x));
  return absl::OkStatus();
}

absl::Status ReadSplit(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> sizes, r.IntsOf("split", 1));
  const auto count = static_cast<int64_t>(r.node().output_size());
  // Parts of one size; the last part is the rest.
  const auto fill_in = [&](int64_t size) {
    const int64_t each = (size + count - 1) / count;
    for (int64_t left = size; sizes.size() < static_cast<size_t>(count);) {
      sizes.push_back(std::min(each, left));
      left -= sizes.back();
    }
  };
  if (!r.IsTensor(0) && !r.in(0).HasBatch()) {
    // Each part is trained as if it were an initializer of its own.
    const OnnxValue known = r.in(0);
    TESSERA_ASSIGN_OR_RETURN(const size_t axis, KnownAxis(r.Int("axis", 0), known));
    fill_in(known.dims[axis]);
    int64_t begin = 0;
    for (int64_t k = 0; k < count; ++k) {
      const int64_t end = begin + sizes[static_cast<size_t>(k)];
      if (end <= begin || end > known.dims[axis]) {
        return absl::InvalidArgumentError(
            absl::StrCat("parts ", DimsText(sizes), " of ", DimsText(known.dims)));
      }
      std::vector<int64_t> places(static_cast<size_t>(end - begin));
      std::iota(places.begin(), places.end(), begin);
      if (r.HasOutput(static_cast<int>(k))) {
        r.Set(TakenOfKnown(known, axis, places), static_cast<int>(k));
      }
      begin = end;
    }
    return absl::OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  if (IsBatchAxis(r.Int("axis", 0), x)) {
    if (sizes.empty()) {
      const int64_t all = BatchFactor(r.DimsOf(x)[x.batch_axis()]);
      if (all % count == 0) sizes.assign(static_cast<size_t>(count), BatchTimes(all / count));
    }
    sizes.resize(static_cast<size_t>(count), 0);
    int64_t begin = 0;
    for (int64_t k = 0; k < count; ++k) {
      const int64_t end = begin + BatchesIn(sizes[static_cast<size_t>(k)]);
      TESSERA_ASSIGN_OR_RETURN(OnnxValue part, Batches(r, x, begin, end));
      if (r.HasOutput(static_cast<int>(k))) r.Set(std::move(part), static_cast<int>(k));
      begin = end;
    }
    return absl::OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(const size_t axis, r.SampleAxis(r.Int("axis", 0), x));
  fill_in(r.DimsOf(x)[axis]);
  const int at = r.OneAxis(x, axis);
  const std::vector<Tensor> parts = r.Layers(
      "Split", {x.tensor}, Options().Set("split", sizes).Set("axis", static_cast<double>(at)),
      static_cast<size_t>(count));
  for (size_t k = 0; k < parts.size(); ++k) {
    OnnxValue part = x;
    part.tensor = parts[k];
    if (r.HasOutput(static_cast<int>(k))) r.Set(std::move(part), static_cast<int>(k));
  }
  return absl::OkStatus();
}

// Axes of size 1 are repeated; those of a constant also to the batch.
absl::Status ReadExpand(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> dims, r.IntsIn(1));
  OnnxValue x = r.in(0);
  const size_t found = r.DimsOf(x).size(), rank = std::max(dims.size(), found);
  dims.insert(dims.begin(), rank - dims.size(), 1);
  const std::vector<int64_t> from = r.DimsOf(x);
  bool repeats = false;  // other axes than the batch's
  for (size_t k = 0; k < rank; ++k) {
    const int64_t size = k + found < rank ? 1 : from[k + found - rank];
    repeats |= dims[k] > 1 && dims[k] != size;
  }
  if (x.trained && repeats) {
    TESSERA_RETURN_IF_ERROR(r.TakeUnbatched(0));
    x = r.in(0);
  }
  if (r.IsTensor(0)) {
    x.axes.insert(x.axes.begin(), static_cast<int64_t>(rank - found), Axes());
    return SetRepeated(r, std::move(x), dims);
  }
  x.dims.insert(x.dims.begin(), static_cast<int64_t>(rank - found), 1);
  for (size_t k = 0; k < rank; ++k) {
    if (dims[k] == x.dims[k] || dims[k] == 1 || dims[k] == -1) continue;
    // Such as the zeros of an exporter's example: as many as there are samples.
    const bool of_example = IsBatch(dims[k]) && !x.trained && !x.HasBatch() && x.IsOneNumber();
    if (of_example) x = TakenOfKnown(x, k, {0});
    if (x.dims[k] != 1 || (!IsBatch(dims[k]) && (dims[k] < 1 || dims[k] > 1 << 20))) {
      return absl::UnimplementedError("to " + DimsText(dims) + " from " + DimsText(x.dims));
    }
    if (IsBatch(dims[k])) {
      x.dims[k] = dims[k];
    } else {
      const size_t numbers = std::max(x.floats.size(), x.ints.size());
      if (numbers * static_cast<size_t>(dims[k]) > 1 << 20) {
        return absl::UnimplementedError("to more than 2^20 numbers");
      }
      x = TakenOfKnown(x, k, std::vector<int64_t>(static_cast<size_t>(dims[k]), 0));
    }
  }
  if (x.trained && x.HasBatch()) {
    TESSERA_ASSIGN_OR_RETURN(x, r.Repeated(0, x.dims));
  }
  r.Set(std::move(x));
  return absl::OkStatus();
}

// Pads with one number before and behind.
absl::Status ReadPad(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> pads, r.IntsOf("pads", 1));
  TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> axes, r.IntsOf("axes", 3));
  const onnx::AttributeProto* mode = r.Attribute("mode");
  if (mode != nullptr && mode->s() != "constant") {
    return absl::UnimplementedError(absl::StrCat("mode \"", mode->s(), "\"; expected constant"));
  }
  double value = static_cast<double>(r.Float("value", 0));
  if (r.Has(2)) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<float> number, r.FloatsIn(2));
    if (number.size() != 1) return absl::InvalidArgumentError("its value is not one number");
    value = static_cast<double>(number[0]);
  }
  if (!r.Has(3)) {
    axes.resize(x.axes.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (pads.size() != 2 * axes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(pads.size(), " pads for ", axes.size(), " axes"));
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t before = pads[i], after = pads[axes.size() + i];
    if (before == 0 && after == 0) continue;
    TESSERA_ASSIGN_OR_RETURN(const size_t axis, r.SampleAxis(axes[i], x));
    if (std::min(before, after) < 0 || std::max(before, after) > 1 << 20) {
      return absl::UnimplementedError(absl::StrCat(before, " and ", after, " numbers more"));
    }
    const int at = r.OneAxis(x, axis);
    x.tensor = Padded(r, x.tensor, at, before, after, value);
  }
  r.Set(std::move(x));
  return absl::OkStatus();
}

// Repeats axes whole, one copy after another; those of a constant also to the batch.
absl::Status ReadTile(OnnxNodeReader& r) {
  const bool known = r.in(0).kind == Kind::kInts && !r.in(0).HasBatch();
  OnnxValue x = r.in(0);
  if (!known) {
    TESSERA_ASSIGN_OR_RETURN(x, r.TensorIn(0));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> times, r.IntsIn(1));
  const std::vector<int64_t> dims = r.DimsOf(x);
  if (times.size() != dims.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(times.size(), " repeats for ", dims.size(), " axes"));
  }
  for (size_t k = 0; k < times.size(); ++k) {
    if (times[k] == 1) continue;
    const bool no_batch = known ? !x.HasBatch() : x.IsUnbatched();
    if (no_batch && times[k] == BatchTimes(1) && dims[k] == 1) {
      if (known) x.dims[k] = times[k];
      if (!known) x.axes[k].insert(x.axes[k].begin(), 0);
      continue;
    }
    if (!known) TESSERA_RETURN_IF_ERROR(r.SampleAxis(static_cast<int64_t>(k), x).status());
    const int64_t all = known ? static_cast<int64_t>(x.ints.size()) : dims[k];
    if (times[k] < 1 || all < 1 || times[k] > (1 << 20) / all) {
      return absl::UnimplementedError(
          absl::StrCat("repeats ", DimsText(times), " of ", DimsText(dims)));
    }
    std::vector<int64_t> indices;
    for (int64_t i = 0; i < times[k] * dims[k]; ++i) indices.push_back(i % dims[k]);
    if (!known) TakePlaces(r, x, k, indices);
    if (known) x = TakenOfKnown(x, k, indices);
  }
  r.Set(std::move(x));
  return absl::OkStatus();
}

}  // namespace tessera::worker
