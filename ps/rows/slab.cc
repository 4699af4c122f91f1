#include "ps/rows/slab.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <iterator>
#include <new>

#include "common/round_up.h"

namespace tessera::ps {
namespace {

constexpr size_t kFirstSlabBytes = 1 << 10;
constexpr size_t kLeastLimitBytes = 16 << 10;
constexpr size_t kFullSlabBytes = 64 << 10;
constexpr size_t kFullHeapSlabBytes = 256 << 10;
constexpr size_t kMostFullSlabBlocks = 64;
constexpr size_t kAlignment = 64;

// A power of two: any number of such slabs fills whole pages.
size_t FullSlabBytes(size_t block_bytes) {
  return std::max(kFullSlabBytes, std::bit_floor(kMostFullSlabBlocks * block_bytes));
}

// So that the next ones fit without taking memory.
template <typename T>
void ReserveFor(std::vector<T>& vector, size_t size) {
  if (vector.capacity() < size) vector.reserve(2 * size);
}

}  // namespace

SlabPool::SlabPool(size_t block_bytes, std::shared_ptr<HugePageMemory> memory)
    : block_bytes_(block_bytes),
      full_slab_bytes_(memory != nullptr
                           ? FullSlabBytes(block_bytes)
                           : std::max(kFullHeapSlabBytes, RoundUp(block_bytes, kAlignment))),
      memory_(std::move(memory)),
      slab_bytes_(std::max(kFirstSlabBytes, block_bytes)),
      largest_slab_bytes_(full_slab_bytes_) {
  strays_.push_back(std::make_unique<Slab>());
  open_ = strays_[0].get();
  ReserveFor(with_room_, 1);
}

void SlabPool::LimitSlabs(size_t bytes) {
  largest_slab_bytes_ = std::clamp(bytes, kLeastLimitBytes, full_slab_bytes_);
}

SlabPool::~SlabPool() {
  for (const Entry& entry : slabs_) FreeSlab(*entry.slab);
}

void SlabPool::FreeSlab(const Slab& slab) {
  if (slab.memory != nullptr) {
    slab.memory->Free(slab.begin, slab.bytes);
  } else {
    std::free(slab.begin);
  }
}

std::vector<SlabPool::Entry>::const_iterator SlabPool::After(const void* address) const {
  return std::upper_bound(slabs_.begin(), slabs_.end(), address,
                          [](const void* at, const Entry& entry) { return at < entry.begin; });
}

SlabPool::Slab* SlabPool::SlabOf(const void* block) const {
  const auto after = After(block);
  if (after == slabs_.begin()) return strays_[0].get();
  Slab* const slab = std::prev(after)->slab.get();
  return block < slab->begin + slab->bytes ? slab : strays_[0].get();
}

void SlabPool::Free(void* block) {
  Slab* const slab = SlabOf(block);
  *static_cast<void**>(block) = slab->free;
  slab->free = block;
  --slab->used;
  --used_;
  if (slab != open_) List(slab);
}

void SlabPool::List(Slab* slab) {
  if (std::exchange(slab->listed, true)) return;
  with_room_.push_back(slab);
}

void SlabPool::Open(Slab* slab) {
  if (open_->has_room()) List(open_);
  open_ = slab;
}

void SlabPool::OpenNext() {
  if (with_room_.empty()) return Grow();
  Slab* const slab = with_room_.back();
  with_room_.pop_back();
  slab->listed = false;
  Open(slab);
}

void SlabPool::Adopt(SlabPool& other) {
  const auto before = [](const Entry& a, const Entry& b) { return a.begin < b.begin; };
  std::vector<Entry> both;
  both.reserve(slabs_.size() + other.slabs_.size());
  ReserveFor(with_room_, both.capacity() + strays_.size() + other.strays_.size());
  strays_.reserve(strays_.size() + other.strays_.size());
  auto new_strays = std::make_unique<Slab>();
  std::merge(std::make_move_iterator(slabs_.begin()), std::make_move_iterator(slabs_.end()),
             std::make_move_iterator(other.slabs_.begin()),
             std::make_move_iterator(other.slabs_.end()), std::back_inserter(both), before);
  slabs_ = std::move(both);
  other.slabs_.clear();
  for (std::shared_ptr<HugePageMemory>& memory : std::exchange(other.memories_, {})) {
    Keep(std::move(memory));
  }
  if (other.open_->has_room()) other.List(other.open_);
  with_room_.insert(with_room_.end(), other.with_room_.begin(), other.with_room_.end());
  other.with_room_.clear();
  std::move(other.strays_.begin(), other.strays_.end(), std::back_inserter(strays_));
  other.strays_.clear();
  other.strays_.push_back(std::move(new_strays));
  other.open_ = other.strays_[0].get();
  bytes_ += std::exchange(other.bytes_, 0);
  blocks_ += std::exchange(other.blocks_, 0);
  used_ += std::exchange(other.used_, 0);
}

void SlabPool::Keep(std::shared_ptr<HugePageMemory> memory) {
  const auto same = [&](const std::shared_ptr<HugePageMemory>& kept) { return kept == memory; };
  if (std::none_of(memories_.begin(), memories_.end(), same))
    memories_.push_back(std::move(memory));
}

void SlabPool::Grow() {
  auto slab = std::make_unique<Slab>();
  ReserveFor(slabs_, slabs_.size() + 1);
  ReserveFor(with_room_, slabs_.size() + 1 + strays_.size());
  slab->bytes = RoundUp(slab_bytes_, kAlignment);
  slab->home = this;
  if (slab->bytes == full_slab_bytes_ && memory_ != nullptr) {
    Keep(memory_);
    slab->memory = memory_.get();
  }
  slab->begin = static_cast<std::byte*>(slab->memory != nullptr
                                            ? slab->memory->Allocate(slab->bytes)
                                            : std::aligned_alloc(kAlignment, slab->bytes));
  if (slab->begin == nullptr) throw std::bad_alloc();
  bytes_ += slab->bytes;
  blocks_ += BlocksOf(*slab);
  slab->next = slab->begin;
  slab->end = slab->begin + BlocksOf(*slab) * block_bytes_;
  Open(slab.get());
  slabs_.insert(After(open_->begin), Entry{.begin = open_->begin, .slab = std::move(slab)});
  slab_bytes_ = std::max(block_bytes_, std::min(slab_bytes_ * 2, largest_slab_bytes_));
}

SlabPool::Use SlabPool::UseOf(const Slab& slab) const {
  return {.begin = slab.begin,
          .end = slab.next,
          .bytes = slab.bytes,
          .used_bytes = slab.used * block_bytes_,
          .memory = slab.memory,
          .adopted = slab.home != this,
          .fits = RoomBeside(slab) >= slab.used};
}

void SlabPool::ForEachSlab(absl::FunctionRef<void(const Use&)> visit) const {
  for (const Entry& entry : slabs_) visit(UseOf(*entry.slab));
}

std::vector<SlabPool::Entry>::const_iterator SlabPool::From(const void* address) const {
  return std::lower_bound(slabs_.begin(), slabs_.end(), address,
                          [](const Entry& entry, const void* at) { return entry.begin < at; });
}

SlabPool::Use SlabPool::FirstIn(const void* begin, const void* end) const {
  const auto first = From(begin);
  if (first == slabs_.end() || first->begin >= end) return {};
  return UseOf(*first->slab);
}

size_t SlabPool::LackingWithout(const void* begin, const void* end) const {
  size_t used = 0;
  size_t room = blocks_ - used_;
  for (auto entry = From(begin); entry != slabs_.end() && entry->begin < end; ++entry) {
    used += entry->slab->used;
    room -= BlocksOf(*entry->slab) - entry->slab->used;
  }
  return used > room ? RoundUp((used - room) * block_bytes_, full_slab_bytes_) : 0;
}

bool SlabPool::Empty(const std::byte* begin, absl::FunctionRef<bool(void*, void*)> move) {
  Slab& slab = *SlabOf(begin);
  if (slab.begin != begin || slab.home != this) return false;
  while (RoomBeside(slab) < slab.used) Grow();
  if (open_ == &slab) open_ = strays_[0].get();
  if (std::exchange(slab.listed, false)) {
    *std::find(with_room_.begin(), with_room_.end(), &slab) = with_room_.back();
    with_room_.pop_back();
  }
  slab.free = nullptr;
  std::byte* const end = std::exchange(slab.next, slab.end);
  uint32_t left = slab.used;
  void* to = nullptr;
  for (std::byte* from = slab.begin; from != end && left > 0; from += block_bytes_) {
    if (to == nullptr) to = Allocate();
    if (!move(from, to)) continue;
    to = nullptr;
    --left;
  }
  if (to != nullptr) Free(to);
  used_ -= slab.used - left;
  if (left > 0) {
    // Which of its blocks are free is not known any more: they count as used.
    used_ += BlocksOf(slab) - left;
    slab.used = static_cast<uint32_t>(BlocksOf(slab));
    return false;
  }
  bytes_ -= slab.bytes;
  blocks_ -= BlocksOf(slab);
  FreeSlab(slab);
  slabs_.erase(std::prev(After(begin)));
  return true;
}

}  // namespace tessera::ps
