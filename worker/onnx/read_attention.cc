// ONNX's Attention, of opset 23 on: our op, whose heads lie side by side; with a mask that ours has
// not, or fewer heads of keys, the products and the softmax.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "worker/onnx/nodes_within.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

using Axes = OnnxValue::Axes;

// A summand up to this hides a key, as exp gives 0: masks have -inf, the lowest number or -1e9.
constexpr float kHidden = -1e8f;

// Queries, keys or values as the dense graph's op needs them, [batch, rows, heads * dim], from
// ONNX's [batch, heads, rows, dim] or from that form itself.
absl::StatusOr<Tensor> SideBySide(OnnxNodeReader& r, size_t i, size_t rank) {
  TESSERA_ASSIGN_OR_RETURN(const OnnxValue x, r.TensorIn(i));
  const std::vector<int64_t> dims = r.DimsOf(x);
  if (dims.size() != rank || (rank != 3 && rank != 4) || dims[0] != BatchTimes(1)) {
    return absl::UnimplementedError(
        absl::StrCat("input ", i, " is ", DimsText(dims),
                     "; expected [batch, heads, rows, n] of all three, or [batch, rows, n]"));
  }
  Axes row = x.axes[rank - 2], numbers = x.axes[rank - 1];
  // Axes of size 1 beside the batch.
  std::copy_if(x.axes[0].begin(), x.axes[0].end(), std::back_inserter(row),
               [](int axis) { return axis != 0; });
  if (rank == 4) numbers.insert(numbers.begin(), x.axes[1].begin(), x.axes[1].end());
  return r.Arranged(x, {row, numbers});
}

// Whether the mask hides from each query the keys behind it; false if there is no mask or it hides
// nothing; nullopt: another mask.
std::optional<bool> MasksWhatIsBehind(const OnnxNodeReader& r, int64_t queries, int64_t keys) {
  if (!r.Has(3)) return false;
  const OnnxValue& mask = r.in(3);
  const bool truths = mask.kind == OnnxValue::Kind::kInts;
  const size_t size = truths ? mask.ints.size() : mask.floats.size();
  bool fits = mask.kind != OnnxValue::Kind::kTensor && !mask.trained && mask.dims.size() >= 2 &&
              mask.dims.back() == keys && mask.dims[mask.dims.size() - 2] == queries &&
              size == static_cast<size_t>(queries * keys);
  bool hides_none = fits, hides_what_is_behind = fits;
  for (int64_t i = 0; fits && i < queries * keys; ++i) {
    // Numbers are added before the softmax.
    const bool shown = truths ? mask.ints[i] != 0 : mask.floats[i] == 0;
    fits = shown || truths || mask.floats[i] <= kHidden;
    hides_none &= shown;
    hides_what_is_behind &= shown == (i % keys <= i / keys);
  }
  if (!hides_none && !hides_what_is_behind) return std::nullopt;
  return !hides_none;
}

OnnxValue Number(float number) {
  OnnxValue value;
  value.kind = OnnxValue::Kind::kFloats;
  value.floats = {number};
  return value;
}

struct Heads {
  int64_t of_queries, of_keys;
};

// [batch, heads, rows, n] of queries (input 0), keys (1) or values (2), as many heads as of
// queries: each head of keys is that of several queries' heads one after another.
std::string Apart(NodesWithin& nodes, const OnnxNodeReader& r, size_t i, Heads heads) {
  std::vector<int64_t> dims = r.DimsOf(r.in(i));
  std::string x = nodes.Input(r.in(i));
  const int64_t own = i == 0 ? heads.of_queries : heads.of_keys;
  if (dims.size() == 3) {
    const std::string split = nodes.Add("Reshape", {x, nodes.Ints({0, 0, own, -1}, {4})});
    x = nodes.Add("Transpose", {split}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    dims = {dims[0], own, dims[1], dims[2] / own};
  }
  if (own == heads.of_queries) return x;
  const int64_t times = heads.of_queries / own;
  x = nodes.Add("Unsqueeze", {x, nodes.Ints({2}, {1})});
  x = nodes.Add("Expand", {x, nodes.Ints({1, 1, times, 1, 1}, {5})});
  return nodes.Add("Reshape", {x, nodes.Ints({0, own * times, dims[2], dims[3]}, {4})});
}

// softmax(scale q k^T + mask) v
absl::StatusOr<OnnxValue> OfProducts(OnnxNodeReader& r, Heads heads, float scale) {
  const size_t rank = r.DimsOf(r.in(0)).size();
  const int64_t queries = r.DimsOf(r.in(0))[rank - 2], keys = r.DimsOf(r.in(1))[rank - 2];
  NodesWithin nodes(r);
  const std::string q = Apart(nodes, r, 0, heads), k = Apart(nodes, r, 1, heads);
  const std::string turned =
      nodes.Add("Transpose", {k}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
  std::string scores = nodes.Add("MatMul", {q, turned});
  scores = nodes.Add("Mul", {scores, nodes.Input(Number(scale))});
  const std::string hidden = nodes.Input(Number(std::numeric_limits<float>::lowest()));
  if (r.Has(3)) {
    const bool truths = r.IsWholeOf({3});
    const std::string mask = nodes.Input(r.in(3));
    scores = truths ? nodes.Add("Where", {mask, scores, hidden}) : nodes.Add("Add", {scores, mask});
  }
  if (r.Int("is_causal", 0) != 0) {
    std::vector<int64_t> shown;
    for (int64_t i = 0; i < queries * keys; ++i) shown.push_back(i % keys <= i / keys ? 1 : 0);
    scores = nodes.Add("Where", {nodes.Ints(shown, {queries, keys}), scores, hidden});
  }
  const std::string weights = nodes.Add("Softmax", {scores}, {{"axis", int64_t{-1}}});
  std::string y = nodes.Add("MatMul", {weights, Apart(nodes, r, 2, heads)});
  if (rank == 3) {
    y = nodes.Add("Transpose", {y}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    y = nodes.Add("Reshape", {y, nodes.Ints({0, 0, -1}, {3})});
  }
  return nodes.Read("attention", y);
}

}  // namespace

absl::Status ReadAttention(OnnxNodeReader& r) {
  if (r.Has(4) || r.Has(5) || r.Has(6) || r.Float("softcap", 0) != 0 || r.HasOutput(1) ||
      r.HasOutput(2) || r.HasOutput(3)) {
    return absl::UnimplementedError(
        "expected no cache of keys, no lengths, no softcap, one output");
  }
  TESSERA_ASSIGN_OR_RETURN(const OnnxValue query, r.TensorIn(0));
  const size_t rank = query.axes.size();
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < 3; ++i) {
    TESSERA_ASSIGN_OR_RETURN(inputs.emplace_back(), SideBySide(r, i, rank));
  }
  const int64_t heads = rank == 4 ? r.DimsOf(query)[1] : r.Int("q_num_heads", 1);
  const int64_t of_keys = rank == 4 ? r.DimsOf(r.in(1))[1] : r.Int("kv_num_heads", heads);
  if (heads < 1 || of_keys < 1 || heads % of_keys != 0) {
    return absl::InvalidArgumentError(absl::StrCat(heads, " heads of queries and ", of_keys,
                                                   " of keys; expected as many, or a divisor"));
  }
  const int64_t queries = r.shape(inputs[0]).dim(0), keys = r.shape(inputs[1]).dim(0);
  const std::optional<bool> masked = MasksWhatIsBehind(r, queries, keys);
  if (!masked.has_value() || of_keys != heads) {
    const int64_t width = rank == 4 ? r.DimsOf(query)[3] : r.DimsOf(query)[2] / heads;
    const float scale = r.Float("scale", 1 / std::sqrt(static_cast<float>(width)));
    TESSERA_ASSIGN_OR_RETURN(OnnxValue y, OfProducts(r, {heads, of_keys}, scale));
    r.Set(std::move(y));
    return absl::OkStatus();
  }
  google::protobuf::Struct options = Options()
                                         .Set("heads", static_cast<double>(heads))
                                         .Set("causal", *masked || r.Int("is_causal", 0) != 0);
  if (r.Attribute("scale") != nullptr) {
    (*options.mutable_fields())["scale"].set_number_value(r.Float("scale", 1));
  }
  OnnxValue y;
  y.tensor = r.Layer("Attention", inputs, std::move(options));
  const int64_t width = r.shape(y.tensor).last();
  if (rank == 3) {
    y.axes = {{0}, {1}, {2}};
  } else {
    y.tensor = r.Reshaped(y.tensor, Shape{queries, heads, width / heads});
    y.axes = {{0}, {2}, {1}, {3}};
  }
  r.Set(std::move(y));
  return absl::OkStatus();
}

}  // namespace tessera::worker
