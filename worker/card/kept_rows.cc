#include "worker/card/kept_rows.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/channels.h"

namespace tessera::worker {
namespace {

uint32_t RoundedUpSlots(double slots) {
  constexpr double kMostSlots = 1u << 31;
  return RowSlots::RoundedUp(static_cast<uint32_t>(std::min(slots, kMostSlots)));
}

// Whether `wanted` is at most a quarter more or less than `slots`.
bool IsNear(uint64_t slots, uint64_t wanted) {
  return 4 * (std::max(slots, wanted) - std::min(slots, wanted)) <= slots;
}

}  // namespace

KeptRows::KeptRows(const EmbeddingPlan* plan, cuda::Stream* stream, const Options& options)
    : plan_(*plan),
      stream_(*stream),
      share_(options.share),
      metrics_(options.metrics),
      pool_(options.pool),
      optimizers_(options.optimizers),
      router_(options.router) {
  uint64_t slot_bytes = 0;
  for (size_t l = 0; l < plan_.lookups().size(); ++l) slot_bytes += SlotFloats(l) * sizeof(float);
  if (options.bytes == 0 || slot_bytes == 0) return;
  const auto slots = static_cast<double>(options.bytes / slot_bytes);
  Take(std::vector<uint32_t>(plan_.key_sets().size(), RoundedUpSlots(slots)));
}

size_t KeptRows::SlotFloats(size_t lookup) const {
  const size_t dim = plan_.lookups()[lookup].dim;
  // A row that is trained is kept twice: as it is now, and as its ps has it.
  return optimizers_ == nullptr ? dim : 2 * size_t{(*optimizers_)[lookup].floats()};
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
  // Frees the old memory first, so that the card has room for the new.
  slots_.clear();
  kept_.clear();
  for (const absl::Status& fit : {CheckMemory(slots), CheckChanges(slots)}) {
    if (!fit.ok()) return stream_.Fail(fit);
  }
  stream_.MakeCurrent();
  for (size_t l = 0; l < plan_.lookups().size(); ++l) {
    const EmbeddingPlan::Lookup& lookup = plan_.lookups()[l];
    const auto take = [&](size_t floats) {
      return cuda::Memory(stream_, cuda::Memory::Where::kDevice,
                          size_t{slots[lookup.key_set]} * floats);
    };
    Kept& kept = kept_.emplace_back();
    kept.rows = take(lookup.dim);
    if (optimizers_ == nullptr) continue;
    const size_t states = (*optimizers_)[l].states();
    if (states > 0) kept.state = take(states);
    kept.at_ps = take(lookup.dim + states);
  }
  // If the card has no room, the machine's memory for the index is not taken either.
  if (!stream_.status().ok()) return;
  for (const uint32_t of : slots) slots_.emplace_back(of);
}

absl::Status KeptRows::CheckMemory(absl::Span<const uint32_t> slots) const {
  uint64_t bytes = 0;
  for (size_t l = 0; l < plan_.lookups().size(); ++l) {
    bytes += slots[plan_.lookups()[l].key_set] * SlotFloats(l) * sizeof(float);
  }
  if (bytes <= stream_.memory_bytes()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the rows that the card is to keep take ", bytes >> 20, " MiB of the ",
                   stream_.memory_bytes() >> 20, " MiB that it has; keep fewer rows"));
}

absl::Status KeptRows::CheckChanges(absl::Span<const uint32_t> slots) const {
  if (optimizers_ == nullptr) return absl::OkStatus();
  uint64_t bytes = 0;
  for (size_t l = 0; l < plan_.lookups().size(); ++l) {
    const EmbeddingPlan::Lookup& lookup = plan_.lookups()[l];
    bytes +=
        slots[lookup.key_set] * (sizeof(uint64_t) + (*optimizers_)[l].floats() * sizeof(float));
  }
  // Half of a push's limit: the rest is for the batch itself, and for a ps that has more than its
  // share of the rows.
  const uint64_t most = kMaxPushBytes / 2 * router_->ps_count();
  if (bytes <= most) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the rows that the card is to train take ", bytes >> 20,
                   " MiB in the push that ends a unit, more than the ", most >> 20, " MiB that ",
                   router_->ps_count(), " ps take; keep fewer rows, or use more ps"));
}

void KeptRows::Begin(uint32_t max_age, bool trains) {
  trains = trains && optimizers_ != nullptr && max_age > 0;
  // A row that is pulled anew must have the changes that the card made before it was pulled last.
  max_age_ = trains ? std::max(max_age, RowSlots::kLeavingBatches) : max_age;
  if (std::exchange(trains_, trains) != trains) Forget();
}

void KeptRows::Forget() {
  for (RowSlots& slots : slots_) slots.Forget();
}

cuda::TrainedRows KeptRows::trained(size_t lookup) const {
  if (kept_.empty()) return {};
  const Kept& kept = kept_[lookup];
  return {.dim = plan_.lookups()[lookup].dim,
          .states = (*optimizers_)[lookup].states(),
          .rows = kept.rows.data(),
          .state = kept.state.data(),
          .at_ps = kept.at_ps.data()};
}

void KeptRows::Find(size_t key_set, PreparedBatch* batch) {
  if (slots_.empty() || max_age_ == 0) return;
  CardBatch::Found* const found = batch->card.AddFound();
  // If max_age has no limit there is one worker, and nobody else waits for changes of unused rows.
  // A batch without samples is not given to the card and takes none away.
  const bool takes_unused = trains_ && max_age_ != UINT32_MAX && batch->batch.size > 0;
  slots_[key_set].Find(batch->keys[key_set].routed.keys, max_age_, &found->places, pool_,
                       trains_ ? RowSlots::Use::kTrain : RowSlots::Use::kRead,
                       takes_unused ? &found->unused : nullptr);
}

void KeptRows::Tell(size_t key_set, PreparedBatch* batch) const {
  const RoutedKeys& routed = batch->keys[key_set].routed;
  std::vector<uint32_t>& at = batch->card.scratch()->at;
  at.resize(routed.keys.size());
  if (slots_.empty() || max_age_ == 0) {
    std::iota(at.begin(), at.end(), slots(key_set));
    batch->card.AddRows(at);
    return;
  }
  const absl::Span<const RowSlots::Place> places = batch->card.found(key_set).places;
  uint64_t kept = 0, evicted = 0, ages = 0;
  for (const RowSlots::Place& place : places) {
    kept += place.kept;
    evicted += place.evicts;
    ages += place.age;
  }
  metrics_->card_rows_kept.Increment(static_cast<double>(kept));
  metrics_->card_rows_pulled.Increment(static_cast<double>(places.size() - kept));
  metrics_->card_rows_evicted.Increment(static_cast<double>(evicted));
  metrics_->card_row_ages.Increment(static_cast<double>(ages));
  if (trains_) {
    TellTrained(key_set, routed, &batch->card);
  } else {
    TellKept(key_set, routed, &batch->card);
  }
}

void KeptRows::TellKept(size_t key_set, const RoutedKeys& routed, CardBatch* batch) const {
  const absl::Span<const RowSlots::Place> places = batch->found(key_set).places;
  const uint32_t slots = this->slots(key_set);
  auto& [at, from, to, own, left_slots, positions, left] = *batch->scratch();
  RoutedKeys asked;
  from.clear();
  to.clear();
  asked.begin.push_back(0);
  for (size_t p = 0; p + 1 < routed.begin.size(); ++p) {
    for (size_t i = routed.begin[p]; i < routed.begin[p + 1]; ++i) {
      const RowSlots::Place& place = places[i];
      if (place.kept) {
        at[i] = place.slot;
        continue;
      }
      const auto fresh = static_cast<uint32_t>(asked.keys.size());
      at[i] = slots + fresh;
      asked.keys.push_back(routed.keys[i]);
      if (place.slot == RowSlots::kNoSlot) continue;
      from.push_back(fresh);
      to.push_back(place.slot);
    }
    asked.begin.push_back(static_cast<uint32_t>(asked.keys.size()));
  }
  CardBatch::Rows& rows = batch->AddRows(at);
  rows.asks_for_all = false;
  rows.asked = std::move(asked);
  batch->AddKept(from, to, &rows);
}

void KeptRows::TellTrained(size_t key_set, const RoutedKeys& routed, CardBatch* batch) const {
  const absl::Span<const RowSlots::Place> places = batch->found(key_set).places;
  const uint32_t slots = this->slots(key_set);
  auto& [at, from, to, own, left_slots, positions, left] = *batch->scratch();
  RoutedKeys asked;
  CardBatch::Rows::Trained trained;
  from.clear();  // rows of the batch that are in `asked`
  to.clear();    // slots of rows that are pulled whole
  own.clear();   // for each of these, where in `left` its own changes are
  left.clear();
  left_slots.clear();
  asked.begin.push_back(0);
  trained.whole.begin.push_back(0);
  for (size_t p = 0; p + 1 < routed.begin.size(); ++p) {
    for (size_t i = routed.begin[p]; i < routed.begin[p + 1]; ++i) {
      const RowSlots::Place& place = places[i];
      at[i] = place.slot;
      if (place.kept) continue;
      if (place.slot == RowSlots::kNoSlot) {
        at[i] = slots + static_cast<uint32_t>(asked.keys.size());
        asked.keys.push_back(routed.keys[i]);
        from.push_back(static_cast<uint32_t>(i));
        continue;
      }
      if (place.awaits) batch->AwaitPushes();
      trained.whole.keys.push_back(routed.keys[i]);
      to.push_back(place.slot);
      const bool is_own = place.changed && !place.evicts;
      own.push_back(is_own ? static_cast<uint32_t>(left.size()) : cuda::kNoChange);
      if (!place.changed) continue;
      left.push_back(is_own ? routed.keys[i] : place.left);
      left_slots.push_back(place.slot);
    }
    asked.begin.push_back(static_cast<uint32_t>(asked.keys.size()));
    trained.whole.begin.push_back(static_cast<uint32_t>(trained.whole.keys.size()));
  }
  for (const RowSlots::Changed& row : batch->found(key_set).unused) {
    left.push_back(row.key);
    left_slots.push_back(row.slot);
  }
  CardBatch::Rows& rows = batch->AddRows(at);
  trained.pushed = batch->AddWords(from);
  trained.whole_slots = batch->AddWords(to);
  trained.written = RouteLeft(batch->scratch());
  for (uint32_t& of : own) {
    if (of != cuda::kNoChange) of = positions[of];
  }
  trained.own = batch->AddWords(own);
  trained.written_slots = batch->AddWords(left_slots);
  rows.asks_for_all = false;
  rows.asked = std::move(asked);
  rows.trained = std::move(trained);
}

RoutedKeys KeptRows::RouteLeft(CardBatch::Scratch* scratch) const {
  RoutedKeys routed;
  router_->Route(scratch->left, &routed, &scratch->positions);
  scratch->to = scratch->left_slots;
  for (size_t i = 0; i < scratch->to.size(); ++i) {
    scratch->left_slots[scratch->positions[i]] = scratch->to[i];
  }
  metrics_->card_rows_written.Increment(static_cast<double>(scratch->left.size()));
  return routed;
}

KeptRows::Unwritten KeptRows::TakeUnwritten(size_t key_set) {
  CardBatch::Scratch scratch;
  if (!slots_.empty()) {
    for (const RowSlots::Changed& changed : slots_[key_set].TakeChanged()) {
      scratch.left.push_back(changed.key);
      scratch.left_slots.push_back(changed.slot);
    }
  }
  RoutedKeys keys = RouteLeft(&scratch);
  return {.keys = std::move(keys), .slots = std::move(scratch.left_slots)};
}

}  // namespace tessera::worker
