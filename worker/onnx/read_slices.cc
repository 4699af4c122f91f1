// Ops that take parts of tensors, or join them.
#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/known_numbers.h"
#include "worker/onnx/read_axes.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

using Axes = OnnxValue::Axes;

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

int64_t Outputs(const OnnxNodeReader& r) { return static_cast<int64_t>(r.node().output_size()); }

// The sizes of the parts of an axis of `size`; those that are missing are equal, the last the rest.
std::vector<int64_t> PartSizes(std::vector<int64_t> sizes, int64_t size, int64_t count) {
  const int64_t each = (size + count - 1) / count;
  for (int64_t left = size; sizes.size() < static_cast<size_t>(count);) {
    sizes.push_back(std::min(each, left));
    left -= sizes.back();
  }
  return sizes;
}

// Each part is trained as if it were an initializer of its own.
absl::Status SplitKnown(OnnxNodeReader& r, std::vector<int64_t> sizes) {
  const OnnxValue known = r.in(0);
  TESSERA_ASSIGN_OR_RETURN(const size_t axis, KnownAxis(r.Int("axis", 0), known));
  sizes = PartSizes(std::move(sizes), known.dims[axis], Outputs(r));
  int64_t begin = 0;
  for (int64_t k = 0; k < Outputs(r); ++k) {
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

// Along the batch's axis, into whole batches.
absl::Status SplitBatches(OnnxNodeReader& r, const OnnxValue& x, std::vector<int64_t> sizes) {
  const int64_t count = Outputs(r);
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

absl::Status SplitTensor(OnnxNodeReader& r, OnnxValue x, std::vector<int64_t> sizes) {
  TESSERA_ASSIGN_OR_RETURN(const size_t axis, r.SampleAxis(r.Int("axis", 0), x));
  sizes = PartSizes(std::move(sizes), r.DimsOf(x)[axis], Outputs(r));
  const int at = r.OneAxis(x, axis);
  const std::vector<Tensor> parts = r.Layers(
      "Split", {x.tensor}, Options().Set("split", sizes).Set("axis", static_cast<double>(at)),
      static_cast<size_t>(Outputs(r)));
  for (size_t k = 0; k < parts.size(); ++k) {
    OnnxValue part = x;
    part.tensor = parts[k];
    if (r.HasOutput(static_cast<int>(k))) r.Set(std::move(part), static_cast<int>(k));
  }
  return absl::OkStatus();
}

}  // namespace

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
  if (ReadsKnown(r)) {
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
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, r.IntsOf("split", 1));
  if (!r.IsTensor(0) && !r.in(0).HasBatch()) return SplitKnown(r, sizes);
  TESSERA_ASSIGN_OR_RETURN(const OnnxValue x, r.TensorIn(0));
  if (IsBatchAxis(r.Int("axis", 0), x)) return SplitBatches(r, x, sizes);
  return SplitTensor(r, x, sizes);
}

}  // namespace tessera::worker
