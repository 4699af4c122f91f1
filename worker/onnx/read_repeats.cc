// Ops that repeat tensors, or make them larger.
#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/example_batch.h"
#include "worker/onnx/known_numbers.h"
#include "worker/onnx/read_axes.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

using Axes = OnnxValue::Axes;
using Kind = OnnxValue::Kind;

// Repeats axes of size 1 to `dims`, in which -1 and 1 leave an axis as it is.
absl::Status SetRepeated(OnnxNodeReader& r, OnnxValue x, const std::vector<int64_t>& dims) {
  const std::vector<int64_t> from = r.DimsOf(x);
  std::vector<std::pair<size_t, int64_t>> more;
  for (size_t k = 0; k < dims.size(); ++k) {
    if (dims[k] == from[k] || dims[k] == 1 || dims[k] == -1) continue;
    const bool has_it = IsBatch(from[k]) && r.example_batch() > 0 &&
                        dims[k] == BatchFactor(from[k]) * r.example_batch();
    if (has_it) continue;
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

}  // namespace

// Axes of size 1 are repeated; those of a constant also to the batch.
absl::Status ReadExpand(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> dims, r.IntsIn(1));
  OnnxValue x = r.in(0);
  const size_t found = r.DimsOf(x).size(), rank = std::max(dims.size(), found);
  dims.insert(dims.begin(), rank - dims.size(), 1);
  const std::vector<int64_t> from = r.DimsOf(x);
  std::vector<int64_t> all = from;  // of as many axes
  all.insert(all.begin(), rank - found, 1);
  if (const auto k = RepeatedToExample(r, all, dims); found > 0 && k.has_value()) {
    dims[*k] = BatchTimes(1);
  }
  bool repeats = false;  // other axes than the batch's
  for (size_t k = 0; k < rank; ++k) {
    repeats |= dims[k] > 1 && dims[k] != all[k];
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
  TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> times, r.IntsIn(1));
  const std::vector<int64_t> dims = r.DimsOf(x);
  if (times.size() != dims.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(times.size(), " repeats for ", dims.size(), " axes"));
  }
  std::vector<int64_t> to = dims;
  for (size_t k = 0; k < times.size(); ++k) {
    if (dims[k] == 1) to[k] = times[k];
  }
  if (const auto k = RepeatedToExample(r, dims, to); k.has_value()) times[*k] = BatchTimes(1);
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
