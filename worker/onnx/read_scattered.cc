// Ops that give some places of a tensor other numbers.
#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/nodes_within.h"
#include "worker/onnx/read_axes.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

// Whether the numbers are added to what is there, not put in its place.
absl::StatusOr<bool> Adds(const OnnxNodeReader& r) {
  const onnx::AttributeProto* const reduction = r.Attribute("reduction");
  if (reduction == nullptr || reduction->s() == "none") return false;
  if (reduction->s() == "add") return true;
  return absl::UnimplementedError(
      absl::StrCat("reduction \"", reduction->s(), "\"; expected none or add"));
}

}  // namespace

// As PyTorch's scatter: along one axis each index names the place of a number, which samples may
// compute. Each place sums over all of them, of which those that do not name it count nothing.
absl::Status ReadScatterElements(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const bool adds, Adds(r));
  TESSERA_ASSIGN_OR_RETURN(const OnnxValue data, r.TensorIn(0));
  TESSERA_ASSIGN_OR_RETURN(const size_t axis, r.SampleAxis(r.Int("axis", 0), data));
  const std::vector<int64_t> from = r.DimsOf(data), to = r.DimsOf(r.in(1));
  std::vector<int64_t> alike = to;
  if (to.size() == from.size()) alike[axis] = from[axis];
  if (alike != from || IsBatch(to[axis]) || r.DimsOf(r.in(2)) != to ||
      NumbersOf(from) > kMostChosen / std::max<int64_t>(1, to[axis])) {
    return absl::UnimplementedError(absl::StrCat(
        "indices ", DimsText(to), " of ", DimsText(from), ", axis ", axis, ", and ",
        DimsText(r.DimsOf(r.in(2))),
        "; expected the same sizes along all other axes, and at most 2^20 numbers to choose from"));
  }
  TESSERA_RETURN_IF_ERROR(CheckPlaces(r.in(1), -from[axis], from[axis]));
  const auto at = static_cast<int64_t>(axis);
  NodesWithin nodes(r);
  const std::string before = nodes.Input(data);
  std::vector<std::string> apart;
  for (const size_t i : {1, 2}) {
    TESSERA_ASSIGN_OR_RETURN(OnnxValue value, r.AlongAxis("Unsqueeze", at + 1, {r.in(i)}));
    apart.push_back(nodes.Input(std::move(value)));
  }
  const std::string wanted = nodes.Names(apart[0], from[axis], from.size() - axis - 1);
  const std::string nothing = nodes.Add("CastLike", {nodes.Ints({0}, {}), before});
  const std::string put = nodes.Sum(nodes.Add("Where", {wanted, apart[1], nothing}), at);
  std::string made = nodes.Add("Add", {before, put});
  if (!adds) {
    const std::string ones =
        nodes.Add("Cast", {wanted}, {{"to", int64_t{onnx::TensorProto::FLOAT}}});
    const std::string named =
        nodes.Add("Cast", {nodes.Sum(ones, at)}, {{"to", int64_t{onnx::TensorProto::BOOL}}});
    made = nodes.Add("Where", {named, put, before});
  }
  TESSERA_ASSIGN_OR_RETURN(OnnxValue value, nodes.Read("scattered", made));
  r.Set(std::move(value));
  return absl::OkStatus();
}

// Known places of the axes before the batch's; those of the batch's too are in read_counted.cc.
absl::Status ReadScatterNd(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  TESSERA_ASSIGN_OR_RETURN(OnnxValue updates, r.TensorIn(2));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> indices, r.IntsIn(1));
  const std::vector<int64_t> dims = r.in(1).dims;
  const auto named = dims.empty() ? int64_t{0} : dims.back();
  if (named < 1 || named > static_cast<int64_t>(x.batch_axis()) ||
      updates.axes.size() + 1 < dims.size() + (dims.size() == 1 ? 1 : 0)) {
    return absl::UnimplementedError(
        absl::StrCat("indices ", DimsText(dims), " of ", DimsText(r.DimsOf(x)),
                     "; expected them to name axes before the batch's"));
  }
  if (dims.size() == 1) {
    TESSERA_ASSIGN_OR_RETURN(updates, r.AlongAxis("Unsqueeze", 0, {updates}));
  } else {
    MergeAxes(updates, 0, dims.size() - 1);
  }
  TESSERA_ASSIGN_OR_RETURN(
      x, WithPlaces(r, std::move(x), 0, static_cast<size_t>(named), indices, std::move(updates)));
  r.Set(std::move(x));
  return absl::OkStatus();
}

absl::StatusOr<OnnxValue> WithPlaces(OnnxNodeReader& r, OnnxValue x, size_t first, size_t named,
                                     const std::vector<int64_t>& indices, OnnxValue updates) {
  TESSERA_ASSIGN_OR_RETURN(const bool adds, Adds(r));
  const std::vector<int64_t> dims = r.DimsOf(x);
  std::vector<int64_t> alike = r.DimsOf(updates);
  const int64_t count = named == 0 ? 0 : static_cast<int64_t>(indices.size() / named);
  bool fits = !adds && first + named <= dims.size() && first < alike.size() && count > 0 &&
              alike[first] == count;
  if (fits) {
    alike.erase(alike.begin() + static_cast<int64_t>(first));
    std::vector<int64_t> rest = dims;
    const auto at = rest.begin() + static_cast<int64_t>(first);
    rest.erase(at, at + static_cast<int64_t>(named));
    fits = alike == rest;
  }
  if (!fits) {
    return absl::UnimplementedError(
        absl::StrCat(DimsText(r.DimsOf(updates)), " at ", count, " places of ", DimsText(dims),
                     "; expected numbers for each place, which take the place of what is there"));
  }
  const std::vector<int64_t> sizes(dims.begin() + static_cast<int64_t>(first),
                                   dims.begin() + static_cast<int64_t>(first + named));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> places, MergedPlaces(indices, sizes));
  const int64_t all = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  MergeAxes(x, first, named);
  const auto axis = static_cast<int64_t>(first);
  TESSERA_ASSIGN_OR_RETURN(x, r.AlongAxis("Concat", axis, {x, updates}));
  std::vector<int64_t> taken(static_cast<size_t>(all));  // of what is there, and then the updates
  std::iota(taken.begin(), taken.end(), 0);
  for (size_t i = 0; i < places.size(); ++i) {
    taken[static_cast<size_t>(places[i])] = all + static_cast<int64_t>(i);
  }
  TakePlaces(r, x, first, taken);
  SplitAxis(r, x, first, sizes);
  return x;
}

}  // namespace tessera::worker
