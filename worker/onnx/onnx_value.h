#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/dense/graph.h"
#include "worker/onnx/onnx_proto.h"

namespace tessera::worker {

// What a name of an ONNX file stands for while the file is read. A value type.
struct OnnxValue {
  enum class Kind {
    kTensor,  // of the dense graph, with the batch
    kFloats,  // known numbers, without the batch
    kInts,    // known whole numbers: shapes, axes, indices
  };
  // In place of a dimension: the batch, whose size is not known.
  static constexpr int64_t kBatch = INT64_MIN;

  Kind kind = Kind::kTensor;
  Tensor tensor;
  // The tensor is [batch, 1] and stands for [batch], which the dense graph has not.
  bool flat = false;
  // The tensor stands for one with the axes of a sample first and the batch last.
  bool batch_last = false;
  std::vector<int64_t> dims;  // of kFloats and kInts; empty: one number
  std::vector<float> floats;
  std::vector<int64_t> ints;
  // kFloats: an initializer, to be trained, and its name; else a number that stays.
  bool trained = false;
  std::string initializer;

  static OnnxValue Of(Tensor tensor, bool flat = false);
  static OnnxValue OfInts(std::vector<int64_t> ints);  // [n]
};

// The numbers of a tensor in the file. UNIMPLEMENTED: another element type than the floats and
// whole numbers that networks have, or data outside of the file. INVALID_ARGUMENT: dims and data
// disagree.
absl::StatusOr<OnnxValue> ValueOfTensor(const onnx::TensorProto& tensor);

}  // namespace tessera::worker
