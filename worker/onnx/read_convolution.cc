// Convolutions over one axis.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/read.h"

namespace tessera::worker {
namespace {

// Of a convolution over one axis, others being of size 1: that axis, and the kernel's width there.
struct Window {
  size_t axis = 2;
  int64_t width = 1;
  int64_t before = 0, after = 0;  // zeros
};

absl::StatusOr<Window> WindowOf(const OnnxNodeReader& r, const std::vector<int64_t>& dims,
                                const std::vector<int64_t>& kernel) {
  const auto all_one = [&](absl::string_view name) {
    const onnx::AttributeProto* list = r.Attribute(name);
    return list == nullptr ||
           std::all_of(list->ints().begin(), list->ints().end(), [](int64_t v) { return v == 1; });
  };
  const absl::Status wrong =
      absl::UnimplementedError(absl::StrCat("a kernel ", DimsText(kernel), " over ", DimsText(dims),
                                            "; expected one axis of more than 1 after the "
                                            "channels, one group, steps and dilations of 1"));
  if (dims.size() < 3 || kernel.size() != dims.size() || r.Int("group", 1) != 1 ||
      !all_one("strides") || !all_one("dilations")) {
    return wrong;
  }
  const size_t axes = dims.size() - 2;
  std::vector<int64_t> pads(2 * axes, 0);
  if (const auto* list = r.Attribute("pads"); list != nullptr) {
    pads.assign(list->ints().begin(), list->ints().end());
  }
  if (pads.size() != 2 * axes) return absl::InvalidArgumentError("pads of another number of axes");
  Window window;
  window.axis = dims.size() - 1;
  for (size_t k = 2; k < dims.size(); ++k) {
    if (dims[k] != 1 || kernel[k] != 1) window.axis = k;
  }
  for (size_t k = 2; k < dims.size(); ++k) {
    const bool one = dims[k] == 1 && kernel[k] == 1 && pads[k - 2] == 0 && pads[k - 2 + axes] == 0;
    if (k != window.axis && !one) return wrong;
  }
  window.width = kernel[window.axis];
  window.before = pads[window.axis - 2];
  window.after = pads[window.axis - 2 + axes];
  const onnx::AttributeProto* padding = r.Attribute("auto_pad");
  if (padding != nullptr && absl::StartsWith(padding->s(), "SAME")) {
    window.before = (window.width - (padding->s() == "SAME_UPPER" ? 1 : 0)) / 2;
    window.after = window.width - 1 - window.before;
  }
  if (kernel[1] != dims[1] || window.width < 1 || std::min(window.before, window.after) < 0 ||
      std::max(window.before, window.after) > window.width ||
      dims[window.axis] + window.before + window.after < window.width) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its kernel ", DimsText(kernel), " and pads do not fit the input ", DimsText(dims)));
  }
  return window;
}

}  // namespace

// The input's windows side by side, times the kernel.
absl::Status ReadConv(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<float> kernel, r.FloatsIn(1));
  const std::vector<int64_t> dims = r.in(1).dims, found = r.DimsOf(x);
  TESSERA_ASSIGN_OR_RETURN(const Window window, WindowOf(r, found, dims));
  if (x.axes[0] != OnnxValue::Axes{0}) {
    return absl::UnimplementedError(absl::StrCat("of ", DimsText(found)));
  }
  const int64_t units = dims[0], channels = dims[1], width = window.width;
  // [batch, n, channels]
  OnnxValue::Axes places = x.axes[window.axis];
  for (size_t k = 2; k < x.axes.size(); ++k) {
    if (k != window.axis) places.insert(places.end(), x.axes[k].begin(), x.axes[k].end());
  }
  const Tensor rows =
      Padded(r, r.Arranged(x, {places, x.axes[1]}), 1, window.before, window.after, 0);
  const int64_t count = r.shape(rows).dim(0) - width + 1;
  Tensor wide = rows;
  if (width > 1) {
    std::vector<Tensor> windows;
    for (int64_t k = 0; k < width; ++k) windows.push_back(Sliced(r, rows, 1, k, k + count));
    wide = r.Layer("Concat", windows, Options().Set("axis", 2.0));
  }
  // [units, width, channels] of [units, channels, width]
  std::vector<float> turned(kernel.size());
  for (int64_t u = 0; u < units; ++u) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t k = 0; k < width; ++k) {
        turned[(u * width + k) * channels + c] = kernel[(u * channels + c) * width + k];
      }
    }
  }
  std::vector<OnnxNodeReader::Weight> weights;
  weights.push_back({"weight", 1, std::move(turned)});
  if (r.Has(2)) {
    TESSERA_ASSIGN_OR_RETURN(std::vector<float> bias, r.FloatsIn(2));
    if (static_cast<int64_t>(bias.size()) != units) {
      return absl::InvalidArgumentError(
          absl::StrCat("its bias has ", bias.size(), " numbers, expected ", units));
    }
    weights.push_back({"bias", 2, std::move(bias)});
  }
  OnnxValue result;
  result.axes.resize(x.axes.size());
  result.axes[0] = {0};
  result.axes[1] = {2};
  result.axes[window.axis] = {1};
  TESSERA_ASSIGN_OR_RETURN(
      result.tensor,
      r.TrainedLayer("Gemm", {wide},
                     Options().Set("units", static_cast<double>(units)).Set("bias", r.Has(2)),
                     std::move(weights)));
  r.Set(std::move(result));
  return absl::OkStatus();
}

}  // namespace tessera::worker
