#include "worker/ring/dense_reduction.h"

#include <algorithm>
#include <utility>

#include "common/job/dense_layout.h"
#include "common/status_macros.h"

namespace tessera::worker {
namespace {

GradientRing::Options WithBlocks(GradientRing::Options options, uint64_t blocks) {
  options.blocks = blocks;
  return options;
}

// The blocks of a vector that are in `share`, with their places in `values_`, where the vector
// begins at block `first`.
std::vector<DenseLayout::Block> PartOf(const RingShares::Blocks& share, const DenseLayout& layout,
                                       uint64_t first) {
  std::vector<DenseLayout::Block> part;
  for (size_t i = 0; i < layout.blocks().size(); ++i) {
    if (first + i < share.begin || first + i >= share.end) continue;
    part.push_back(layout.blocks()[i]);
    part.back().begin = (first + i) * kDenseBlockFloats;
  }
  return part;
}

// Copies `flat` into whole blocks from `to` on, padded with zeros.
void Spread(absl::Span<const float> flat, const DenseLayout& layout, float* to) {
  for (const DenseLayout::Block& block : layout.blocks()) {
    std::copy_n(flat.data() + block.begin, block.floats, to);
    std::fill(to + block.floats, to + kDenseBlockFloats, 0.0f);
    to += kDenseBlockFloats;
  }
}

}  // namespace

DenseReduction::DenseReduction(Shape shape, GradientRing::Options ring, const KeyRouter& router)
    : shape_(std::move(shape)),
      ring_(WithBlocks(std::move(ring), shape_.blocks())),
      trained_(shape_.trained_table, PartOf(ring_.share(), shape_.trained, 0), router),
      statistics_(shape_.statistics_table,
                  PartOf(ring_.share(), shape_.statistics, shape_.trained.blocks().size()), router),
      values_(shape_.blocks() * kDenseBlockFloats) {}

absl::Status DenseReduction::Reduce(uint64_t step, absl::Span<const float> trained,
                                    absl::Span<const float> statistics) {
  const bool contributes = !trained.empty() || !statistics.empty();
  if (contributes) {
    Spread(trained, shape_.trained, values_.data());
    Spread(statistics, shape_.statistics,
           values_.data() + shape_.trained.blocks().size() * kDenseBlockFloats);
  }
  TESSERA_ASSIGN_OR_RETURN(summed_, ring_.Reduce(step, contributes, absl::MakeSpan(values_)));
  if (!summed_) return absl::OkStatus();
  trained_.CopyIn(values_);
  statistics_.CopyIn(values_);
  return absl::OkStatus();
}

void DenseReduction::AddWrites(std::vector<TableGradients>* writes) const {
  if (!summed_) return;
  writes->push_back(trained_.Write());
  writes->push_back(statistics_.Write());
}

}  // namespace tessera::worker
