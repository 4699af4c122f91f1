#include "worker/card_pooling.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/time/clock.h"
#include "worker/dense/buffer.h"

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

CardPooling::CardPooling(const EmbeddingPlan* plan, Executor* executor,
                         const KeptRows::Options& options)
    : plan_(*plan),
      executor_(*executor),
      stream_(*executor->stream()),
      groups_(PoolingGroups(*plan)),
      pool_(options.pool),
      kept_(plan, executor->stream(), options),
      staged_{Staged(stream_), Staged(stream_)},
      gradient_at_(plan->lookups().size()) {
  executor_.PoolOnCard();
}

void CardPooling::Begin(uint32_t max_age, bool afresh) {
  kept_.Begin(max_age);
  if (!afresh && placed_ == pooled_) return;
  kept_.Forget();
  pooled_ = placed_;
}

size_t CardPooling::PrepareThreads() const {
  const int threads = 1 + (pool_ == nullptr ? 0 : pool_->threads());
  return static_cast<size_t>(std::clamp(threads / 2, 1, BatchPipeline::kMostThreads));
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

void CardPooling::StageAhead(const PreparedBatch& next, PendingCall* rows) {
  StartWords(next);
  if (rows == nullptr) return;
  // Two are waited for: a look now and then costs the card less than its rows would.
  constexpr absl::Duration kLook = absl::Microseconds(50);
  while (!rows->Done() && stream_.Busy()) absl::SleepFor(kLook);
  // A pull that failed is its caller's.
  if (rows->Done() && rows->Wait().ok()) StartRows(next);
}

void CardPooling::StartWords(const PreparedBatch& batch) {
  Staged& staged = StagedOf(batch);
  if (staged.batch == batch.card.number()) return;
  staged.batch = batch.card.number();
  staged.has_rows = false;
  staged.fresh_at.clear();
  const absl::Span<const uint32_t> words = batch.card.words();
  size_t floats = words.size();
  for (const std::vector<float>& rows : batch.rows) {
    floats = Buffer::RoundUp(floats);
    staged.fresh_at.push_back(floats);
    floats += rows.size();
  }
  stream_.MakeCurrent();
  float* const host = staged.buffer.Fill(floats);
  if (host == nullptr) return;
  std::memcpy(host, words.data(), words.size() * sizeof(uint32_t));
  staged.buffer.StartCopy(0, words.size());
}

void CardPooling::StartRows(const PreparedBatch& batch) {
  Staged& staged = StagedOf(batch);
  if (!stream_.status().ok() || std::exchange(staged.has_rows, true)) return;
  const size_t begin = batch.card.words().size();
  size_t end = begin;
  for (size_t l = 0; l < batch.rows.size(); ++l) {
    const size_t at = staged.fresh_at[l];
    CopyFloats(batch.rows[l].data(), batch.rows[l].size(), staged.buffer.host() + at);
    end = at + batch.rows[l].size();
  }
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
  // The work of the batch before has been given.
  for (Staged& staged : staged_) staged.buffer.Release();
  StartWords(batch);
  StartRows(batch);
  Staged& staged = StagedOf(batch);
  staged.buffer.Await();
  if (!stream_.status().ok()) return;
  const uint32_t* const words = staged.buffer.words();
  for (size_t l = 0; l < plan_.lookups().size(); ++l) {
    const CardBatch::Rows& rows = batch.card.rows()[plan_.lookups()[l].key_set];
    if (rows.kept == 0) continue;
    cuda::KeepRows(stream_, staged.buffer.data() + staged.fresh_at[l], words + rows.from,
                   words + rows.slots, rows.kept, plan_.lookups()[l].dim, kept_.rows(l));
  }
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

void CardPooling::Unpool(const PreparedBatch& batch) {
  size_t floats = 0;
  for (size_t l = 0; l < gradient_at_.size(); ++l) {
    const EmbeddingPlan::Lookup& lookup = plan_.lookups()[l];
    floats = Buffer::RoundUp(floats);
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
    const cuda::PooledEntries entries = batch.card.Entries(g, StagedOf(batch).buffer.words());
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
    CopyFloats(gradients_host_.data() + gradient_at_[l], gradients[l].size(), gradients[l].data());
  }
}

// The machine's memory is faster than one of its threads.
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
