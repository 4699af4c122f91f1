#include "worker/onnx/recurrence.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tessera::worker {
namespace {

using Axes = OnnxValue::Axes;

// Whether input i of the node is missing, or known and 0.
bool IsZero(const OnnxNodeReader& r, size_t i) {
  if (!r.Has(i)) return true;
  const OnnxValue& value = r.in(i);
  return value.kind == OnnxValue::Kind::kFloats && !value.trained &&
         std::all_of(value.floats.begin(), value.floats.end(), [](float v) { return v == 0; });
}

}  // namespace

absl::StatusOr<OnnxRecurrence> OnnxRecurrence::Read(OnnxNodeReader& r, int64_t gates,
                                                    const std::vector<std::string>& activations,
                                                    size_t states) {
  const onnx::AttributeProto* const direction = r.Attribute("direction");
  const onnx::AttributeProto* const functions = r.Attribute("activations");
  OnnxRecurrence made(r);
  made.batch_first_ = r.Int("layout", 0) != 0;
  made.gates_ = gates;
  made.states_ = states;
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
  const bool usual = functions == nullptr || activations.empty() ||
                     std::equal(functions->strings().begin(), functions->strings().end(),
                                expected.begin(), expected.end());
  if (!usual || r.Attribute("clip") != nullptr) {
    return absl::UnimplementedError("expected the usual activations, no clip");
  }
  for (size_t i = 5; i < 5 + states; ++i) made.begins_at_zero_ &= IsZero(r, i);
  TESSERA_ASSIGN_OR_RETURN(const OnnxValue x, r.TensorIn(0));
  TESSERA_RETURN_IF_ERROR(r.FloatsIn(1).status());
  const std::vector<int64_t> dims = r.DimsOf(x), &w = r.in(1).dims;
  const size_t batch = made.batch_first_ ? 0 : 1, places = 1 - batch;
  if (dims.size() != 3 || dims[batch] != BatchTimes(1)) {
    return absl::UnimplementedError(
        absl::StrCat("of ", DimsText(dims), "; expected sequences of samples, ",
                     made.batch_first_ ? "[batch, places, n]" : "[places, batch, n]"));
  }
  if (w.size() != 3 || w[0] != static_cast<int64_t>(made.directions_.size()) || w[1] < gates ||
      w[1] % gates != 0 || w[2] != dims[2]) {
    return absl::InvalidArgumentError(
        absl::StrCat("its weights ", DimsText(w), " do not fit the input ", DimsText(dims)));
  }
  made.places_ = dims[places];
  made.units_ = w[1] / gates;
  if (r.IsTensor(4)) {
    const OnnxValue& lengths = r.in(4);
    if (lengths.IsUnbatched() || r.shape(lengths.tensor) != Shape{1}) {
      return absl::InvalidArgumentError(
          absl::StrCat("its lengths are ", DimsText(r.DimsOf(lengths)), ", expected [batch]"));
    }
    made.lengths_ = lengths.tensor;
  } else if (r.Has(4) && !r.in(4).IsAll(made.places_)) {
    return absl::UnimplementedError(absl::StrCat(
        "expected no lengths, those of samples, or numbers that are all ", made.places_));
  }
  // Axes of size 1 beside the batch join those of a place.
  Axes place = x.axes[2];
  std::copy_if(x.axes[batch].begin(), x.axes[batch].end(), std::back_inserter(place),
               [](int axis) { return axis != 0; });
  made.x_ = r.Arranged(x, {x.axes[places], place});
  return made;
}

absl::StatusOr<OnnxNodeReader::Weight> OnnxRecurrence::WeightOf(const Direction& direction,
                                                                const std::string& name, size_t i,
                                                                int64_t size, int64_t begin,
                                                                int64_t count) const {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<float> numbers, r_.FloatsIn(i));
  const int64_t all = size * static_cast<int64_t>(directions_.size());
  if (static_cast<int64_t>(numbers.size()) != all) {
    return absl::InvalidArgumentError(
        absl::StrCat("input ", i, " has ", numbers.size(), " numbers, expected ", all));
  }
  OnnxNodeReader::Weight weight = {name, i, {}};
  const auto from = numbers.begin() + static_cast<int64_t>(direction.number) * size + begin;
  weight.start.assign(from, from + count);
  if (directions_.size() > 1) weight.part = absl::StrCat("direction ", direction.number);
  if (count != size) absl::StrAppend(&weight.part, " from ", begin);
  return weight;
}

Tensor OnnxRecurrence::LastOf(Tensor states) const {
  if (!has_lengths()) return Place(states, places_ - 1);
  const auto below = [&](Tensor lengths) {
    return r_.Layer("SequenceMask", {lengths}, Options().Set("size", static_cast<double>(places_)));
  };
  const Tensor one = NumberBeside(r_, lengths_, 1);
  const Tensor is_last =
      r_.Layer("Sub", {below(lengths_), below(r_.Layer("Sub", {lengths_, one}))});
  return r_.Layer("ReduceSum", {r_.Layer("Mul", {states, is_last})},
                  Options().Set("axes", std::vector<int64_t>{1}).Set("keepdims", false));
}

Tensor OnnxRecurrence::Place(Tensor states, int64_t place) const {
  const Tensor one = Sliced(r_, states, 1, place, place + 1);
  return r_.Reshaped(one, Shape{r_.shape(states).last()});
}

absl::StatusOr<Tensor> OnnxRecurrence::First(const Direction& direction, size_t state) const {
  const size_t i = 5 + state;
  if (IsZero(r_, i)) {
    const std::vector<int64_t> shape = {units_};
    return r_.Layer("Constant", {}, Options().Set("shape", shape).Set("value", 0.0));
  }
  r_.TakeExample(i, batch_first_ ? 0 : 1);
  if (r_.in(i).HasBatch()) TESSERA_RETURN_IF_ERROR(r_.TensorIn(i).status());
  const OnnxValue place = OnnxValue::OfInt(static_cast<int64_t>(direction.number));
  TESSERA_ASSIGN_OR_RETURN(const OnnxValue first,
                           r_.AlongAxis("Gather", batch_first_ ? 1 : 0, {r_.in(i), place}));
  const std::vector<int64_t> dims = r_.DimsOf(first);
  if (first.kind != OnnxValue::Kind::kTensor || dims.size() != 2 || dims[0] != BatchTimes(1) ||
      dims[1] != units_) {
    return absl::UnimplementedError(
        absl::StrCat("a direction begins at ", DimsText(dims), ", expected [batch, ", units_, "]"));
  }
  return r_.Flat(first);
}

void OnnxRecurrence::SetAll(const std::vector<Tensor>& states) {
  std::vector<Tensor> parts;
  for (const Direction& direction : directions_) {
    const Tensor of = states[direction.number];
    const Tensor in_order = direction.backward ? Turned(of) : of;
    parts.push_back(r_.Reshaped(in_order, Shape{places_, 1, units_}));
  }
  OnnxValue y;
  y.tensor = Joined(parts, 2);
  y.axes =
      batch_first_ ? std::vector<Axes>{{0}, {1}, {2}, {3}} : std::vector<Axes>{{1}, {2}, {0}, {3}};
  r_.Set(std::move(y));
}

void OnnxRecurrence::SetOne(const std::vector<Tensor>& states, int output) {
  std::vector<Tensor> parts;
  for (const Tensor state : states) parts.push_back(r_.Reshaped(state, Shape{1, units_}));
  OnnxValue y;
  y.tensor = Joined(parts, 1);
  y.axes = batch_first_ ? std::vector<Axes>{{0}, {1}, {2}} : std::vector<Axes>{{1}, {0}, {2}};
  r_.Set(std::move(y), output);
}

absl::StatusOr<Tensor> OnnxRecurrence::Product(const Direction& direction, size_t i, Tensor x,
                                               int64_t first, int64_t last) const {
  const int64_t in = i == 1 ? width() : units_;
  const int64_t rows = (last - first) * units_, all = gates_ * units_;
  std::vector<OnnxNodeReader::Weight> weights;
  TESSERA_ASSIGN_OR_RETURN(weights.emplace_back(), WeightOf(direction, "weight", i, all * in,
                                                            first * units_ * in, rows * in));
  if (r_.Has(3)) {
    const int64_t begin = (i == 1 ? 0 : all) + first * units_;
    TESSERA_ASSIGN_OR_RETURN(weights.emplace_back(),
                             WeightOf(direction, "bias", 3, 2 * all, begin, rows));
  }
  return r_.TrainedLayer("Gemm", {x},
                         Options().Set("units", static_cast<double>(rows)).Set("bias", r_.Has(3)),
                         std::move(weights), absl::StrCat("weights ", i, " of gates from ", first));
}

absl::Status OnnxRecurrence::SetUnrolled(const Cell& cell) {
  if (places_ > 1024) {
    return absl::UnimplementedError(absl::StrCat("of ", places_, " places, above 1024"));
  }
  std::vector<Tensor> all;                         // by direction
  std::vector<std::vector<Tensor>> last(states_);  // of a state, by direction
  for (const Direction& direction : directions_) {
    TESSERA_ASSIGN_OR_RETURN(const Tensor x, Product(direction, 1, Walked(direction), 0, gates_));
    std::vector<Tensor> states, given;
    for (size_t state = 0; state < states_; ++state) {
      TESSERA_ASSIGN_OR_RETURN(states.emplace_back(), First(direction, state));
    }
    for (int64_t step = 0; step < places_; ++step) {
      const std::vector<Tensor> before = states;
      TESSERA_ASSIGN_OR_RETURN(states, cell(direction, Place(x, step), before));
      Tensor shown = states[0];
      if (has_lengths()) {
        const int64_t place = direction.backward ? places_ - 1 - step : step;
        shown = WithinLengths(place, shown, NumberBeside(r_, shown, 0));
        for (size_t state = 0; state < states_; ++state) {
          states[state] = WithinLengths(place, states[state], before[state]);
        }
      }
      given.push_back(r_.Reshaped(shown, Shape{1, units_}));
    }
    all.push_back(Joined(given, 1));
    for (size_t state = 0; state < states_; ++state) last[state].push_back(states[state]);
  }
  if (r_.HasOutput(0)) SetAll(all);
  for (size_t state = 0; state < states_; ++state) {
    const auto output = static_cast<int>(state) + 1;
    if (r_.HasOutput(output)) SetOne(last[state], output);
  }
  return absl::OkStatus();
}

Tensor OnnxRecurrence::WithinLengths(int64_t place, Tensor after, Tensor before) const {
  const Tensor at = NumberBeside(r_, lengths_, static_cast<double>(place));
  const Tensor within = r_.Layer("Step", {r_.Layer("Sub", {lengths_, at})});
  return r_.Layer("Where", {within, after, before});
}

Tensor OnnxRecurrence::Turned(Tensor x) const {
  std::vector<int64_t> places;
  for (int64_t place = places_; place-- > 0;) places.push_back(place);
  return r_.Layer("Gather", {x}, Options().Set("indices", places).Set("axis", 1.0));
}

Tensor OnnxRecurrence::Joined(const std::vector<Tensor>& parts, double axis) const {
  return parts.size() == 1 ? parts[0] : r_.Layer("Concat", parts, Options().Set("axis", axis));
}

}  // namespace tessera::worker
