#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "common/math/bfloat16.h"
#include "common/round_up.h"

namespace tessera::ps {

// Bits of Row::flags.
//
// Set only within one update of an EVERY_ROW table: the row has had its gradient of this step.
inline constexpr uint32_t kRowMoved = 1;
// Changed or made since the last cut of a checkpoint.
inline constexpr uint32_t kRowChanged = 2;
// A row whose bit is not that of its stripe belongs to a cut and has not been read for it yet
// (RowStore::BeginCut).
inline constexpr uint32_t kRowCut = 4;
// The flags from here on are for tables with a tier below; none of those is EVERY_ROW.
//
// The row differs from the tier's record: changed since it was read from there, or never written. A
// row with kRowChanged has this flag, too.
inline constexpr uint32_t kRowDirty = 1;
// Leaving memory: written to the tier, or about to be. Any change takes the flag back.
inline constexpr uint32_t kRowLeaving = 8;
// One recent use, of 0 to kRowMaxUses; the hand of the clock takes uses away.
inline constexpr uint32_t kRowUse = 16;
inline constexpr uint32_t kRowMaxUses = 7;
inline constexpr uint32_t kRowUses = kRowUse * kRowMaxUses;
// Came into memory and is unchanged since. It came for its first change, so that is no further use:
// the row enters with one use, which keeps it until then, and the first change takes that away.
inline constexpr uint32_t kRowFresh = 128;

// The head of a row's block; its numbers follow at once:
//   embedding [dim] | slots [slots, dim] | row slots [row_slots] | padding to 8 bytes
// The embedding is of float32, or of bfloat16 and padded to 4 bytes; all else is float32.
struct Row {
  uint64_t key;
  uint32_t last_step;       // the highest step that updated it; stays at its maximum
  uint32_t frequency : 24;  // number of updates; stays at its maximum
  uint32_t flags : 8;       // kRow...

  // `more`: flags to set besides.
  void Touch(uint64_t step, uint32_t more = 0) {
    // One load and one store for all marks. A load that finds part of its bytes in a store under
    // way waits until that has reached the cache, behind all stores before it.
    struct Marks {
      uint32_t last_step;
      uint32_t frequency_and_flags;
    } marks;
    std::memcpy(&marks, reinterpret_cast<const char*>(this) + sizeof(key), sizeof(marks));
    // Ranks of an async job are not at the same step.
    marks.last_step =
        std::max(marks.last_step, static_cast<uint32_t>(std::min<uint64_t>(step, UINT32_MAX)));
    marks.frequency_and_flags += (marks.frequency_and_flags & kMaxFrequency) != kMaxFrequency;
    marks.frequency_and_flags |= (kRowChanged | more) << 24;
    std::memcpy(reinterpret_cast<char*>(this) + sizeof(key), &marks, sizeof(marks));
  }
  static constexpr uint32_t kMaxFrequency = (1u << 24) - 1;
};
static_assert(sizeof(Row) == 16);

// As std::copy_n, in line: a call costs more than a short row.
inline void CopyFloats(const float* from, uint32_t n, float* to) {
  typedef float Wide __attribute__((vector_size(32), aligned(4), may_alias));
  constexpr uint32_t kWide = sizeof(Wide) / sizeof(float);
  uint32_t i = 0;
  for (; i + kWide <= n; i += kWide) {
    *reinterpret_cast<Wide*>(to + i) = *reinterpret_cast<const Wide*>(from + i);
  }
  for (; i < n; ++i) std::memcpy(to + i, from + i, sizeof(float));
}

inline constexpr size_t kCacheLine = 64;

template <typename T>
inline void PrefetchNumbers(const T* numbers, uint32_t n) {
  for (uint32_t i = 0; i < n; i += kCacheLine / sizeof(T)) __builtin_prefetch(numbers + i);
}
// How many cache lines to load for the first `bytes` of a row, whichever block it has of those of
// `block_bytes` that lie in a slab. For a long row only the first ones: then the processor runs
// ahead by itself.
inline uint32_t LinesOf(size_t bytes, size_t block_bytes) {
  constexpr size_t kMost = 16;
  const size_t alignment = std::min(block_bytes & -block_bytes, kCacheLine);
  return static_cast<uint32_t>(
      std::min(kMost, (bytes + 2 * kCacheLine - alignment - 1) / kCacheLine));
}
// `row` may be null.
inline void PrefetchRow(const Row* row, uint32_t lines) {
  if (row == nullptr) return;
  auto* line = reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(row) & ~(kCacheLine - 1));
  for (uint32_t k = 0; k < lines; ++k, line += kCacheLine) __builtin_prefetch(line);
}

enum class EmbeddingType { kFloat32, kBfloat16 };
// The part of a row that is read: its embedding, or that and the slots behind it.
enum class RowPart { kEmbedding, kWhole };

// Where the parts of a row's block lie: the one place that computes it. A value.
class RowLayout {
 public:
  static constexpr size_t kAlignment = 8;
  static constexpr uint32_t kMaxDim = 4096;

  // `slots`: optimizer floats per embedding float; `row_slots`: per row. `dim` is at most kMaxDim.
  RowLayout(uint32_t dim, uint32_t slots, uint32_t row_slots,
            EmbeddingType type = EmbeddingType::kFloat32)
      : dim_(dim), slots_(slots), row_slots_(row_slots), type_(type) {}

  uint32_t dim() const { return dim_; }
  uint32_t slots() const { return slots_; }
  uint32_t row_slots() const { return row_slots_; }
  bool bfloat16() const { return type_ == EmbeddingType::kBfloat16; }
  // Optimizer floats of a row, of both kinds.
  uint32_t slot_floats() const { return slots_ * dim_ + row_slots_; }
  // All numbers of a row.
  uint32_t floats() const { return dim_ + slot_floats(); }
  uint32_t floats(RowPart part) const { return part == RowPart::kWhole ? floats() : dim_; }
  size_t embedding_bytes() const {
    return bfloat16() ? (size_t{dim_} + 1) / 2 * sizeof(float) : dim_ * sizeof(float);
  }
  // Bytes of the head and the numbers.
  size_t bytes() const { return sizeof(Row) + embedding_bytes() + sizeof(float) * slot_floats(); }
  size_t block_bytes() const { return RoundUp(bytes(), kAlignment); }

  // Slot k of every element: [dim].
  float* Slot(Row* row, uint32_t k) const { return Slots(row) + size_t{k} * dim_; }
  float* RowSlots(Row* row) const { return Slot(row, slots_); }
  // Slots of both kinds: [slot_floats].
  float* Slots(Row* row) const {
    return reinterpret_cast<float*>(reinterpret_cast<char*>(row + 1) + embedding_bytes());
  }

  // The embedding: [dim].
  void ReadEmbedding(const Row* row, float* to) const {
    if (!bfloat16()) return CopyFloats(Embedding(row), dim_, to);
    math::WidenBfloat16(Halves(row), dim_, to);
  }
  // [floats(part)].
  void Read(const Row* row, RowPart part, float* to) const {
    ReadEmbedding(row, to);
    if (part == RowPart::kEmbedding) return;
    CopyFloats(Slots(const_cast<Row*>(row)), slot_floats(), to + dim_);
  }
  // Rounds to the nearest bfloat16 if the row has that.
  void WriteEmbedding(const float* from, Row* row) const {
    if (!bfloat16()) return CopyFloats(from, dim_, Embedding(row));
    uint16_t* const halves = Halves(row);
    math::RoundToBfloat16(from, dim_, halves);
    // Rows are compared and checked as bytes.
    if (dim_ % 2 == 1) halves[dim_] = 0;
  }
  // All numbers in the order of the block: where they lie or, if the embedding is bfloat16, widened
  // in `room`.
  absl::Span<const float> Floats(const Row* row, std::vector<float>& room) const {
    if (!bfloat16()) return {Embedding(row), floats()};
    room.resize(floats());
    ReadEmbedding(row, room.data());
    const float* const slots = Slots(const_cast<Row*>(row));
    std::copy(slots, slots + slot_floats(), room.begin() + dim_);
    return room;
  }

  // The embedding, if it is float32.
  float* Embedding(Row* row) const { return reinterpret_cast<float*>(row + 1); }
  const float* Embedding(const Row* row) const { return reinterpret_cast<const float*>(row + 1); }
  // The embedding, if it is bfloat16.
  uint16_t* Halves(Row* row) const { return reinterpret_cast<uint16_t*>(row + 1); }
  const uint16_t* Halves(const Row* row) const {
    return reinterpret_cast<const uint16_t*>(row + 1);
  }

 private:
  uint32_t dim_;
  uint32_t slots_;
  uint32_t row_slots_;
  EmbeddingType type_;
};

}  // namespace tessera::ps
