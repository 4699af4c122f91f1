#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/task_pool.h"
#include "cuda/stream.h"
#include "worker/dense/initializer.h"
#include "worker/dense/options.h"
#include "worker/dense/precision.h"
#include "worker/dense/shape.h"

namespace tessera::worker {

struct ParameterSpec {
  std::string name;            // within the node: "weight", "bias"
  std::vector<int64_t> shape;  // row-major
  Initializer initializer;
  // true: trained by gradients; false: a running statistic.
  bool trained = true;
};

// What one run of an op forward reads and writes. Tensors are row-major [batch, sample shape];
// spans have exactly that many floats, never overlap but where an op allows it (ForwardInPlace),
// and are borrowed for the call.
struct ForwardPass {
  size_t batch = 0;
  // Place of a part in its batch (Op::BySample); for a whole batch 0 and `batch`.
  size_t first_sample = 0;
  size_t whole_batch = 0;
  // Batch statistics and dropout, and `kept` is there to be filled; else it is empty.
  bool training = false;
  // The key of this node in this step: its draws are RandomBits(random_key, i). Training only.
  uint64_t random_key = 0;
  const uint64_t* card_random_key = nullptr;  // the same on a card, in its memory
  absl::Span<const absl::Span<const float>> inputs;
  absl::Span<const absl::Span<float>> outputs;
  // Parameters of each kind, in the order of Op::parameters().
  absl::Span<const absl::Span<const float>> trained;
  absl::Span<const absl::Span<const float>> statistics;
  absl::Span<float> kept;     // [KeptFloats(batch)], given to Backward again
  absl::Span<float> room;     // for an op that UsesRoom: `kept` in training, else as many floats
  absl::Span<float> shared;   // [SharedFloats()], written by PrepareForward; training only
  absl::Span<float> scratch;  // [ScratchFloats() or more], holds anything
  // Threads for large work (parallel.h); null: the caller's alone, as other parts run at once
  // already. Results never depend on it.
  TaskPool* pool = nullptr;
  Precision precision = Precision::kFloat32;  // of products
  // On a card, for an op that EndsInRelu: write 0 in place of every output below 0.
  bool relu = false;
};

// What one run of an op backward reads and writes; fields as in ForwardPass. Gradients are those of
// the loss. Every gradient span that is not empty is written whole, not added to: the executor adds
// where a tensor has several readers.
struct BackwardPass {
  size_t batch = 0;
  size_t first_sample = 0;
  size_t whole_batch = 0;
  uint64_t random_key = 0;
  const uint64_t* card_random_key = nullptr;
  absl::Span<const absl::Span<const float>> inputs;
  absl::Span<const absl::Span<const float>> outputs;
  absl::Span<const absl::Span<const float>> output_gradients;
  absl::Span<const absl::Span<const float>> trained;
  absl::Span<const absl::Span<const float>> statistics;
  absl::Span<float> kept;     // Backward may write over it, for ParameterGradients to read
  absl::Span<float> shared;   // PrepareBackward may write what PrepareForward has left free
  absl::Span<float> scratch;  // [ScratchFloats() or more], holds anything
  TaskPool* pool = nullptr;
  Precision precision = Precision::kFloat32;  // of products
  // A span is empty if nobody needs that gradient.
  absl::Span<const absl::Span<float>> input_gradients;
  absl::Span<const absl::Span<float>> trained_gradients;
  // momentum * statistics_share * (running - batch statistic), to be subtracted from the running
  // statistic.
  absl::Span<const absl::Span<float>> statistics_gradients;
  float statistics_share = 1;  // 1 / the number of nodes whose statistics these are
};

// One node's computation at fixed sample shapes. Immutable after construction and so thread-safe:
// all that changes is in the passes. Lives as long as its Graph. Neither pass allocates.
class Op {
 public:
  virtual ~Op() = default;

  const std::vector<Shape>& outputs() const { return outputs_; }
  const std::vector<ParameterSpec>& parameters() const { return parameters_; }
  // The op has one input, and its one output is that under another shape: neither pass runs, and
  // the executor lets both share memory.
  virtual bool IsView() const { return false; }
  // Forward and Backward treat every sample by itself. They are then called for parts of the batch,
  // in any order and at once, with tensors and `kept` cut to the part; they must not use scratch.
  // Both passes are cut alike, at multiples of 8 samples. Work that spans the batch belongs into
  // the two Prepare functions and ParameterGradients.
  virtual bool BySample() const { return false; }
  // The output may overwrite the first input: neither pass reads that input afterwards.
  virtual bool ForwardInPlace() const { return false; }
  // The first input's gradient may overwrite the output's: ParameterGradients reads neither.
  virtual bool BackwardInPlace() const { return false; }
  // The passes after Forward read the outputs' values, so nothing may overwrite them.
  virtual bool ReadsOutputs() const { return true; }
  // False: the gradient of every input is 0, whatever the inputs are. No backward pass goes through
  // the op then, and what is before it is not trained by what is behind it.
  virtual bool PassesGradient() const { return true; }
  // Floats to keep from Forward to Backward; for a BySample op a multiple of `batch`.
  virtual size_t KeptFloats(size_t batch) const { return 0; }
  // Forward writes ForwardPass::room, in evaluation too.
  virtual bool UsesRoom() const { return false; }
  // Floats for the whole batch that PrepareForward writes and all later calls read.
  virtual size_t SharedFloats() const { return 0; }
  // Floats of scratch that a pass may overwrite, the same for every batch.
  virtual size_t ScratchFloats() const { return 0; }

  // Each pass begins with a Prepare call over the whole batch: statistics in training, sums that
  // the input gradients need. All passes are correct for every batch size, 0 included.
  virtual bool Prepares() const { return false; }
  virtual void PrepareForward(const ForwardPass& pass) const {}
  virtual void Forward(const ForwardPass& pass) const = 0;
  virtual void PrepareBackward(const BackwardPass& pass) const {}
  virtual void Backward(const BackwardPass& pass) const = 0;
  // Computes gradients of parameters that no other gradient needs; called for the whole batch, some
  // time after Backward.
  virtual void ParameterGradients(const BackwardPass& pass) const {}

  // The passes on a card, if RunsOnCuda. All spans are of the card's memory, which only cuda/
  // touches; the batch is whole. One call does the work of all calls of its pass above,
  // ParameterGradients before anything that may overwrite the output's gradient. Errors are the
  // stream's. Both give the stream work that is captured and replayed in later steps
  // (cuda::Stream::Capture), so numbers that change from step to step are read in the card's
  // memory.
  virtual bool RunsOnCuda() const { return false; }
  // CudaForward can rectify the output as it writes it (ForwardPass::relu), and neither pass reads
  // the output. The executor then leaves out an IsRelu op that is its only reader.
  virtual bool EndsInRelu() const { return false; }
  // The output is max(input, 0), and CudaBackward reads the output, not the input.
  virtual bool IsRelu() const { return false; }
  virtual void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const {}
  virtual void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const {}

 protected:
  // Filled by the constructor.
  std::vector<Shape> outputs_;
  std::vector<ParameterSpec> parameters_;
};

// Checks the inputs' shapes and the options, calls options.Finish() and makes the op. Messages say
// what was expected and found; the graph puts the node's name, op and inputs before them.
using OpFactory = absl::StatusOr<std::unique_ptr<Op>> (*)(absl::Span<const Shape> inputs,
                                                          OptionReader& options);

}  // namespace tessera::worker
