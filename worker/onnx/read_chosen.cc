// Gathers by indices that samples may compute, such as the last place of a sequence. Each place of
// the result sums over all places of the data, of which those that are not named count nothing.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/read.h"
#include "worker/onnx/writer.h"

namespace tessera::worker {
namespace {

constexpr int64_t kMostNumbers = 1 << 20;  // that a sample chooses from, for all places

onnx::NodeProto& AddNode(onnx::GraphProto& graph, const char* op,
                         const std::vector<std::string>& inputs, const char* output) {
  onnx::NodeProto& node = *graph.add_node();
  node.set_op_type(op);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(output);
  return node;
}

void AddConstant(onnx::GraphProto& graph, const std::vector<int64_t>& ints,
                 const std::vector<int64_t>& dims, const char* name) {
  onnx::AttributeProto& value = *AddNode(graph, "Constant", {}, name).add_attribute();
  value.set_name("value");
  value.set_type(onnx::AttributeProto::TENSOR);
  value.mutable_t()->set_data_type(onnx::TensorProto::INT64);
  *value.mutable_t()->mutable_dims() = {dims.begin(), dims.end()};
  *value.mutable_t()->mutable_int64_data() = {ints.begin(), ints.end()};
}

// Of data [..., 1, size, ...] and indices [..., places, 1, ...] the sum over `size`, which is at
// `axis`, of the data where the index names it; negative indices count from the end.
onnx::GraphProto Chosen(int64_t axis, int64_t size, size_t rank, int64_t opset) {
  std::vector<int64_t> places(static_cast<size_t>(size)), dims(rank - static_cast<size_t>(axis), 1);
  dims[0] = size;
  onnx::GraphProto graph;
  graph.add_input()->set_name("data");
  graph.add_input()->set_name("indices");
  graph.add_output()->set_name("chosen");
  std::iota(places.begin(), places.end(), 0);
  AddConstant(graph, places, dims, "places");
  std::iota(places.begin(), places.end(), -size);
  AddConstant(graph, places, dims, "from_the_end");
  AddNode(graph, "Equal", {"indices", "places"}, "is");
  AddNode(graph, "Equal", {"indices", "from_the_end"}, "is_from_the_end");
  AddNode(graph, "Or", {"is", "is_from_the_end"}, "wanted");
  AddConstant(graph, {0}, {}, "zero");
  AddNode(graph, "CastLike", {"zero", "data"}, "nothing");
  AddNode(graph, "Where", {"wanted", "data", "nothing"}, "apart");
  std::vector<std::string> summed = {"apart"};
  std::vector<OnnxAttribute> attributes = {{"keepdims", int64_t{0}}};
  if (opset >= 13) {
    AddConstant(graph, {axis}, {1}, "axis");
    summed.push_back("axis");
  } else {
    attributes.push_back({"axes", std::vector<int64_t>{axis}});
  }
  onnx::NodeProto& sum = AddNode(graph, "ReduceSum", summed, "chosen");
  for (const OnnxAttribute& attribute : attributes) *sum.add_attribute() = attribute.proto();
  return graph;
}

}  // namespace

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
  int64_t numbers = 1;
  for (const int64_t dim : from) numbers *= BatchFactor(dim);
  for (const int64_t dim : to) numbers *= BatchFactor(dim);
  if (from.size() < 2 || from[0] != BatchTimes(1) || to.empty() || to[0] != from[0] ||
      numbers > kMostNumbers) {
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
  TESSERA_ASSIGN_OR_RETURN(const std::vector<OnnxValue> chosen,
                           r.ReadWithin(Chosen(static_cast<int64_t>(to.size()), from[1],
                                               from.size() + to.size() - 1, r.opset()),
                                        "chosen", std::nullopt, {apart, wanted}));
  return chosen[0];
}

// As PyTorch's gather: along one axis each place of the result is a place of the data.
absl::Status ReadGatherElements(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const OnnxValue data, r.TensorIn(0));
  const OnnxValue indices = r.in(1);
  TESSERA_ASSIGN_OR_RETURN(const size_t axis, r.SampleAxis(r.Int("axis", 0), data));
  const std::vector<int64_t> from = r.DimsOf(data);
  const std::vector<int64_t> to = r.DimsOf(indices);
  std::vector<int64_t> alike = to;
  if (to.size() == from.size()) alike[axis] = from[axis];
  int64_t numbers = 1;
  for (const int64_t dim : from) numbers *= IsBatch(dim) ? BatchFactor(dim) : dim;
  if (alike != from || IsBatch(to[axis]) || numbers * to[axis] > kMostNumbers) {
    return absl::UnimplementedError(absl::StrCat(
        "indices ", DimsText(to), " of ", DimsText(from), ", axis ", axis,
        "; expected the same sizes along all other axes, and at most 2^20 numbers to choose from"));
  }
  TESSERA_RETURN_IF_ERROR(CheckPlaces(indices, -from[axis], from[axis]));
  const auto at = static_cast<int64_t>(axis);
  TESSERA_ASSIGN_OR_RETURN(const OnnxValue apart, r.AlongAxis("Unsqueeze", at, {data}));
  TESSERA_ASSIGN_OR_RETURN(const OnnxValue wanted, r.AlongAxis("Unsqueeze", at + 1, {indices}));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<OnnxValue> chosen,
                           r.ReadWithin(Chosen(at + 1, from[axis], from.size() + 1, r.opset()),
                                        "chosen", std::nullopt, {apart, wanted}));
  r.Set(chosen[0]);
  return absl::OkStatus();
}

}  // namespace tessera::worker
