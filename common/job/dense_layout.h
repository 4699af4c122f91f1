#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/hash.h"

namespace tessera {

// How a flat vector of dense parameters lies in the rows of its table (job_tables.h), in blocks of
// kDenseBlockFloats, the rest of a block being zeros. Part of the checkpoint format. A value.
class DenseLayout {
 public:
  struct Block {
    uint64_t key = 0;
    uint64_t begin = 0;   // in the flat vector
    uint32_t floats = 0;  // of it; at most kDenseBlockFloats
  };

  // Block b has the key b and the floats from b * kDenseBlockFloats on.
  static DenseLayout Flat(uint64_t floats);
  // For optimizers to which a tensor is a whole (LAMB): a block is of one tensor, and all blocks of
  // a tensor are in one partition, and so on one ps. Their keys are such that
  //   Mix64(key) = the high 24 bits of Mix64(tensor) | tensor (16 bits) | block (24 bits)
  // Tensors of no floats are left out. At most 2^16 tensors of at most 2^34 floats.
  static DenseLayout ByTensor(absl::Span<const uint64_t> floats);  // of each tensor

  const std::vector<Block>& blocks() const { return blocks_; }
  // Of the flat vector.
  uint64_t floats() const { return floats_; }

  // Whether a key of a dense table is of ByTensor, and not the number of a block.
  static bool IsOfTensor(uint64_t key);
  // Of such keys: equal for the blocks of one tensor alone; and where among them it is.
  static uint64_t TensorOf(uint64_t key) { return Mix64(key) >> kBlockBits; }
  static uint64_t PlaceOf(uint64_t key) { return Mix64(key) & ((1u << kBlockBits) - 1); }

 private:
  static constexpr int kBlockBits = 24;
  static constexpr int kTensorBits = 16;

  static uint64_t Mark(uint64_t tensor);  // what TensorOf gives of its keys
  void AddTensor(uint64_t floats, uint64_t first, bool by_hash);

  std::vector<Block> blocks_;
  uint64_t floats_ = 0;
};

}  // namespace tessera
