// What goes from place to place.
#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/read.h"

namespace tessera::worker {

// A product with ones up to the diagonal.
absl::Status ReadCumSum(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> named, r.IntsIn(1));
  if (named.size() != 1 || r.Int("exclusive", 0) != 0 || r.Int("reverse", 0) != 0) {
    return absl::UnimplementedError("expected one axis, forward, with the number itself");
  }
  TESSERA_ASSIGN_OR_RETURN(const size_t axis, r.SampleAxis(named[0], x));
  const int64_t size = r.DimsOf(x)[axis];
  if (size > 1024) return absl::UnimplementedError(absl::StrCat("of ", size, ", above 1024"));
  std::swap(x.axes[axis], x.axes.back());
  const size_t last = x.axes.size() - 1;
  r.LastAxis(x, last);
  // [batch, all the rest, size]
  const Shape shape = r.shape(x.tensor);
  const auto rows = static_cast<int64_t>(shape.Product(0, shape.rank() - 1));
  google::protobuf::Struct options = Options().Set("shape", std::vector<int64_t>{size, size});
  auto* list = (*options.mutable_fields())["value"].mutable_list_value();
  for (int64_t i = 0; i < size * size; ++i) {
    list->add_values()->set_number_value(i / size <= i % size ? 1 : 0);
  }
  const Tensor ones = r.Layer("Constant", {}, std::move(options));
  const Tensor sums = r.Layer("MatMul", {r.Reshaped(x.tensor, Shape{rows, size}), ones});
  x.tensor = r.Reshaped(sums, shape);
  std::swap(x.axes[axis], x.axes.back());
  r.Set(std::move(x));
  return absl::OkStatus();
}

// Forward, from zeros on, in the form of PyTorch and Keras.
absl::Status ReadGru(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(const OnnxValue x, r.TensorIn(0));
  const onnx::AttributeProto* direction = r.Attribute("direction");
  const bool batch_first = r.Int("layout", 0) != 0;
  if ((direction != nullptr && direction->s() != "forward") || r.Has(4) ||
      r.Int("linear_before_reset", 0) == 0 || r.Attribute("activations") != nullptr ||
      r.Attribute("clip") != nullptr) {
    return absl::UnimplementedError(
        "expected one direction, no lengths, linear_before_reset, the usual activations");
  }
  if (r.Has(5)) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<float> start, r.FloatsIn(5));
    if (r.in(5).trained ||
        std::count(start.begin(), start.end(), 0.0f) != static_cast<int64_t>(start.size())) {
      return absl::UnimplementedError("its first state is not 0");
    }
  }
  const std::vector<int64_t> dims = r.DimsOf(x), &w = r.in(1).dims;
  const size_t batch = batch_first ? 0 : 1;
  if (dims.size() != 3 || dims[batch] != BatchTimes(1)) {
    return absl::UnimplementedError(absl::StrCat("of ", DimsText(dims)));
  }
  if (w.size() != 3 || w[0] != 1 || w[1] % 3 != 0 || w[2] != dims[2]) {
    return absl::InvalidArgumentError(
        absl::StrCat("its weights ", DimsText(w), " do not fit the input ", DimsText(dims)));
  }
  const auto units = static_cast<size_t>(w[1] / 3);
  std::vector<OnnxNodeReader::Weight> weights;
  for (const auto& [name, i, size] :
       {std::tuple("weight", 1, 3 * units * dims[2]),
        std::tuple("recurrence", 2, 3 * units * units), std::tuple("bias", 3, 6 * units)}) {
    if (i == 3 && !r.Has(3)) continue;  // it begins at 0
    TESSERA_ASSIGN_OR_RETURN(std::vector<float> start, r.FloatsIn(static_cast<size_t>(i)));
    if (start.size() != size) {
      return absl::InvalidArgumentError(
          absl::StrCat("input ", i, " has ", start.size(), " numbers, expected ", size));
    }
    weights.push_back({name, static_cast<size_t>(i), std::move(start)});
  }
  const bool all = r.HasOutput(0);
  const size_t places = batch_first ? 1 : 0;
  // Axes of size 1 beside the batch go with those of a place.
  OnnxValue::Axes place = x.axes[2];
  for (const int axis : x.axes[batch]) {
    if (axis != 0) place.push_back(axis);
  }
  TESSERA_ASSIGN_OR_RETURN(
      const Tensor states,
      r.TrainedLayer("GRU", {r.Arranged(x, {x.axes[places], place})},
                     Options().Set("units", static_cast<double>(units)).Set("sequence", all),
                     std::move(weights)));
  if (all) {
    OnnxValue y;
    y.tensor = states;
    y.axes = batch_first ? std::vector<OnnxValue::Axes>{{0}, {1}, {}, {2}}
                         : std::vector<OnnxValue::Axes>{{1}, {}, {0}, {2}};
    r.Set(std::move(y));
  }
  if (!r.HasOutput(1)) return absl::OkStatus();
  OnnxValue last;
  last.tensor = states;
  last.axes = batch_first ? std::vector<OnnxValue::Axes>{{0}, {}, {1}}
                          : std::vector<OnnxValue::Axes>{{}, {0}, {1}};
  if (all) {
    const auto end = static_cast<double>(dims[places]);
    last.tensor = r.Layer("Slice", {states},
                          Options().Set("axis", 1.0).Set("start", end - 1).Set("end", end));
    last.tensor = r.Reshaped(last.tensor, Shape{static_cast<int64_t>(units)});
  }
  r.Set(std::move(last), 1);
  return absl::OkStatus();
}

}  // namespace tessera::worker
