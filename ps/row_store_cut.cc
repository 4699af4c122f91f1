#include <algorithm>
#include <cstring>
#include <utility>

#include "common/hash.h"
#include "common/status_macros.h"
#include "ps/row_store.h"

// Of RowStore: the rows of one moment, read while they change.
//
// Every stripe has a bit, and every row has its stripe's, until a cut begins: the stripe's bit
// flips, so that all rows differ from it at once. Reading a row for the cut sets its bit, copying
// it before a change does, and new rows are made with it. So whoever changes a row tests one bit,
// and only in stripes that have something unread.
namespace tessera::ps {
namespace {

// Rows whose heads, and rows whose blocks, are loaded ahead.
constexpr size_t kAhead = 16;
constexpr size_t kLineBytes = 64;
// Copied with the stripe locked, at once: some 30 microseconds.
constexpr size_t kPieceBytes = 128 << 10;
// A cut of many stripes has copies in each.
constexpr size_t kCopySlabBytes = 256 << 10;

void PrefetchBlock(const void* block, size_t bytes) {
  const char* const at = static_cast<const char*>(block);
  for (size_t b = 0; b < bytes; b += kLineBytes) __builtin_prefetch(at + b);
}

}  // namespace

uint64_t RowStore::BeginCut(bool all) {
  uint64_t rows = 0;
  for (const auto& stripe : stripes_) {
    absl::MutexLock lock(&stripe->mu);
    auto cut = std::make_unique<StripeCut>(layout().block_bytes());
    cut->all = all;
    cut->slabs.LimitSlabs(kCopySlabBytes);
    cut->maps.resize(stripe->maps.size());
    cut->unread = static_cast<uint32_t>(stripe->maps.size());
    for (size_t m = 0; m < stripe->maps.size(); ++m) {
      std::vector<uint64_t> gone = std::exchange(stripe->gone[m], {});
      if (!all) cut->maps[m].gone = std::move(gone);
      rows += stripe->maps[m].size();
    }
    if (cut->unread == 0) continue;
    unread_maps_.fetch_add(cut->unread, std::memory_order_relaxed);
    stripe->cut_bit ^= kRowCut;
    stripe->cut = std::move(cut);
  }
  return rows;
}

size_t RowStore::KeepForCut(Stripe& stripe, uint32_t map, uint64_t hash, Row* row) {
  StripeCut& cut = *stripe.cut;
  if ((row->flags & kRowCut) == stripe.cut_bit || cut.stopped) return 0;
  size_t bytes = 0;
  if (cut.all || (row->flags & kRowChanged) != 0) {
    bytes = layout().block_bytes();
    void* const copy = cut.slabs.Allocate();
    std::memcpy(copy, static_cast<const void*>(row), bytes);
    cut.maps[map].copies.Insert(hash, static_cast<Row*>(copy));
  }
  row->flags = (row->flags & ~(kRowCut | kRowChanged)) | stripe.cut_bit;
  return bytes;
}

void RowStore::KeepErased(Stripe& stripe, uint32_t map, uint64_t hash, Row* row) {
  if (stripe.cut == nullptr) return;
  ++stripe.cut->maps[map].erases;
  copied_bytes_.fetch_add(KeepForCut(stripe, map, hash, row), std::memory_order_relaxed);
}

absl::Status RowStore::VisitCut(
    PartitionId partition,
    absl::FunctionRef<absl::Status(uint64_t rows, absl::Span<const uint64_t> gone)> begin,
    absl::FunctionRef<absl::Status(absl::Span<const Row* const> rows)> visit) {
  const auto stopped = [] {
    return absl::ResourceExhaustedError(
        "more rows changed while the checkpoint was written than may be copied "
        "(JobShard::Options::max_copied_bytes); the disk is too slow for it");
  };
  const uint32_t index = partitions_.IndexOf(partition);
  const uint32_t number = KeyBatch::MapOf(index);
  Stripe& stripe = *stripes_[KeyBatch::StripeOf(index)];
  // A row of the cut, and where it was when the partition was looked through.
  struct Place {
    uint64_t key;
    Row* row;  // null: it has been copied
  };
  std::vector<Place> places;
  std::vector<uint64_t> gone;
  uint64_t erases = 0;
  {
    absl::MutexLock lock(&stripe.mu);
    StripeCut& cut = *stripe.cut;
    if (cut.stopped) return stopped();
    MapCut& map = cut.maps[number];
    gone = std::exchange(map.gone, {});
    erases = map.erases;
    std::vector<Row*> rows;
    rows.reserve(stripe.maps[number].size());
    stripe.maps[number].ForEach([&](Row* row) { rows.push_back(row); });
    places.reserve(rows.size() + map.copies.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i + kAhead < rows.size()) __builtin_prefetch(rows[i + kAhead]);
      Row* const row = rows[i];
      if ((row->flags & kRowCut) == stripe.cut_bit) continue;
      if (cut.all || (row->flags & kRowChanged) != 0) {
        places.push_back({row->key, row});
      } else {
        row->flags ^= kRowCut;
      }
    }
    map.copies.ForEach([&](Row* copy) { places.push_back({copy->key, nullptr}); });
  }
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.key < b.key; });
  std::sort(gone.begin(), gone.end());
  gone.erase(std::unique(gone.begin(), gone.end()), gone.end());
  TESSERA_RETURN_IF_ERROR(begin(places.size(), gone));

  const size_t block_bytes = layout().block_bytes();
  const size_t piece = std::max<size_t>(1, kPieceBytes / block_bytes);
  std::vector<char> blocks(std::min(piece, places.size()) * block_bytes);  // aligned to 16 bytes
  std::vector<const Row*> rows(std::min(piece, places.size()));
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = reinterpret_cast<const Row*>(blocks.data() + i * block_bytes);
  }
  for (size_t done = 0; done < places.size(); done += piece) {
    const absl::Span<const Place> now = absl::MakeConstSpan(places).subspan(done, piece);
    {
      absl::MutexLock lock(&stripe.mu);
      if (stripe.cut->stopped) return stopped();
      MapCut& map = stripe.cut->maps[number];
      const auto prefetch = [&](size_t i) {
        if (i < now.size() && now[i].row != nullptr) PrefetchBlock(now[i].row, block_bytes);
      };
      for (size_t i = 0; i < kAhead; ++i) prefetch(i);
      for (size_t i = 0; i < now.size(); ++i) {
        prefetch(i + kAhead);
        Row* row = now[i].row;
        if (row != nullptr && map.erases != erases) {
          row = stripe.maps[number].Find(Mix64(now[i].key), now[i].key);
        }
        const Row* from = row;
        if (row != nullptr && (row->flags & kRowCut) != stripe.cut_bit) {
          row->flags = (row->flags & ~(kRowCut | kRowChanged)) | stripe.cut_bit;
        } else {
          // It has changed since the partition was looked through, or before.
          from = map.copies.Find(Mix64(now[i].key), now[i].key);
        }
        std::memcpy(blocks.data() + i * block_bytes, static_cast<const void*>(from), block_bytes);
      }
    }
    TESSERA_RETURN_IF_ERROR(visit(absl::MakeConstSpan(rows).first(now.size())));
  }
  absl::MutexLock lock(&stripe.mu);
  if (stripe.cut->stopped) return stopped();
  EndMapCut(stripe, number);
  return absl::OkStatus();
}

void RowStore::FreeCopies(StripeCut& cut, MapCut& map) {
  uint64_t bytes = 0;
  map.copies.ForEach([&](Row* copy) {
    cut.slabs.Free(copy);
    bytes += layout().block_bytes();
  });
  map.copies.Clear();
  copied_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
}

void RowStore::EndMapCut(Stripe& stripe, uint32_t map) {
  StripeCut& cut = *stripe.cut;
  FreeCopies(cut, cut.maps[map]);
  cut.maps[map].unread = false;
  unread_maps_.fetch_sub(1, std::memory_order_relaxed);
  if (--cut.unread == 0) stripe.cut.reset();
}

void RowStore::DropCut() {
  for (const auto& stripe : stripes_) {
    for (uint32_t m = 0;; ++m) {
      absl::MutexLock lock(&stripe->mu);
      if (stripe->cut == nullptr || m == stripe->maps.size()) break;
      if (!stripe->cut->maps[m].unread) continue;
      stripe->maps[m].ForEach(
          [&](Row* row) { row->flags = (row->flags & ~kRowCut) | stripe->cut_bit; });
      EndMapCut(*stripe, m);
    }
  }
}

void RowStore::StopCopies() {
  for (const auto& stripe : stripes_) {
    absl::MutexLock lock(&stripe->mu);
    if (stripe->cut == nullptr) continue;
    stripe->cut->stopped = true;
    for (MapCut& map : stripe->cut->maps) FreeCopies(*stripe->cut, map);
  }
}

}  // namespace tessera::ps
