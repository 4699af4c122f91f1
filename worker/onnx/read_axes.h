#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/onnx/read.h"

// Forms of tensors and their axes, which readers of ops share.
namespace tessera::worker {

// The given places of an axis of ONNX.
void TakePlaces(OnnxNodeReader& r, OnnxValue& x, size_t axis, const std::vector<int64_t>& indices);
// Splits the axis into axes of ONNX of these sizes, whose product is its size.
void SplitAxis(OnnxNodeReader& r, OnnxValue& x, size_t axis, const std::vector<int64_t>& sizes);
// Makes `count` axes of ONNX from `first` on one.
void MergeAxes(OnnxValue& x, size_t first, size_t count);
// For lists of `named` indices, one after another, of axes of these sizes: the place of each list
// where the axes are one. INVALID_ARGUMENT: an index does not exist.
absl::StatusOr<std::vector<int64_t>> MergedPlaces(const std::vector<int64_t>& indices,
                                                  absl::Span<const int64_t> sizes);

// A constant number of the rank of x.
Tensor NumberBeside(OnnxNodeReader& r, Tensor x, double value);

// x without what is behind its point: floor(max(x, 0)) - floor(max(-x, 0)). Without a gradient.
Tensor Truncated(OnnxNodeReader& r, Tensor x);
// Places `begin` to `end` of an axis of the tensor.
Tensor Sliced(OnnxNodeReader& r, Tensor x, int axis, int64_t begin, int64_t end);
// The tensor with `before` and `after` more places at the ends of an axis, which hold `value`.
Tensor Padded(OnnxNodeReader& r, Tensor x, int axis, int64_t before, int64_t after, double value);
// `indices` of a list of this size, counted from its end where negative. INVALID_ARGUMENT: one does
// not exist.
absl::StatusOr<std::vector<int64_t>> CountedFromStart(std::vector<int64_t> indices, int64_t size);
// Whether the axis, counted from the end where negative, is the batch's.
bool IsBatchAxis(int64_t axis, const OnnxValue& x);

}  // namespace tessera::worker
