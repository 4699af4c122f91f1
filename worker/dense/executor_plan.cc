// The executor's plan: which tensors share memory, who adds to a gradient, where everything lies.
#include <algorithm>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/round_up.h"
#include "worker/dense/executor.h"

namespace tessera::worker {
namespace {

// Samples of a part, by the batch and the precision alone. At 128 rows a product is as fast as in
// one piece and a layer's rows stay in the cache; smaller batches are worth fewer threads. In
// bfloat16 each part rounds the weights anew, so larger parts pay.
uint32_t PartSize(uint32_t batch, Precision precision) {
  constexpr uint32_t kLargest = 256, kParts = 16, kMultiple = 8;
  const uint32_t smallest = precision == Precision::kBfloat16 ? 256 : 128;
  const uint64_t even = (uint64_t{batch} + kParts - 1) / kParts;
  return static_cast<uint32_t>(std::clamp<uint64_t>(RoundUp(even, kMultiple), smallest, kLargest));
}

}  // namespace

void Executor::Plan() {
  PlanStorages();
  PlanInPlace();
  PlanSteps();
  PlanBackward();
}

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

// Lets an op overwrite an input that nothing else reads: one buffer in place of two fits the cache
// better.
void Executor::PlanInPlace() {
  const Graph& graph = model_.graph();
  std::vector<int> readers(storages_.size(), 0);
  std::vector<const Op*> writer(storages_.size(), nullptr);
  for (const int32_t end : graph.ends()) ++readers[storage_of_[end]];
  for (const GraphNode& node : graph.nodes()) {
    if (node.op->IsView()) continue;
    for (const int32_t tensor : node.inputs) ++readers[storage_of_[tensor]];
    for (const int32_t tensor : node.outputs) writer[storage_of_[tensor]] = node.op.get();
  }
  for (const GraphNode& node : graph.nodes()) {
    if (node.op->IsView() || node.inputs.empty()) continue;
    const int32_t input = storage_of_[node.inputs[0]];
    Storage& output = storages_[storage_of_[node.outputs[0]]];
    if (readers[input] != 1) continue;
    const bool overwritable = writer[input] != nullptr && !writer[input]->ReadsOutputs();
    if (node.op->ForwardInPlace() && overwritable) output.value_of = input;
    if (node.op->BackwardInPlace() && storages_[input].needs_gradient) output.gradient_of = input;
  }
}

// Backward runs in reverse: the first node that reads a tensor there writes its gradient, the
// others write beside it and are added.
void Executor::PlanSteps() {
  const Graph& graph = model_.graph();
  std::vector<int> sharers(graph.parameters().size(), 0);
  for (const GraphNode& node : graph.nodes()) {
    for (const int32_t p : node.parameters) ++sharers[p];
  }
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    if (graph.nodes()[n].op->IsView()) continue;
    Step& step = steps_.emplace_back();
    step.node = static_cast<int32_t>(n);
    step.op = graph.nodes()[n].op.get();
    step.training_only = graph.nodes()[n].training_only;
    const std::vector<int32_t>& parameters = graph.nodes()[n].parameters;
    if (!parameters.empty())
      step.statistics_share = 1.0f / static_cast<float>(sharers[parameters[0]]);
    op_scratch_floats_ = std::max(op_scratch_floats_, graph.nodes()[n].op->ScratchFloats());
  }
  std::vector<bool> written(storages_.size(), false);
  // The losses write the gradients of the ends.
  for (const int32_t end : graph.ends()) written[storage_of_[end]] = true;
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

// If a product's only reader is a rectifier that overwrites its output (PlanInPlace), the product
// rectifies as it writes. Both run in the same passes.
void Executor::PlanRelus() {
  const Graph& graph = model_.graph();
  std::vector<Step*> writer(storages_.size(), nullptr);
  for (Step& step : steps_) {
    const GraphNode& node = graph.nodes()[step.node];
    const int32_t input = storages_[storage_of_[node.outputs[0]]].value_of;
    if (step.op->IsRelu() && input >= 0 && writer[input]->op->EndsInRelu()) {
      writer[input]->relu = true;
      step.forward = false;
    }
    for (const int32_t tensor : node.outputs) writer[storage_of_[tensor]] = &step;
  }
}

size_t Executor::relus_in_products() const {
  return static_cast<size_t>(
      std::count_if(steps_.begin(), steps_.end(), [](const Step& step) { return !step.forward; }));
}

// A chain is one step that needs the whole batch, or as many steps in a row as do not need it. A
// card takes the batch whole.
void Executor::PlanBackward() {
  const auto goes_on = [this](const Step& step) {
    return !whole_batches_ && step.backward && step.op->BySample();
  };
  for (size_t begin = 0, end = steps_.size(); end > 0; end = begin) {
    begin = end - 1;
    if (!steps_[begin].backward) continue;
    if (goes_on(steps_[begin])) {
      while (begin > 0 && goes_on(steps_[begin - 1]) && !steps_[begin - 1].op->Prepares()) --begin;
    }
    backward_.push_back({begin, end});
    for (size_t s = begin; s < end; ++s) {
      steps_[s].moment = static_cast<uint32_t>(backward_.size());
    }
  }
}

// For each storage, the moments of the backward passes of the steps that read or wrote its value.
std::vector<Executor::Lifetime> Executor::BackwardMoments() const {
  std::vector<Lifetime> moments(storages_.size());
  for (const Step& step : steps_) {
    if (!step.backward) continue;
    const GraphNode& node = model_.graph().nodes()[step.node];
    for (const auto* tensors : {&node.inputs, &node.outputs}) {
      for (const int32_t tensor : *tensors) moments[storage_of_[tensor]].Include(step.moment);
    }
  }
  return moments;
}

// Values live from the forward pass on; those that the caller fills or reads, always.
std::vector<Executor::Lifetime> Executor::ValueLifetimes() const {
  std::vector<Lifetime> lifetimes = BackwardMoments();
  for (Lifetime& lifetime : lifetimes) lifetime.Include(0);
  for (const auto* tensors : {&model_.graph().inputs(), &model_.graph().outputs()}) {
    for (const int32_t tensor : *tensors) {
      lifetimes[storage_of_[tensor]].Include(MemoryPlan::kAlways);
    }
  }
  return lifetimes;
}

// A gradient lives from its first writer (the loss, or the last reader of the value) until the
// backward pass of the step that wrote the value. One that the caller reads lives always: it may be
// zeros that nothing writes.
std::vector<Executor::Lifetime> Executor::GradientLifetimes() const {
  std::vector<Lifetime> lifetimes = BackwardMoments();
  for (const int32_t end : model_.graph().ends()) lifetimes[storage_of_[end]].Include(0);
  for (const int32_t tensor : model_.graph().inputs()) {
    lifetimes[storage_of_[tensor]] = {0, MemoryPlan::kAlways};
  }
  return lifetimes;
}

size_t Executor::PlanMemory(uint32_t capacity) {
  std::vector<Lifetime> values = ValueLifetimes(), gradients = GradientLifetimes();
  // Storages that share memory are in use as long as either of them is.
  for (size_t i = storages_.size(); i-- > 0;) {
    const Storage& storage = storages_[i];
    if (storage.value_of >= 0) values[storage.value_of].Include(values[i]);
  }
  for (size_t i = storages_.size(); i-- > 0;) {
    const Storage& storage = storages_[i];
    if (storage.gradient_of >= 0) gradients[storage.gradient_of].Include(gradients[i]);
  }
  MemoryPlan plan;
  std::vector<std::pair<size_t, size_t*>> blocks;  // and where to write their places
  const auto take = [&](size_t floats, Lifetime in_use, size_t* at) {
    blocks.emplace_back(plan.Add(floats, in_use), at);
  };
  const Lifetime always = {0, MemoryPlan::kAlways};
  for (size_t i = 0; i < storages_.size(); ++i) {
    Storage& storage = storages_[i];
    if (storage.value_of < 0) take(capacity * storage.floats, values[i], &storage.value_at);
    if (storage.needs_gradient && storage.gradient_of < 0) {
      take(capacity * storage.floats, gradients[i], &storage.gradient_at);
    }
  }
  for (Step& step : steps_) {
    take(step.op->KeptFloats(capacity), {0, step.moment}, &step.kept_at);
    take(step.op->SharedFloats(), {0, step.moment}, &step.shared_at);
    const GraphNode& node = model_.graph().nodes()[step.node];
    size_t floats = 0;
    for (const int32_t p : node.parameters) {
      if (node.parameters_of.empty()) break;
      floats += Buffer::RoundUp(model_.graph().parameters()[p].floats);
    }
    take(floats, always, &step.shared_gradients_at);
  }
  take(capacity * scratch_floats_, always, &scratch_at_);
  take(op_scratch_floats_, always, &op_scratch_at_);
  plan.Place();
  for (const auto& [block, at] : blocks) *at = plan.at(block);
  for (Storage& storage : storages_) {
    if (storage.value_of >= 0) storage.value_at = storages_[storage.value_of].value_at;
    if (storage.gradient_of >= 0) storage.gradient_at = storages_[storage.gradient_of].gradient_at;
  }
  return plan.floats();
}

void Executor::Place(uint32_t capacity) {
  capacity_ = capacity;
  const size_t floats = PlanMemory(capacity);
  if (stream_ != nullptr) return PlaceOnCard(floats, capacity);
  arena_ = Buffer();  // frees before it takes
  try {
    arena_ = Buffer(floats);
  } catch (const std::bad_alloc&) {
    const std::string what =
        capacity == 0 ? "the dense graph" : absl::StrCat("a batch of ", capacity);
    no_memory_ = absl::FailedPreconditionError(absl::StrCat(
        "this worker has no memory for ", what, ", which takes ", (floats * sizeof(float)) >> 20,
        capacity == 0 ? " MiB"
                      : " MiB in the dense graph; lower train.batch_size, or in sync mode use more "
                        "workers"));
  }
}

uint64_t Executor::BytesFor(const Model& model, uint32_t batch, bool on_card) {
  return Executor(model, on_card).PlanMemory(batch) * sizeof(float);
}

Executor::Part Executor::Bind(const Step& step, uint32_t first, uint32_t batch) {
  const GraphNode& node = model_.graph().nodes()[step.node];
  Part part;
  part.first = first;
  part.batch = batch;
  const auto cut = [&](absl::Span<float> whole, size_t floats) {
    return whole.subspan(first * floats, batch * floats);
  };
  for (const int32_t tensor : node.inputs) {
    const int32_t index = storage_of_[tensor];
    const Storage& storage = storages_[index];
    part.inputs.push_back(cut(Value(tensor), storage.floats));
    part.input_gradients.push_back(storage.needs_gradient ? cut(Gradient(index), storage.floats)
                                                          : absl::Span<float>());
  }
  // Each part has its own scratch, because different parts run at once.
  for (const Addition& addition : step.additions) {
    part.input_gradients[addition.slot] = {
        arena() + scratch_at_ + first * scratch_floats_ + batch * addition.scratch_at,
        batch * storages_[addition.storage].floats};
  }
  for (const int32_t tensor : node.outputs) {
    const int32_t index = storage_of_[tensor];
    part.outputs.push_back(cut(Value(tensor), storages_[index].floats));
    part.output_values.push_back(part.outputs.back());
    part.output_gradients.push_back(cut(Gradient(index), storages_[index].floats));
  }
  const size_t kept_before = first == 0 ? 0 : step.op->KeptFloats(first);
  part.kept = {arena() + step.kept_at + kept_before, step.op->KeptFloats(batch)};
  return part;
}

void Executor::Resize(uint32_t batch) {
  if (batch == batch_) return;
  batch_ = batch;
  if (batch > capacity_) Place(batch);
  if (!status().ok()) return;  // there may be no memory to point into
  // A card takes the batch whole.
  const uint32_t size =
      stream_ == nullptr ? PartSize(batch, model_.precision()) : std::max(batch, 1u);
  parts_ = std::max<size_t>(1, (batch + size - 1) / size);
  for (Step& step : steps_) {
    step.whole = Bind(step, 0, batch);
    step.parts.clear();
    for (uint32_t first = 0; step.op->BySample() && step.parts.size() < parts_; first += size) {
      step.parts.push_back(Bind(step, first, std::min(size, batch - first)));
    }
  }
}

}  // namespace tessera::worker
