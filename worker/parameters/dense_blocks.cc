#include "worker/parameters/dense_blocks.h"

#include <algorithm>

#include "common/job/optimizer.h"
#include "common/status_macros.h"

namespace tessera::worker {

DenseLayout TrainedLayout(const v1::ModelSpec& spec, const Model& model) {
  if (!StepsByWhole(spec.optimizer())) return DenseLayout::Flat(model.trained_floats());
  std::vector<uint64_t> tensors;
  for (const GraphParameter& parameter : model.graph().parameters()) {
    if (parameter.spec.trained) tensors.push_back(parameter.floats);
  }
  return DenseLayout::ByTensor(tensors);
}

DenseBlocks::DenseBlocks(uint32_t table, absl::Span<const DenseLayout::Block> blocks,
                         const KeyRouter& router)
    : table_(table), blocks_(blocks.size()) {
  std::vector<uint64_t> keys;
  for (const DenseLayout::Block& block : blocks) keys.push_back(block.key);
  std::vector<uint32_t> position;
  router.Route(keys, &keys_, &position);
  for (size_t i = 0; i < keys.size(); ++i) blocks_[position[i]] = blocks[i];
  pulled_.assign(keys.size() * kDenseBlockFloats, 0.0f);
  pushed_ = pulled_;
}

TableRows DenseBlocks::Read() { return {table_, kDenseBlockFloats, &keys_, pulled_.data()}; }

TableGradients DenseBlocks::Write() const {
  return {table_, kDenseBlockFloats, &keys_, pushed_.data()};
}

absl::Status DenseBlocks::CopyOut(absl::Span<float> flat) const {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const float* const row = pulled_.data() + i * kDenseBlockFloats;
    TESSERA_RETURN_IF_ERROR(DenseLayout::CheckPadding(blocks_[i], row));
    std::copy_n(row, blocks_[i].floats, flat.data() + blocks_[i].begin);
  }
  return absl::OkStatus();
}

void DenseBlocks::CopyIn(absl::Span<const float> flat) {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    std::copy_n(flat.data() + blocks_[i].begin, blocks_[i].floats,
                pushed_.data() + i * kDenseBlockFloats);
  }
}

}  // namespace tessera::worker
