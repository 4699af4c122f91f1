#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/hash.h"

namespace tessera {

// Floats of a row of dense parameters.
inline constexpr uint32_t kDenseBlockFloats = 1024;

// How a flat vector of dense parameters lies in the rows of its table (job_tables.h), in blocks of
// kDenseBlockFloats; zeros fill a block that is not full. Part of the checkpoint format. A value.
class DenseLayout {
 public:
  struct Block {
    uint64_t key = 0;
    uint64_t begin = 0;   // index in the flat vector
    uint32_t floats = 0;  // of the flat vector; at most kDenseBlockFloats
  };

  // A layout in which block b has the key b and the floats from b * kDenseBlockFloats on.
  static DenseLayout Flat(uint64_t floats);
  // For optimizers whose step depends on the whole tensor (LAMB): each block belongs to one tensor,
  // and all blocks of a tensor are in one partition, hence on one ps. The keys satisfy
  //   Mix64(key) = the high 24 bits of Mix64(tensor) | tensor (16 bits) | block (24 bits)
  // Tensors of no floats have no blocks. At most 2^16 tensors of at most 2^34 floats.
  static DenseLayout ByTensor(absl::Span<const uint64_t> floats);  // of each tensor

  const std::vector<Block>& blocks() const { return blocks_; }
  // The size of the flat vector.
  uint64_t floats() const { return floats_; }

  // Checks that zeros fill up `row`, the kDenseBlockFloats of a block, so that it was written for a
  // model whose parameters lie so. FAILED_PRECONDITION names the block and what was found. Numbers
  // that are not finite pass: training that diverges may leave them, and other checks name it.
  static absl::Status CheckPadding(const Block& block, const float* row);

  // Whether a key of a dense table comes from ByTensor, not from Flat.
  static bool IsOfTensor(uint64_t key);
  // For keys of ByTensor. TensorOf: a number that the blocks of one tensor share, and no others.
  // PlaceOf: the block's place in its tensor.
  static uint64_t TensorOf(uint64_t key) { return Mix64(key) >> kBlockBits; }
  static uint64_t PlaceOf(uint64_t key) { return Mix64(key) & ((1u << kBlockBits) - 1); }

 private:
  static constexpr int kBlockBits = 24;
  static constexpr int kTensorBits = 16;

  static uint64_t Mark(uint64_t tensor);  // what TensorOf returns for the tensor's keys
  void AddTensor(uint64_t floats, uint64_t first, bool by_hash);

  std::vector<Block> blocks_;
  uint64_t floats_ = 0;
};

}  // namespace tessera
