#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/onnx/read.h"

// Numbers that are known when the file is read, and moved without a layer (read_known.cc).
namespace tessera::worker {

// Broadcasting of known numbers.
struct KnownBroadcast {
  std::vector<int64_t> dims;
  size_t size = 1;  // for one sample, if the batch is among `dims`

  // Broadcasts all inputs, which are known. INVALID_ARGUMENT: sizes that are not equal or 1;
  // UNIMPLEMENTED: more than 2^20 numbers.
  static absl::StatusOr<KnownBroadcast> Of(const OnnxNodeReader& r);
  // The place in an operand that belongs to place `i` of the result.
  size_t PlaceIn(const OnnxValue& value, size_t i) const;
};
// Known numbers in another order of axes.
OnnxValue TransposedKnown(OnnxValue value, const std::vector<size_t>& perm);
// Known numbers of one kind, side by side along an axis; their other dimensions are equal.
OnnxValue JoinedKnown(const std::vector<OnnxValue>& parts, size_t axis);
// The given places of an axis of known numbers.
OnnxValue TakenOfKnown(const OnnxValue& value, size_t axis, const std::vector<int64_t>& places);
// Whether the node's first input is known numbers that are not trained.
bool ReadsKnown(const OnnxNodeReader& r);
// An axis of known numbers that is not the batch's, counted from the end where negative.
// UNIMPLEMENTED: it is the batch's, or there is none.
absl::StatusOr<size_t> KnownAxis(int64_t axis, const OnnxValue& known);

}  // namespace tessera::worker
