// What goes from place to place.
#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/read.h"

namespace tessera::worker {
namespace {

using Axes = OnnxValue::Axes;

// What GRU and LSTM have in common: forward over x [batch, places, n], from zeros on.
class Recurrence {
 public:
  // `gates` of a unit; `activations` as ONNX would list them; the first `states` of its inputs from
  // 5 on are where it begins.
  static absl::StatusOr<Recurrence> Read(OnnxNodeReader& r, int64_t gates,
                                         const std::vector<std::string>& activations,
                                         size_t states) {
    const onnx::AttributeProto* const direction = r.Attribute("direction");
    const onnx::AttributeProto* const functions = r.Attribute("activations");
    const bool usual =
        functions == nullptr || std::equal(functions->strings().begin(), functions->strings().end(),
                                           activations.begin(), activations.end());
    if ((direction != nullptr && direction->s() != "forward") || r.Has(4) || !usual ||
        r.Attribute("clip") != nullptr) {
      return absl::UnimplementedError(
          "expected one direction, no lengths, the usual activations, no clip");
    }
    for (size_t i = 5; i < 5 + states; ++i) {
      if (!r.Has(i)) continue;
      TESSERA_ASSIGN_OR_RETURN(const std::vector<float> start, r.FloatsIn(i));
      const bool zeros = std::all_of(start.begin(), start.end(), [](float v) { return v == 0; });
      if (r.in(i).trained || !zeros) return absl::UnimplementedError("its first state is not 0");
    }
    TESSERA_ASSIGN_OR_RETURN(const OnnxValue x, r.TensorIn(0));
    Recurrence made(r, r.Int("layout", 0) != 0);
    const std::vector<int64_t> dims = r.DimsOf(x), &w = r.in(1).dims;
    const size_t batch = made.batch_first_ ? 0 : 1, places = 1 - batch;
    if (dims.size() != 3 || dims[batch] != BatchTimes(1)) {
      return absl::UnimplementedError(absl::StrCat("of ", DimsText(dims)));
    }
    if (w.size() != 3 || w[0] != 1 || w[1] % gates != 0 || w[2] != dims[2]) {
      return absl::InvalidArgumentError(
          absl::StrCat("its weights ", DimsText(w), " do not fit the input ", DimsText(dims)));
    }
    made.places_ = dims[places];
    made.units_ = w[1] / gates;
    // Axes of size 1 beside the batch go with those of a place.
    Axes place = x.axes[2];
    std::copy_if(x.axes[batch].begin(), x.axes[batch].end(), std::back_inserter(place),
                 [](int axis) { return axis != 0; });
    made.x_ = r.Arranged(x, {x.axes[places], place});
    return made;
  }

  Tensor x() const { return x_; }
  int64_t places() const { return places_; }
  int64_t units() const { return units_; }

  // Input i, `size` numbers.
  absl::StatusOr<std::vector<float>> Numbers(size_t i, int64_t size) const {
    TESSERA_ASSIGN_OR_RETURN(std::vector<float> numbers, r_.FloatsIn(i));
    if (static_cast<int64_t>(numbers.size()) == size) return numbers;
    return absl::InvalidArgumentError(
        absl::StrCat("input ", i, " has ", numbers.size(), " numbers, expected ", size));
  }
  // One place of states [batch, places, n], as [batch, n].
  Tensor Place(Tensor states, int64_t place) const {
    const Tensor one = Sliced(r_, states, 1, place, place + 1);
    return r_.Reshaped(one, Shape{r_.shape(states).last()});
  }
  // ONNX's output 0, of states [batch, places, units].
  void SetAll(Tensor states) {
    OnnxValue y;
    y.tensor = states;
    y.axes =
        batch_first_ ? std::vector<Axes>{{0}, {1}, {}, {2}} : std::vector<Axes>{{1}, {}, {0}, {2}};
    r_.Set(std::move(y));
  }
  // Another output, of a state [batch, units].
  void SetOne(Tensor state, int output) {
    OnnxValue y;
    y.tensor = state;
    y.axes = batch_first_ ? std::vector<Axes>{{0}, {}, {1}} : std::vector<Axes>{{}, {0}, {1}};
    r_.Set(std::move(y), output);
  }

 private:
  Recurrence(OnnxNodeReader& r, bool batch_first) : r_(r), batch_first_(batch_first) {}

  OnnxNodeReader& r_;
  bool batch_first_;
  Tensor x_;
  int64_t places_ = 0;
  int64_t units_ = 0;
};

}  // namespace

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

// In the form of PyTorch and Keras, which is our op's.
absl::Status ReadGru(OnnxNodeReader& r) {
  if (r.Int("linear_before_reset", 0) == 0) {
    return absl::UnimplementedError("expected linear_before_reset 1");
  }
  TESSERA_ASSIGN_OR_RETURN(Recurrence recurrence,
                           Recurrence::Read(r, 3, {"Sigmoid", "Tanh"}, /*states=*/1));
  const int64_t units = recurrence.units(), width = r.shape(recurrence.x()).last();
  std::vector<OnnxNodeReader::Weight> weights;
  for (const auto& [name, i, size] : {std::tuple("weight", size_t{1}, 3 * units * width),
                                      std::tuple("recurrence", size_t{2}, 3 * units * units),
                                      std::tuple("bias", size_t{3}, 6 * units)}) {
    if (i == 3 && !r.Has(3)) continue;  // it begins at 0
    TESSERA_ASSIGN_OR_RETURN(std::vector<float> start, recurrence.Numbers(i, size));
    weights.push_back({name, i, std::move(start)});
  }
  const bool all = r.HasOutput(0);
  TESSERA_ASSIGN_OR_RETURN(
      const Tensor states,
      r.TrainedLayer("GRU", {recurrence.x()},
                     Options().Set("units", static_cast<double>(units)).Set("sequence", all),
                     std::move(weights)));
  if (all) recurrence.SetAll(states);
  if (!r.HasOutput(1)) return absl::OkStatus();
  recurrence.SetOne(all ? recurrence.Place(states, recurrence.places() - 1) : states, 1);
  return absl::OkStatus();
}

// Place by place, with layers that share their parameters:
//   i, o, f, c = W x_t + R h_(t-1) + b;  m_t = sigmoid(f) m_(t-1) + sigmoid(i) tanh(c);
//   h_t = sigmoid(o) tanh(m_t)
// The file's two biases are one, their sum.
absl::Status ReadLstm(OnnxNodeReader& r) {
  if (r.Has(7) || r.Int("input_forget", 0) != 0) {
    return absl::UnimplementedError("expected no peepholes, and input_forget 0");
  }
  TESSERA_ASSIGN_OR_RETURN(Recurrence recurrence,
                           Recurrence::Read(r, 4, {"Sigmoid", "Tanh", "Tanh"}, /*states=*/2));
  constexpr int64_t kMostPlaces = 256;
  if (recurrence.places() > kMostPlaces) {
    return absl::UnimplementedError(
        absl::StrCat("over ", recurrence.places(), " places, above ", kMostPlaces));
  }
  const int64_t units = recurrence.units(), gates = 4 * units;
  const int64_t width = r.shape(recurrence.x()).last();
  TESSERA_ASSIGN_OR_RETURN(std::vector<float> w, recurrence.Numbers(1, gates * width));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<float> u, recurrence.Numbers(2, gates * units));
  std::vector<OnnxNodeReader::Weight> weights;
  weights.push_back({"weight", 1, std::move(w)});
  if (r.Has(3)) {
    TESSERA_ASSIGN_OR_RETURN(std::vector<float> bias, recurrence.Numbers(3, 2 * gates));
    for (int64_t i = 0; i < gates; ++i) bias[i] += bias[gates + i];
    bias.resize(static_cast<size_t>(gates));
    weights.push_back({"bias", 3, std::move(bias)});
  }
  const google::protobuf::Struct size = Options().Set("units", static_cast<double>(gates));
  google::protobuf::Struct with_bias = size, without = size;
  (*with_bias.mutable_fields())["bias"].set_bool_value(r.Has(3));
  (*without.mutable_fields())["bias"].set_bool_value(false);
  TESSERA_ASSIGN_OR_RETURN(const Tensor inputs,
                           r.TrainedLayer("Gemm", {recurrence.x()}, with_bias, std::move(weights)));
  const auto sigmoid = [&](Tensor x) { return r.Layer("Sigmoid", {x}); };
  const auto tanh = [&](Tensor x) { return r.Layer("Tanh", {x}); };
  const auto times = [&](Tensor a, Tensor b) { return r.Layer("Mul", {a, b}); };
  const auto plus = [&](Tensor a, Tensor b) { return r.Layer("Add", {a, b}); };
  std::vector<Tensor> states;
  Tensor memory, state;
  for (int64_t t = 0; t < recurrence.places(); ++t) {
    Tensor sums = recurrence.Place(inputs, t);
    if (t > 0) {
      TESSERA_ASSIGN_OR_RETURN(const Tensor before,
                               r.TrainedLayer("Gemm", {state}, without, {{"weight", 2, u}}));
      sums = plus(sums, before);
    }
    const std::vector<Tensor> gate =
        r.Layers("Split", {sums}, Options().Set("num_outputs", 4.0).Set("axis", 1.0), 4);
    const Tensor added = times(sigmoid(gate[0]), tanh(gate[3]));
    memory = t == 0 ? added : plus(times(sigmoid(gate[2]), memory), added);
    state = times(sigmoid(gate[1]), tanh(memory));
    if (r.HasOutput(0)) states.push_back(r.Reshaped(state, Shape{1, units}));
  }
  if (r.HasOutput(0)) {
    recurrence.SetAll(r.Layer("Concat", states, Options().Set("axis", 1.0)));
  }
  if (r.HasOutput(1)) recurrence.SetOne(state, 1);
  if (r.HasOutput(2)) recurrence.SetOne(memory, 2);
  return absl::OkStatus();
}

}  // namespace tessera::worker
