#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/hash.h"
#include "common/status_macros.h"
#include "ps/rows/row_store.h"

// Part of RowStore: the rows of one moment, read while they change.
//
// Every stripe has a bit, and every row has the bit of its stripe. When a cut begins, the stripe's
// bit flips, so all rows differ from it at once. A row gets the new bit when it is read for the
// cut, or when it is copied before a change; new rows are made with it. So a change of a row tests
// one bit, and only in stripes that have something unread.
namespace tessera::ps {
namespace {

constexpr size_t kLineBytes = 64;
// Bytes copied in one go with the stripe locked: some 30 microseconds.
constexpr size_t kPieceBytes = 128 << 10;

void PrefetchBlock(const void* block, size_t bytes) {
  const char* const at = static_cast<const char*>(block);
  for (size_t b = 0; b < bytes; b += kLineBytes) __builtin_prefetch(at + b);
}

}  // namespace

// What VisitCut has of the partition that it reads.
struct RowStore::CutReading {
  // A row of the cut, as ListCut found it.
  struct Place {
    uint64_t key;
    Row* row;
    bool copied;  // `row` is a copy, and stays as it is
  };

  // Sorts them, ascending. Keys spread over their range, as hashes are, cost a visit or two each;
  // others cost what std::sort does.
  void SortPlaces();

  std::vector<Place> places;
  std::vector<uint64_t> gone;
  uint64_t erases = 0;  // MapCut::erases when the places were listed
  size_t copies = 0;    // so many of the map's copies are among `places` or `late`
  // Copies that were made after the places were listed.
  absl::flat_hash_map<uint64_t, const Row*> late;
};

void RowStore::CutReading::SortPlaces() {
  const auto less = [](const Place& a, const Place& b) { return a.key < b.key; };
  constexpr size_t kFew = 64;
  if (places.size() < kFew) return std::sort(places.begin(), places.end(), less);
  const auto [low, high] = std::minmax_element(places.begin(), places.end(), less);
  const uint64_t first = low->key;
  // Divides the range into as many equal parts as there are places; a larger key is in no earlier
  // part.
  const size_t parts = places.size();
  const double scale = static_cast<double>(parts) / static_cast<double>(high->key - first);
  const auto part_of = [&](uint64_t key) {
    return std::min<size_t>(parts - 1,
                            static_cast<size_t>(static_cast<double>(key - first) * scale));
  };
  std::vector<uint32_t> ends(parts + 1, 0);
  for (const Place& place : places) ++ends[part_of(place.key) + 1];
  for (size_t p = 0; p < parts; ++p) ends[p + 1] += ends[p];
  std::vector<Place> sorted(places.size());
  std::vector<uint32_t> next(ends.begin(), ends.end() - 1);
  for (const Place& place : places) sorted[next[part_of(place.key)]++] = place;
  for (size_t p = 0; p < parts; ++p) {
    if (ends[p + 1] - ends[p] < 2) continue;
    std::sort(sorted.begin() + ends[p], sorted.begin() + ends[p + 1], less);
  }
  places = std::move(sorted);
}

uint64_t RowStore::BeginCut(bool all) {
  uint64_t rows = 0;
  for (const auto& stripe : stripes_) {
    absl::MutexLock lock(&stripe->mu);
    auto cut = std::make_unique<StripeCut>(layout().block_bytes());
    cut->wanted = !all ? kRowChanged : evicts_ ? kRowDirty : 0;
    cut->maps.resize(stripe->maps.size());
    cut->unread = static_cast<uint32_t>(stripe->maps.size());
    stripe->keeps_gone = true;
    for (size_t m = 0; m < stripe->maps.size(); ++m) {
      std::vector<uint64_t> gone = std::exchange(stripe->gone[m], {});
      if (!all) cut->maps[m].gone = std::move(gone);
      cut->maps[m].rows = stripe->maps[m].size();
      unread_rows_.fetch_add(cut->maps[m].rows, std::memory_order_relaxed);
      rows += evicts_ ? stripe->below[m].made : stripe->maps[m].size();
      if (evicts_) stripe->below[m].replaced = {};
    }
    if (cut->unread == 0) continue;
    unread_maps_.fetch_add(cut->unread, std::memory_order_relaxed);
    stripe->cut_bit ^= kRowCut;
    stripe->cut = std::move(cut);
  }
  return rows;
}

std::vector<uint64_t> RowStore::TakeGone(PartitionId partition) {
  const uint32_t index = partitions_.IndexOf(partition);
  Stripe& stripe = *stripes_[KeyBatch::StripeOf(index)];
  absl::MutexLock lock(&stripe.mu);
  return std::exchange(stripe.cut->maps[KeyBatch::MapOf(index)].gone, {});
}

void RowStore::KeepForCut(Stripe& stripe, uint32_t map, Row* row) {
  StripeCut& cut = *stripe.cut;
  if ((row->flags & kRowCut) == stripe.cut_bit || cut.stopped) return;
  if (IsWanted(cut, row)) {
    const size_t bytes = layout().block_bytes();
    void* const copy = cut.slabs.Allocate();
    std::memcpy(copy, static_cast<const void*>(row), bytes);
    cut.maps[map].copies.push_back(static_cast<Row*>(copy));
    copied_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  row->flags = (row->flags & ~(kRowCut | kRowChanged)) | stripe.cut_bit;
}

void RowStore::KeepErased(Stripe& stripe, uint32_t map, Row* row) {
  if (stripe.cut == nullptr) return;
  ++stripe.cut->maps[map].erases;
  KeepForCut(stripe, map, row);
}

RowStore::CutReading RowStore::ListCut(Stripe& stripe, uint32_t map) {
  StripeCut& cut = *stripe.cut;
  MapCut& map_cut = cut.maps[map];
  CutReading reading;
  reading.gone = std::exchange(map_cut.gone, {});
  reading.erases = map_cut.erases;
  std::vector<Row*> rows;
  rows.reserve(stripe.maps[map].size());
  stripe.maps[map].ForEach([&](Row* row) { rows.push_back(row); });
  reading.places.reserve(rows.size() + map_cut.copies.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + kAhead < rows.size()) __builtin_prefetch(rows[i + kAhead]);
    Row* const row = rows[i];
    if ((row->flags & kRowCut) == stripe.cut_bit) continue;
    if (IsWanted(cut, row)) {
      reading.places.push_back({row->key, row, false});
    } else {
      row->flags ^= kRowCut;
    }
  }
  for (Row* const copy : map_cut.copies) reading.places.push_back({copy->key, copy, true});
  reading.copies = map_cut.copies.size();
  return reading;
}

void RowStore::CopyPiece(Stripe& stripe, uint32_t map, size_t first, size_t rows,
                         CutReading& reading, char* blocks) {
  const MapCut& map_cut = stripe.cut->maps[map];
  for (; reading.copies < map_cut.copies.size(); ++reading.copies) {
    const Row* const copy = map_cut.copies[reading.copies];
    reading.late[copy->key] = copy;
  }
  const size_t block_bytes = layout().block_bytes();
  const auto places = absl::MakeConstSpan(reading.places).subspan(first, rows);
  const auto prefetch = [&](size_t i) {
    if (i < places.size()) PrefetchBlock(places[i].row, block_bytes);
  };
  for (size_t i = 0; i < kAhead; ++i) prefetch(i);
  for (size_t i = 0; i < places.size(); ++i) {
    prefetch(i + kAhead);
    const CutReading::Place& place = places[i];
    const Row* from = place.row;
    if (!place.copied) {
      Row* row = place.row;
      // The row's block may serve another row by now.
      if (map_cut.erases != reading.erases) {
        row = stripe.maps[map].Find(Mix64(place.key), place.key);
      }
      if (row != nullptr && (row->flags & kRowCut) != stripe.cut_bit) {
        row->flags = (row->flags & ~(kRowCut | kRowChanged)) | stripe.cut_bit;
        from = row;
      } else {
        from = reading.late.at(place.key);
      }
    }
    std::memcpy(blocks + i * block_bytes, static_cast<const void*>(from), block_bytes);
  }
}

absl::Status RowStore::VisitCut(
    PartitionId partition,
    absl::FunctionRef<absl::Status(uint64_t rows, absl::Span<const uint64_t> gone)> begin,
    absl::FunctionRef<absl::Status(absl::Span<const Row* const> rows)> visit) {
  const auto stopped = [] {
    return absl::ResourceExhaustedError(
        "more rows changed while the checkpoint was written than may be copied "
        "(--checkpoint-copies "
        "of tessera-ps); allow more, or give the writer a larger --checkpoint-share");
  };
  const uint32_t index = partitions_.IndexOf(partition);
  const uint32_t map = KeyBatch::MapOf(index);
  Stripe& stripe = *stripes_[KeyBatch::StripeOf(index)];
  CutReading reading;
  {
    absl::MutexLock lock(&stripe.mu);
    if (stripe.cut->stopped) return stopped();
    reading = ListCut(stripe, map);
  }
  reading.SortPlaces();
  std::vector<uint64_t>& gone = reading.gone;
  std::sort(gone.begin(), gone.end());
  gone.erase(std::unique(gone.begin(), gone.end()), gone.end());
  const size_t count = reading.places.size();
  TESSERA_RETURN_IF_ERROR(begin(count, gone));

  const size_t block_bytes = layout().block_bytes();
  const size_t piece = std::min(count, std::max<size_t>(1, kPieceBytes / block_bytes));
  std::vector<char> blocks(piece * block_bytes);  // aligned to 8 bytes
  std::vector<const Row*> rows(piece);
  for (size_t i = 0; i < piece; ++i) {
    rows[i] = reinterpret_cast<const Row*>(blocks.data() + i * block_bytes);
  }
  for (size_t done = 0; done < count; done += piece) {
    const size_t now = std::min(piece, count - done);
    {
      absl::MutexLock lock(&stripe.mu);
      if (stripe.cut->stopped) return stopped();
      CopyPiece(stripe, map, done, now, reading, blocks.data());
    }
    TESSERA_RETURN_IF_ERROR(visit(absl::MakeConstSpan(rows).first(now)));
  }
  absl::MutexLock lock(&stripe.mu);
  if (stripe.cut->stopped) return stopped();
  EndMapCut(stripe, map);
  return absl::OkStatus();
}

void RowStore::FreeCopies(StripeCut& cut, MapCut& map) {
  for (Row* const copy : map.copies) cut.slabs.Free(copy);
  copied_bytes_.fetch_sub(map.copies.size() * layout().block_bytes(), std::memory_order_relaxed);
  map.copies = {};
  unread_rows_.fetch_sub(std::exchange(map.rows, 0), std::memory_order_relaxed);
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
      const uint32_t read = stripe->cut_bit;
      stripe->maps[m].ForEach([&](Row* row) { row->flags = (row->flags & ~kRowCut) | read; });
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
