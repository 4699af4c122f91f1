#pragma once

#include <cstdint>
#include <vector>

namespace tessera::worker {

// How the dense gradients of a step are cut and in which order ranks add them up
// (proto/tessera/v1/ring.proto). Blocks are those of common/job/job_tables.h: the trained
// parameters', and behind them the statistics'. A function of the number of blocks and of ranks
// alone. Immutable.
class RingShares {
 public:
  // Of a piece: 512 KiB of float32.
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
  // The blocks of a share, which may be none; sizes differ by 1 at most.
  Blocks Share(uint32_t share) const;
  uint32_t Pieces(uint32_t share) const;
  // The blocks of a piece of a share.
  Blocks Piece(uint32_t share, uint32_t piece) const;

  // Share c is summed by the ranks c + 1, c + 2, ..., c: each behind the one before it.
  uint32_t Before(uint32_t rank) const { return (rank + ranks_ - 1) % ranks_; }
  uint32_t Behind(uint32_t rank) const { return (rank + 1) % ranks_; }
  // The share whose sum begins with `rank`, which takes it from nobody.
  uint32_t Begun(uint32_t rank) const { return Before(rank); }
  // Those that `rank` takes from Before(rank), in the order in which they can be there: its own is
  // the last.
  std::vector<uint32_t> Taken(uint32_t rank) const;
  // Of how many ranks gradients are in what `rank` takes of a share: of so many before it, without
  // gaps.
  uint32_t Summed(uint32_t rank, uint32_t share) const {
    return (rank + 2 * ranks_ - 1 - share) % ranks_;
  }

 private:
  const uint64_t blocks_;
  const uint32_t ranks_;
};

}  // namespace tessera::worker
