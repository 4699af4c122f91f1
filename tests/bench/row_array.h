#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "absl/types/span.h"
#include "common/math/optim/adagrad.h"
#include "ps/rows/row_layout.h"

namespace tessera::bench {

// What a table could reach at best: the same rows in one array on huge pages, whose index the
// caller knows, prefetched ahead. No map, no hash, no lock, no check.
class RowArray {
 public:
  RowArray(const ps::RowLayout& layout, uint64_t rows)
      : layout_(layout), rows_(Allocate(rows * layout.block_bytes())) {}

  ps::Row* row(uint32_t index) const {
    return reinterpret_cast<ps::Row*>(rows_.get() + index * layout_.block_bytes());
  }

  void Fill(uint32_t index, float embedding, float slot) {
    ps::Row* const r =
        new (row(index)) ps::Row{.key = index, .last_step = 0, .frequency = 0, .flags = 0};
    for (uint32_t d = 0; d < layout_.dim(); ++d) layout_.Embedding(r)[d] = embedding;
    for (uint32_t d = 0; d < layout_.slot_floats(); ++d) layout_.Slot(r, 0)[d] = slot;
  }

  void Gather(absl::Span<const uint32_t> indices, float* values) const {  // [indices, dim]
    for (size_t i = 0; i < indices.size(); ++i) {
      if (i + kAhead < indices.size()) Prefetch(indices[i + kAhead], layout_.dim());
      ps::CopyFloats(layout_.Embedding(row(indices[i])), layout_.dim(), values + i * layout_.dim());
    }
  }

  void Adagrad(absl::Span<const uint32_t> indices,
               const float* gradients) const {  // [indices, dim]
    const math::Adagrad::Params params = {
        .rate = 0.01f, .initial_accumulator = 0.1f, .epsilon = 1e-10f};
    for (size_t i = 0; i < indices.size(); ++i) {
      if (i + kAhead < indices.size()) Prefetch(indices[i + kAhead], layout_.floats());
      ps::Row* const r = row(indices[i]);
      const float* __restrict g = gradients + i * layout_.dim();
      float* __restrict w = layout_.Embedding(r);
      float* __restrict n = layout_.Slot(r, 0);
      for (uint32_t d = 0; d < layout_.dim(); ++d) {
        math::Adagrad::Update(params, {}, g[d], w[d], n[d]);
      }
    }
  }

 private:
  static constexpr size_t kAhead = 16;
  static constexpr size_t kHugePage = 2 << 20;
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };

  static std::unique_ptr<std::byte, Free> Allocate(size_t bytes) {
    bytes = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    void* const p = std::aligned_alloc(kHugePage, bytes);
    if (p == nullptr) throw std::bad_alloc();
    ::madvise(p, bytes, MADV_HUGEPAGE);
    return std::unique_ptr<std::byte, Free>(static_cast<std::byte*>(p));
  }
  void Prefetch(uint32_t index, uint32_t floats) const {
    const char* const begin = reinterpret_cast<const char*>(row(index));
    for (size_t at = 0; at < sizeof(ps::Row) + floats * sizeof(float); at += 64) {
      __builtin_prefetch(begin + at);
    }
  }

  const ps::RowLayout layout_;
  const std::unique_ptr<std::byte, Free> rows_;
};

}  // namespace tessera::bench
