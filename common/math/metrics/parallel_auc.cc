#include "common/math/metrics/parallel_auc.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "common/math/metrics/auc.h"
#include "common/math/metrics/sorted_scores.h"

namespace tessera::math {
namespace {

// Buckets that are about equally full for any distribution: one model's logits may lie within a
// hundredth of each other. Equal keys share a bucket.
class Buckets {
 public:
  static constexpr size_t kCount = 256;

  // Splits at quantiles of a sample of the keys.
  explicit Buckets(absl::Span<const float> logits) {
    constexpr size_t kSamplesOfBucket = 16;
    std::vector<uint32_t> some(std::min(logits.size(), kCount * kSamplesOfBucket));
    for (size_t i = 0; i < some.size(); ++i) {
      some[i] = SortedScores::Key(logits[i * logits.size() / some.size()]);
    }
    std::sort(some.begin(), some.end());
    for (size_t i = 0; i < splits_.size(); ++i) {
      splits_[i] = some.empty() ? 0 : some[(i + 1) * some.size() / kCount];
    }
  }

  // The number of splits that are not above the key.
  size_t Of(uint32_t key) const {
    size_t bucket = 0;
    for (size_t step = kCount / 2; step > 0; step /= 2) {
      bucket += key >= splits_[bucket + step - 1] ? step : 0;
    }
    return bucket;
  }

 private:
  std::array<uint32_t, kCount - 1> splits_;  // ascending
};

// Positions of negatives [0] and positives [1], by bucket.
using Places = std::array<std::vector<size_t>, 2>;

// The samples of one task of the pool.
struct Part {
  size_t begin, end;
  Places next;  // position of the next sample of a bucket
};

}  // namespace

double ParallelAuc(absl::Span<const float> logits, absl::Span<const float> labels, TaskPool* pool) {
  constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
  // The fewest samples that are worth a thread.
  constexpr size_t kPartSamples = 1 << 16;
  const size_t n = logits.size();
  const size_t threads = pool == nullptr ? 1 : static_cast<size_t>(pool->threads()) + 1;
  std::vector<Part> parts(std::clamp<size_t>(n / kPartSamples, 1, threads));
  const auto run = [pool](size_t tasks, auto task) {
    if (pool != nullptr) return pool->RunAll(tasks, task);
    for (size_t i = 0; i < tasks; ++i) task(i);
  };

  const Buckets buckets(logits);
  std::atomic<bool> any_nan = false;
  run(parts.size(), [&](size_t p) {
    Part& part = parts[p];
    part.begin = p * n / parts.size();
    part.end = (p + 1) * n / parts.size();
    for (std::vector<size_t>& counts : part.next) counts.assign(Buckets::kCount, 0);
    for (size_t i = part.begin; i < part.end; ++i) {
      if (std::isnan(logits[i])) any_nan = true;
      ++part.next[labels[i] > 0.5f][buckets.Of(SortedScores::Key(logits[i]))];
    }
  });
  if (any_nan) return kUndefined;

  // Turns counts into positions: a bucket's samples lie together, part after part.
  Places begins;
  std::array<size_t, 2> totals = {0, 0};
  for (size_t positive = 0; positive < 2; ++positive) {
    begins[positive].resize(Buckets::kCount + 1);
    for (size_t bucket = 0; bucket < Buckets::kCount; ++bucket) {
      begins[positive][bucket] = totals[positive];
      for (Part& part : parts) {
        size_t& of_part = part.next[positive][bucket];
        totals[positive] += std::exchange(of_part, totals[positive]);
      }
    }
    begins[positive][Buckets::kCount] = totals[positive];
  }
  if (totals[0] == 0 || totals[1] == 0) return kUndefined;
  // Not zeroed first, as a vector would be.
  const std::array<std::unique_ptr<uint32_t[]>, 2> keys = {
      std::make_unique_for_overwrite<uint32_t[]>(totals[0]),
      std::make_unique_for_overwrite<uint32_t[]>(totals[1])};
  run(parts.size(), [&](size_t p) {
    Part& part = parts[p];
    for (size_t i = part.begin; i < part.end; ++i) {
      const bool positive = labels[i] > 0.5f;
      const uint32_t key = SortedScores::Key(logits[i]);
      keys[positive][part.next[positive][buckets.Of(key)]++] = key;
    }
  });

  // Counts the pairs within buckets; pairs with negatives of lower buckets need no sorting.
  std::vector<unsigned __int128> twice(Buckets::kCount);
  run(twice.size(), [&](size_t bucket) {
    const auto of_bucket = [&](bool positive) {
      const std::vector<size_t>& begin = begins[positive];
      const absl::Span<uint32_t> of(keys[positive].get() + begin[bucket],
                                    begin[bucket + 1] - begin[bucket]);
      std::sort(of.begin(), of.end());
      return of;
    };
    const absl::Span<const uint32_t> positives = of_bucket(true);
    if (positives.empty()) return;
    twice[bucket] = static_cast<unsigned __int128>(2 * begins[false][bucket]) * positives.size() +
                    TwiceOrderedPairs(positives, of_bucket(false));
  });
  unsigned __int128 sum = 0;
  for (const unsigned __int128 of_bucket : twice) sum += of_bucket;
  return static_cast<double>(sum) /
         static_cast<double>(static_cast<unsigned __int128>(2 * totals[1]) * totals[0]);
}

}  // namespace tessera::math
