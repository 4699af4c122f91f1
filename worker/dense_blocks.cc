#include "worker/dense_blocks.h"

#include <algorithm>
#include <numeric>

#include "common/job/job_tables.h"

namespace tessera::worker {

DenseBlocks::DenseBlocks(uint32_t table, uint64_t floats, const KeyRouter& router)
    : table_(table), floats_(floats) {
  std::vector<uint64_t> blocks((floats + kDenseBlockFloats - 1) / kDenseBlockFloats);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<uint32_t> position;
  router.Route(blocks, &keys_, &position);
  pulled_.assign(blocks.size() * kDenseBlockFloats, 0.0f);
  pushed_ = pulled_;
}

TableRows DenseBlocks::Read() { return {table_, kDenseBlockFloats, &keys_, pulled_.data()}; }

TableGradients DenseBlocks::Write() const {
  return {table_, kDenseBlockFloats, &keys_, pushed_.data()};
}

void DenseBlocks::CopyOut(absl::Span<float> flat) const {
  for (size_t i = 0; i < keys_.keys.size(); ++i) {
    const uint64_t begin = keys_.keys[i] * kDenseBlockFloats;
    const uint64_t n = std::min<uint64_t>(kDenseBlockFloats, floats_ - begin);
    std::copy_n(pulled_.data() + i * kDenseBlockFloats, n, flat.data() + begin);
  }
}

void DenseBlocks::CopyIn(absl::Span<const float> flat) {
  for (size_t i = 0; i < keys_.keys.size(); ++i) {
    const uint64_t begin = keys_.keys[i] * kDenseBlockFloats;
    const uint64_t n = std::min<uint64_t>(kDenseBlockFloats, floats_ - begin);
    std::copy_n(flat.data() + begin, n, pushed_.data() + i * kDenseBlockFloats);
  }
}

}  // namespace tessera::worker
