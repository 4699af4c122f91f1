#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "absl/types/span.h"

namespace tessera::ps {

// Bits of Row::flags.
// Set only within one update of an EVERY_ROW table: the row has had its gradient of this step.
inline constexpr uint32_t kRowMoved = 1;
// Not as the last checkpoint that was cut has it.
inline constexpr uint32_t kRowChanged = 2;
// Set only while a stripe is locked: the row has been seen in this update.
inline constexpr uint32_t kRowSeen = 4;
// Of tables without a tier below: a row whose bit is not that of its stripe belongs to a cut and
// has not been read for it yet (RowStore::BeginCut).
inline constexpr uint32_t kRowCut = 8;
// The rest is of tables with a tier below, where kRowChanged means: since it was read from there,
// or never written.
// On its way out: written to the tier, or about to be. Any change takes it back.
inline constexpr uint32_t kRowLeaving = 8;
// How often it was used lately, 0 to kRowMaxUses: what the hand of the clock takes away.
inline constexpr uint32_t kRowUse = 16;
inline constexpr uint32_t kRowMaxUses = 7;
inline constexpr uint32_t kRowUses = kRowUse * kRowMaxUses;
// Came into memory and was not changed since: its first change is what it came for, and no use.
inline constexpr uint32_t kRowFresh = 128;

// The head of a row's block; its floats follow at once:
//   embedding [dim] | slots [slots, dim] | row slots [row_slots] | padding to 16 bytes
struct Row {
  uint64_t key;
  uint32_t last_step;       // the highest that updated it; stays at its maximum
  uint32_t frequency : 24;  // updates; stays at its maximum
  uint32_t flags : 8;       // kRow...

  void Touch(uint64_t step) {
    // Ranks of an async job are not at the same step.
    last_step = std::max(last_step, static_cast<uint32_t>(std::min<uint64_t>(step, UINT32_MAX)));
    if (frequency < kMaxFrequency) ++frequency;
    flags |= kRowChanged;
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

// Where everything in a row's block lies: the one place that computes it. A value.
class RowLayout {
 public:
  static constexpr size_t kAlignment = 16;

  // `slots`: optimizer floats per embedding float; `row_slots`: per row.
  RowLayout(uint32_t dim, uint32_t slots, uint32_t row_slots)
      : dim_(dim), slots_(slots), row_slots_(row_slots) {}

  uint32_t dim() const { return dim_; }
  uint32_t slots() const { return slots_; }
  uint32_t row_slots() const { return row_slots_; }
  // Optimizer floats of a row, of both kinds.
  uint32_t slot_floats() const { return slots_ * dim_ + row_slots_; }
  // All floats of a row.
  uint32_t floats() const { return dim_ + slot_floats(); }
  size_t block_bytes() const {
    const size_t bytes = sizeof(Row) + sizeof(float) * floats();
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  float* Embedding(Row* row) const { return reinterpret_cast<float*>(row + 1); }
  const float* Embedding(const Row* row) const { return reinterpret_cast<const float*>(row + 1); }
  // Slot k of every element: [dim].
  float* Slot(Row* row, uint32_t k) const { return Embedding(row) + (k + 1) * dim_; }
  float* RowSlots(Row* row) const { return Embedding(row) + (slots_ + 1) * dim_; }
  // All floats, in the order of the block.
  absl::Span<float> Floats(Row* row) const { return {Embedding(row), floats()}; }
  absl::Span<const float> Floats(const Row* row) const { return {Embedding(row), floats()}; }

 private:
  uint32_t dim_;
  uint32_t slots_;
  uint32_t row_slots_;
};

}  // namespace tessera::ps
