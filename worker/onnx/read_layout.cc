// Forms of a tensor: converts between a file's order of axes and the order that an op needs.
#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/read.h"

namespace tessera::worker {
namespace {

using Axes = OnnxValue::Axes;

// The value's axes once its tensor has each of `parts` merged into one axis.
void Renumber(OnnxValue& value, const std::vector<Axes>& parts) {
  for (Axes& group : value.axes) {
    Axes to;
    for (const int axis : group) {
      if (axis == 0) to.push_back(0);
      for (size_t p = 0; p < parts.size(); ++p) {
        const bool begins = !parts[p].empty() && parts[p][0] == axis;
        if (begins) to.push_back(static_cast<int>(p) + 1);
      }
    }
    group = std::move(to);
  }
}

}  // namespace

std::vector<int64_t> OnnxNodeReader::DimsOf(const OnnxValue& value) const {
  if (value.kind != OnnxValue::Kind::kTensor) return value.dims;
  std::vector<int64_t> dims;
  for (const Axes& group : value.axes) dims.push_back(SizeOf(value, group));
  return dims;
}

int64_t OnnxNodeReader::SizeOf(const OnnxValue& value, const Axes& axes) const {
  int64_t size = 1;
  bool batch = false;
  for (const int axis : axes) {
    if (axis == 0) {
      batch = true;
    } else {
      const Shape& sizes = shape(value.tensor);
      const size_t at = static_cast<size_t>(axis) - 1;
      if (at < sizes.rank()) size *= sizes.dim(at);
    }
  }
  return batch ? BatchTimes(size) : size;
}

absl::StatusOr<size_t> OnnxNodeReader::SampleAxis(int64_t axis, const OnnxValue& value) const {
  const auto rank = static_cast<int64_t>(value.axes.size());
  const int64_t from_begin = axis < 0 ? axis + rank : axis;
  if (from_begin < 0 || from_begin >= rank) {
    return absl::InvalidArgumentError(absl::StrCat("axis ", axis, " of ", DimsText(DimsOf(value))));
  }
  if (static_cast<size_t>(from_begin) == value.batch_axis()) {
    return absl::UnimplementedError(absl::StrCat("axis ", axis, " of ", DimsText(DimsOf(value)),
                                                 " is the batch's: that would mix samples"));
  }
  return static_cast<size_t>(from_begin);
}

Tensor OnnxNodeReader::Arranged(const OnnxValue& value, const std::vector<Axes>& parts) {
  std::vector<int64_t> perm = {0};
  Shape to;
  for (const Axes& part : parts) {
    perm.insert(perm.end(), part.begin(), part.end());
    to.Append(SizeOf(value, part));
  }
  if (parts.empty()) to.Append(1);
  Tensor x = value.tensor;
  if (!std::is_sorted(perm.begin(), perm.end())) {
    x = Layer("Transpose", {x}, Options().Set("perm", perm));
  }
  return Reshaped(x, to);
}

Tensor OnnxNodeReader::Flat(const OnnxValue& value) {
  Axes all;
  for (const Axes& group : value.axes) all.insert(all.end(), group.begin(), group.end());
  std::erase(all, 0);
  return Arranged(value, {all});
}

int OnnxNodeReader::OneAxis(OnnxValue& value, size_t axis) {
  const Axes group = value.axes[axis];
  if (group.size() == 1) return group[0];
  const auto rank = static_cast<int>(shape(value.tensor).rank());
  std::vector<Axes> parts;
  for (int a = 1; a <= rank; ++a) {
    const bool in_group = std::count(group.begin(), group.end(), a) > 0;
    if (!in_group) parts.push_back({a});
    if (in_group && a == *std::min_element(group.begin(), group.end())) parts.push_back(group);
  }
  if (group.empty()) parts.push_back({});
  value.tensor = Arranged(value, parts);
  Renumber(value, parts);
  if (group.empty()) value.axes[axis] = {static_cast<int>(parts.size())};
  return value.axes[axis][0];
}

void OnnxNodeReader::LastAxis(OnnxValue& value, size_t axis) {
  Axes merged;
  for (size_t k = axis; k < value.axes.size(); ++k) {
    merged.insert(merged.end(), value.axes[k].begin(), value.axes[k].end());
  }
  std::vector<Axes> parts;
  const auto rank = static_cast<int>(shape(value.tensor).rank());
  for (int a = 1; a <= rank; ++a) {
    if (std::count(merged.begin(), merged.end(), a) == 0) parts.push_back({a});
  }
  parts.push_back(merged);
  value.tensor = Arranged(value, parts);
  Renumber(value, parts);
  value.axes.resize(axis + 1);
  value.axes[axis] = {static_cast<int>(parts.size())};
}

void OnnxNodeReader::DropOnes(OnnxValue& value, const Axes& ones) {
  const Shape from = shape(value.tensor);
  Shape to;
  std::vector<int> renumbered = {0};  // by the axis that was
  for (size_t i = 0; i < from.rank(); ++i) {
    const bool gone = std::count(ones.begin(), ones.end(), static_cast<int>(i) + 1) > 0;
    if (!gone) to.Append(from.dim(i));
    renumbered.push_back(gone ? -1 : static_cast<int>(to.rank()));
  }
  for (Axes& group : value.axes) {
    for (int& axis : group) {
      const auto at = static_cast<size_t>(axis);
      axis = at < renumbered.size() ? renumbered[at] : -1;
    }
    std::erase(group, -1);
  }
  if (to.rank() == 0) {  // a tensor has an axis besides the batch
    to.Append(1);
    if (!value.IsUnbatched()) value.axes[value.batch_axis()].push_back(1);
  }
  value.tensor = Reshaped(value.tensor, to);
}

void OnnxNodeReader::SplitLast(OnnxValue& value, size_t axis, const std::vector<int64_t>& sizes) {
  const Shape& from = shape(value.tensor);
  const size_t kept = from.rank() - 1;
  value.axes.resize(axis);
  Shape to;
  for (size_t i = 0; i < kept; ++i) to.Append(from.dim(i));
  for (size_t i = 0; i < sizes.size(); ++i) {
    to.Append(sizes[i]);
    value.axes.push_back({static_cast<int>(kept + i) + 1});
  }
  value.tensor = Reshaped(value.tensor, to);
}

absl::StatusOr<Tensor> OnnxNodeReader::Materialize(size_t i, const Aligned& others) {
  const std::vector<int64_t>& dims = in(i).dims;
  const size_t rank = others.axes.size();
  std::vector<int64_t> to;
  const bool one = std::max(in(i).floats.size(), in(i).ints.size()) == 1;
  for (const int place : others.places) {
    const auto at = static_cast<int64_t>(dims.size()) - static_cast<int64_t>(rank) + place;
    const int64_t size = one || at < 0 ? 1 : dims[static_cast<size_t>(at)];
    to.push_back(IsBatch(size) ? 1 : size);
  }
  if (to.empty()) to.push_back(1);
  return Materialize(i, to);
}

absl::StatusOr<Tensor> OnnxNodeReader::Materialize(size_t i, const std::vector<int64_t>& dims) {
  const OnnxValue& value = in(i);
  const int64_t total = std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
  if (total != static_cast<int64_t>(std::max(value.floats.size(), value.ints.size()))) {
    return absl::UnimplementedError(
        absl::StrCat("the constant ", DimsText(value.dims), " as ", DimsText(dims)));
  }
  if (value.trained) {
    // Nodes that read the same parameter share one Parameter layer.
    OnnxValue& source = network_.values.at(value.source);
    if (source.tensor.index < 0 || source.form != value.form) {
      TESSERA_ASSIGN_OR_RETURN(source.tensor,
                               TrainedLayer("Parameter", {}, Options().Set("shape", dims),
                                            {{"value", i, value.floats}}));
    }
    Shape to;
    for (const int64_t dim : dims) to.Append(dim);
    return Reshaped(source.tensor, to);
  }
  std::vector<float> numbers = value.floats;
  if (value.kind == OnnxValue::Kind::kInts) {
    for (const int64_t number : value.ints) {
      if (IsBatch(number)) {
        return absl::UnimplementedError("the batch's size as a number of the network");
      }
      numbers.push_back(static_cast<float>(number));
    }
  }
  google::protobuf::Struct options = Options().Set("shape", dims);
  auto* list = (*options.mutable_fields())["value"].mutable_list_value();
  // Masks have infinities, and an infinity times 0 is NaN.
  constexpr float kMost = std::numeric_limits<float>::max();
  for (const float number : numbers) {
    list->add_values()->set_number_value(static_cast<double>(std::clamp(number, -kMost, kMost)));
  }
  return Layer("Constant", {}, std::move(options));
}

absl::StatusOr<Tensor> OnnxNodeReader::OfLast(size_t i, const Shape& shape) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<float> numbers, FloatsIn(i));
  std::vector<int64_t> dims(shape.rank(), 1);
  if (numbers.size() != 1) dims.back() = shape.last();
  if (numbers.size() != static_cast<size_t>(dims.back())) {
    return absl::UnimplementedError(absl::StrCat("input ", i, " has ", numbers.size(),
                                                 " numbers, expected 1 or ", shape.last()));
  }
  return Materialize(i, dims);
}

absl::StatusOr<OnnxValue> OnnxNodeReader::Repeated(size_t i, const std::vector<int64_t>& dims) {
  const auto batch = std::find_if(dims.begin(), dims.end(), IsBatch);
  if (std::count_if(dims.begin(), dims.end(), IsBatch) != 1 ||
      (BatchFactor(*batch) != 1 && in(i).CountsSamples())) {
    return absl::UnimplementedError(absl::StrCat("a constant ", DimsText(dims)));
  }
  OnnxValue value;
  value.order = OnnxValue::kAnyOrder;
  std::vector<int64_t> known, sample;
  for (const int64_t dim : dims) {
    Axes& group = value.axes.emplace_back();
    if (IsBatch(dim)) group.push_back(0);
    if (dim == BatchTimes(1) && dims.size() > 1) continue;
    known.push_back(KnownSize(dim));
    sample.push_back(BatchFactor(dim));
    group.push_back(static_cast<int>(sample.size()));
  }
  TESSERA_ASSIGN_OR_RETURN(value.tensor, Materialize(i, known));
  if (sample != known) {  // all that shares the batch's axis has the same numbers
    const auto numbers = static_cast<int64_t>(shape(value.tensor).floats());
    if (numbers * BatchFactor(*batch) > 1 << 20) {
      return absl::UnimplementedError(
          absl::StrCat("a constant ", DimsText(dims), ", which has more than 2^20 numbers"));
    }
    sample.insert(sample.begin(), 0);
    value.tensor = Layer("Expand", {value.tensor}, Options().Set("shape", sample));
  }
  return value;
}

Tensor OnnxNodeReader::Reshaped(Tensor tensor, const Shape& to) {
  if (shape(tensor) == to) return tensor;
  std::vector<int64_t> dims = {0};
  for (size_t i = 0; i < to.rank(); ++i) dims.push_back(to.dim(i));
  return Layer("Reshape", {tensor}, Options().Set("shape", dims));
}

}  // namespace tessera::worker
