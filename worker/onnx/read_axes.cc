#include "worker/onnx/read_axes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tessera::worker {

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
                               CountedFromStart({indices[i + k]}, sizes[k]));
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

absl::StatusOr<std::vector<int64_t>> CountedFromStart(std::vector<int64_t> indices, int64_t size) {
  for (int64_t& index : indices) {
    if (index < -size || index >= size) {
      return absl::InvalidArgumentError(absl::StrCat("index ", index, " of ", size));
    }
    if (index < 0) index += size;
  }
  return indices;
}

bool IsBatchAxis(int64_t axis, const OnnxValue& x) {
  const auto at = static_cast<int64_t>(x.batch_axis()), rank = static_cast<int64_t>(x.axes.size());
  return !x.IsUnbatched() && (axis == at || axis == at - rank);
}

}  // namespace tessera::worker
