#include "worker/card_pooling.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tessera::worker {
namespace {

using cuda::Memory;

// Memory for at least so many floats; holds anything.
float* Room(cuda::Stream& stream, Memory::Where where, size_t floats, Memory* memory) {
  if (memory->size() < floats) {
    *memory = Memory();  // frees before it takes
    *memory = Memory(stream, where, floats + floats / 4);
  }
  return memory->data();
}

}  // namespace

CardPooling::CardPooling(const EmbeddingPlan* plan, Executor* executor, const Options& options)
    : plan_(*plan),
      executor_(*executor),
      stream_(*executor->stream()),
      groups_(PoolingGroups(*plan)),
      metrics_(options.metrics),
      fresh_at_(plan->lookups().size()),
      gradient_at_(plan->lookups().size()) {
  executor_.PoolOnCard();
  size_t slot_bytes = 0;  // the same number of slots for every key set
  for (const EmbeddingPlan::Lookup& lookup : plan_.lookups()) {
    slot_bytes += lookup.dim * sizeof(float);
  }
  if (options.cache_bytes == 0 || slot_bytes == 0) return;
  constexpr uint64_t kMostSlots = 1u << 31;
  const uint32_t slots = RowSlots::RoundedUp(
      static_cast<uint32_t>(std::min(options.cache_bytes / slot_bytes, kMostSlots)));
  stream_.MakeCurrent();
  for (const EmbeddingPlan::Lookup& lookup : plan_.lookups()) {
    kept_.emplace_back(stream_, Memory::Where::kDevice, size_t{slots} * lookup.dim);
  }
  // What a card has no room for costs the machine nothing.
  if (stream_.status().ok()) slots_.assign(plan_.key_sets().size(), RowSlots(slots));
}

void CardPooling::Begin(uint32_t max_age, bool afresh) {
  max_age_ = max_age;
  if (!afresh && prepared_ == pooled_) return;
  for (RowSlots& slots : slots_) slots.Forget();
  prepared_ = pooled_ = 0;
}

void CardPooling::Prepare(PreparedBatch* batch) {
  ++prepared_;
  batch->card.Clear();
  for (const PoolingGroup& group : groups_) {
    batch->card.AddEntries(batch->batch, plan_, group,
                           batch->keys[plan_.lookups()[group.lookup].key_set]);
  }
  for (size_t s = 0; s < plan_.key_sets().size(); ++s) FindRows(s, batch);
}

void CardPooling::FindRows(size_t key_set, PreparedBatch* batch) {
  const RoutedKeys& routed = batch->keys[key_set].routed;
  at_.resize(routed.keys.size());
  if (slots_.empty() || max_age_ == 0) {
    std::iota(at_.begin(), at_.end(), slots_.empty() ? 0u : slots_[key_set].slots());
    batch->card.AddRows(at_);
    return;
  }
  RowSlots& slots = slots_[key_set];
  slots.Find(routed.keys, max_age_, &places_);
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

cuda::BatchRows CardPooling::RowsOf(size_t lookup, const PreparedBatch& batch) const {
  const EmbeddingPlan::Lookup& of = plan_.lookups()[lookup];
  return {.kept = kept_.empty() ? nullptr : kept_[lookup].data(),
          .slots = slots_.empty() ? 0 : slots_[of.key_set].slots(),
          .fresh = device_.data() + fresh_at_[lookup],
          .at = device_.words() + batch.card.rows()[of.key_set].at,
          .dim = of.dim};
}

void CardPooling::Pool(const PreparedBatch& batch) {
  ++pooled_;
  const absl::Span<const uint32_t> words = batch.card.words();
  size_t floats = words.size();
  for (size_t l = 0; l < fresh_at_.size(); ++l) {
    fresh_at_[l] = floats;
    floats += batch.rows[l].size();
  }
  stream_.MakeCurrent();
  float* const host = Room(stream_, Memory::Where::kHost, floats, &host_);
  float* const device = Room(stream_, Memory::Where::kDevice, floats, &device_);
  if (!stream_.status().ok() || floats == 0) return;
  std::memcpy(host, words.data(), words.size() * sizeof(uint32_t));
  for (size_t l = 0; l < fresh_at_.size(); ++l) {
    std::copy(batch.rows[l].begin(), batch.rows[l].end(), host + fresh_at_[l]);
  }
  stream_.CopyToDevice(host, device, floats);
  for (size_t l = 0; l < fresh_at_.size(); ++l) {
    const CardBatch::Rows& rows = batch.card.rows()[plan_.lookups()[l].key_set];
    if (rows.kept == 0) continue;
    cuda::KeepRows(stream_, device + fresh_at_[l], device_.words() + rows.from,
                   device_.words() + rows.slots, rows.kept, plan_.lookups()[l].dim,
                   kept_[l].data());
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    const cuda::BatchRows rows = RowsOf(groups_[g].lookup, batch);
    const cuda::PooledEntries entries = batch.card.Entries(g, device_.words());
    float* const y = executor_.card_pooled(groups_[g].input).data();
    if (groups_[g].largest) {
      cuda::PoolLargest(stream_, rows, entries, y);
    } else {
      cuda::PoolSums(stream_, rows, entries, y);
    }
  }
}

void CardPooling::Unpool(const PreparedBatch& batch) {
  size_t floats = 0;
  for (size_t l = 0; l < gradient_at_.size(); ++l) {
    const EmbeddingPlan::Lookup& lookup = plan_.lookups()[l];
    gradient_at_[l] = floats;
    floats += batch.keys[lookup.key_set].routed.keys.size() * lookup.dim;
  }
  stream_.MakeCurrent();
  float* const host = Room(stream_, Memory::Where::kHost, floats, &gradients_host_);
  float* const device = Room(stream_, Memory::Where::kDevice, floats, &gradients_);
  if (!stream_.status().ok()) return;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const size_t lookup = groups_[g].lookup;
    const bool first = g == 0 || groups_[g - 1].lookup != lookup;
    float* const sums = device + gradient_at_[lookup];
    const cuda::PooledEntries entries = batch.card.Entries(g, device_.words());
    const float* const dy = executor_.card_pooled_gradient(groups_[g].input).data();
    if (groups_[g].largest) {
      cuda::UnpoolLargest(stream_, RowsOf(lookup, batch), entries, dy, sums, !first);
    } else {
      cuda::UnpoolSums(stream_, entries, plan_.lookups()[lookup].dim, dy, sums, !first);
    }
  }
  stream_.StartCopyToHost(device, host, floats);
}

void CardPooling::CopyGradients(absl::Span<std::vector<float>> gradients) const {
  if (!stream_.status().ok()) return;
  for (size_t l = 0; l < gradients.size(); ++l) {
    std::copy_n(gradients_host_.data() + gradient_at_[l], gradients[l].size(),
                gradients[l].begin());
  }
}

}  // namespace tessera::worker
