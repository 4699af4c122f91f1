#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"

namespace tessera::worker {

// The shape of a tensor. A graph leaves the first dimension, the batch, open, so a Shape holds only
// the others: the dimensions of one sample, each at least 1. A value type.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> sample_dims) : dims_(sample_dims) {}

  void Append(int64_t dim) { dims_.push_back(dim); }
  // Dimensions of a sample: 1 for [batch, n].
  size_t rank() const { return dims_.size(); }
  // dim(0) is the dimension after the batch.
  int64_t dim(size_t i) const { return dims_[i]; }
  void set_dim(size_t i, int64_t dim) { dims_[i] = dim; }
  int64_t last() const { return dims_.back(); }
  // Floats of one sample.
  size_t floats() const { return Product(0, dims_.size()); }
  // Product of dims [begin, end); SIZE_MAX if a size_t does not hold it.
  size_t Product(size_t begin, size_t end) const;
  // "[batch, 26, 16]"
  std::string ToString() const;

  // The index for dim() of an axis as ONNX counts it: the batch is 0, negative ones count from the
  // end. INVALID_ARGUMENT for the batch and for an axis that does not exist.
  absl::StatusOr<size_t> SampleAxis(int64_t axis) const;

  bool operator==(const Shape& other) const { return dims_ == other.dims_; }
  bool operator!=(const Shape& other) const { return dims_ != other.dims_; }

 private:
  absl::InlinedVector<int64_t, 4> dims_;
};

}  // namespace tessera::worker
