// Table: what a call may ask of it. Nothing here changes a row.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/job/dense_layout.h"
#include "common/job/optimizer.h"
#include "common/math/bfloat16.h"
#include "common/math/optim/largest_gradient.h"
#include "common/partition.h"
#include "ps/tables/table.h"

namespace tessera::ps {
namespace {

// Whether a number is at most `most` (0 or more) in magnitude; NaN is not. For both types that
// cross the wire: float32, and bfloat16 as its bits.
bool IsWithin(float x, float most) { return std::fabs(x) <= most; }
bool IsWithin(uint16_t half, uint16_t most) {
  constexpr uint16_t kSign = 0x8000;
  return (half & ~kSign) <= most;
}

// Index of the first number beyond `most`; `count`: all are within.
template <typename Number>
size_t FirstBeyond(const Number* numbers, size_t count, Number most) {
  // Counted first, which vectorises; found after.
  uint32_t bad = 0;
  for (size_t i = 0; i < count; ++i) bad += !IsWithin(numbers[i], most);
  if (bad == 0) return count;
  return std::find_if_not(numbers, numbers + count,
                          [most](Number x) { return IsWithin(x, most); }) -
         numbers;
}

}  // namespace

absl::Status Table::CheckOwned(absl::Span<const uint64_t> keys) const {
  const size_t i = KeyBatch::FirstNotOwned(keys, partitions_);
  if (i == keys.size()) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("table ", name(), ": key ", keys[i], " is in partition ",
                   PartitionOf(keys[i], partitions_.partition_count()).value(),
                   ", which this ps does not own; the partition map has moved on, refresh it"));
}

absl::Status Table::CheckAssigned(absl::Span<const uint64_t> keys) const {
  if (!dense()) return absl::OkStatus();
  const size_t i = store_.FirstAbsent(keys);
  if (i == keys.size()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("table ", name(), ": block ", keys[i],
                   " of the dense parameters has no value yet; it must be assigned or restored "
                   "before it is pulled or pushed"));
}

absl::Status Table::CheckWhole() const {
  const char* why = nullptr;
  if (sync()) why = "it is in sync mode";
  if (every_row()) why = "each step moves every row";
  if (by_tensor()) why = "the steps of its rows depend on each other";
  if (admission_ != nullptr) why = "its admission counts the gradients of a key";
  if (why == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "table ", name(), ": workers cannot have whole rows, or push changes of them: ", why));
}

absl::Status Table::CheckFinite(const Gradients& gradients, float most) const {
  const size_t width = gradients.changes ? optimizer_->layout().floats() : dim();
  const bool halved = wire_bfloat16() && !gradients.changes;
  const size_t n = gradients.keys.size() * width;
  const auto* const halves = static_cast<const uint16_t*>(gradients.values);
  const auto* const floats = static_cast<const float*>(gradients.values);
  constexpr uint16_t kLargestHalf = 0x7f7f;
  const uint16_t most_half = std::min(math::NearestBfloat16(most), kLargestHalf);
  const size_t i = halved ? FirstBeyond(halves, n, most_half) : FirstBeyond(floats, n, most);
  if (i == n) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "table ", name(), ": key ", gradients.keys[i / width], ", element ", i % width, ": value is ",
      halved ? math::FromBfloat16(halves[i]) : floats[i], ", expected a finite number",
      most < std::numeric_limits<float>::max() ? absl::StrCat(" of at most ", most) : "",
      "; nothing of this call was applied; if the training diverges, lower the learning rate or "
      "set train.clip; if it fails at once, look for very large numbers in the data"));
}

float Table::largest_gradient() const {
  return math::LargestGradient(RowOptionsOf(spec_.spec().optimizer()));
}

absl::Status Table::CheckRate(double learning_rate_scale) const {
  const double rate = spec_.spec().optimizer().learning_rate() * learning_rate_scale;
  if (std::isfinite(static_cast<float>(rate)) && learning_rate_scale >= 0 &&
      std::isfinite(static_cast<float>(learning_rate_scale))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("table ", name(), ": learning_rate_scale is ", learning_rate_scale,
                   ", expected a number of at least 0 with which the learning rate of ",
                   spec_.spec().optimizer().learning_rate(), " is a finite float32"));
}

absl::Status Table::CheckCut(absl::Span<const RowRecord> rows) const {
  for (const RowRecord& row : rows) {
    if (DenseLayout::IsOfTensor(row.key) == by_tensor()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "table ", name(), ": block ", row.key, " of the dense parameters was cut ",
        by_tensor() ? "without regard to tensors, and lamb needs them" : "by tensors, for lamb",
        "; model.optimizer may not change to lamb or from it, nor a version from before tensors "
        "had a ratio be followed by this one"));
  }
  return absl::OkStatus();
}

}  // namespace tessera::ps
