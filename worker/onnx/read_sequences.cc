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

// What GRU and LSTM have in common: forward over x [batch, places, n], backward, or both, from
// zeros on.
class Recurrence {
 public:
  // How the places are walked: weights have the directions one after another.
  struct Direction {
    size_t number = 0;
    bool backward = false;
  };

  // `gates` of a unit; `activations` as ONNX would list them; the first `states` of its inputs from
  // 5 on are where it begins.
  static absl::StatusOr<Recurrence> Read(OnnxNodeReader& r, int64_t gates,
                                         const std::vector<std::string>& activations,
                                         size_t states) {
    const onnx::AttributeProto* const direction = r.Attribute("direction");
    const onnx::AttributeProto* const functions = r.Attribute("activations");
    Recurrence made(r, r.Int("layout", 0) != 0);
    const std::string walk = direction == nullptr ? "forward" : direction->s();
    if (walk != "forward" && walk != "reverse" && walk != "bidirectional") {
      return absl::InvalidArgumentError(absl::StrCat("its direction is \"", walk, "\""));
    }
    if (walk != "reverse") made.directions_.push_back({0, false});
    if (walk != "forward") made.directions_.push_back({made.directions_.size(), true});
    std::vector<std::string> expected;
    for (size_t d = 0; d < made.directions_.size(); ++d) {
      expected.insert(expected.end(), activations.begin(), activations.end());
    }
    const bool usual =
        functions == nullptr || std::equal(functions->strings().begin(), functions->strings().end(),
                                           expected.begin(), expected.end());
    if (r.Has(4) || !usual || r.Attribute("clip") != nullptr) {
      return absl::UnimplementedError("expected no lengths, the usual activations, no clip");
    }
    for (size_t i = 5; i < 5 + states; ++i) {
      if (!r.Has(i)) continue;
      TESSERA_ASSIGN_OR_RETURN(const std::vector<float> start, r.FloatsIn(i));
      const bool zeros = std::all_of(start.begin(), start.end(), [](float v) { return v == 0; });
      if (r.in(i).trained || !zeros) return absl::UnimplementedError("its first state is not 0");
    }
    TESSERA_ASSIGN_OR_RETURN(const OnnxValue x, r.TensorIn(0));
    const std::vector<int64_t> dims = r.DimsOf(x), &w = r.in(1).dims;
    const size_t batch = made.batch_first_ ? 0 : 1, places = 1 - batch;
    if (dims.size() != 3 || dims[batch] != BatchTimes(1)) {
      return absl::UnimplementedError(absl::StrCat("of ", DimsText(dims)));
    }
    if (w.size() != 3 || w[0] != static_cast<int64_t>(made.directions_.size()) ||
        w[1] % gates != 0 || w[2] != dims[2]) {
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

  const std::vector<Direction>& directions() const { return directions_; }
  int64_t width() const { return r_.shape(x_).last(); }
  int64_t places() const { return places_; }
  int64_t units() const { return units_; }

  // x as the direction comes to its places.
  Tensor Walked(const Direction& direction) const { return direction.backward ? Turned(x_) : x_; }
  // Parameter `name` of a layer, the direction's `size` numbers of input i.
  absl::StatusOr<OnnxNodeReader::Weight> WeightOf(const Direction& direction,
                                                  const std::string& name, size_t i,
                                                  int64_t size) const {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<float> numbers, r_.FloatsIn(i));
    const int64_t all = size * static_cast<int64_t>(directions_.size());
    if (static_cast<int64_t>(numbers.size()) != all) {
      return absl::InvalidArgumentError(
          absl::StrCat("input ", i, " has ", numbers.size(), " numbers, expected ", all));
    }
    OnnxNodeReader::Weight weight = {name, i, {}};
    const auto begin = numbers.begin() + static_cast<int64_t>(direction.number) * size;
    weight.start.assign(begin, begin + size);
    if (directions_.size() > 1) weight.part = absl::StrCat("direction ", direction.number);
    return weight;
  }
  // One place of states [batch, places, n], as [batch, n].
  Tensor Place(Tensor states, int64_t place) const {
    const Tensor one = Sliced(r_, states, 1, place, place + 1);
    return r_.Reshaped(one, Shape{r_.shape(states).last()});
  }
  // ONNX's output 0, of each direction's states [batch, places, units], as it came to the places.
  void SetAll(const std::vector<Tensor>& states) {
    std::vector<Tensor> parts;
    for (const Direction& direction : directions_) {
      const Tensor of = states[direction.number];
      const Tensor in_order = direction.backward ? Turned(of) : of;
      parts.push_back(r_.Reshaped(in_order, Shape{places_, 1, units_}));
    }
    OnnxValue y;
    y.tensor = Joined(parts, 2);
    y.axes = batch_first_ ? std::vector<Axes>{{0}, {1}, {2}, {3}}
                          : std::vector<Axes>{{1}, {2}, {0}, {3}};
    r_.Set(std::move(y));
  }
  // Another output, of each direction's state [batch, units].
  void SetOne(const std::vector<Tensor>& states, int output) {
    std::vector<Tensor> parts;
    for (const Tensor state : states) parts.push_back(r_.Reshaped(state, Shape{1, units_}));
    OnnxValue y;
    y.tensor = Joined(parts, 1);
    y.axes = batch_first_ ? std::vector<Axes>{{0}, {1}, {2}} : std::vector<Axes>{{1}, {0}, {2}};
    r_.Set(std::move(y), output);
  }

 private:
  Recurrence(OnnxNodeReader& r, bool batch_first) : r_(r), batch_first_(batch_first) {}

  // The last place first.
  Tensor Turned(Tensor x) const {
    std::vector<int64_t> places;
    for (int64_t place = places_; place-- > 0;) places.push_back(place);
    return r_.Layer("Gather", {x}, Options().Set("indices", places).Set("axis", 1.0));
  }
  Tensor Joined(const std::vector<Tensor>& parts, double axis) const {
    return parts.size() == 1 ? parts[0] : r_.Layer("Concat", parts, Options().Set("axis", axis));
  }

  OnnxNodeReader& r_;
  bool batch_first_;
  std::vector<Direction> directions_;
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

namespace {

// Both are our ops: GRU in the form of PyTorch and Keras, and LSTM.
absl::Status ReadRecurrence(OnnxNodeReader& r, const std::string& op, int64_t gates,
                            const std::vector<std::string>& activations) {
  const bool has_memory = op == "LSTM";
  TESSERA_ASSIGN_OR_RETURN(Recurrence recurrence,
                           Recurrence::Read(r, gates, activations, /*states=*/has_memory ? 2 : 1));
  const int64_t units = recurrence.units(), width = recurrence.width();
  const bool all = r.HasOutput(0), memory = has_memory && r.HasOutput(2);
  google::protobuf::Struct options =
      Options().Set("units", static_cast<double>(units)).Set("sequence", all);
  if (memory) (*options.mutable_fields())["memory"].set_bool_value(true);
  std::vector<Tensor> states, last, memories;
  for (const Recurrence::Direction& direction : recurrence.directions()) {
    std::vector<OnnxNodeReader::Weight> weights;
    for (const auto& [name, i, size] : {std::tuple("weight", size_t{1}, gates * units * width),
                                        std::tuple("recurrence", size_t{2}, gates * units * units),
                                        std::tuple("bias", size_t{3}, 2 * gates * units)}) {
      if (i == 3 && !r.Has(3)) continue;  // it begins at 0
      TESSERA_ASSIGN_OR_RETURN(weights.emplace_back(),
                               recurrence.WeightOf(direction, name, i, size));
    }
    TESSERA_ASSIGN_OR_RETURN(const std::vector<Tensor> made,
                             r.TrainedLayers(op, {recurrence.Walked(direction)}, options,
                                             std::move(weights), memory ? 2 : 1));
    if (all) states.push_back(made[0]);
    if (memory) memories.push_back(made[1]);
    if (!r.HasOutput(1)) continue;
    last.push_back(all ? recurrence.Place(made[0], recurrence.places() - 1) : made[0]);
  }
  if (all) recurrence.SetAll(states);
  if (r.HasOutput(1)) recurrence.SetOne(last, 1);
  if (memory) recurrence.SetOne(memories, 2);
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadGru(OnnxNodeReader& r) {
  if (r.Int("linear_before_reset", 0) == 0) {
    return absl::UnimplementedError("expected linear_before_reset 1");
  }
  return ReadRecurrence(r, "GRU", 3, {"Sigmoid", "Tanh"});
}

absl::Status ReadLstm(OnnxNodeReader& r) {
  if (r.Has(7) || r.Int("input_forget", 0) != 0) {
    return absl::UnimplementedError("expected no peepholes, and input_forget 0");
  }
  return ReadRecurrence(r, "LSTM", 4, {"Sigmoid", "Tanh", "Tanh"});
}

}  // namespace tessera::worker
