#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "common/status_macros.h"
#include "cuda/dense/gather.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// The given indices of one axis, in the given order; repeats are allowed (ONNX Gather with constant
// indices).
class Gather final : public Op {
 public:
  Gather(const Shape& input, size_t axis, const std::vector<int64_t>& indices)
      : rows_(input.Product(0, axis)),
        size_(static_cast<size_t>(input.dim(axis))),
        inner_(input.Product(axis + 1, input.rank())),
        indices_(indices.begin(), indices.end()),
        cuda_indices_(indices.begin(), indices.end()) {
    Shape output = input;
    output.set_dim(axis, static_cast<int64_t>(indices.size()));
    outputs_ = {output};
    ListPlaces();
  }

  bool BySample() const override { return true; }

  void Forward(const ForwardPass& pass) const override {
    const float* from = pass.inputs[0].data();
    float* to = pass.outputs[0].data();
    for (size_t i = 0; i < pass.batch * rows_; ++i, from += size_ * inner_) {
      for (const size_t index : indices_) {
        to = std::copy(from + index * inner_, from + (index + 1) * inner_, to);
      }
    }
  }

  void Backward(const BackwardPass& pass) const override {
    const absl::Span<float> all = pass.input_gradients[0];
    if (all.empty()) return;
    std::fill(all.begin(), all.end(), 0.0f);
    const float* __restrict dy = pass.output_gradients[0].data();
    float* __restrict dx = all.data();
    for (size_t i = 0; i < pass.batch * rows_; ++i, dx += size_ * inner_) {
      for (const size_t index : indices_) {
        for (size_t j = 0; j < inner_; ++j) dx[index * inner_ + j] += dy[j];
        dy += inner_;
      }
    }
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    cuda::Gather(stream, pass.inputs[0].data(), cuda_indices_.data(), Count(),
                 pass.outputs[0].data(), CudaRows(pass.batch), static_cast<int64_t>(size_),
                 static_cast<int64_t>(inner_));
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    cuda::GatherGradient(stream, pass.output_gradients[0].data(), cuda_places_.data(), different_,
                         Count(), pass.input_gradients[0].data(), CudaRows(pass.batch),
                         static_cast<int64_t>(size_), static_cast<int64_t>(inner_));
  }

 private:
  int64_t Count() const { return static_cast<int64_t>(indices_.size()); }
  int64_t CudaRows(size_t batch) const { return static_cast<int64_t>(batch * rows_); }

  void ListPlaces() {
    std::vector<int32_t> list(indices_.size()), begins;
    std::iota(list.begin(), list.end(), 0);
    std::stable_sort(list.begin(), list.end(),
                     [&](int32_t a, int32_t b) { return indices_[a] < indices_[b]; });
    for (size_t i = 0; i < list.size(); ++i) {
      if (i > 0 && indices_[list[i]] == indices_[list[i - 1]]) continue;
      cuda_places_.push_back(cuda_indices_[list[i]]);
      begins.push_back(static_cast<int32_t>(i));
    }
    different_ = static_cast<int64_t>(begins.size());
    begins.push_back(static_cast<int32_t>(list.size()));
    cuda_places_.insert(cuda_places_.end(), begins.begin(), begins.end());
    cuda_places_.insert(cuda_places_.end(), list.begin(), list.end());
  }

  const size_t rows_;  // of a sample
  const size_t size_;
  const size_t inner_;
  const std::vector<size_t> indices_;
  const std::vector<int32_t> cuda_indices_;
  std::vector<int32_t> cuda_places_;  // of cuda::GatherGradient
  int64_t different_ = 0;             // indices
};

// Options: indices (required), negative ones counted from the end; axis, counted with the batch as
// 0 (1).
absl::StatusOr<std::unique_ptr<Op>> NewGather(absl::Span<const Shape> inputs,
                                              OptionReader& options) {
  TESSERA_RETURN_IF_ERROR(
      ExpectShapes(inputs.size() == 1 && inputs[0].rank() >= 1, "one input [batch, ...]", inputs));
  TESSERA_ASSIGN_OR_RETURN(const size_t axis, inputs[0].SampleAxis(options.Int("axis", 1, -8, 8)));
  const int64_t size = inputs[0].dim(axis);
  std::vector<int64_t> indices = options.Ints("indices", {}, -size, size - 1);
  for (int64_t& index : indices) index += index < 0 ? size : 0;
  if (indices.empty()) options.Fail("indices", "must be set: the indices to take");
  TESSERA_RETURN_IF_ERROR(options.Finish());
  return std::make_unique<Gather>(inputs[0], axis, indices);
}

}  // namespace

std::vector<OpEntry> OpsOfGather() { return {{"Gather", "gather", &NewGather}}; }

}  // namespace tessera::worker
