#include "worker/kept_rows.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

namespace tessera::worker {
namespace {

uint32_t RoundedUpSlots(double slots) {
  constexpr double kMostSlots = 1u << 31;
  return RowSlots::RoundedUp(static_cast<uint32_t>(std::min(slots, kMostSlots)));
}

// Not over a quarter more or less.
bool IsNear(uint64_t slots, uint64_t wanted) {
  return 4 * (std::max(slots, wanted) - std::min(slots, wanted)) <= slots;
}

}  // namespace

KeptRows::KeptRows(const EmbeddingPlan* plan, cuda::Stream* stream, const Options& options)
    : plan_(*plan),
      stream_(*stream),
      share_(options.share),
      metrics_(options.metrics),
      pool_(options.pool) {
  uint64_t slot_bytes = 0;
  for (const EmbeddingPlan::Lookup& lookup : plan_.lookups()) {
    slot_bytes += lookup.dim * sizeof(float);
  }
  if (options.bytes == 0 || slot_bytes == 0) return;
  const auto slots = static_cast<double>(options.bytes / slot_bytes);
  Take(std::vector<uint32_t>(plan_.key_sets().size(), RoundedUpSlots(slots)));
}

void KeptRows::SizeTo(absl::Span<const uint64_t> table_rows) {
  if (share_ == 0) return;
  std::vector<uint32_t> wanted(plan_.key_sets().size());
  for (const EmbeddingPlan::Lookup& lookup : plan_.lookups()) {
    const double rows = std::ceil(share_ * static_cast<double>(table_rows[lookup.table]));
    uint32_t& slots = wanted[lookup.key_set];
    slots = std::max(slots, RoundedUpSlots(rows));
  }
  bool near = !slots_.empty();
  for (size_t s = 0; s < slots_.size(); ++s) near = near && IsNear(slots_[s].slots(), wanted[s]);
  if (!near) Take(wanted);
}

void KeptRows::Take(absl::Span<const uint32_t> slots) {
  // Frees before it takes.
  slots_.clear();
  kept_.clear();
  stream_.MakeCurrent();
  for (const EmbeddingPlan::Lookup& lookup : plan_.lookups()) {
    kept_.emplace_back(stream_, cuda::Memory::Where::kDevice,
                       size_t{slots[lookup.key_set]} * lookup.dim);
  }
  // What a card has no room for costs the machine nothing.
  if (!stream_.status().ok()) return;
  for (const uint32_t of : slots) slots_.emplace_back(of);
}

void KeptRows::Forget() {
  for (RowSlots& slots : slots_) slots.Forget();
}

void KeptRows::Find(size_t key_set, PreparedBatch* batch) {
  const RoutedKeys& routed = batch->keys[key_set].routed;
  at_.resize(routed.keys.size());
  if (slots_.empty() || max_age_ == 0) {
    std::iota(at_.begin(), at_.end(), slots(key_set));
    batch->card.AddRows(at_);
    return;
  }
  RowSlots& slots = slots_[key_set];
  slots.Find(routed.keys, max_age_, &places_, pool_);
  RoutedKeys asked;
  from_.clear();
  to_.clear();
  asked.begin.push_back(0);
  uint64_t evicted = 0, ages = 0;
  for (size_t p = 0; p + 1 < routed.begin.size(); ++p) {
    for (size_t i = routed.begin[p]; i < routed.begin[p + 1]; ++i) {
      const RowSlots::Place& place = places_[i];
      evicted += place.evicts;
      ages += place.age;
      if (place.kept) {
        at_[i] = place.slot;
        continue;
      }
      const auto fresh = static_cast<uint32_t>(asked.keys.size());
      at_[i] = slots.slots() + fresh;
      asked.keys.push_back(routed.keys[i]);
      if (place.slot == RowSlots::kNoSlot) continue;
      from_.push_back(fresh);
      to_.push_back(place.slot);
    }
    asked.begin.push_back(static_cast<uint32_t>(asked.keys.size()));
  }
  metrics_->card_rows_kept.Increment(routed.keys.size() - asked.keys.size());
  metrics_->card_rows_pulled.Increment(asked.keys.size());
  metrics_->card_rows_evicted.Increment(static_cast<double>(evicted));
  metrics_->card_row_ages.Increment(static_cast<double>(ages));
  CardBatch::Rows& rows = batch->card.AddRows(at_);
  rows.asks_for_all = false;
  rows.asked = std::move(asked);
  batch->card.AddKept(from_, to_, &rows);
}

}  // namespace tessera::worker
