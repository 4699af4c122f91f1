#include "common/job/dense_layout.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

// The inverse of x ^ (x >> shift).
constexpr uint64_t UndoShift(uint64_t y, int shift) {
  uint64_t x = y;
  for (int known = shift; known < 64; known += shift) x = y ^ (x >> shift);
  return x;
}

// The inverse of an odd factor modulo 2^64: each Newton step doubles the number of correct bits.
constexpr uint64_t Inverse(uint64_t factor) {
  uint64_t inverse = factor;
  for (int step = 0; step < 6; ++step) inverse *= 2 - factor * inverse;
  return inverse;
}

// The key whose Mix64 is `hash`.
constexpr uint64_t KeyOfHash(uint64_t hash) {
  uint64_t x = UndoShift(hash, 31) * Inverse(0x94D049BB133111EBull);
  x = UndoShift(x, 27) * Inverse(0xBF58476D1CE4E5B9ull);
  return UndoShift(x, 30) - 0x9E3779B97F4A7C15ull;
}
static_assert(KeyOfHash(Mix64(0)) == 0 && KeyOfHash(Mix64(~uint64_t{0})) == ~uint64_t{0});
static_assert(Mix64(KeyOfHash(0x0123456789ABCDEFull)) == 0x0123456789ABCDEFull);

}  // namespace

// `first` is the first block's key, or its hash.
void DenseLayout::AddTensor(uint64_t floats, uint64_t first, bool by_hash) {
  const uint64_t end = floats_ + floats;
  for (uint64_t block = first; floats_ < end; ++block) {
    const uint64_t n = std::min<uint64_t>(kDenseBlockFloats, end - floats_);
    blocks_.push_back({by_hash ? KeyOfHash(block) : block, floats_, static_cast<uint32_t>(n)});
    floats_ += n;
  }
}

DenseLayout DenseLayout::Flat(uint64_t floats) {
  DenseLayout layout;
  layout.AddTensor(floats, 0, false);
  return layout;
}

DenseLayout DenseLayout::ByTensor(absl::Span<const uint64_t> floats) {
  DenseLayout layout;
  for (uint64_t tensor = 0; tensor < floats.size(); ++tensor) {
    layout.AddTensor(floats[tensor], Mark(tensor) << kBlockBits, true);
  }
  return layout;
}

absl::Status DenseLayout::CheckPadding(const Block& block, const float* row) {
  const float* const end = row + kDenseBlockFloats;
  const float* const found =
      std::find_if(row + block.floats, end, [](float v) { return v != 0 && std::isfinite(v); });
  if (found == end) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "block ", block.key, " of the dense parameters has ", *found, " as number ", found - row + 1,
      ", expected zeros behind the ", block.floats,
      " that this model has there: a model of more parameters was trained, from another file or by "
      "another version; go on with those, or train anew"));
}

uint64_t DenseLayout::Mark(uint64_t tensor) {
  constexpr int kLow = kTensorBits + kBlockBits;
  return Mix64(tensor) >> kLow << kTensorBits | tensor;
}

bool DenseLayout::IsOfTensor(uint64_t key) {
  return key >> 32 != 0 && TensorOf(key) == Mark(TensorOf(key) & ((1u << kTensorBits) - 1));
}

}  // namespace tessera
