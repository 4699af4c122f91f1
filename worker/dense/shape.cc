#include "worker/dense/shape.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera::worker {

size_t Shape::Product(size_t begin, size_t end) const {
  size_t product = 1;
  for (size_t i = begin; i < end; ++i) {
    if (__builtin_mul_overflow(product, static_cast<size_t>(dims_[i]), &product)) return SIZE_MAX;
  }
  return product;
}

std::string Shape::ToString() const {
  if (dims_.empty()) return "[batch]";
  return absl::StrCat("[batch, ", absl::StrJoin(dims_, ", "), "]");
}

absl::StatusOr<size_t> Shape::SampleAxis(int64_t axis) const {
  const int64_t all = static_cast<int64_t>(rank()) + 1;
  const int64_t positive = axis < 0 ? axis + all : axis;
  if (positive < 1 || positive >= all) {
    return absl::InvalidArgumentError(
        absl::StrCat("axis ", axis, " of ", ToString(), ": expected 1 to ", all - 1,
                     " (0 is the batch) or the same counted from the end, -", all - 1, " to -1"));
  }
  return static_cast<size_t>(positive - 1);
}

}  // namespace tessera::worker
