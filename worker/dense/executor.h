#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/task_pool.h"
#include "cuda/capture_cache.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "worker/dense/buffer.h"
#include "worker/dense/card_step.h"
#include "worker/dense/memory_plan.h"
#include "worker/dense/model.h"

namespace tessera::worker {

// Runs a model forward and backward, on the CPU or on a card. All memory is taken in Resize and
// kept; a step allocates nothing but what a card's driver takes for captured passes, and oneDNN for
// the time of a call. What the caller fills and reads is the machine's memory in either case. The
// same inputs give the same bits, whatever ran before and whatever the number of threads. Not
// thread-safe: one per thread. `model` and `pool` are borrowed and outlive it.
class Executor {
 public:
  // The caller's thread and those of the pool compute; null: the caller's alone.
  explicit Executor(const Model& model, TaskPool* pool = nullptr)
      : Executor(model, pool, nullptr) {}
  // Runs on the stream's card, or on the CPU if `stream` is null. With a stream, every op of the
  // model must run on a card (CheckRunsOnCuda).
  Executor(const Model& model, TaskPool* pool, std::unique_ptr<cuda::Stream> stream);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // What bytes() would return for batches of up to `batch` samples; takes no memory.
  static uint64_t BytesFor(const Model& model, uint32_t batch, bool on_card);
  // What an executor on a card takes of the card's memory for batches of up to `batch` samples:
  // bytes(), the parameters, and what a step sends and brings back. Takes no memory.
  static uint64_t CardBytesFor(const Model& model, uint32_t batch);

  // Sets the batch, 0 included, and takes memory if it is the largest so far. What the buffers held
  // is lost; spans handed out before are void. Unless status() is OK then, nothing but status() may
  // be called.
  void Resize(uint32_t batch);
  uint32_t batch() const { return batch_; }
  // Bytes held, in the card's memory if it runs there.
  uint64_t bytes() const { return (arena_.size() + device_arena_.size()) * sizeof(float); }
  // The first failure. Once it is not OK, results mean nothing. FAILED_PRECONDITION: a batch that
  // Resize was given is too large: for the card even if all its memory were free, on the CPU for
  // the memory that the system gives. There is no other on the CPU.
  absl::Status status() const { return stream_ == nullptr ? no_memory_ : stream_->status(); }

  // The caller fills these before a pass.
  absl::Span<float> dense();               // [batch, dense_width]
  absl::Span<float> pooled(size_t input);  // [batch, fields, dim] of model.inputs()[input]
  absl::Span<float> length(size_t i);      // [batch] of model.lengths()[i]

  // Only on a card, and before the first Resize: from now on the caller fills and reads pooled
  // inputs in the card's memory, in the stream's order. `pooled` and `pooled_gradient` must not be
  // called then.
  void PoolOnCard();
  cuda::Stream* stream() const { return stream_.get(); }       // null: on the CPU
  absl::Span<float> card_pooled(size_t input);                 // as pooled
  absl::Span<const float> card_pooled_gradient(size_t input);  // as pooled_gradient

  // Only on a card; false at first. While true, all passes read the trained parameters from
  // card_parameters() instead of `trained`, and steps leave their gradients in
  // card_trained_gradient() instead of `trained_gradient`. The caller fills and changes the
  // parameters between passes, in the stream's order. Passes made while false overwrite them.
  void KeepParametersOnCard(bool keep) { keeps_parameters_ = keep; }
  // [trained floats]; zeros fill up the last block of kDenseBlockFloats.
  absl::Span<float> card_parameters();
  absl::Span<const float> card_trained_gradient() const;

  // Returns the outputs (logits, or values of a regression) [batch, width] of the first task, valid
  // until the next call. Uses running statistics and no dropout.
  absl::Span<const float> Forward(absl::Span<const float> trained,
                                  absl::Span<const float> statistics);

  // Forward in two calls, like StartStep and FinishStep.
  void StartForward(absl::Span<const float> trained, absl::Span<const float> statistics);
  absl::Span<const float> FinishForward();

  // Outputs of the last pass, [batch, width] of the model's task.
  absl::Span<const float> output(size_t task) const;

  // On a card: from now on gradients are multiplied by `scale`, a power of two (at first 1), while
  // they are computed, so that those of small losses do not vanish in float16. Steps divide by it
  // again at the end.
  void ScaleGradients(float scale) { gradient_scale_ = scale; }
  // On a card: whether passes of a batch size that came before are captured and replayed from now
  // on (at first true). The bits are the same.
  void CapturePasses(bool capture) { capture_passes_ = capture; }
  // Passes replayed so far.
  uint64_t replays() const { return captures_.has_value() ? captures_->replays() : 0; }
  // How many rectifiers of the model the product before them computes, so that they are no kernel
  // of their own in the forward pass; 0 on the CPU.
  size_t relus_in_products() const;

  struct StepResult {
    double loss_sum = 0;  // weighted losses of the samples, with the graph's own; not scaled
    // [batch, width] of the first task, made with batch statistics and dropout.
    absl::Span<const float> logits;
    // If gradients are scaled: whether those of all parameters and inputs are finite.
    bool finite = true;
  };
  // Spans are borrowed and outlive the step.
  struct StepArguments {
    absl::Span<const float> trained, statistics;  // parameters, as Forward's
    Targets targets;                              // of `batch` samples
    float loss_scale = 1;  // the gradient is that of loss_scale * (sum of the samples' losses)
    // These and the model's seed determine the draws of dropout.
    uint64_t dropout_step = 0;
    uint32_t rank = 0;
    absl::Span<float> trained_gradient;  // written whole
    // Written whole: momentum * (running - batch statistic), to be subtracted; for layers that
    // share a statistic the mean of theirs.
    absl::Span<float> statistics_gradient;
  };
  // A step, forward and backward, in two calls. StartStep gives a card all work of the step; work
  // given to its stream in between follows that. FinishStep waits for all of it; gradients are
  // there afterwards.
  void StartStep(const StepArguments& arguments);
  StepResult FinishStep();
  // [batch, fields, dim], valid until the next call.
  absl::Span<const float> pooled_gradient(size_t input) const;

 private:
  // Tensors that are views of each other share one storage.
  struct Storage {
    size_t floats = 0;  // of a sample
    bool needs_gradient = false;
    int32_t value_of = -1;  // an earlier storage whose value (gradient) it overlays; -1: none
    int32_t gradient_of = -1;
    size_t value_at = 0;  // in the arena
    size_t gradient_at = 0;
    // For tensors on a card that the caller touches: where their copies lie in host_.
    size_t staged_value_at = 0;
    size_t staged_gradient_at = 0;
  };
  // An addition to the gradient of a tensor that several ops read: this op writes its part to
  // scratch, from where it is added.
  struct Addition {
    size_t slot = 0;  // of the node's inputs
    int32_t storage = -1;
    size_t scratch_at = 0;  // floats of a sample before it
  };
  // The spans of a node's tensors that belong to some samples.
  struct Part {
    uint32_t first = 0;
    uint32_t batch = 0;
    std::vector<absl::Span<const float>> inputs, output_values, output_gradients;
    std::vector<absl::Span<float>> outputs, input_gradients;
    absl::Span<float> kept;
  };
  struct SharedGradient {
    absl::Span<const float> from;
    absl::Span<float> to;
  };
  // A node's part of the plan, and the spans that its op gets, bound in Resize and in each pass.
  struct Step {
    int32_t node = -1;
    const Op* op = nullptr;
    bool backward = true;  // false: nothing trained lies behind its outputs
    bool training_only = false;
    // On a card (PlanRelus): `relu`: the op also rectifies its output; not `forward`: the product
    // before it rectifies, so this op does nothing in the forward pass.
    bool relu = false;
    bool forward = true;
    size_t kept_at = 0;
    size_t shared_at = 0;
    uint32_t moment = 0;  // when its backward pass runs (BackwardChain)
    std::vector<Addition> additions;
    std::vector<int32_t> unread;  // storages of outputs that nobody reads
    Part whole;
    std::vector<Part> parts;  // for BySample ops: together the batch
    std::vector<absl::Span<const float>> trained, statistics;
    std::vector<absl::Span<float>> trained_gradients, statistics_gradients;
    float statistics_share = 1;  // BackwardPass
    // For a node that shares the parameters of another: where in the arena it writes their
    // gradients, and which spans are then added to the other node's gradients.
    size_t shared_gradients_at = 0;
    std::vector<SharedGradient> shared_gradients;
  };
  // Steps [begin, end) whose backward passes go through the batch part by part, or one step that
  // needs the whole batch. Chains run one after another, at moments 1, 2, ...; the whole forward
  // pass is moment 0.
  struct BackwardChain {
    size_t begin = 0;
    size_t end = 0;
  };
  using Lifetime = MemoryPlan::Lifetime;
  // With the model's seed these determine the draws of dropout.
  struct Draws {
    uint64_t step = 0;
    uint32_t rank = 0;
  };

  // Makes the plan only.
  Executor(const Model& model, bool whole_batches);

  void Plan();
  void PlanStorages();
  void PlanInPlace();
  void PlanSteps();
  void PlanBackward();
  void PlanRelus();
  // By storage.
  std::vector<Lifetime> BackwardMoments() const;
  std::vector<Lifetime> ValueLifetimes() const;
  std::vector<Lifetime> GradientLifetimes() const;
  // Where everything lies for batches up to `capacity`; its floats.
  size_t PlanMemory(uint32_t capacity);
  void Place(uint32_t capacity);
  void BindParameters(absl::Span<const float> trained, absl::Span<const float> statistics);
  void BindGradients(absl::Span<float> trained, absl::Span<float> statistics);
  Part Bind(const Step& step, uint32_t first, uint32_t batch);
  float* arena() const { return stream_ == nullptr ? arena_.data() : device_arena_.data(); }
  // Memory of the device where the op runs.
  absl::Span<float> Value(int32_t tensor);
  absl::Span<float> Gradient(int32_t storage);
  // Memory that the caller reads and writes; on the CPU the same as above.
  absl::Span<float> HostValue(int32_t tensor) const;
  absl::Span<float> HostGradient(int32_t tensor) const;
  ForwardPass NewForwardPass(const Step& step, const Part& part, bool training, Draws draws) const;
  BackwardPass NewBackwardPass(const Step& step, const Part& part, Draws draws) const;
  void RunForward(absl::Span<const float> trained, absl::Span<const float> statistics,
                  bool training, Draws draws);
  void RunBackward(Draws draws);
  // Adds the gradients that nodes wrote for shared parameters to those of the nodes that own them.
  void AddShared();
  void Backward(const Step& step, const Part& part, Draws draws);
  uint64_t RandomKey(int32_t node, Draws draws) const;
  double EvaluateLosses(const Targets& targets, float loss_scale);

  // executor_cuda.cc
  void PlaceOnCard(size_t arena_floats, uint32_t capacity);
  absl::Status CheckCardMemory(size_t arena_floats, uint32_t capacity) const;
  void TakeParameters();
  void StartForwardOnCard(absl::Span<const float> trained, absl::Span<const float> statistics);
  void StartStepOnCard(const StepArguments& arguments);
  void StageParameters(absl::Span<const float> trained, absl::Span<const float> statistics);
  void GiveToCard(uint64_t form, absl::FunctionRef<void()> give);
  void RunForwardOnCard(bool training);
  void RunLossesOnCard();
  void RunBackwardOnCard();
  void AddSharedOnCard();
  void ScaleGradientsBack();
  void StartGradientsFromCard();

  const Model& model_;
  TaskPool* const pool_;
  const std::unique_ptr<cuda::Stream> stream_;
  std::optional<cuda::CaptureCache> captures_;  // of the stream
  std::vector<int32_t> staged_inputs_;  // inputs copied to the card: all but those pooled there
  std::vector<int32_t> storage_of_;     // by tensor
  std::vector<Storage> storages_;
  std::vector<Step> steps_;     // without views
  bool whole_batches_ = false;  // no step goes part by part
  std::vector<BackwardChain> backward_;
  size_t scratch_floats_ = 0;  // per sample, for Addition
  size_t scratch_at_ = 0;
  size_t op_scratch_floats_ = 0;  // the most that an op asks for
  size_t op_scratch_at_ = 0;

  bool capture_passes_ = true;
  float gradient_scale_ = 1;
  uint32_t batch_ = UINT32_MAX;  // none yet
  uint32_t capacity_ = 0;
  size_t parts_ = 1;                   // of the batch
  std::vector<uint32_t> group_order_;  // for ranking losses
  Buffer arena_;
  absl::Status no_memory_;  // on the CPU: of the first batch that there was none for
  // Between StartStep and FinishStep.
  StepResult result_;
  absl::Span<float> trained_gradient_, statistics_gradient_;
  // Only on a card: the arena, host_ for copies of inputs and outputs, and the parameters.
  cuda::Memory device_arena_, host_;
  cuda::Memory parameters_, parameters_host_;  // trained, in whole blocks, then statistics
  bool keeps_parameters_ = false;
  std::unique_ptr<CardStep> card_step_;
  std::vector<uint64_t> random_keys_;  // of a step on a card, by node
};

// FAILED_PRECONDITION names the first node whose op does not run on a card.
absl::Status CheckRunsOnCuda(const Model& model);

}  // namespace tessera::worker
