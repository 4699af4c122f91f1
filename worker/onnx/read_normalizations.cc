// Normalisations over axes of a sample.
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/onnx/read_axes.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

google::protobuf::Struct OverLast(const Shape& shape) {
  return Options().Set("axes", std::vector<int64_t>{static_cast<int64_t>(shape.rank())});
}

// x / sqrt(mean of `of` + epsilon), over the last axis.
Tensor ByRoot(OnnxNodeReader& r, Tensor x, Tensor of) {
  const Tensor mean = r.Layer("ReduceMean", {of}, OverLast(r.shape(of)));
  const Tensor epsilon = NumberBeside(r, mean, static_cast<double>(r.Float("epsilon", 1e-5f)));
  return r.Layer("Div", {x, r.Layer("Sqrt", {r.Layer("Add", {mean, epsilon})})});
}

// Standardises to mean 0 and variance 1 over the last axis.
Tensor Standardized(OnnxNodeReader& r, Tensor x) {
  const Tensor apart = r.Layer("Sub", {x, r.Layer("ReduceMean", {x}, OverLast(r.shape(x)))});
  return ByRoot(r, apart, r.Layer("Mul", {apart, apart}));
}

// Standardises each group of channels over the group and all axes after the channels; then scales
// and shifts each channel, or before opset 21 each group.
absl::Status ReadGroups(OnnxNodeReader& r, OnnxValue x, int64_t groups) {
  const std::vector<int64_t> dims = r.DimsOf(x);
  OnnxValue::Axes rest;
  for (size_t k = 2; k < x.axes.size(); ++k) {
    TESSERA_RETURN_IF_ERROR(r.SampleAxis(static_cast<int64_t>(k), x).status());
    rest.insert(rest.end(), x.axes[k].begin(), x.axes[k].end());
  }
  const int64_t channels = dims[1];
  if (groups < 1 || channels % groups != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(channels, " channels, which ", groups, " groups do not share evenly"));
  }
  const Tensor rows = r.Arranged(x, {x.axes[1], rest});
  const Shape by_channel = r.shape(rows);
  const int64_t size = channels / groups * by_channel.last();
  Tensor y = Standardized(r, r.Reshaped(rows, Shape{groups, size}));
  const bool of_groups =
      r.opset() < 21 && r.in(1).floats.size() == static_cast<size_t>(groups) && groups != channels;
  const int64_t parts = of_groups ? groups : channels;
  if (!of_groups) y = r.Reshaped(y, by_channel);
  for (const size_t i : {1, 2}) {
    if (r.HasNone(i, i == 1 ? 1 : 0)) continue;
    TESSERA_ASSIGN_OR_RETURN(const std::vector<float> numbers, r.FloatsIn(i));
    if (static_cast<int64_t>(numbers.size()) != parts) {
      return absl::InvalidArgumentError(
          absl::StrCat("input ", i, " has ", numbers.size(), " numbers, expected ", parts));
    }
    TESSERA_ASSIGN_OR_RETURN(const Tensor of_parts, r.Materialize(i, {parts, 1}));
    y = r.Layer(i == 1 ? "Mul" : "Add", {y, of_parts});
  }
  OnnxValue result;
  result.tensor = r.Reshaped(y, by_channel);
  result.axes = {{0}, {1}, {2}};
  r.SplitLast(result, 2, {dims.begin() + 2, dims.end()});
  r.Set(std::move(result));
  return absl::OkStatus();
}

// An input that is normalised over all axes from one on: these become the last axis of its tensor.
struct FromAxisOn {
  OnnxValue x;
  size_t axis = 0;
  std::vector<int64_t> sizes;  // of those axes
};
absl::StatusOr<FromAxisOn> ReadFromAxisOn(OnnxNodeReader& r) {
  FromAxisOn of;
  TESSERA_ASSIGN_OR_RETURN(of.x, r.TensorIn(0));
  const int64_t first = r.Int("axis", -1);
  TESSERA_ASSIGN_OR_RETURN(of.axis, r.SampleAxis(first, of.x));
  if (of.x.batch_axis() > of.axis && !of.x.IsUnbatched()) {
    return absl::UnimplementedError(absl::StrCat("axis ", first, ": the batch's is behind it"));
  }
  const std::vector<int64_t> dims = r.DimsOf(of.x);
  of.sizes.assign(dims.begin() + static_cast<int64_t>(of.axis), dims.end());
  r.LastAxis(of.x, of.axis);
  return of;
}

// [batch, channels, ...]
absl::StatusOr<OnnxValue> WithChannels(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  if (x.axes.size() < 3 || x.axes[0] != OnnxValue::Axes{0}) {
    return absl::UnimplementedError(absl::StrCat("of ", DimsText(r.DimsOf(x))));
  }
  return x;
}

}  // namespace

absl::Status ReadGroupNormalization(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, WithChannels(r));
  return ReadGroups(r, std::move(x), r.Int("num_groups", 1));
}

absl::Status ReadInstanceNormalization(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, WithChannels(r));
  const int64_t channels = r.DimsOf(x)[1];
  return ReadGroups(r, std::move(x), channels);
}

absl::Status ReadLayerNormalization(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(FromAxisOn of, ReadFromAxisOn(r));
  const Tensor x = of.x.tensor;
  const auto width = static_cast<size_t>(r.shape(x).last());
  const bool affine = !r.HasNone(1, 1) || !r.HasNone(2, 0);
  if (affine && r.in(1).floats.size() == width && r.in(2).floats.size() == width) {
    TESSERA_ASSIGN_OR_RETURN(
        of.x.tensor,
        r.TrainedLayer("LayerNormalization", {x},
                       Options().Set("epsilon", static_cast<double>(r.Float("epsilon", 1e-5f))),
                       {{"weight", 1, r.in(1).floats}, {"bias", 2, r.in(2).floats}}));
  } else {
    of.x.tensor = Standardized(r, x);
    if (!r.HasNone(1, 1)) {
      TESSERA_ASSIGN_OR_RETURN(const Tensor scale, r.OfLast(1, r.shape(x)));
      of.x.tensor = r.Layer("Mul", {of.x.tensor, scale});
    }
    if (!r.HasNone(2, 0)) {
      TESSERA_ASSIGN_OR_RETURN(const Tensor bias, r.OfLast(2, r.shape(x)));
      of.x.tensor = r.Layer("Add", {of.x.tensor, bias});
    }
  }
  r.SplitLast(of.x, of.axis, of.sizes);
  r.Set(std::move(of.x));
  return absl::OkStatus();
}

// x by its norm along an axis; zeros stay zeros.
absl::Status ReadLpNormalization(OnnxNodeReader& r) {
  const int64_t p = r.Int("p", 2);
  if (p != 1 && p != 2)
    return absl::InvalidArgumentError(absl::StrCat("p ", p, ", expected 1 or 2"));
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  TESSERA_ASSIGN_OR_RETURN(const size_t axis, r.SampleAxis(r.Int("axis", -1), x));
  std::swap(x.axes[axis], x.axes.back());
  r.LastAxis(x, x.axes.size() - 1);
  const Tensor size = p == 1 ? r.Layer("Abs", {x.tensor}) : r.Layer("Mul", {x.tensor, x.tensor});
  const Tensor sum = r.Layer("ReduceSum", {size}, OverLast(r.shape(size)));
  const Tensor norm = p == 1 ? sum : r.Layer("Sqrt", {sum});
  const Tensor above = r.Layer("Where", {r.Layer("Step", {norm}), norm, NumberBeside(r, norm, 1)});
  x.tensor = r.Layer("Div", {x.tensor, above});
  std::swap(x.axes[axis], x.axes.back());
  r.Set(std::move(x));
  return absl::OkStatus();
}

// x / sqrt(mean of x^2 + epsilon), times a factor for each number of those axes.
absl::Status ReadRmsNormalization(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(FromAxisOn of, ReadFromAxisOn(r));
  const Tensor x = of.x.tensor;
  of.x.tensor = ByRoot(r, x, r.Layer("Mul", {x, x}));
  if (!r.HasNone(1, 1)) {
    TESSERA_ASSIGN_OR_RETURN(const Tensor scale, r.OfLast(1, r.shape(x)));
    of.x.tensor = r.Layer("Mul", {of.x.tensor, scale});
  }
  r.SplitLast(of.x, of.axis, of.sizes);
  r.Set(std::move(of.x));
  return absl::OkStatus();
}

}  // namespace tessera::worker
