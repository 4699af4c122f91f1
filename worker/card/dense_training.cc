#include "worker/card/dense_training.h"

#include <numeric>
#include <vector>

#include "common/status_macros.h"
#include "cuda/dense/loss_scaling.h"

namespace tessera::worker {

using cuda::Memory;

DenseTraining::DenseTraining(uint32_t table, const v1::OptimizerSpec& optimizer,
                             uint64_t trained_floats, const KeyRouter& router, Executor* executor)
    : table_(table),
      optimizer_(optimizer, kDenseBlockFloats),
      executor_(*executor),
      layout_(DenseLayout::Flat(trained_floats)) {
  std::vector<uint64_t> blocks;
  for (const DenseLayout::Block& block : layout_.blocks()) blocks.push_back(block.key);
  std::vector<uint32_t> position;
  router.Route(blocks, &keys_, &position);
  cuda::Stream& stream = *executor_.stream();
  stream.MakeCurrent();
  const size_t n = blocks.size();
  host_ = Memory(stream, Memory::Where::kHost, floats());
  device_ = Memory(stream, Memory::Where::kDevice, floats());
  if (optimizer_.states() > 0) {
    state_ = Memory(stream, Memory::Where::kDevice, n * optimizer_.states());
  }
  at_ps_ = Memory(stream, Memory::Where::kDevice, floats());
  beyond_ = Memory(stream, Memory::Where::kDevice, 1);
  beyond_host_ = Memory(stream, Memory::Where::kHost, 1);
  words_ = Memory(stream, Memory::Where::kDevice, 2 * n);
  std::vector<uint32_t> words(keys_.keys.begin(), keys_.keys.end());
  words.resize(2 * n);
  std::iota(words.begin() + static_cast<ptrdiff_t>(n), words.end(), 0u);
  if (!stream.status().ok()) return;
  stream.CopyToDevice(words.data(), words_.words(), words.size());
  (void)stream.Synchronize();  // the stream keeps an error
}

cuda::TrainedRows DenseTraining::Blocks() {
  return {.dim = optimizer_.dim(),
          .states = optimizer_.states(),
          .rows = executor_.card_parameters().data(),
          .state = state_.data(),
          .at_ps = at_ps_.data()};
}

TableRows DenseTraining::Read() {
  return {.table = table_,
          .dim = optimizer_.floats(),
          .keys = &keys_,
          .rows = host_.data(),
          .whole = true};
}

absl::Status DenseTraining::Begin() {
  for (size_t i = 0; i < keys_.keys.size(); ++i) {
    TESSERA_RETURN_IF_ERROR(DenseLayout::CheckPadding(layout_.blocks()[keys_.keys[i]],
                                                      host_.data() + i * optimizer_.floats()));
  }
  cuda::Stream& stream = *executor_.stream();
  executor_.KeepParametersOnCard(true);
  stream.MakeCurrent();
  const cuda::TrainedRows blocks = Blocks();
  if (!stream.status().ok()) return absl::OkStatus();
  stream.CopyToDevice(host_.data(), device_.data(), floats());
  cuda::PutRows(stream, blocks, device_.data(), words_.words(), /*own=*/nullptr,
                static_cast<int64_t>(keys_.keys.size()), /*changes=*/nullptr);
  return absl::OkStatus();
}

void DenseTraining::StartCheck() {
  cuda::Stream& stream = *executor_.stream();
  if (!stream.status().ok()) return;
  stream.MakeCurrent();
  const absl::Span<const float> gradient = executor_.card_trained_gradient();
  stream.Zero(beyond_.data(), 1);
  cuda::AddBeyond(stream, gradient.data(), static_cast<int64_t>(gradient.size()),
                  optimizer_.largest_gradient(), beyond_.data());
  stream.StartCopyToHost(beyond_.data(), beyond_host_.data(), 1);
}

void DenseTraining::Train(double learning_rate_scale) {
  cuda::Stream& stream = *executor_.stream();
  if (!stream.status().ok()) return;
  stream.MakeCurrent();
  const size_t n = keys_.keys.size();
  optimizer_.Train(stream, Blocks(),
                   {.gradients = executor_.card_trained_gradient().data(),
                    .at = words_.words() + n,
                    .rows = static_cast<int64_t>(n),
                    .slots = static_cast<uint32_t>(n)},
                   learning_rate_scale);
}

TableGradients DenseTraining::TakeChanges() {
  cuda::Stream& stream = *executor_.stream();
  stream.MakeCurrent();
  if (stream.status().ok()) {
    cuda::TakeChanges(stream, Blocks(), words_.words(), static_cast<int64_t>(keys_.keys.size()),
                      device_.data());
    stream.CopyToHost(device_.data(), host_.data(), floats());
  }
  return {.table = table_,
          .dim = optimizer_.floats(),
          .keys = &keys_,
          .gradients = host_.data(),
          .changes = true};
}

}  // namespace tessera::worker
