// Gathers by indices that samples may compute, such as the last place of a sequence or a bin. Each
// place of the result sums over all places of the data, of which those that are not named count
// nothing.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/known_numbers.h"
#include "worker/onnx/nodes_within.h"
#include "worker/onnx/read_axes.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

// Of data [..., 1, size, ...] and indices [..., places, 1, ...] the sum over `size`, which is at
// `axis`, of the data where the index names it; negative indices count from the end.
absl::StatusOr<OnnxValue> Chosen(OnnxNodeReader& r, int64_t axis, int64_t size, size_t rank,
                                 OnnxValue of, OnnxValue by) {
  NodesWithin nodes(r);
  const std::string data = nodes.Input(std::move(of)), indices = nodes.Input(std::move(by));
  const std::string wanted = nodes.Names(indices, size, rank - static_cast<size_t>(axis) - 1);
  const std::string nothing = nodes.Add("CastLike", {nodes.Ints({0}, {}), data});
  return nodes.Read("chosen", nodes.Sum(nodes.Add("Where", {wanted, data, nothing}), axis));
}

}  // namespace

int64_t NumbersOf(const std::vector<int64_t>& dims) {
  int64_t numbers = 1;
  for (const int64_t dim : dims) numbers = std::min(numbers * BatchFactor(dim), kMostChosen + 1);
  return numbers;
}

absl::Status CheckPlaces(const OnnxValue& indices, int64_t least, int64_t size) {
  for (const int64_t place : indices.ints) {
    if (place >= least && place < size) continue;
    return absl::InvalidArgumentError(absl::StrCat("takes place ", place, " of each sample's ",
                                                   size, "; expected ", least, " to ", size - 1));
  }
  return absl::OkStatus();
}

absl::StatusOr<OnnxValue> ChosenBySample(OnnxNodeReader& r, const OnnxValue& data,
                                         const OnnxValue& indices) {
  const std::vector<int64_t> from = r.DimsOf(data), to = r.DimsOf(indices);
  const int64_t numbers = NumbersOf(from) * NumbersOf(to);
  if (from.size() < 2 || from[0] != BatchTimes(1) || to.empty() || to[0] != from[0] ||
      numbers > kMostChosen) {
    return absl::UnimplementedError(absl::StrCat(
        "indices ", DimsText(to), " of ", DimsText(from),
        "; expected both to begin with the batch, and at most 2^20 numbers to choose from"));
  }
  TESSERA_RETURN_IF_ERROR(CheckPlaces(indices, -from[1], from[1]));
  OnnxValue apart = data, wanted = indices;
  for (size_t k = 1; k < to.size(); ++k) {
    TESSERA_ASSIGN_OR_RETURN(apart, r.AlongAxis("Unsqueeze", 1, {apart}));
  }
  for (size_t k = 1; k < from.size(); ++k) {
    TESSERA_ASSIGN_OR_RETURN(wanted, r.AlongAxis("Unsqueeze", -1, {wanted}));
  }
  return Chosen(r, static_cast<int64_t>(to.size()), from[1], from.size() + to.size() - 1,
                std::move(apart), std::move(wanted));
}

// As PyTorch's gather: along one axis each place of the result is a place of the data.
absl::Status ReadGatherElements(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const OnnxValue data, r.TensorIn(0));
  r.TakeExample(1, data.batch_axis());
  const OnnxValue indices = r.in(1);
  TESSERA_ASSIGN_OR_RETURN(const size_t axis, r.SampleAxis(r.Int("axis", 0), data));
  const std::vector<int64_t> from = r.DimsOf(data);
  const std::vector<int64_t> to = r.DimsOf(indices);
  std::vector<int64_t> alike = to;
  if (to.size() == from.size()) alike[axis] = from[axis];
  if (alike != from || IsBatch(to[axis]) || NumbersOf(from) * to[axis] > kMostChosen) {
    return absl::UnimplementedError(absl::StrCat(
        "indices ", DimsText(to), " of ", DimsText(from), ", axis ", axis,
        "; expected the same sizes along all other axes, and at most 2^20 numbers to choose from"));
  }
  TESSERA_RETURN_IF_ERROR(CheckPlaces(indices, -from[axis], from[axis]));
  const auto at = static_cast<int64_t>(axis);
  TESSERA_ASSIGN_OR_RETURN(const OnnxValue apart, r.AlongAxis("Unsqueeze", at, {data}));
  TESSERA_ASSIGN_OR_RETURN(const OnnxValue wanted, r.AlongAxis("Unsqueeze", at + 1, {indices}));
  TESSERA_ASSIGN_OR_RETURN(OnnxValue chosen,
                           Chosen(r, at + 1, from[axis], from.size() + 1, apart, wanted));
  r.Set(std::move(chosen));
  return absl::OkStatus();
}

// Rows of a table of the file: the product of the table, a matrix, with 1 where an index names a
// row, else 0.
absl::StatusOr<OnnxValue> RowsBySample(OnnxNodeReader& r) {
  const std::vector<int64_t> dims = r.DimsOf(r.in(0)), to = r.DimsOf(r.in(1));
  const bool of_batch = r.IsTensor(0) ? !r.in(0).IsUnbatched() : r.in(0).HasBatch();
  const int64_t axis = r.Int("axis", 0), rank = static_cast<int64_t>(dims.size());
  if (of_batch || rank < 1 || (axis != 0 && axis != -rank) || dims[0] < 1 ||
      NumbersOf(to) > kMostChosen / dims[0]) {
    return absl::UnimplementedError(absl::StrCat(
        "samples compute the indices ", DimsText(to), " of ", DimsText(dims), ", axis ", axis,
        "; expected a table [rows, ...] that all samples share, and at most 2^20 indices times "
        "rows; a larger one is a table of the job, whose rows are an input COLUMN.TABLE"));
  }
  if (!r.IsTensor(0) && !r.in(0).trained) TESSERA_RETURN_IF_ERROR(r.TakeUnbatched(0));
  TESSERA_ASSIGN_OR_RETURN(OnnxValue indices, r.AlongAxis("Unsqueeze", -1, {r.in(1)}));
  NodesWithin nodes(r);
  const std::string wanted = nodes.Names(nodes.Input(std::move(indices)), dims[0], 0);
  const std::string ones = nodes.Add("Cast", {wanted}, {{"to", int64_t{onnx::TensorProto::FLOAT}}});
  std::string table = nodes.Input(r.in(0));
  if (rank > 2) table = nodes.Add("Reshape", {table, nodes.Ints({dims[0], -1}, {2})});
  TESSERA_ASSIGN_OR_RETURN(OnnxValue rows, nodes.Read("rows", nodes.Add("MatMul", {ones, table})));
  if (rank > 2) SplitAxis(r, rows, to.size(), {dims.begin() + 1, dims.end()});
  return rows;
}

absl::StatusOr<OnnxValue> OneHotBySample(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> depths, r.IntsIn(1));
  const std::vector<int64_t> to = r.DimsOf(r.in(0));
  const auto rank = static_cast<int64_t>(to.size()) + 1;
  const int64_t named = r.Int("axis", -1), axis = named < 0 ? named + rank : named;
  if (depths.size() != 1 || depths[0] < 1 || axis < 0 || axis >= rank || r.IsTensor(2) ||
      r.in(2).dims != std::vector<int64_t>{2} || NumbersOf(to) > kMostChosen / depths[0]) {
    return absl::UnimplementedError(
        "expected a known depth, two known numbers, and at most 2^20 in all");
  }
  TESSERA_ASSIGN_OR_RETURN(OnnxValue indices, r.AlongAxis("Unsqueeze", axis, {r.in(0)}));
  NodesWithin nodes(r);
  const std::string wanted =
      nodes.Names(nodes.Input(std::move(indices)), depths[0], static_cast<size_t>(rank - 1 - axis));
  OnnxValue no = r.in(2);
  no.trained = false;  // they mean no and yes
  const OnnxValue yes = TakenOfKnown(no, 0, {1});
  no = TakenOfKnown(no, 0, {0});
  return nodes.Read("one_hot", nodes.Add("Where", {wanted, nodes.Input(yes), nodes.Input(no)}));
}

}  // namespace tessera::worker
