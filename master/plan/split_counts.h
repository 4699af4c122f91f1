#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"

namespace tessera::master {

// Which splits of the data are to be counted, and which rank counts which. A rank counts all files
// of a split, one split at a time. A pure core. Not thread-safe.
class SplitCounts {
 public:
  explicit SplitCounts(uint32_t ranks) : counted_by_(ranks) {}

  void Add(std::string split) { to_count_.push_back(std::move(split)); }
  // The split that the rank is to count; nullopt: all are handed out.
  std::optional<std::string> Next(Rank rank);
  // The rank has counted the split that it was given. Returns the split.
  std::string Counted(Rank rank);
  // Every split that was added has been counted.
  bool done() const;

 private:
  std::deque<std::string> to_count_;     // splits that nobody has taken
  std::vector<std::string> counted_by_;  // by rank: the split that it counts; empty: none
};

}  // namespace tessera::master
