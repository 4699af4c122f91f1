#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"

namespace tessera::ps {

// Which keys may have been added: never wrong about one that was, and wrong about 0.1% of the
// others for each generation that is full. A blocked Bloom filter (Putze, Sanders, Singler 2007):
// a key sets eight bits of one cache line, one in each of its words. It cannot forget a key; where
// keys come and go it can be made anew while it is in use.
//
// A generation has 16 bits for each key of its capacity; when it is full the next one has twice the
// capacity: at most 32 bits a key beyond the first 65,536 (128 KiB), and 8 generations for 16
// million keys.
//
// Thread-safe. A key is seen by every MayContain that starts after Add has returned.
class KnownFilter {
 public:
  static constexpr uint64_t kFirstCapacity = 1 << 16;
  static constexpr uint64_t kBitsPerKey = 16;

  KnownFilter() = default;
  KnownFilter(const KnownFilter&) = delete;
  KnownFilter& operator=(const KnownFilter&) = delete;

  // Adds a thousand at a time, so that MayContain need not wait for many.
  void Add(absl::Span<const uint64_t> keys) ABSL_LOCKS_EXCLUDED(mu_);
  // may[i] = 1: keys[i] may have been added; 0: it was not. Returns the number of ones.
  size_t MayContain(absl::Span<const uint64_t> keys, uint8_t* may) const ABSL_LOCKS_EXCLUDED(mu_);

  // Renewal. From BeginRenewal on, Add adds to a second filter, too, and Keep to the second alone;
  // EndRenewal puts the second in the place of the first. In between the caller must Keep all
  // earlier keys that are still to be known. Beginning again forgets what was kept. Keep and
  // EndRenewal do nothing if no renewal has begun.
  void BeginRenewal() ABSL_LOCKS_EXCLUDED(mu_);
  void Keep(absl::Span<const uint64_t> keys) ABSL_LOCKS_EXCLUDED(mu_);
  void EndRenewal() ABSL_LOCKS_EXCLUDED(mu_);

  // How many added keys were not taken for known before.
  uint64_t keys() const ABSL_LOCKS_EXCLUDED(mu_);
  // Bytes of both filters.
  uint64_t bytes() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  static constexpr uint32_t kWords = 8;
  struct alignas(64) Line {
    std::atomic<uint64_t> words[kWords];
  };
  struct Generation {
    explicit Generation(uint64_t capacity);
    const uint64_t capacity;
    const uint32_t line_count;
    const std::unique_ptr<Line[]> lines;
    uint64_t keys = 0;
  };
  using Generations = std::vector<std::unique_ptr<Generation>>;  // newest last
  static Line& LineOf(const Generation& generation, uint64_t hash) {
    return generation.lines[((hash >> 32) * generation.line_count) >> 32];
  }
  static bool Has(const Line& line, uint64_t bits);
  static bool Known(const Generations& generations, uint64_t hash, uint64_t bits);
  static void AddTo(Generations& generations, uint64_t key);

  mutable absl::Mutex mu_;
  Generations generations_ ABSL_GUARDED_BY(mu_);
  std::optional<Generations> next_ ABSL_GUARDED_BY(mu_);  // the second filter of a renewal
};

}  // namespace tessera::ps
