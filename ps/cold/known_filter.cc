#include "ps/cold/known_filter.h"

#include <algorithm>
#include <utility>

#include "common/hash.h"

namespace tessera::ps {
namespace {

// Lines loaded together.
constexpr size_t kAhead = 16;
// How many keys are added at a time while no other call looks: some tens of microseconds.
constexpr size_t kAddedAtOnce = 1024;

// The keys of a ps share the highest bits of Mix64(key), which chose their partitions.
uint64_t HashOf(uint64_t key) { return Mix64(Mix64(key)); }
// Six bits for each word.
uint64_t BitsOf(uint64_t hash) { return Mix64(hash) >> 16; }
uint64_t BitOf(uint64_t bits, uint32_t word) { return uint64_t{1} << ((bits >> (6 * word)) & 63); }

}  // namespace

KnownFilter::Generation::Generation(uint64_t capacity)
    : capacity(capacity),
      line_count(static_cast<uint32_t>(
          std::min<uint64_t>(capacity * kBitsPerKey / (8 * sizeof(Line)), UINT32_MAX))),
      lines(new Line[line_count]()) {}

bool KnownFilter::Has(const Line& line, uint64_t bits) {
  uint64_t missing = 0;
  for (uint32_t w = 0; w < kWords; ++w) {
    missing |= BitOf(bits, w) & ~line.words[w].load(std::memory_order_relaxed);
  }
  return missing == 0;
}

bool KnownFilter::Known(const Generations& generations, uint64_t hash, uint64_t bits) {
  for (auto it = generations.rbegin(); it != generations.rend(); ++it) {
    if (Has(LineOf(**it, hash), bits)) return true;
  }
  return false;
}

void KnownFilter::AddTo(Generations& generations, uint64_t key) {
  const uint64_t hash = HashOf(key);
  const uint64_t bits = BitsOf(hash);
  if (Known(generations, hash, bits)) return;
  if (generations.empty()) {
    generations.push_back(std::make_unique<Generation>(kFirstCapacity));
  } else if (generations.back()->keys == generations.back()->capacity) {
    generations.push_back(std::make_unique<Generation>(generations.back()->capacity * 2));
  }
  Generation& newest = *generations.back();
  Line& line = LineOf(newest, hash);
  for (uint32_t w = 0; w < kWords; ++w) {
    line.words[w].fetch_or(BitOf(bits, w), std::memory_order_relaxed);
  }
  ++newest.keys;
}

void KnownFilter::Add(absl::Span<const uint64_t> keys) {
  for (size_t begin = 0; begin < keys.size(); begin += kAddedAtOnce) {
    absl::MutexLock lock(&mu_);
    for (const uint64_t key : keys.subspan(begin, kAddedAtOnce)) {
      AddTo(generations_, key);
      if (next_.has_value()) AddTo(*next_, key);
    }
  }
}

void KnownFilter::BeginRenewal() {
  absl::MutexLock lock(&mu_);
  next_.emplace();
}

void KnownFilter::Keep(absl::Span<const uint64_t> keys) {
  for (size_t begin = 0; begin < keys.size(); begin += kAddedAtOnce) {
    absl::MutexLock lock(&mu_);
    if (!next_.has_value()) return;
    for (const uint64_t key : keys.subspan(begin, kAddedAtOnce)) AddTo(*next_, key);
  }
}

void KnownFilter::EndRenewal() {
  absl::MutexLock lock(&mu_);
  if (!next_.has_value()) return;
  generations_ = *std::exchange(next_, std::nullopt);
}

size_t KnownFilter::MayContain(absl::Span<const uint64_t> keys, uint8_t* may) const {
  size_t ones = 0;
  absl::ReaderMutexLock lock(&mu_);
  uint64_t hashes[kAhead];
  for (size_t begin = 0; begin < keys.size(); begin += kAhead) {
    const size_t n = std::min(kAhead, keys.size() - begin);
    for (size_t i = 0; i < n; ++i) {
      hashes[i] = HashOf(keys[begin + i]);
      for (const auto& generation : generations_) {
        __builtin_prefetch(&LineOf(*generation, hashes[i]));
      }
    }
    for (size_t i = 0; i < n; ++i) {
      may[begin + i] = Known(generations_, hashes[i], BitsOf(hashes[i]));
      ones += may[begin + i];
    }
  }
  return ones;
}

uint64_t KnownFilter::keys() const {
  absl::ReaderMutexLock lock(&mu_);
  uint64_t keys = 0;
  for (const auto& generation : generations_) keys += generation->keys;
  return keys;
}

uint64_t KnownFilter::bytes() const {
  absl::ReaderMutexLock lock(&mu_);
  const auto bytes_of = [](const Generations& generations) {
    uint64_t bytes = 0;
    for (const auto& generation : generations) bytes += generation->line_count * sizeof(Line);
    return bytes;
  };
  return bytes_of(generations_) + (next_.has_value() ? bytes_of(*next_) : 0);
}

}  // namespace tessera::ps
