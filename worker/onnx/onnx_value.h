#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
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
  // Axes of a tensor of the dense graph, outermost first; 0 is the batch.
  using Axes = std::vector<int>;

  Kind kind = Kind::kTensor;
  Tensor tensor;
  // kTensor: for each axis of ONNX the axes of `tensor` that it stands for; none: its size is 1.
  // Each axis of `tensor` is there once. So what a file transposes, splits and merges moves nothing
  // until an op needs it in a certain form, and the batch may be anywhere. Of what is computed of
  // parameters alone the batch is nowhere: every sample has the same. An axis of size 1 may be
  // missing there, since a tensor has one besides the batch and a number of ONNX has none.
  std::vector<Axes> axes;
  // Of kFloats and kInts; empty: one number. The batch may be among them: the same numbers for
  // every sample.
  std::vector<int64_t> dims;
  std::vector<float> floats;
  std::vector<int64_t> ints;  // the batch's size among them: BatchTimes
  // kFloats: an initializer, to be trained; else a number that stays.
  bool trained = false;
  // Trained, and read in several forms: a tensor without the batch for every node.
  bool in_forms = false;
  // Trained, and read by one node alone: what that cuts apart may be trained apart.
  bool read_once = false;
  // kFloats: the name that has the numbers as they are in the file, and how they were moved since.
  std::string source;
  std::string form;
  // kFloats, of a source: the layer that trains it, and as what; empty: none does yet. Where that
  // is a Parameter, `tensor` is its.
  std::string trained_by;
  std::string trained_as;

  // [batch, ...], as the dense graph has it; `rank` is the tensor's, without the batch.
  static OnnxValue Of(Tensor tensor, size_t rank);
  static OnnxValue OfInts(std::vector<int64_t> ints);  // [n]
  static OnnxValue OfInt(int64_t number);

  // Whether it is known whole numbers, and all of them this one.
  bool IsAll(int64_t number) const;

  // Which axis of ONNX has the batch; of kTensor. axes.size(): none.
  size_t batch_axis() const;
  // Whether it was computed of parameters alone.
  bool IsUnbatched() const { return kind == Kind::kTensor && batch_axis() == axes.size(); }
  // Whether its dimensions have the batch; of what is known.
  bool HasBatch() const;
};

// The size of the batch is not known when a file is read: `factor` times it, as a number among
// known ones. `factor` is from 1 to 2^31.
constexpr int64_t BatchTimes(int64_t factor) { return INT64_MIN + factor; }
constexpr bool IsBatch(int64_t size) { return size < INT64_MIN / 2; }
// A number that is known is its own.
constexpr int64_t BatchFactor(int64_t size) { return IsBatch(size) ? size - INT64_MIN : size; }
// A number of a file, which knows nothing of that: those that are far below 0 mean "as far as it
// goes".
constexpr int64_t NumberOfFile(int64_t number) { return IsBatch(number) ? INT64_MIN / 2 : number; }
// Of a constant's axis, whose numbers the batch repeats.
constexpr int64_t KnownSize(int64_t size) { return IsBatch(size) ? 1 : size; }
// "[batch, 3, 4]", with what is no size as it stands.
std::string DimsText(const std::vector<int64_t>& dims);

// Of TensorProto::DataType: floats, which become float32.
bool IsFloatType(int64_t type);
// The numbers of a tensor in the file. UNIMPLEMENTED: another element type than the floats, whole
// numbers and truth values that networks have, or data outside of the file. INVALID_ARGUMENT: dims
// and data disagree.
absl::StatusOr<OnnxValue> ValueOfTensor(const onnx::TensorProto& tensor);

// The same with what is no printable ASCII escaped: messages travel as UTF-8, and names in a
// damaged file need not be that.
absl::Status Printable(const absl::Status& status);

}  // namespace tessera::worker
