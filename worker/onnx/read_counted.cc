// Whole numbers that count the samples of a batch, as PyTorch's arange(batch) gives. They can be
// read where they lead each sample to its own place of the batch's axis, as in x[arange(batch),
// place]: as an index of two axes (GatherND), or of both as one (Gather), for which they are
// multiplied by the places of the other one. Likewise the places of a mask that all samples have
// alike, and places that are given other numbers (ScatterND).
#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/read_axes.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

constexpr int64_t kMostPerSample = int64_t{1} << 31;
// OnnxValue::per_sample of what is more than a sum, of which only the shape can be read: PyTorch
// takes the largest of several indices for the shape that all of them have.
constexpr int64_t kUnknown = INT64_MAX;

bool IsWholeType(int64_t type) {
  return type == onnx::TensorProto::INT64 || type == onnx::TensorProto::INT32;
}

absl::Status Unreadable() {
  return absl::UnimplementedError(
      "reads numbers that count the samples of a batch; expected them to be an index of the "
      "batch's "
      "axis, as in x[arange(batch), place]");
}

// Sums, differences and multiples.
absl::StatusOr<int64_t> PerSampleOf(const OnnxNodeReader& r) {
  const std::string& op = r.node().op_type();
  const OnnxValue &a = r.in(0), &b = r.in(1);
  if (op == "Max") return kUnknown;
  if (a.per_sample == kUnknown || b.per_sample == kUnknown) return Unreadable();
  int64_t per_sample = op == "Sub" ? a.per_sample - b.per_sample : a.per_sample + b.per_sample;
  if (op == "Mul") {
    const OnnxValue& times = a.per_sample == 0 ? a : b;
    const bool known = times.ints.size() == 1 && times.per_sample == 0 && !times.HasBatch() &&
                       times.ints[0] >= -kMostPerSample && times.ints[0] <= kMostPerSample;
    if (!known) return Unreadable();
    per_sample *= times.ints[0];
  }
  if (per_sample < -kMostPerSample || per_sample > kMostPerSample) return Unreadable();
  return per_sample;
}

// Lists of indices that begin with the sample's own number.
absl::Status ReadLists(OnnxNodeReader& r) {
  const OnnxValue& counted = r.in(0);
  const std::vector<int64_t> dims = r.DimsOf(counted);
  const int64_t rank = static_cast<int64_t>(dims.size()), axis = r.Int("axis", 0);
  bool first = r.inputs() > 1 && counted.per_sample == 1 && counted.IsAll(0) && dims.back() == 1 &&
               (axis == -1 || axis == rank - 1);
  for (size_t i = 1; i < r.inputs(); ++i) first &= !r.in(i).CountsSamples();
  if (!first) return Unreadable();
  OnnxValue indices = r.in(1);
  if (r.inputs() > 2) {
    std::vector<OnnxValue> others;
    for (size_t i = 1; i < r.inputs(); ++i) others.push_back(r.in(i));
    TESSERA_ASSIGN_OR_RETURN(indices, r.AlongAxis("Concat", -1, others));
  }
  std::vector<int64_t> alike = r.DimsOf(indices);
  if (alike.size() == dims.size()) alike.back() = 1;
  if (alike != dims) {
    return absl::InvalidArgumentError(
        absl::StrCat(DimsText(dims), " beside ", DimsText(r.DimsOf(indices))));
  }
  indices.behind_sample = true;
  r.Set(std::move(indices));
  return absl::OkStatus();
}

// x [batch * places, ...] where an index is the sample's number times `places`, and a place.
absl::Status ReadOfOneAxis(OnnxNodeReader& r) {
  if (r.in(0).CountsSamples()) return Unreadable();
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  OnnxValue indices = r.in(1);
  const bool first = r.Int("axis", 0) == 0 && !x.IsUnbatched() && x.batch_axis() == 0 &&
                     x.axes[0][0] == 0 && !indices.behind_sample && indices.per_sample != kUnknown;
  if (!first) return Unreadable();
  x.axes.insert(x.axes.begin() + 1, {x.axes[0].begin() + 1, x.axes[0].end()});
  x.axes[0] = {0};
  if (indices.per_sample != r.DimsOf(x)[1]) {
    return absl::UnimplementedError(absl::StrCat("indices that count samples by ",
                                                 indices.per_sample, ", each of which has ",
                                                 r.DimsOf(x)[1], " places"));
  }
  indices.per_sample = 0;
  // A negative one is of the sample before.
  TESSERA_RETURN_IF_ERROR(CheckPlaces(indices, 0, r.DimsOf(x)[1]));
  TESSERA_ASSIGN_OR_RETURN(OnnxValue chosen, ChosenBySample(r, x, indices));
  r.Set(std::move(chosen));
  return absl::OkStatus();
}

// x [batch, ...], of which a mask that all samples have alike names places: [batch * places, ...].
absl::Status ReadOfMask(OnnxNodeReader& r) {
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  const OnnxValue& mask = r.in(1);
  const std::vector<int64_t> dims = r.DimsOf(x);
  const auto named = static_cast<size_t>(mask.dims[1]);
  const bool lists = IsBatch(mask.dims[0]) && !IsBatch(mask.dims[1]) && !x.IsUnbatched() &&
                     dims[0] == BatchTimes(1) && named <= dims.size() &&
                     r.Int("batch_dims", 0) == 0;
  if (!lists) return Unreadable();
  if (named > 1) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> places,
                             MergedPlaces(mask.ints, {dims.data() + 1, named - 1}));
    MergeAxes(x, 1, named - 1);
    TakePlaces(r, x, 1, places);
    MergeAxes(x, 0, 2);
  }
  r.Set(std::move(x));
  return absl::OkStatus();
}

// x [batch, places, ...]; indices [batch, ..., 1] behind the sample's number.
absl::Status ReadOfTwoAxes(OnnxNodeReader& r) {
  if (r.in(0).CountsSamples()) return Unreadable();
  if (r.in(1).of_mask) return ReadOfMask(r);
  TESSERA_ASSIGN_OR_RETURN(const OnnxValue x, r.TensorIn(0));
  OnnxValue indices = r.in(1);
  const bool lists = indices.behind_sample && !x.IsUnbatched() && x.batch_axis() == 0 &&
                     r.Int("batch_dims", 0) == 0 && r.DimsOf(indices).back() == 1;
  if (!lists) return Unreadable();
  indices.behind_sample = false;
  TESSERA_ASSIGN_OR_RETURN(indices, r.AlongAxis("Squeeze", -1, {indices}));
  TESSERA_ASSIGN_OR_RETURN(OnnxValue chosen, ChosenBySample(r, x, indices));
  r.Set(std::move(chosen));
  return absl::OkStatus();
}

// x [batch, ...] with other numbers at known places behind the sample's number.
absl::Status ReadPutBehind(OnnxNodeReader& r) {
  if (r.in(0).CountsSamples() || r.in(2).CountsSamples() || !r.in(1).behind_sample) {
    return Unreadable();
  }
  TESSERA_ASSIGN_OR_RETURN(OnnxValue x, r.TensorIn(0));
  TESSERA_ASSIGN_OR_RETURN(OnnxValue updates, r.TensorIn(2));
  const OnnxValue& indices = r.in(1);
  const std::vector<int64_t> dims = r.DimsOf(indices);
  const bool known = indices.kind == OnnxValue::Kind::kInts && dims[0] == BatchTimes(1) &&
                     !x.IsUnbatched() && x.batch_axis() == 0 && !updates.IsUnbatched() &&
                     updates.batch_axis() == 0;
  if (!known) {
    return absl::UnimplementedError(
        "places that samples compute; expected known ones, as in x[:, 3] = y, or Where");
  }
  if (dims.size() == 2) {  // one place
    TESSERA_ASSIGN_OR_RETURN(updates, r.AlongAxis("Unsqueeze", 1, {updates}));
  } else if (updates.axes.size() > dims.size() - 2) {
    MergeAxes(updates, 1, dims.size() - 2);
  }
  TESSERA_ASSIGN_OR_RETURN(x, WithPlaces(r, std::move(x), 1, static_cast<size_t>(dims.back()),
                                         indices.ints, std::move(updates)));
  r.Set(std::move(x));
  return absl::OkStatus();
}

}  // namespace

bool CountsSamples(const OnnxNodeReader& r) {
  for (size_t i = 0; i < r.inputs(); ++i) {
    if (r.in(i).CountsSamples()) return true;
  }
  return false;
}

absl::Status ReadCounted(OnnxNodeReader& r, OnnxRead read) {
  static const auto* const moves = new std::set<std::string>{"Expand",  "Identity",  "Reshape",
                                                             "Squeeze", "Transpose", "Unsqueeze"};
  static const auto* const sums = new std::set<std::string>{"Add", "Max", "Mul", "Sub"};
  const std::string& op = r.node().op_type();
  const bool moves_it = moves->contains(op) || (op == "Cast" && IsWholeType(r.Int("to", 0)));
  for (size_t i = 0; i < r.inputs() && !moves_it && op != "Shape" && op != "Size"; ++i) {
    const bool sorted = r.in(i).per_sample != 0 && r.in(i).counts != OnnxValue::kAnyOrder;
    if (sorted) return Unreadable();
  }
  if (op == "Concat") return ReadLists(r);
  if (op == "Gather") return ReadOfOneAxis(r);
  if (op == "GatherND") return ReadOfTwoAxes(r);
  if (op == "ScatterND") return ReadPutBehind(r);
  if (op == "Transpose" && r.in(0).of_mask) {
    OnnxValue turned = r.in(0);
    const onnx::AttributeProto* const perm = r.Attribute("perm");
    if (perm == nullptr || perm->ints_size() == 0 || perm->ints(0) == 1)
      std::swap(turned.dims[0], turned.dims[1]);
    r.Set(std::move(turned));
    return absl::OkStatus();
  }
  for (size_t i = 0; i < r.inputs(); ++i) {
    if (r.in(i).behind_sample || r.in(i).of_mask) return Unreadable();
  }
  if (op == "Shape" || op == "Size") return read(r);
  int64_t per_sample = r.in(0).per_sample;
  if (sums->contains(op) && r.inputs() == 2) {
    TESSERA_ASSIGN_OR_RETURN(per_sample, PerSampleOf(r));
  } else if (!moves_it) {
    return Unreadable();
  }
  const std::string counts = moves_it ? r.in(0).counts : OnnxValue::kAnyOrder;
  TESSERA_RETURN_IF_ERROR(read(r));
  OnnxValue made = r.out();
  made.per_sample = per_sample;
  made.counts = counts;
  r.Set(std::move(made));
  return absl::OkStatus();
}

}  // namespace tessera::worker
