// The executor's plan: which tensors share memory, who adds to a gradient, where everything lies.
#include <algorithm>

#include "worker/dense/executor.h"

namespace tessera::worker {

void Executor::PlanStorages() {
  const Graph& graph = model_.graph();
  for (const GraphTensor& tensor : graph.tensors()) {
    const GraphNode* producer = tensor.producer < 0 ? nullptr : &graph.nodes()[tensor.producer];
    if (producer != nullptr && producer->op->IsView()) {
      storage_of_.push_back(storage_of_[producer->inputs[0]]);
      continue;
    }
    storage_of_.push_back(static_cast<int32_t>(storages_.size()));
    storages_.push_back({tensor.shape.floats(), tensor.needs_gradient});
  }
}

// Backward runs in reverse: the first node that reads a tensor there writes its gradient, the
// others write beside it and are added.
void Executor::PlanSteps() {
  const Graph& graph = model_.graph();
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    if (graph.nodes()[n].op->IsView()) continue;
    steps_.emplace_back().node = static_cast<int32_t>(n);
    op_scratch_floats_ = std::max(op_scratch_floats_, graph.nodes()[n].op->ScratchFloats());
  }
  std::vector<bool> written(storages_.size(), false);
  written[storage_of_[graph.output()]] = true;  // by the loss
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    const GraphNode& node = graph.nodes()[step->node];
    step->backward = graph.tensors()[node.outputs[0]].needs_gradient;
    if (!step->backward) continue;
    for (const int32_t tensor : node.outputs) {
      if (!written[storage_of_[tensor]]) step->unread.push_back(storage_of_[tensor]);
    }
    size_t scratch = 0;
    for (size_t slot = 0; slot < node.inputs.size(); ++slot) {
      const int32_t index = storage_of_[node.inputs[slot]];
      if (!storages_[index].needs_gradient) continue;
      if (written[index]) {
        step->additions.push_back({slot, index, scratch});
        scratch += Buffer::RoundUp(storages_[index].floats);
      }
      written[index] = true;
    }
    scratch_floats_ = std::max(scratch_floats_, scratch);
  }
}

// Lays out the arena for batches up to `capacity`.
void Executor::Place(uint32_t capacity) {
  capacity_ = capacity;
  size_t at = 0;
  const auto take = [&](size_t floats) {
    const size_t begin = at;
    at += Buffer::RoundUp(floats);
    return begin;
  };
  for (Storage& storage : storages_) {
    storage.value_at = take(capacity * storage.floats);
    if (storage.needs_gradient) storage.gradient_at = take(capacity * storage.floats);
  }
  for (Step& step : steps_) {
    step.kept_at = take(model_.graph().nodes()[step.node].op->KeptFloats(capacity));
  }
  scratch_at_ = take(capacity * scratch_floats_);
  op_scratch_at_ = take(op_scratch_floats_);
  arena_ = Buffer();  // frees before it takes
  arena_ = Buffer(at);
}

void Executor::Resize(uint32_t batch) {
  batch_ = batch;
  if (batch > capacity_) Place(batch);
  const Graph& graph = model_.graph();
  for (Step& step : steps_) {
    const GraphNode& node = graph.nodes()[step.node];
    step.inputs.clear();
    step.input_gradients.clear();
    step.outputs.clear();
    step.output_values.clear();
    step.output_gradients.clear();
    for (const int32_t tensor : node.inputs) {
      step.inputs.push_back(Value(tensor));
      const int32_t storage = storage_of_[tensor];
      step.input_gradients.push_back(storages_[storage].needs_gradient ? Gradient(storage)
                                                                       : absl::Span<float>());
    }
    for (const Addition& addition : step.additions) {
      step.input_gradients[addition.slot] = {
          arena_.data() + scratch_at_ + batch * addition.scratch_at,
          batch * storages_[addition.storage].floats};
    }
    for (const int32_t tensor : node.outputs) {
      step.outputs.push_back(Value(tensor));
      step.output_values.push_back(Value(tensor));
      step.output_gradients.push_back(Gradient(storage_of_[tensor]));
    }
    step.kept = {arena_.data() + step.kept_at, node.op->KeptFloats(batch)};
  }
}

}  // namespace tessera::worker
