#include "worker/card/card_pooling.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "cuda/dense/loss_scaling.h"
#include "worker/dense/buffer.h"

namespace tessera::worker {
namespace {

using cuda::Memory;

// Takes more `memory` if it has fewer than `floats`; what it holds is undefined.
float* Room(cuda::Stream& stream, Memory::Where where, size_t floats, Memory* memory) {
  if (memory->size() < floats) {
    *memory = Memory();  // frees before it takes
    *memory = Memory(stream, where, floats + floats / 4);
  }
  return memory->data();
}

}  // namespace

CardPooling::CardPooling(const EmbeddingPlan* plan, Executor* executor,
                         const KeptRows::Options& options)
    : plan_(*plan),
      executor_(*executor),
      stream_(*executor->stream()),
      groups_(PoolingGroups(*plan)),
      pool_(options.pool),
      kept_(plan, executor->stream(), options),
      staged_{Staged(stream_), Staged(stream_)},
      gradient_at_(plan->lookups().size()),
      optimizers_(options.optimizers),
      unwritten_(plan->key_sets().size()),
      last_changes_(plan->lookups().size()) {
  executor_.PoolOnCard();
  for (Given& given : given_) {
    given.pushed_at.resize(plan->lookups().size());
    given.change_at.resize(plan->lookups().size());
  }
}

void CardPooling::Begin(uint32_t max_age, bool afresh, bool trains) {
  kept_.Begin(max_age, trains);
  if (!afresh && placed_ == pooled_) return;
  kept_.Forget();
  pooled_ = placed_;
}

size_t CardPooling::PrepareThreads() const {
  const int threads = 1 + (pool_ == nullptr ? 0 : pool_->threads());
  return static_cast<size_t>(std::clamp(threads * 3 / 4, 1, kMostThreads));
}

void CardPooling::Prepare(PreparedBatch* batch) const {
  batch->card.Clear();
  for (const PoolingGroup& group : groups_) {
    batch->card.AddEntries(batch->batch, plan_, group,
                           batch->keys[plan_.lookups()[group.lookup].key_set]);
  }
}

void CardPooling::Place(PreparedBatch* batch) {
  batch->card.SetNumber(++placed_);
  for (size_t s = 0; s < plan_.key_sets().size(); ++s) kept_.Find(s, batch);
}

void CardPooling::Tell(PreparedBatch* batch) const {
  for (size_t s = 0; s < plan_.key_sets().size(); ++s) kept_.Tell(s, batch);
}

void CardPooling::StageAhead(const PreparedBatch& next, PendingCall* rows) {
  StartWords(next);
  if (rows == nullptr) return;
  // Waits for two things at once, the pull and the card, by polling: that costs the card less than
  // rows that are copied late.
  constexpr absl::Duration kLook = absl::Microseconds(50);
  while (!rows->Done() && stream_.Busy()) absl::SleepFor(kLook);
  // An error of the pull is for the caller, who waits for it too.
  if (rows->Done() && rows->Wait().ok()) StartRows(next);
}

void CardPooling::StartWords(const PreparedBatch& batch) {
  Staged& staged = StagedOf(batch);
  if (staged.batch == batch.card.number()) return;
  staged.batch = batch.card.number();
  staged.has_rows = false;
  const absl::Span<const uint32_t> words = batch.card.words();
  size_t floats = words.size();
  const auto place = [&floats](const std::vector<std::vector<float>>& rows) {
    std::vector<size_t> at;
    for (const std::vector<float>& of : rows) {
      floats = Buffer::RoundUp(floats);
      at.push_back(floats);
      floats += of.size();
    }
    return at;
  };
  staged.fresh_at = place(batch.rows);
  staged.whole_at = place(batch.whole_rows);
  stream_.MakeCurrent();
  float* const host = staged.buffer.Fill(floats);
  if (host == nullptr) return;
  // Copied as floats, but nothing computes with these bits.
  CopyFloats(reinterpret_cast<const float*>(words.data()), words.size(), host);
  staged.buffer.StartCopy(0, words.size());
}

void CardPooling::StartRows(const PreparedBatch& batch) {
  Staged& staged = StagedOf(batch);
  if (!stream_.status().ok() || std::exchange(staged.has_rows, true)) return;
  const size_t begin = batch.card.words().size();
  size_t end = begin;
  const auto copy = [&](const std::vector<std::vector<float>>& rows, absl::Span<const size_t> at) {
    for (size_t l = 0; l < rows.size(); ++l) {
      CopyFloats(rows[l].data(), rows[l].size(), staged.buffer.host() + at[l]);
      end = at[l] + rows[l].size();
    }
  };
  copy(batch.rows, staged.fresh_at);
  copy(batch.whole_rows, staged.whole_at);
  staged.buffer.StartCopy(begin, end);
}

cuda::BatchRows CardPooling::RowsOf(size_t lookup, const PreparedBatch& batch) {
  const EmbeddingPlan::Lookup& of = plan_.lookups()[lookup];
  const Staged& staged = StagedOf(batch);
  return {.kept = kept_.rows(lookup),
          .slots = kept_.slots(of.key_set),
          .fresh = staged.buffer.data() + staged.fresh_at[lookup],
          .at = staged.buffer.words() + batch.card.rows()[of.key_set].at,
          .dim = of.dim};
}

void CardPooling::Pool(const PreparedBatch& batch) {
  ++pooled_;
  stream_.MakeCurrent();
  // The card has been given all work of the batch before, which read the buffers.
  for (Staged& staged : staged_) staged.buffer.Release();
  StartWords(batch);
  StartRows(batch);
  Staged& staged = StagedOf(batch);
  staged.buffer.Await();
  if (!stream_.status().ok()) return;
  const uint32_t* const words = staged.buffer.words();
  KeepRows(batch);
  TakeAndPut(batch);
  for (size_t g = 0; g < groups_.size(); ++g) {
    const cuda::BatchRows rows = RowsOf(groups_[g].lookup, batch);
    const cuda::PooledEntries entries = batch.card.Entries(g, words);
    float* const y = executor_.card_pooled(groups_[g].input).data();
    if (groups_[g].largest) {
      cuda::PoolLargest(stream_, rows, entries, y);
    } else {
      cuda::PoolSums(stream_, rows, entries, y);
    }
  }
}

void CardPooling::KeepRows(const PreparedBatch& batch) {
  const Staged& staged = StagedOf(batch);
  const uint32_t* const words = staged.buffer.words();
  for (size_t l = 0; l < plan_.lookups().size(); ++l) {
    const CardBatch::Rows& rows = batch.card.rows()[plan_.lookups()[l].key_set];
    if (rows.kept == 0) continue;
    cuda::KeepRows(stream_, staged.buffer.data() + staged.fresh_at[l], words + rows.from,
                   words + rows.slots, rows.kept, plan_.lookups()[l].dim, kept_.rows(l));
  }
}

void CardPooling::TakeAndPut(const PreparedBatch& batch) {
  if (!kept_.trains()) return;
  const Staged& staged = StagedOf(batch);
  const uint32_t* const words = staged.buffer.words();
  Given& given = GivenBy(batch);
  size_t floats = 0;
  for (size_t l = 0; l < plan_.lookups().size(); ++l) {
    floats = Buffer::RoundUp(floats);
    given.change_at[l] = floats;
    floats += TrainedRowsOf(batch, plan_.lookups()[l].key_set)->written.keys.size() *
              kept_.trained(l).floats();
  }
  float* const host = Room(stream_, Memory::Where::kHost, floats, &given.changes);
  float* const changes = Room(stream_, Memory::Where::kDevice, floats, &changes_);
  if (!stream_.status().ok()) return;
  for (size_t l = 0; l < plan_.lookups().size(); ++l) {
    const auto* const of = TrainedRowsOf(batch, plan_.lookups()[l].key_set);
    const cuda::TrainedRows trained = kept_.trained(l);
    cuda::TakeChanges(stream_, trained, words + of->written_slots,
                      static_cast<int64_t>(of->written.keys.size()), changes + given.change_at[l]);
    cuda::PutRows(stream_, trained, staged.buffer.data() + staged.whole_at[l],
                  words + of->whole_slots, words + of->own,
                  static_cast<int64_t>(of->whole.keys.size()), changes + given.change_at[l]);
  }
  if (floats > 0) stream_.StartCopyToHost(changes, host, floats);
}

CardPooling::Changes CardPooling::ChangesOf(size_t lookup, const PreparedBatch& batch) const {
  const auto* const trained = TrainedRowsOf(batch, plan_.lookups()[lookup].key_set);
  if (trained == nullptr || trained->written.keys.empty() || !stream_.status().ok()) return {};
  const Given& given = GivenBy(batch);
  return {.keys = &trained->written, .values = given.changes.data() + given.change_at[lookup]};
}

size_t CardPooling::PlaceGradients(const PreparedBatch& batch, bool pushed,
                                   std::vector<size_t>* begins) const {
  size_t floats = 0;
  for (size_t l = 0; l < begins->size(); ++l) {
    const EmbeddingPlan::Lookup& lookup = plan_.lookups()[l];
    const RoutedKeys& rows =
        pushed ? PushedKeys(batch, lookup.key_set) : batch.keys[lookup.key_set].routed;
    floats = Buffer::RoundUp(floats);
    (*begins)[l] = floats;
    floats += rows.keys.size() * lookup.dim;
  }
  return floats;
}

void CardPooling::Unpool(const PreparedBatch& batch) {
  const size_t floats = PlaceGradients(batch, /*pushed=*/false, &gradient_at_);
  Given& given = GivenBy(batch);
  size_t pushed_floats = PlaceGradients(batch, /*pushed=*/true, &given.pushed_at);
  if (kept_.trains()) {
    given.beyond_at = Buffer::RoundUp(pushed_floats);
    pushed_floats = given.beyond_at + plan_.lookups().size();
  }
  stream_.MakeCurrent();
  float* const host = Room(stream_, Memory::Where::kHost, pushed_floats, &given.gradients);
  float* const device = Room(stream_, Memory::Where::kDevice, floats, &gradients_);
  if (!stream_.status().ok()) return;
  const uint32_t* const words = StagedOf(batch).buffer.words();
  for (size_t g = 0; g < groups_.size(); ++g) {
    const size_t lookup = groups_[g].lookup;
    const bool first = g == 0 || groups_[g - 1].lookup != lookup;
    float* const sums = device + gradient_at_[lookup];
    const cuda::PooledEntries entries = batch.card.Entries(g, words);
    const float* const dy = executor_.card_pooled_gradient(groups_[g].input).data();
    if (groups_[g].largest) {
      cuda::UnpoolLargest(stream_, RowsOf(lookup, batch), entries, dy, sums, !first);
    } else {
      cuda::UnpoolSums(stream_, entries, plan_.lookups()[lookup].dim, dy, sums, !first);
    }
  }
  if (!kept_.trains()) {
    stream_.StartCopyToHost(device, host, floats);
    return;
  }
  float* const pushed = Room(stream_, Memory::Where::kDevice, pushed_floats, &pushed_);
  if (!stream_.status().ok()) return;
  stream_.Zero(pushed + given.beyond_at, plan_.lookups().size());
  for (size_t l = 0; l < plan_.lookups().size(); ++l) {
    const EmbeddingPlan::Lookup& lookup = plan_.lookups()[l];
    const size_t rows = batch.keys[lookup.key_set].routed.keys.size();
    cuda::AddBeyond(stream_, device + gradient_at_[l], static_cast<int64_t>(rows * lookup.dim),
                    (*optimizers_)[l].largest_gradient(), pushed + given.beyond_at + l);
    cuda::GatherRows(stream_, device + gradient_at_[l],
                     words + TrainedRowsOf(batch, lookup.key_set)->pushed,
                     static_cast<int64_t>(PushedKeys(batch, lookup.key_set).keys.size()),
                     lookup.dim, pushed + given.pushed_at[l]);
  }
  stream_.StartCopyToHost(pushed, host, pushed_floats);
}

void CardPooling::CopyGradients(const PreparedBatch& batch,
                                absl::Span<std::vector<float>> gradients) const {
  if (!stream_.status().ok()) return;
  const Given& given = GivenBy(batch);
  for (size_t l = 0; l < gradients.size(); ++l) {
    CopyFloats(given.gradients.data() + given.pushed_at[l], gradients[l].size(),
               gradients[l].data());
  }
}

std::optional<size_t> CardPooling::LookupBeyond(const PreparedBatch& batch) const {
  if (!kept_.trains() || !stream_.status().ok()) return std::nullopt;
  const Given& given = GivenBy(batch);
  for (size_t l = 0; l < plan_.lookups().size(); ++l) {
    if (given.gradients.data()[given.beyond_at + l] != 0) return l;
  }
  return std::nullopt;
}

void CardPooling::Train(const PreparedBatch& batch, double learning_rate_scale) {
  if (!kept_.trains() || !stream_.status().ok()) return;
  stream_.MakeCurrent();
  for (size_t l = 0; l < plan_.lookups().size(); ++l) {
    const size_t key_set = plan_.lookups()[l].key_set;
    const cuda::RowGradients gradients = {
        .gradients = gradients_.data() + gradient_at_[l],
        .at = StagedOf(batch).buffer.words() + batch.card.rows()[key_set].at,
        .rows = static_cast<int64_t>(batch.keys[key_set].routed.keys.size()),
        .slots = kept_.slots(key_set)};
    (*optimizers_)[l].Train(stream_, kept_.trained(l), gradients, learning_rate_scale);
  }
}

std::vector<CardPooling::Changes> CardPooling::TakeChanges() {
  std::vector<Changes> all(plan_.lookups().size());
  if (!kept_.trains()) return all;
  stream_.MakeCurrent();
  for (size_t s = 0; s < unwritten_.size(); ++s) unwritten_[s] = kept_.TakeUnwritten(s);
  for (size_t l = 0; l < all.size(); ++l) {
    const KeptRows::Unwritten& unwritten = unwritten_[plan_.lookups()[l].key_set];
    last_changes_[l].resize(unwritten.slots.size() * kept_.trained(l).floats());
    CopyChanges(l, unwritten.slots, last_changes_[l].data());
    if (unwritten.slots.empty()) continue;
    all[l] = {.keys = &unwritten.keys, .values = last_changes_[l].data()};
  }
  return all;
}

void CardPooling::CopyChanges(size_t lookup, absl::Span<const uint32_t> slots, float* to) {
  constexpr size_t kPieceFloats = 16 << 20;  // floats of the card's memory used at a time
  const cuda::TrainedRows trained = kept_.trained(lookup);
  const auto floats = static_cast<size_t>(trained.floats());
  for (size_t begin = 0, n = 0; begin < slots.size(); begin += n, to += n * floats) {
    n = std::min(slots.size() - begin, std::max<size_t>(1, kPieceFloats / floats));
    float* const host = Room(stream_, Memory::Where::kHost, n * floats, &given_[0].changes);
    // Holds the slots' numbers, then the changes.
    const size_t words = Buffer::RoundUp(n);
    float* const device = Room(stream_, Memory::Where::kDevice, words + n * floats, &changes_);
    if (!stream_.status().ok()) return;
    stream_.CopyToDevice(slots.data() + begin, changes_.words(), n);
    cuda::TakeChanges(stream_, trained, changes_.words(), static_cast<int64_t>(n), device + words);
    stream_.StartCopyToHost(device + words, host, n * floats);
    if (!stream_.Synchronize().ok()) return;
    CopyFloats(host, n * floats, to);
  }
}

// Large copies are shared among threads: one alone does not use the memory's full bandwidth.
void CardPooling::CopyFloats(const float* from, size_t n, float* to) const {
  constexpr size_t kTaskFloats = 1 << 17;
  const size_t tasks = (n + kTaskFloats - 1) / kTaskFloats;
  if (pool_ == nullptr || tasks <= 1) {
    std::copy_n(from, n, to);
    return;
  }
  pool_->RunAll(tasks, [&](size_t task) {
    const size_t begin = task * kTaskFloats;
    std::copy_n(from + begin, std::min(kTaskFloats, n - begin), to + begin);
  });
}

}  // namespace tessera::worker
