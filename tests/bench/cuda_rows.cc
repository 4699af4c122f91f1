#include "tests/bench/cuda_rows.h"

#include <memory>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/math/optim/adagrad.h"
#include "common/partition.h"
#include "common/random.h"
#include "cuda/memory.h"
#include "cuda/rows/pooling.h"
#include "cuda/rows/training.h"
#include "cuda/stream.h"
#include "tests/bench/cuda_card.h"
#include "tests/bench/zipf.h"
#include "worker/card/card_batch.h"
#include "worker/card/row_slots.h"

namespace tessera::bench {
namespace {

using cuda::Memory;
using cuda::Stream;

// A batch of Criteo's shape, one id a column by Zipf's law, and what a card is told of it.
class PooledBatch {
 public:
  PooledBatch(uint32_t samples, uint32_t dim) : places(size_t{samples} * kColumns) {
    v1::JobSpec spec;
    spec.add_tables()->set_name("rows");
    spec.mutable_tables(0)->set_dim(dim);
    batch_.size = samples;
    const auto draws = DrawZipf(
        {.items = 10'000'000, .batches = kColumns, .batch = samples, .unique = false, .seed = 5});
    for (const std::vector<uint32_t>& column_draws : draws) {
      v1::ColumnSpec* const column = spec.mutable_data()->add_columns();
      column->set_name(absl::StrCat("c", spec.data().columns_size()));
      column->set_role(v1::SPARSE);
      column->add_table("rows");
      worker::SparseColumn& ids = batch_.sparse.emplace_back();
      ids.keys.assign(column_draws.begin(), column_draws.end());
      ids.offsets.resize(samples + 1);
      std::iota(ids.offsets.begin(), ids.offsets.end(), 0u);
    }
    const std::vector<worker::Model::Input> inputs = {
        {.table = "rows", .table_index = 0, .fields = kColumns, .dim = dim}};
    plan_ = std::make_unique<worker::EmbeddingPlan>(spec, inputs);
    preparer_ = std::make_unique<worker::KeyPreparer>(plan_.get(), &router_);
    Prepare();
    AddEntries();
    distinct = keys_[0].routed.keys.size();
    std::vector<uint32_t> at(distinct);
    std::iota(at.begin(), at.end(), 0u);
    card.AddRows(at);
  }

  void Prepare() { preparer_->Prepare(batch_, &keys_); }
  void AddEntries() {
    card.Clear();
    card.AddEntries(batch_, *plan_, worker::PoolingGroups(*plan_)[0], keys_[0]);
  }

  worker::CardBatch card;
  const size_t places;
  size_t distinct = 0;

 private:
  static constexpr uint32_t kColumns = 26;
  worker::Batch batch_;
  std::unique_ptr<worker::EmbeddingPlan> plan_;
  const worker::KeyRouter router_{NewPartitionMap(1, 8, std::vector<v1::PsAddress>(1))};
  std::unique_ptr<worker::KeyPreparer> preparer_;
  std::vector<worker::BatchKeys> keys_;
};

// Bytes that must move at least: rows or gradients of places read or written, and those of distinct
// keys, and for each a word that says which is which.
enum class Pooling { kForward, kBackward };

void MeasurePooling(benchmark::State& state, Pooling pass, uint32_t dim, bool short_run) {
  const std::unique_ptr<Stream> stream = OpenCard(state);
  if (stream == nullptr) return;
  const PooledBatch batch(short_run ? 256 : 16384, dim);
  const absl::Span<const uint32_t> words = batch.card.words();
  Memory told(*stream, Memory::Where::kDevice, words.size()),
      rows(*stream, Memory::Where::kDevice, batch.distinct * dim),
      places(*stream, Memory::Where::kDevice, batch.places * dim),
      copy(*stream, Memory::Where::kDevice, batch.places * dim);
  stream->CopyToDevice(words.data(), told.words(), words.size());
  const cuda::PooledEntries entries = batch.card.Entries(0, told.words());
  const cuda::BatchRows at = {
      .fresh = rows.data(), .at = told.words() + batch.card.rows()[0].at, .dim = dim};
  const auto run = [&] {
    if (pass == Pooling::kForward) return cuda::PoolSums(*stream, at, entries, places.data());
    cuda::UnpoolSums(*stream, entries, dim, places.data(), rows.data(), false);
  };
  const double bytes =
      static_cast<double>(batch.places + batch.distinct) * (dim * sizeof(float) + sizeof(uint32_t));
  ReportMemory(state, *stream,
               {.bytes = bytes,
                .from = places.data(),
                .to = copy.data(),
                .floats = batch.places * dim,
                .limit_name = "a copy of the pooled rows on the card",
                .bar = ">= 0.5",
                .short_run = short_run},
               run);
}

// Rows of which the card has kept most and keeps the rest, pooled; beside a table that lies whole
// in the card's memory, where a row's place is its id.
void MeasureKeptRows(benchmark::State& state, bool short_run) {
  const std::unique_ptr<Stream> stream = OpenCard(state);
  if (stream == nullptr) return;
  constexpr uint32_t kDim = 64;
  const uint32_t slots = short_run ? 4096 : 1 << 20, ids = 10 * slots;
  const PooledBatch batch(short_run ? 256 : 16384, kDim);
  // As many as come of Zipf's law with memory for a tenth.
  constexpr uint32_t kFreshOfTen = 3;
  std::vector<uint32_t> cached, all, from, to;
  for (uint32_t row = 0; row < batch.distinct; ++row) {
    const auto place = static_cast<uint32_t>(RandomBelow(9, row, ids));
    all.push_back(place);
    if (row % 10 < kFreshOfTen) {
      to.push_back((row * 7919) % slots);
      cached.push_back(slots + static_cast<uint32_t>(from.size()));
      from.push_back(static_cast<uint32_t>(from.size()));
    } else {
      cached.push_back(place % slots);
    }
  }
  const auto to_card = [&](absl::Span<const uint32_t> words) {
    Memory memory(*stream, Memory::Where::kDevice, words.size());
    stream->CopyToDevice(words.data(), memory.words(), words.size());
    return memory;
  };
  const auto take = [&](size_t rows) {
    return Memory(*stream, Memory::Where::kDevice, rows * kDim);
  };
  const Memory told = to_card(batch.card.words()), cached_at = to_card(cached),
               all_at = to_card(all), from_at = to_card(from), to_at = to_card(to);
  const Memory kept = take(slots), table = take(ids), fresh = take(from.size()),
               places = take(batch.places), copy = take(batch.places);
  const cuda::PooledEntries entries = batch.card.Entries(0, told.words());
  const double bytes =
      static_cast<double>(batch.places + batch.distinct + 2 * from.size()) * kDim * sizeof(float);
  const auto pool_kept = [&] {
    cuda::KeepRows(*stream, fresh.data(), from_at.words(), to_at.words(),
                   static_cast<int64_t>(from.size()), kDim, kept.data());
    const cuda::BatchRows rows = {.kept = kept.data(),
                                  .slots = slots,
                                  .fresh = fresh.data(),
                                  .at = cached_at.words(),
                                  .dim = kDim};
    cuda::PoolSums(*stream, rows, entries, places.data());
  };
  const auto pool_table = [&] {
    const cuda::BatchRows rows = {
        .kept = table.data(), .slots = ids, .fresh = nullptr, .at = all_at.words(), .dim = kDim};
    cuda::PoolSums(*stream, rows, entries, places.data());
  };
  ReportMemory(state, *stream,
               {.bytes = bytes,
                .from = places.data(),
                .to = copy.data(),
                .floats = batch.places * kDim,
                .limit_name = "a copy of the pooled rows on the card",
                .bar = ">= 0.5",
                .short_run = short_run},
               pool_kept);
  const auto batches = [&](auto& pool) { return 1 / SecondsOf(*stream, short_run ? 2 : 50, pool); };
  const Medians beside = Interleave(
      short_run ? 2 : 10, [&] { return batches(pool_kept); }, [&] { return batches(pool_table); });
  if (!stream->status().ok()) return state.SkipWithError(stream->status().ToString().c_str());
  Report(state, {.metric = "pooled",
                 .value = beside.value,
                 .unit = "batches/s",
                 .limit_name = "from a table whole on the card",
                 .limit = beside.limit,
                 .bar = ">= 0.83"});
}

// A step of Adagrad of rows that the card keeps, anywhere in its memory: of each its gradient is
// read, and embedding and slots are read and written.
void MeasureTrainedRows(benchmark::State& state, uint32_t dim, bool short_run) {
  const std::unique_ptr<Stream> stream = OpenCard(state);
  if (stream == nullptr) return;
  const uint32_t slots = short_run ? 4096 : 1 << 20, rows = slots / 8;
  std::vector<uint32_t> at(rows);
  for (uint32_t row = 0; row < rows; ++row) at[row] = row * 8 + row * 7919 % 8;
  const auto take = [&](uint32_t of) {
    return Memory(*stream, Memory::Where::kDevice, size_t{of} * dim);
  };
  const Memory kept = take(slots), state_of = take(slots), gradients = take(rows),
               copy = take(rows);
  Memory words(*stream, Memory::Where::kDevice, rows);
  stream->CopyToDevice(at.data(), words.words(), rows);
  const auto run = [&] {
    cuda::TrainRows<math::Adagrad>(
        *stream, {.dim = dim, .states = dim, .rows = kept.data(), .state = state_of.data()},
        {.gradients = gradients.data(), .at = words.words(), .rows = rows, .slots = slots}, {},
        {.rate = 0.1f, .initial_accumulator = 0.1f, .epsilon = 1e-10f});
  };
  ReportMemory(state, *stream,
               {.bytes = static_cast<double>(rows) * (5 * dim * sizeof(float) + sizeof(uint32_t)),
                .from = gradients.data(),
                .to = copy.data(),
                .floats = size_t{rows} * dim,
                .limit_name = "a copy of the gradients on the card",
                .bar = ">= 0.7",
                .short_run = short_run},
               run);
}

// What the worker makes of a batch for its card, in one thread: distinct keys and lists.
void MeasurePreparing(benchmark::State& state, bool short_run) {
  PooledBatch batch(short_run ? 256 : 16384, 16);
  const auto rate = [&](absl::FunctionRef<void()> once) {
    return Rate(5, static_cast<double>(batch.places) / 1e6, once);
  };
  const Medians medians = Interleave(
      short_run ? 2 : 10,
      [&] {
        return rate([&] {
          batch.Prepare();
          batch.AddEntries();
        });
      },
      [&] { return rate([&] { batch.Prepare(); }); });
  Report(state, {.metric = "prepared",
                 .value = medians.value,
                 .unit = "M keys/s",
                 .limit_name = "finding distinct keys alone",
                 .limit = medians.limit});
}

// The worker's index of what the card keeps: a machine's work, with or without a card.
void MeasureRowSlots(benchmark::State& state, bool short_run) {
  const uint32_t kSlots = short_run ? 10'000 : 1'000'000;
  const auto draws = DrawZipf({.items = 10 * kSlots,
                               .batches = short_run ? 40u : 160u,
                               .batch = kSlots / 10,
                               .unique = true,
                               .seed = 6});
  std::vector<std::vector<uint64_t>> keys;
  for (const std::vector<uint32_t>& batch : draws) keys.emplace_back(batch.begin(), batch.end());
  std::vector<worker::RowSlots::Place> places;
  worker::RowSlots full(kSlots);
  for (const std::vector<uint64_t>& batch : keys) full.Find(batch, UINT32_MAX, &places);
  uint64_t looked_up = 0, kept = 0;
  const auto rate = [&](worker::RowSlots& slots, size_t begin, size_t end) {
    size_t found = 0;
    const double seconds = Seconds([&] {
      for (size_t b = begin; b < end; ++b) {
        slots.Find(keys[b], UINT32_MAX, &places);
        found += keys[b].size();
      }
    });
    return static_cast<double>(found) / 1e6 / seconds;
  };
  const Medians medians = Interleave(
      short_run ? 2 : 5, [&] { return rate(full, 0, keys.size() / 2); },
      [&] {
        // Half full after five batches of a tenth of the slots, and no key has to leave.
        worker::RowSlots half(kSlots);
        return rate(half, 0, 5);
      });
  for (const std::vector<uint64_t>& batch : keys) {
    full.Find(batch, UINT32_MAX, &places);
    for (const worker::RowSlots::Place& place : places) kept += place.kept;
    looked_up += batch.size();
  }
  Report(state, {.metric = "find or insert",
                 .value = medians.value,
                 .unit = "M keys/s",
                 .limit_name = "while less than half is full",
                 .limit = medians.limit,
                 .bar = ">= 0.6"});
  Report(state, {.metric = "kept",
                 .value = static_cast<double>(kept) / static_cast<double>(looked_up),
                 .unit = "of distinct keys",
                 .limit_name = "",
                 .limit = 0});
}

}  // namespace

void RegisterRowsOnCard(const Options& options) {
  const bool short_run = options.short_run;
  for (const uint32_t dim : {16u, 64u}) {
    Register(absl::StrCat("cuda/pooling/dim-", dim), [dim, short_run](benchmark::State& state) {
      MeasurePooling(state, Pooling::kForward, dim, short_run);
    });
    Register(absl::StrCat("cuda/pooling-gradient/dim-", dim),
             [dim, short_run](benchmark::State& state) {
               MeasurePooling(state, Pooling::kBackward, dim, short_run);
             });
    Register(
        absl::StrCat("cuda/trained-rows/dim-", dim),
        [dim, short_run](benchmark::State& state) { MeasureTrainedRows(state, dim, short_run); });
  }
  Register("cuda/kept-rows",
           [short_run](benchmark::State& state) { MeasureKeptRows(state, short_run); });
  Register("cuda/prepare",
           [short_run](benchmark::State& state) { MeasurePreparing(state, short_run); });
  Register("cuda/row-slots",
           [short_run](benchmark::State& state) { MeasureRowSlots(state, short_run); });
}

}  // namespace tessera::bench
