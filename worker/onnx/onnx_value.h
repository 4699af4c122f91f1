#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/dense/graph.h"
#include "worker/onnx/onnx_proto.h"

namespace tessera::worker {

// The value of a name of an ONNX file while the file is read. A value type.
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
  // Each axis of `tensor` occurs once. So a file's transposes, splits and merges move nothing until
  // an op needs a certain form, and the batch may be anywhere. A value computed from parameters
  // alone has no batch axis: every sample has the same. An axis of size 1 of `tensor` may be left
  // out, since a tensor needs one besides the batch and a scalar of ONNX has none.
  std::vector<Axes> axes;
  // kTensor: of whole numbers or truth values in the file; they are floats here, too.
  bool whole = false;
  // kFloats, kInts: the dimensions; empty: one number. If the batch is among them, every sample has
  // the same numbers.
  std::vector<int64_t> dims;
  std::vector<float> floats;
  std::vector<int64_t> ints;  // the batch's size is BatchTimes
  // kTensor, kInts: whole numbers to which each sample adds its own number in the batch, from 0,
  // times this. Only what read_counted.cc reads may have it.
  int64_t per_sample = 0;
  // kTensor, kInts: lists of indices, along the last axis, before the first of which each sample
  // has its own number in the batch. Likewise.
  bool behind_sample = false;
  // kInts: where a mask that all samples have alike is not 0. The dimensions are those of the file,
  // [axes, batch * places] or turned; `ints` are the places of one sample, one list of axes after
  // another, without the batch's axis, the first. Likewise.
  bool of_mask = false;
  // In which order the batch has its samples (read_sorted.cc): empty: that of the file; kAnyOrder:
  // they are alike; else the name of what sorts them. Of numbers that count samples also the order
  // of those that they count.
  static constexpr char kAnyOrder[] = "\n";
  std::string order;
  std::string counts;
  // kFloats: an initializer that is trained; else constants.
  bool trained = false;
  // Trained, and read in several forms: becomes a tensor without the batch for every node.
  bool in_forms = false;
  // Trained, and read by one node alone: if that node splits it, the parts may be parameters of
  // their own.
  bool read_once = false;
  // kFloats: the name that has the numbers as in the file, and how they were moved since.
  std::string source;
  std::string form;
  // kFloats, kept for a source: the layer that trains it and as which parameter; empty: none yet.
  // If that layer is a Parameter, `tensor` is its output.
  std::string trained_by;
  std::string trained_as;

  // A tensor [batch, ...] in the dense graph's order of axes; `rank` is its rank without the batch.
  static OnnxValue Of(Tensor tensor, size_t rank);
  static OnnxValue OfInts(std::vector<int64_t> ints);  // [n]
  static OnnxValue OfInt(int64_t number);

  // Whether the value is known whole numbers that all equal `number`.
  bool IsAll(int64_t number) const;

  // Whether the value is known, and one number everywhere.
  bool IsOneNumber() const;

  // kTensor: the axis of ONNX that has the batch; axes.size(): none.
  size_t batch_axis() const;
  // Whether the value was computed from parameters alone.
  bool IsUnbatched() const { return kind == Kind::kTensor && batch_axis() == axes.size(); }
  // kFloats, kInts: whether the dimensions have the batch.
  bool HasBatch() const;
  // Whether the value differs from sample to sample by the sample's number.
  bool CountsSamples() const { return per_sample != 0 || behind_sample || of_mask; }
};

// Stands for `factor` times the size of the batch, which is not known when a file is read, and
// `more`, among known numbers. `factor` is from 1 to 2^31, `more`, which only arithmetic has, from
// 0 to 2^20.
constexpr int64_t BatchTimes(int64_t factor, int64_t more = 0) {
  return INT64_MIN + (more << 32) + factor;
}
constexpr bool IsBatch(int64_t size) { return size < INT64_MIN / 2; }
// The factor of BatchTimes; of a known number the number itself.
constexpr int64_t BatchFactor(int64_t size) {
  return IsBatch(size) ? (size - INT64_MIN) & UINT32_MAX : size;
}
constexpr int64_t BatchMore(int64_t size) { return IsBatch(size) ? (size - INT64_MIN) >> 32 : 0; }
// Keeps a number of a file from being taken for BatchTimes: numbers far below 0 mean "as far as
// possible" there.
constexpr int64_t NumberOfFile(int64_t number) { return IsBatch(number) ? INT64_MIN / 2 : number; }
// The size of a constant's axis; 1 for the batch's, along which the numbers repeat.
constexpr int64_t KnownSize(int64_t size) { return IsBatch(size) ? 1 : size; }
// "[batch, 3, 4]"; numbers that are no sizes are printed unchanged.
std::string DimsText(const std::vector<int64_t>& dims);

// Whether a TensorProto::DataType is of floats, which become float32.
bool IsFloatType(int64_t type);
// The numbers of a tensor in the file. UNIMPLEMENTED: another element type than the floats, whole
// numbers and truth values that networks have, or data outside of the file. INVALID_ARGUMENT: dims
// and data disagree.
absl::StatusOr<OnnxValue> ValueOfTensor(const onnx::TensorProto& tensor);

// The status with all but printable ASCII escaped: messages travel as UTF-8, which names in a
// damaged file need not be.
absl::Status Printable(const absl::Status& status);

}  // namespace tessera::worker
