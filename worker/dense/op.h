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
#include "worker/dense/options.h"
#include "worker/dense/precision.h"
#include "worker/dense/shape.h"

namespace tessera::worker {

// How a parameter starts.
struct Initializer {
  enum class Kind { kConstant, kXavierNormal };
  Kind kind = Kind::kConstant;
  float value = 0;  // kConstant: every number; kXavierNormal: a factor
  // kXavierNormal: value * N(0, 2 / (fan_in + fan_out)) (Glorot, Bengio 2010).
  int64_t fan_in = 0;
  int64_t fan_out = 0;
};

struct ParameterSpec {
  std::string name;            // within the node: "weight", "bias"
  std::vector<int64_t> shape;  // row-major
  Initializer initializer;
  // Trained by gradients, or a running statistic.
  bool trained = true;
};

// What one run of an op forward reads and writes. Tensors are row-major [batch, sample shape];
// spans have exactly that many floats, never overlap but where an op allows it (ForwardInPlace),
// and are borrowed for the call.
struct ForwardPass {
  size_t batch = 0;
  // Where this is a part of a batch (Op::BySample), else 0 and `batch`.
  size_t first_sample = 0;
  size_t whole_batch = 0;
  // Batch statistics and dropout, and `kept` is there to be filled; else it is empty.
  bool training = false;
  // Of this node in this step: RandomBits(random_key, i) are its draws. Training only.
  uint64_t random_key = 0;
  const uint64_t* card_random_key = nullptr;  // the same on a card, in its memory
  absl::Span<const absl::Span<const float>> inputs;
  absl::Span<const absl::Span<float>> outputs;
  // In the order of Op::parameters(), those of each kind.
  absl::Span<const absl::Span<const float>> trained;
  absl::Span<const absl::Span<const float>> statistics;
  absl::Span<float> kept;     // [KeptFloats(batch)], comes back in Backward
  absl::Span<float> room;     // of an op that UsesRoom: `kept` in training, and else as many floats
  absl::Span<float> shared;   // [SharedFloats()], of PrepareForward; training only
  absl::Span<float> scratch;  // [ScratchFloats() or more], holds anything
  // Shares large work (parallel.h); null: none, or others share it already. Results never depend
  // on it.
  TaskPool* pool = nullptr;
  Precision precision = Precision::kFloat32;  // of products
  // On a card, of an op that EndsInRelu: where a number of the output would be below 0, it is 0.
  bool relu = false;
};

// The same, backward. Gradients are those of the loss. Every gradient span that is not empty is
// written whole, not added to: the executor adds where a tensor has several readers.
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
  absl::Span<float> kept;  // Backward may write over it, for ParameterGradients to read
  absl::Span<const float> shared;
  absl::Span<float> scratch;  // [ScratchFloats() or more], holds anything
  TaskPool* pool = nullptr;
  Precision precision = Precision::kFloat32;  // of products
  // Empty where nobody needs it.
  absl::Span<const absl::Span<float>> input_gradients;
  absl::Span<const absl::Span<float>> trained_gradients;
  // momentum * (running - batch statistic): what is subtracted from the statistic.
  absl::Span<const absl::Span<float>> statistics_gradients;
};

// One node's computation at fixed sample shapes. Immutable after construction and so thread-safe:
// all that changes is in the passes. Lives as long as its Graph. Neither pass allocates.
class Op {
 public:
  virtual ~Op() = default;

  const std::vector<Shape>& outputs() const { return outputs_; }
  const std::vector<ParameterSpec>& parameters() const { return parameters_; }
  // The one output is the one input under another shape: neither pass runs, the executor lets both
  // share memory.
  virtual bool IsView() const { return false; }
  // Forward and Backward treat every sample by itself. They are then called for parts of the batch,
  // in any order and at once, with tensors and `kept` cut to the part; scratch, too, is not theirs.
  // Both are cut alike, at samples that are multiples of 8. What spans the batch belongs to the
  // three below.
  virtual bool BySample() const { return false; }
  // The output may be the memory of the first input: neither pass reads the input after that.
  virtual bool ForwardInPlace() const { return false; }
  // The first input's gradient may be the memory of the output's: ParameterGradients reads neither.
  virtual bool BackwardInPlace() const { return false; }
  // The passes after Forward read the outputs' values, so that nobody may write over them.
  virtual bool ReadsOutputs() const { return true; }
  // Floats to keep from Forward to Backward; of an op that is BySample, `batch` times a number.
  virtual size_t KeptFloats(size_t batch) const { return 0; }
  // Forward writes ForwardPass::room, in evaluation too.
  virtual bool UsesRoom() const { return false; }
  // Floats of the whole batch that PrepareForward writes and all that follows reads.
  virtual size_t SharedFloats() const { return 0; }
  // Floats that either pass may write as it likes, whatever the batch.
  virtual size_t ScratchFloats() const { return 0; }

  // Both passes are correct for every batch, 0 included. Each begins with what needs the whole
  // batch: statistics in training, sums that the input gradients need.
  virtual bool Prepares() const { return false; }
  virtual void PrepareForward(const ForwardPass& pass) const {}
  virtual void Forward(const ForwardPass& pass) const = 0;
  virtual void PrepareBackward(const BackwardPass& pass) const {}
  virtual void Backward(const BackwardPass& pass) const = 0;
  // Gradients of parameters that no other gradient needs: some time after Backward, whole batch.
  virtual void ParameterGradients(const BackwardPass& pass) const {}

  // The same on a card, where an op has it: all spans are of the card's memory, which only cuda/
  // touches, the batch is whole, and one call does the work of all the calls above,
  // ParameterGradients before what may write over the output's gradient. Errors are the stream's.
  // Both give the stream work that is captured and replayed in later steps (cuda::Stream::Capture):
  // what changes from step to step is read in the card's memory.
  virtual bool RunsOnCuda() const { return false; }
  // CudaForward can rectify the output as it writes it (ForwardPass::relu), and neither pass reads
  // it. The executor then leaves out an op that IsRelu and is all that reads it.
  virtual bool EndsInRelu() const { return false; }
  // The output is max(input, 0), and CudaBackward reads the output alone, not the input.
  virtual bool IsRelu() const { return false; }
  virtual void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const {}
  virtual void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const {}

 protected:
  // Filled by the constructor.
  std::vector<Shape> outputs_;
  std::vector<ParameterSpec> parameters_;
};

// Checks the inputs' shapes and the options and makes the op. Messages say what was expected and
// found; the graph puts the node's name, op and inputs before them. It also calls options.Finish().
using OpFactory = absl::StatusOr<std::unique_ptr<Op>> (*)(absl::Span<const Shape> inputs,
                                                          OptionReader& options);

}  // namespace tessera::worker
