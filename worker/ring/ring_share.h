#pragma once

#include <cstdint>
#include <vector>

namespace tessera::worker {

// How the dense gradients of a step are cut into shares and pieces, and in which order ranks add
// them up (worker/ring/README.md). Depends only on the number of blocks and of ranks. Blocks are
// those of common/job/job_tables.h: first the trained parameters', then the statistics'. Immutable.
class RingShares {
 public:
  // Blocks per piece: 512 KiB of float32.
  static constexpr uint64_t kPieceBlocks = 128;

  struct Blocks {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t size() const { return end - begin; }
    bool operator==(const Blocks&) const = default;
  };

  // `ranks` is at least 1.
  RingShares(uint64_t blocks, uint32_t ranks) : blocks_(blocks), ranks_(ranks) {}

  uint32_t ranks() const { return ranks_; }
  // The blocks of a share, possibly none. Sizes of shares differ by 1 at most.
  Blocks Share(uint32_t share) const;
  uint32_t Pieces(uint32_t share) const;
  // The blocks of a piece of a share.
  Blocks Piece(uint32_t share, uint32_t piece) const;

  // Share c is summed by ranks c + 1, c + 2, ..., c (modulo ranks), each after the one before it.
  uint32_t Before(uint32_t rank) const { return (rank + ranks_ - 1) % ranks_; }
  uint32_t Behind(uint32_t rank) const { return (rank + 1) % ranks_; }
  // The share whose sum begins with `rank`: it takes that share from no other rank.
  uint32_t Begun(uint32_t rank) const { return Before(rank); }
  // The shares that `rank` takes from Before(rank), in the order in which they become available;
  // its own is the last.
  std::vector<uint32_t> Taken(uint32_t rank) const;
  // How many ranks' gradients are in a share that `rank` takes: those of so many ranks directly
  // before it.
  uint32_t Summed(uint32_t rank, uint32_t share) const {
    return (rank + 2 * ranks_ - 1 - share) % ranks_;
  }

 private:
  const uint64_t blocks_;
  const uint32_t ranks_;
};

}  // namespace tessera::worker
