#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "common/hash.h"
#include "common/partition.h"
#include "ps/rows/row_store.h"

// Part of RowStore: memory that rows have left goes back to the system.
//
// Rows leave holes all over a stripe's slabs, and slabs of all stripes lie on the same huge pages.
// So the unit is a chunk of pages: it is closed to new slabs, the rows of each of its slabs move to
// free blocks elsewhere, and when all of it is free its pages go. Slabs below the full size are
// single blocks of the heap, and each is a unit of its own.
namespace tessera::ps {
namespace {

// To empty what is fuller than this would move many bytes for few.
constexpr double kFullest = 15.0 / 16;

}  // namespace

uint64_t RowStore::GiveBack(uint64_t bytes) {
  ShrinkMaps();
  uint64_t given = 0;
  for (const Sparse& sparse : SparseSlabs()) {
    if (given >= bytes) return given;
    given += sparse.stripe == kAnyStripe ? EmptyChunk(sparse) : EmptyHeapSlab(sparse);
  }
  return given + GiveBackMaps(bytes - std::min(bytes, given));
}

std::vector<RowStore::Sparse> RowStore::SparseSlabs() const {
  const std::vector<HugePageMemory::Chunk> chunks = slab_memory_->chunks();
  std::vector<Sparse> of_chunks;
  std::vector<size_t> known;  // bytes of each chunk that are free or of a slab that was seen
  for (const HugePageMemory::Chunk& chunk : chunks) {
    of_chunks.push_back({chunk.begin, chunk.bytes, chunk.free_bytes});
    known.push_back(chunk.free_bytes);
  }
  std::vector<Sparse> sparse;
  for (uint32_t s = 0; s < KeyBatch::kStripes; ++s) {
    absl::ReaderMutexLock lock(&stripes_[s]->mu);
    auto chunk = chunks.begin();
    stripes_[s]->slabs.ForEachSlab([&](const SlabPool::Use& slab) {
      const char* const begin = reinterpret_cast<const char*>(slab.begin);
      if (slab.adopted) return;
      if (slab.memory == nullptr && slab.fits) {
        sparse.push_back({begin, slab.bytes, 0, slab.used_bytes, s});
      }
      if (slab.memory != slab_memory_.get()) return;
      while (chunk != chunks.end() && chunk->begin + chunk->bytes <= begin) ++chunk;
      if (chunk == chunks.end() || begin < chunk->begin) return;  // of a later chunk
      of_chunks[chunk - chunks.begin()].used_bytes += slab.used_bytes;
      known[chunk - chunks.begin()] += slab.bytes;
    });
  }
  for (size_t c = 0; c < chunks.size(); ++c) {
    if (known[c] == chunks[c].bytes) sparse.push_back(of_chunks[c]);
  }
  const auto is_full = [](const Sparse& s) {
    return static_cast<double>(s.used_bytes) > kFullest * static_cast<double>(s.bytes);
  };
  sparse.erase(std::remove_if(sparse.begin(), sparse.end(), is_full), sparse.end());
  std::sort(sparse.begin(), sparse.end(), [](const Sparse& a, const Sparse& b) {
    return a.used_bytes * b.bytes < b.used_bytes * a.bytes;
  });
  return sparse;
}

uint64_t RowStore::EmptyChunk(const Sparse& chunk) {
  const char* const end = chunk.begin + chunk.bytes;
  const size_t before = slab_memory_->bytes();
  size_t lacking = 0;
  for (const auto& stripe : stripes_) {
    absl::ReaderMutexLock lock(&stripe->mu);
    lacking += stripe->slabs.LackingWithout(chunk.begin, end);
  }
  // Half of its slabs are gained at least, or the rows would move on and on.
  if (lacking > (chunk.bytes - chunk.free_bytes) / 2) return 0;
  {
    slab_memory_->Close(chunk.begin);
    const absl::Cleanup give_back = [&] { slab_memory_->GiveBack(); };
    for (const auto& stripe : stripes_) {
      while (true) {
        absl::MutexLock lock(&stripe->mu);
        const SlabPool::Use slab = stripe->slabs.FirstIn(chunk.begin, end);
        if (slab.begin == nullptr) break;
        if (!EmptySlab(*stripe, slab)) return 0;
      }
    }
  }
  // The rows may have needed a new chunk, which has room for those of others.
  const size_t after = slab_memory_->bytes();
  return before > after ? before - after : 0;
}

uint64_t RowStore::EmptyHeapSlab(const Sparse& slab) {
  Stripe& stripe = *stripes_[slab.stripe];
  absl::MutexLock lock(&stripe.mu);
  const SlabPool::Use now = stripe.slabs.FirstIn(slab.begin, slab.begin + 1);
  return now.begin != nullptr && now.fits && EmptySlab(stripe, now) ? slab.bytes : 0;
}

bool RowStore::EmptySlab(Stripe& stripe, const SlabPool::Use& slab) {
  // Rows of these maps could not be found.
  if (slab.adopted || !stripe.dropped.empty()) return false;
  struct Place {
    uint64_t hash = 0;
    uint32_t index = PartitionSet::kNotOwned;
  };
  // A free block begins with anything, which is taken for a key, and is then not in the map.
  std::vector<Place> places;
  places.reserve((slab.end - slab.begin) / layout().block_bytes());
  for (const std::byte* block = slab.begin; block < slab.end; block += layout().block_bytes()) {
    const uint64_t hash = Mix64(reinterpret_cast<const Row*>(block)->key);
    const uint32_t index =
        partitions_.IndexOf(PartitionOfHash(hash, partitions_.partition_count()));
    const bool here =
        index != PartitionSet::kNotOwned && stripes_[KeyBatch::StripeOf(index)].get() == &stripe;
    places.push_back({hash, here ? index : PartitionSet::kNotOwned});
    if (here) stripe.maps[KeyBatch::MapOf(index)].Prefetch(hash);
  }
  auto place = places.begin();
  return stripe.slabs.Empty(slab.begin, [&](void* from, void* to) {
    stripe.mu.AssertHeld();
    const auto [hash, index] = *place++;
    if (index == PartitionSet::kNotOwned) return false;
    const uint32_t map = KeyBatch::MapOf(index);
    if (!stripe.maps[map].Replace(hash, static_cast<Row*>(from), static_cast<Row*>(to))) {
      return false;
    }
    std::memcpy(to, from, layout().block_bytes());
    // A visit of the cut looks for the row anew.
    if (stripe.cut != nullptr) ++stripe.cut->maps[map].erases;
    return true;
  });
}

void RowStore::ShrinkMaps() {
  for (const auto& stripe : stripes_) {
    for (uint32_t m = 0;; ++m) {
      absl::MutexLock lock(&stripe->mu);
      if (m == stripe->maps.size()) break;
      if (stripe->maps[m].is_sparse()) stripe->maps[m].Shrink();
    }
  }
}

uint64_t RowStore::GiveBackMaps(uint64_t bytes) {
  size_t free = map_memory_->free_bytes();
  uint64_t given = 0;
  for (const HugePageMemory::Chunk& chunk : map_memory_->chunks()) {
    const size_t used = chunk.bytes - chunk.free_bytes;
    // Free ranges are of all sizes: tables fit into some of them.
    const bool fits = free - chunk.free_bytes >= 2 * used;
    if (given >= bytes || !fits) continue;
    map_memory_->Close(chunk.begin);
    const absl::Cleanup give_back = [&] { given += map_memory_->GiveBack(); };
    for (const auto& stripe : stripes_) {
      absl::MutexLock lock(&stripe->mu);
      for (RowMap& map : stripe->maps) {
        if (map.LiesIn(chunk.begin, chunk.begin + chunk.bytes)) map.MoveTable();
      }
    }
    free -= chunk.bytes;
  }
  return given;
}

}  // namespace tessera::ps
