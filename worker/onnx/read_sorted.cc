// Samples in another order, as PyTorch sorts a batch by its lengths (pack_padded_sequence with
// enforce_sorted=False) and puts it back. Nothing moves: a value knows the order of its samples,
// and those of two orders must not meet.
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/reads.h"

namespace tessera::worker {
namespace {

bool IsAny(const std::string& order) { return order == OnnxValue::kAnyOrder; }

std::string OrderText(const std::string& order) {
  return order.empty() ? "the file's order" : absl::StrCat("the order of \"", order, "\"");
}

bool HasOrder(const OnnxValue& value) {
  return value.CountsSamples() || (value.kind == OnnxValue::Kind::kTensor && !value.IsUnbatched());
}

// Numbers of samples, one for each, and nothing more.
bool IsCount(const OnnxNodeReader& r, size_t i) {
  const OnnxValue& value = r.in(i);
  return value.per_sample == 1 && value.IsAll(0) && !value.behind_sample && !value.of_mask &&
         value.dims == std::vector<int64_t>{BatchTimes(1)};
}

bool IsAlongBatch(const OnnxNodeReader& r, int64_t axis) {
  if (r.in(0).CountsSamples()) return false;
  const std::vector<int64_t> dims = r.DimsOf(r.in(0));
  const int64_t rank = static_cast<int64_t>(dims.size()), at = axis < 0 ? axis + rank : axis;
  return at >= 0 && at < rank && dims[static_cast<size_t>(at)] == BatchTimes(1);
}

absl::Status MeetingOrders(const std::string& a, const std::string& b) {
  return absl::UnimplementedError(absl::StrCat("samples in ", OrderText(a), " meet samples in ",
                                               OrderText(b), ": that would mix samples"));
}

OnnxValue CountsOf(const std::string& order, const std::string& of) {
  OnnxValue counted = OnnxValue::OfInts({0});
  counted.dims = {BatchTimes(1)};
  counted.per_sample = 1;
  counted.order = order;
  counted.counts = of;
  return counted;
}

}  // namespace

absl::StatusOr<std::string> OrderOfInputs(const OnnxNodeReader& r) {
  std::string order = OnnxValue::kAnyOrder;
  for (size_t i = 0; i < r.inputs(); ++i) {
    if (!HasOrder(r.in(i)) || IsAny(r.in(i).order)) continue;
    if (!IsAny(order) && order != r.in(i).order) return MeetingOrders(order, r.in(i).order);
    order = r.in(i).order;
  }
  return order;
}

bool IsOfOrder(const OnnxNodeReader& r) {
  const std::string& op = r.node().op_type();
  if (op == "TopK") {
    const bool of_samples =
        r.IsTensor(0) && r.in(0).axes.size() == 1 && IsAlongBatch(r, r.Int("axis", -1));
    return r.in(1).IsAll(BatchTimes(1)) &&
           (of_samples || (IsCount(r, 0) && r.Int("largest", 1) == 0));
  }
  if (op == "Gather") return IsCount(r, 1) && IsAlongBatch(r, r.Int("axis", 0));
  return op == "ScatterElements" && IsAlongBatch(r, r.Int("axis", 0)) && IsCount(r, 1) &&
         IsCount(r, 2);
}

absl::Status ReadOfOrder(OnnxNodeReader& r) {
  const std::string& op = r.node().op_type();
  if (op == "TopK") {
    OnnxValue sorted = r.in(0), counted = CountsOf(r.name(), "");
    if (IsCount(r, 0)) {  // what sorts the numbers of samples leads back
      counted = CountsOf(sorted.counts, sorted.order);
      sorted = CountsOf(OnnxValue::kAnyOrder, OnnxValue::kAnyOrder);
    } else if (!sorted.order.empty() && !IsAny(sorted.order)) {
      return absl::UnimplementedError("sorts samples that are sorted already");
    } else {
      sorted.order = r.name();
    }
    if (r.HasOutput(0)) r.Set(std::move(sorted));
    if (r.HasOutput(1)) r.Set(std::move(counted), 1);
    return absl::OkStatus();
  }
  const OnnxValue& counted = r.in(1);
  if (op == "ScatterElements") {  // the places of the numbers in this order lead back
    if (!IsAny(r.in(2).counts)) return MeetingOrders(counted.order, r.in(2).counts);
    r.Set(CountsOf(counted.counts, counted.order));
    return absl::OkStatus();
  }
  OnnxValue x = r.in(0);
  if (HasOrder(x)) {
    const bool any = IsAny(x.order) || IsAny(counted.counts);
    if (!any && x.order != counted.counts) return MeetingOrders(x.order, counted.counts);
    if (!IsAny(counted.order)) x.order = counted.order;
  }
  r.Set(std::move(x));
  return absl::OkStatus();
}

}  // namespace tessera::worker
