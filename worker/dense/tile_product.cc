#include "worker/dense/tile_product.h"

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

#include "dnnl.h"
#include "worker/dense/parallel.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12's own intrinsics start from an uninitialised register.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

// Only functions marked with this may use these instructions; the others run on every processor.
#define TESSERA_TILES __attribute__((target("avx512f,avx512bw,avx512bf16,amx-tile,amx-bf16")))

namespace tessera::worker {
namespace {

// Lines of an operand in a tile (rows of A, columns of B) and, in each, numbers along k.
constexpr int64_t kLines = 16, kDepth = 32;
// The sums of 2 by 2 tiles are in registers at a time.
constexpr int64_t kBlock = 2 * kLines;
// Tiles along k that are packed and multiplied at a time: 64 KiB for two blocks of lines, which fit
// the first two caches together.
constexpr int64_t kChunk = 16;
// This many tiles to pack, or blocks of C to sum up, are worth another thread.
constexpr size_t kSmallestPacking = 64, kSmallestBlocks = 16;

struct alignas(64) Tile {
  uint16_t numbers[kLines * kDepth];
};

// In the processor's layout: palette, then for each tile the bytes of a row and the number of rows.
struct alignas(64) TileConfiguration {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Transposes 16 rows of 16 pairs of numbers, in registers.
TESSERA_TILES inline void Transpose(__m512i row[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(row[i], row[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(row[i], row[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    row[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    row[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    row[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    row[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    for (int half = 0; half < 16; half += 8) {
      t[half + i] = _mm512_shuffle_i32x4(row[half + i], row[half + 4 + i], 0x88);
      t[half + 4 + i] = _mm512_shuffle_i32x4(row[half + i], row[half + 4 + i], 0xdd);
    }
  }
  for (int i = 0; i < 8; ++i) {
    row[i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0x88);
    row[8 + i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0xdd);
  }
}

TESSERA_TILES inline __mmask16 First(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffff : count <= 0 ? 0 : (1 << count) - 1);
}

// The 16 floats of `low` before those of `high`, rounded.
TESSERA_TILES inline __m512i Rounded(__m512 low, __m512 high) {
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

// Lines of an operand that are `line_stride` apart, with numbers along k that are `k_stride` apart;
// one of the two is 1.
struct Lines {
  const float* data;
  int64_t line_stride;
  int64_t k_stride;
  int64_t lines;  // in the operand; zeros follow
  int64_t k;
};

// Packs the first 16 lines and 32 numbers of `lines` as a tile. A row of a tile of A is a line; a
// row of a tile of B is a pair of numbers along k of every line.
TESSERA_TILES void Pack(const Lines& from, bool pairs_are_rows, Tile* to) {
  __m512i row[16];
  const bool along = from.k_stride == 1;
  if (along) {  // rows are lines
    const __mmask16 low = First(from.k), high = First(from.k - 16);
    for (int64_t i = 0; i < kLines; ++i) {
      row[i] = _mm512_setzero_si512();
      if (i >= from.lines) continue;
      const float* const line = from.data + i * from.line_stride;
      row[i] = Rounded(_mm512_maskz_loadu_ps(low, line), _mm512_maskz_loadu_ps(high, line + 16));
    }
  } else {  // rows are pairs
    const __mmask16 lines = First(from.lines);
    const __m512i turns =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    for (int64_t i = 0; i < kDepth / 2; ++i) {
      const float* const pair = from.data + 2 * i * from.k_stride;
      const __mmask16 first = 2 * i < from.k ? lines : 0, second = 2 * i + 1 < from.k ? lines : 0;
      row[i] = _mm512_permutexvar_epi16(
          turns, Rounded(_mm512_maskz_loadu_ps(first, pair),
                         _mm512_maskz_loadu_ps(second, pair + from.k_stride)));
    }
  }
  if (along == pairs_are_rows) Transpose(row);
  for (int64_t i = 0; i < 16; ++i) _mm512_store_si512(to->numbers + i * kDepth, row[i]);
}

// What the sums of a block of C start from.
struct Start {
  const float* data = nullptr;  // null: zeros
  int64_t stride = 0;           // floats from row to row; 0: all rows are the same
};

// C [32, 32] = start + the products of two lines of tiles of A and two of B, `depth` tiles long.
TESSERA_TILES void SumBlock(const Tile* const a[2], const Tile* const b[2], int64_t depth,
                            const Start& start, float* c, int64_t c_stride) {
  const auto bytes = static_cast<size_t>(c_stride) * sizeof(float);
  if (start.data == nullptr) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    const auto stride = static_cast<size_t>(start.stride) * sizeof(float);
    _tile_loadd(0, start.data, stride);
    _tile_loadd(1, start.data + kLines, stride);
    _tile_loadd(2, start.data + kLines * start.stride, stride);
    _tile_loadd(3, start.data + kLines * start.stride + kLines, stride);
  }
  for (int64_t i = 0; i < depth; ++i) {
    _tile_loadd(4, a[0] + i, 64);
    _tile_loadd(6, b[0] + i, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b[1] + i, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a[1] + i, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, bytes);
  _tile_stored(1, c + kLines, bytes);
  _tile_stored(2, c + kLines * c_stride, bytes);
  _tile_stored(3, c + kLines * c_stride + kLines, bytes);
}

// The same for a block that reaches beyond C, of which C has [rows, columns].
void SumPartOfBlock(const Tile* const a[2], const Tile* const b[2], int64_t depth, Start start,
                    int64_t rows, int64_t columns, float* c, int64_t c_stride) {
  alignas(64) float padded[kBlock * kBlock] = {};
  const auto row_bytes = static_cast<size_t>(columns) * sizeof(float);
  if (start.data != nullptr) {
    for (int64_t i = 0; i < (start.stride == 0 ? 1 : rows); ++i) {
      std::memcpy(padded + i * kBlock, start.data + i * start.stride, row_bytes);
    }
    start = {padded, start.stride == 0 ? 0 : kBlock};
  }
  alignas(64) float sums[kBlock * kBlock];
  SumBlock(a, b, depth, start, sums, kBlock);
  for (int64_t i = 0; i < rows; ++i) std::memcpy(c + i * c_stride, sums + i * kBlock, row_bytes);
}

TESSERA_TILES void Configure() {
  static const TileConfiguration configuration;
  _tile_loadconfig(&configuration);
}
TESSERA_TILES void Release() { _tile_release(); }

// Packs an operand's tiles of a chunk of k, the tiles of one line after another.
class Packed {
 public:
  Packed(Tile* tiles, int64_t lines, bool pairs_are_rows)
      : tiles_(tiles), lines_(lines), pairs_are_rows_(pairs_are_rows) {}

  static int64_t LinesOfTiles(int64_t lines) { return (lines + kBlock - 1) / kBlock * 2; }

  void Fill(TaskPool* pool, Lines from) {
    depth_ = (from.k + kDepth - 1) / kDepth;
    const auto count = static_cast<size_t>(LinesOfTiles(lines_) * depth_);
    ParallelFor(pool, count, kSmallestPacking, 1, [&](size_t begin, size_t end) {
      for (size_t at = begin; at < end; ++at) {
        const int64_t line = static_cast<int64_t>(at) / depth_ * kLines;
        const int64_t k = static_cast<int64_t>(at) % depth_ * kDepth;
        Pack({from.data + line * from.line_stride + k * from.k_stride, from.line_stride,
              from.k_stride, from.lines - line, from.k - k},
             pairs_are_rows_, tiles_ + at);
      }
    });
  }

  int64_t depth() const { return depth_; }
  // Each block has two lines of tiles.
  std::array<const Tile*, 2> Block(int64_t block) const {
    return {tiles_ + 2 * block * depth_, tiles_ + (2 * block + 1) * depth_};
  }

 private:
  Tile* const tiles_;
  const int64_t lines_;
  const bool pairs_are_rows_;
  int64_t depth_ = 0;
};

// C [m, n] = start + A * B over the packed chunks of both, block of C by block, in any order.
struct Sums {
  const Packed& a;
  const Packed& b;
  int64_t m, n;
  float* c;
  int64_t c_stride;
  Start start;  // of all of C

  void Block(int64_t row_block, int64_t column_block) const {
    const int64_t row = row_block * kBlock, column = column_block * kBlock;
    const int64_t rows = std::min(m - row, kBlock), columns = std::min(n - column, kBlock);
    Start from = start;
    if (from.data != nullptr) from.data += row * from.stride + column;
    float* const to = c + row * c_stride + column;
    const auto of_a = a.Block(row_block), of_b = b.Block(column_block);
    if (rows == kBlock && columns == kBlock) {
      SumBlock(of_a.data(), of_b.data(), a.depth(), from, to, c_stride);
    } else {
      SumPartOfBlock(of_a.data(), of_b.data(), a.depth(), from, rows, columns, to, c_stride);
    }
  }

  // Threads share the larger side. A thread multiplies its share by one block of the other side
  // after another, so that the block's tiles stay in the first cache.
  void All(TaskPool* pool) const {
    const bool by_rows = m >= n;
    const auto blocks = [](int64_t size) { return (size + kBlock - 1) / kBlock; };
    const int64_t shared = blocks(std::max(m, n)), each = blocks(std::min(m, n));
    const size_t smallest = std::max<size_t>(1, kSmallestBlocks / static_cast<size_t>(each));
    ParallelFor(pool, static_cast<size_t>(shared), smallest, 1, [&](size_t begin, size_t end) {
      Configure();
      for (int64_t i = 0; i < each; ++i) {
        for (auto at = static_cast<int64_t>(begin); at < static_cast<int64_t>(end); ++at) {
          by_rows ? Block(at, i) : Block(i, at);
        }
      }
      Release();
    });
  }
};

}  // namespace

bool HasTiles() {
  static const bool has = [] {
    const int isa = static_cast<int>(dnnl_get_effective_cpu_isa());
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // of arch_prctl
    return (isa & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx &&
           syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return has;
}

void MultiplyByTiles(TaskPool* pool, int64_t m, int64_t n, int64_t k, Operand<float> a,
                     Operand<float> b, float* c, int64_t c_stride, Addends addends) {
  thread_local std::vector<Tile> memory;
  const int64_t a_tiles = Packed::LinesOfTiles(m) * kChunk,
                b_tiles = Packed::LinesOfTiles(n) * kChunk;
  memory.resize(std::max(memory.size(), static_cast<size_t>(a_tiles + b_tiles)));
  Packed packed_a(memory.data(), m, false), packed_b(memory.data() + a_tiles, n, true);
  Start start = {addends.bias, 0};
  if (addends.c) start = {c, c_stride};
  for (int64_t begin = 0; begin < k; begin += kChunk * kDepth) {
    const int64_t depth = std::min(k - begin, kChunk * kDepth);
    packed_a.Fill(pool,
                  {a.data + begin * a.column_stride, a.row_stride, a.column_stride, m, depth});
    packed_b.Fill(pool, {b.data + begin * b.row_stride, b.column_stride, b.row_stride, n, depth});
    Sums{packed_a, packed_b, m, n, c, c_stride, start}.All(pool);
    start = {c, c_stride};
  }
}

}  // namespace tessera::worker
