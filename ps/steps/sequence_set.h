#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace tessera::ps {

// A set of numbers that come nearly in order, kept as runs: which pushes of one rank have been
// applied, however they were repeated or reordered on the way. Not thread-safe.
class SequenceSet {
 public:
  bool Contains(uint64_t n) const {
    const auto after = runs_.upper_bound(n);
    return after != runs_.begin() && std::prev(after)->second >= n;
  }

  // Whether n, which is not in the set, would extend a run.
  bool Touches(uint64_t n) const { return Contains(n + 1) || (n > 0 && Contains(n - 1)); }

  // n must not be in the set.
  void Add(uint64_t n) {
    auto after = runs_.upper_bound(n);
    const bool joins_next = after != runs_.end() && after->first == n + 1;
    if (after != runs_.begin() && std::prev(after)->second + 1 == n) {
      const auto run = std::prev(after);
      run->second = joins_next ? after->second : n;
      if (joins_next) runs_.erase(after);
    } else {
      const uint64_t last = joins_next ? after->second : n;
      if (joins_next) runs_.erase(after);
      runs_.emplace(n, last);
    }
    ++size_;
  }

  // No number of first .. last may be in the set or touch a run.
  void AddRun(uint64_t first, uint64_t last) {
    runs_.emplace(first, last);
    size_ += last - first + 1;
  }

  // Adds all numbers below n that are not in the set.
  void FillBelow(uint64_t n) {
    if (n == 0 || FirstMissing() >= n) return;
    uint64_t last = n - 1;
    // A run that begins at n or goes on beyond it becomes part of the new one.
    while (!runs_.empty() && runs_.begin()->first <= n) {
      last = std::max(last, runs_.begin()->second);
      size_ -= runs_.begin()->second - runs_.begin()->first + 1;
      runs_.erase(runs_.begin());
    }
    AddRun(0, last);
  }

  uint64_t size() const { return size_; }
  // The smallest number, from 0 on, that is not in the set.
  uint64_t FirstMissing() const {
    return runs_.empty() || runs_.begin()->first > 0 ? 0 : runs_.begin()->second + 1;
  }
  // One more than the largest number; 0: the set is empty.
  uint64_t End() const { return runs_.empty() ? 0 : runs_.rbegin()->second + 1; }
  // First and last number of each run, ascending.
  const std::map<uint64_t, uint64_t>& runs() const { return runs_; }

 private:
  std::map<uint64_t, uint64_t> runs_;  // first -> last, inclusive; runs do not touch
  uint64_t size_ = 0;
};

}  // namespace tessera::ps
