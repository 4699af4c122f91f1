// Ops over windows of a tensor's axes: convolutions and pooling.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/read_axes.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

using Axes = OnnxValue::Axes;

// The most places of a window; each is a layer.
constexpr int64_t kMostPlaces = 256;

std::vector<int64_t> IntsOr(const OnnxNodeReader& r, absl::string_view name, size_t count,
                            int64_t by_default) {
  const onnx::AttributeProto* const list = r.Attribute(name);
  if (list == nullptr) return std::vector<int64_t>(count, by_default);
  return {list->ints().begin(), list->ints().end()};
}

// Windows along one axis: window o has the places o * stride + j * dilation, j < width.
struct Window {
  int64_t width = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t before = 0, after = 0;  // of what the axis is padded with
  int64_t count = 1;              // windows
};

// The windows along each axis after the channels of x [batch, channels, ...]; `widths` are the
// kernel's.
absl::StatusOr<std::vector<Window>> WindowsOf(const OnnxNodeReader& r, const OnnxValue& x,
                                              const std::vector<int64_t>& widths) {
  const std::vector<int64_t> dims = r.DimsOf(x);
  const size_t axes = widths.size();
  if (dims.size() != axes + 2 || axes < 1) {
    return absl::UnimplementedError(
        absl::StrCat("windows ", DimsText(widths), " over ", DimsText(dims)));
  }
  if (x.axes[0] != Axes{0}) return absl::UnimplementedError(absl::StrCat("of ", DimsText(dims)));
  const std::vector<int64_t> strides = IntsOr(r, "strides", axes, 1);
  const std::vector<int64_t> dilations = IntsOr(r, "dilations", axes, 1);
  const std::vector<int64_t> pads = IntsOr(r, "pads", 2 * axes, 0);
  if (strides.size() != axes || dilations.size() != axes || pads.size() != 2 * axes) {
    return absl::InvalidArgumentError("strides, dilations or pads of another number of axes");
  }
  const onnx::AttributeProto* const padding = r.Attribute("auto_pad");
  const bool same = padding != nullptr && absl::StartsWith(padding->s(), "SAME");
  std::vector<Window> windows;
  for (size_t k = 0; k < axes; ++k) {
    const int64_t size = dims[k + 2];
    Window window = {widths[k], strides[k], dilations[k], pads[k], pads[k + axes]};
    constexpr int64_t kMost = 1 << 20;
    const auto fits = [](int64_t number, int64_t least) {
      return number >= least && number <= kMost;
    };
    if (!fits(window.width, 1) || !fits(window.stride, 1) || !fits(window.dilation, 1) ||
        !fits(window.before, 0) || !fits(window.after, 0)) {
      return absl::InvalidArgumentError("a window, stride, dilation or pad out of range");
    }
    const int64_t reach = (window.width - 1) * window.dilation + 1;
    if (same) {
      const int64_t wanted = (size + window.stride - 1) / window.stride;
      const int64_t more = std::max<int64_t>(0, (wanted - 1) * window.stride + reach - size);
      window.before = (more + (padding->s() == "SAME_LOWER" ? 1 : 0)) / 2;
      window.after = more - window.before;
    }
    const int64_t left = size + window.before + window.after - reach;
    if (left < 0 || std::max(window.before, window.after) > reach) {
      return absl::InvalidArgumentError(absl::StrCat(
          "its windows ", DimsText(widths), " and pads do not fit the input ", DimsText(dims)));
    }
    if (r.Int("ceil_mode", 0) != 0 && left % window.stride != 0) {
      return absl::UnimplementedError("ceil_mode where windows reach beyond the input");
    }
    window.count = left / window.stride + 1;
    windows.push_back(window);
  }
  return windows;
}

// Every `stride`th place of an axis of the tensor, `count` of them, from `begin` on.
Tensor Strided(OnnxNodeReader& r, Tensor x, int axis, int64_t begin, int64_t stride,
               int64_t count) {
  const int64_t size = r.shape(x).dim(static_cast<size_t>(axis) - 1);
  if (stride == 1) {
    return begin == 0 && count == size ? x : Sliced(r, x, axis, begin, begin + count);
  }
  std::vector<int64_t> places;
  for (int64_t i = 0; i < count; ++i) places.push_back(begin + i * stride);
  return r.Layer("Gather", {x},
                 Options().Set("indices", places).Set("axis", static_cast<double>(axis)));
}

// [batch, channels, ...] as [batch, ..., channels].
Tensor ChannelsLast(OnnxNodeReader& r, const OnnxValue& x) {
  std::vector<Axes> parts(x.axes.begin() + 2, x.axes.end());
  parts.push_back(x.axes[1]);
  return r.Arranged(x, parts);
}

// The places of a window. UNIMPLEMENTED: too many.
absl::StatusOr<int64_t> PlacesOf(const std::vector<Window>& windows) {
  int64_t places = 1;
  for (const Window& window : windows) {
    places *= window.width;
    if (places > kMostPlaces) {
      return absl::UnimplementedError(
          absl::StrCat("windows of more than ", kMostPlaces, " places"));
    }
  }
  return places;
}

// x as [batch, ..., channels], each axis padded as its windows need.
Tensor PaddedRows(OnnxNodeReader& r, const OnnxValue& x, const std::vector<Window>& windows,
                  double pad) {
  Tensor rows = ChannelsLast(r, x);
  for (size_t k = 0; k < windows.size(); ++k) {
    rows = Padded(r, rows, static_cast<int>(k) + 1, windows[k].before, windows[k].after, pad);
  }
  return rows;
}

// The contents of each window of PaddedRows, [batch, counts..., places * channels]: the channels of
// a place together, the places in the order of the kernel's numbers.
Tensor WindowsSideBySide(OnnxNodeReader& r, Tensor rows, const std::vector<Window>& windows) {
  std::vector<Tensor> places = {rows};
  for (size_t k = 0; k < windows.size(); ++k) {
    const Window& window = windows[k];
    std::vector<Tensor> next;
    for (const Tensor& place : places) {
      for (int64_t j = 0; j < window.width; ++j) {
        next.push_back(Strided(r, place, static_cast<int>(k) + 1, j * window.dilation,
                               window.stride, window.count));
      }
    }
    places = std::move(next);
  }
  if (places.size() == 1) return places[0];
  return r.Layer("Concat", places, Options().Set("axis", static_cast<double>(windows.size() + 1)));
}

// [batch, counts..., channels] as [batch, channels, counts...].
OnnxValue ChannelsFirst(Tensor tensor, size_t axes) {
  OnnxValue value;
  value.tensor = tensor;
  value.axes = {{0}, {static_cast<int>(axes) + 1}};
  for (size_t k = 0; k < axes; ++k) value.axes.push_back({static_cast<int>(k) + 1});
  return value;
}

// A group of channels, which is convolved by itself.
struct Group {
  int64_t number = 0;
  int64_t count = 1;  // groups
  int64_t units = 0;  // of this one
  int64_t channels = 0;
};

// The group's windows times its part of the kernel, input 1: [batch, counts..., units].
absl::StatusOr<Tensor> GroupConvolved(OnnxNodeReader& r, Tensor wide, int64_t places,
                                      const Group& group) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<float> kernel, r.FloatsIn(1));
  const int64_t first = group.number * group.units;
  // [units, places, channels] of [units, channels, places]
  std::vector<float> turned(static_cast<size_t>(group.units * places * group.channels));
  for (int64_t u = 0; u < group.units; ++u) {
    for (int64_t c = 0; c < group.channels; ++c) {
      for (int64_t k = 0; k < places; ++k) {
        turned[(u * places + k) * group.channels + c] =
            kernel[((first + u) * group.channels + c) * places + k];
      }
    }
  }
  const std::string part = group.count > 1 ? absl::StrCat("group ", group.number) : "";
  std::vector<OnnxNodeReader::Weight> weights;
  weights.push_back({"weight", 1, std::move(turned), {}, part});
  if (r.Has(2)) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<float> bias, r.FloatsIn(2));
    if (static_cast<int64_t>(bias.size()) != group.units * group.count) {
      return absl::InvalidArgumentError(absl::StrCat(
          "its bias has ", bias.size(), " numbers, expected ", group.units * group.count));
    }
    weights.push_back(
        {"bias", 2, {bias.begin() + first, bias.begin() + first + group.units}, {}, part});
  }
  return r.TrainedLayer(
      "Gemm", {wide},
      Options().Set("units", static_cast<double>(group.units)).Set("bias", r.Has(2)),
      std::move(weights));
}

}  // namespace

// The input's windows side by side, times the kernel [units, channels of a group, widths...].
absl::Status ReadConv(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const OnnxValue x, r.TensorIn(0));
  TESSERA_RETURN_IF_ERROR(r.FloatsIn(1).status());
  const std::vector<int64_t> kernel = r.in(1).dims, dims = r.DimsOf(x);
  const int64_t groups = r.Int("group", 1);
  if (kernel.size() < 3 || kernel.size() != dims.size() || kernel[0] < 1 || kernel[1] < 1 ||
      groups < 1 || kernel[0] % groups != 0 || dims[1] != kernel[1] * groups) {
    return absl::InvalidArgumentError(absl::StrCat("its kernel ", DimsText(kernel), " in ", groups,
                                                   " groups does not fit the input ",
                                                   DimsText(dims)));
  }
  if (groups > kMostPlaces) {
    return absl::UnimplementedError(absl::StrCat(groups, " groups, above ", kMostPlaces));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Window> windows,
                           WindowsOf(r, x, {kernel.begin() + 2, kernel.end()}));
  TESSERA_ASSIGN_OR_RETURN(const int64_t places, PlacesOf(windows));
  const auto last = static_cast<int>(windows.size()) + 1;
  const Tensor rows = PaddedRows(r, x, windows, 0);
  std::vector<Tensor> convolved;
  for (int64_t g = 0; g < groups; ++g) {
    const Tensor of_group = Strided(r, rows, last, g * kernel[1], 1, kernel[1]);
    TESSERA_ASSIGN_OR_RETURN(convolved.emplace_back(),
                             GroupConvolved(r, WindowsSideBySide(r, of_group, windows), places,
                                            {g, groups, kernel[0] / groups, kernel[1]}));
  }
  const Tensor all =
      groups == 1 ? convolved[0]
                  : r.Layer("Concat", convolved, Options().Set("axis", static_cast<double>(last)));
  r.Set(ChannelsFirst(all, windows.size()));
  return absl::OkStatus();
}

// MaxPool and AveragePool.
absl::Status ReadPool(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const OnnxValue x, r.TensorIn(0));
  const bool max = r.node().op_type() == "MaxPool";
  const std::vector<int64_t> widths = IntsOr(r, "kernel_shape", 0, 1);
  if (x.axes.size() < 3 || r.HasOutput(1)) {
    return absl::UnimplementedError(r.HasOutput(1) ? "the places of its maxima"
                                                   : "expected axes after the channels");
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Window> windows, WindowsOf(r, x, widths));
  const bool padded = std::any_of(windows.begin(), windows.end(), [](const Window& window) {
    return window.before + window.after > 0;
  });
  if (!max && padded && r.Int("count_include_pad", 0) == 0) {
    return absl::UnimplementedError("averages that leave out what is padded");
  }
  // [batch, ..., channels], of which these axes are reduced.
  Tensor wide;
  std::vector<int64_t> over;
  Shape done;
  for (const Window& window : windows) done.Append(window.count);
  done.Append(r.DimsOf(x)[1]);
  const bool whole = std::all_of(windows.begin(), windows.end(), [&](const Window& window) {
    return window.width == r.DimsOf(x)[static_cast<size_t>(&window - windows.data()) + 2];
  });
  if (whole && !padded) {
    wide = ChannelsLast(r, x);
    for (size_t k = 0; k < windows.size(); ++k) over.push_back(static_cast<int64_t>(k) + 1);
  } else {
    TESSERA_ASSIGN_OR_RETURN(const int64_t places, PlacesOf(windows));
    constexpr double kLeast = -std::numeric_limits<float>::max();
    Shape apart = done;
    apart.set_dim(windows.size(), places);
    apart.Append(done.last());
    const Tensor rows = PaddedRows(r, x, windows, max ? kLeast : 0);
    wide = r.Reshaped(WindowsSideBySide(r, rows, windows), apart);
    over = {static_cast<int64_t>(windows.size()) + 1};
  }
  const Tensor reduced = r.Layer(max ? "ReduceMax" : "ReduceMean", {wide},
                                 Options().Set("axes", over).Set("keepdims", true));
  r.Set(ChannelsFirst(r.Reshaped(reduced, done), windows.size()));
  return absl::OkStatus();
}

}  // namespace tessera::worker
