#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"

namespace tessera::ps {

// How stale the gradients of tables in async mode are: how many pushes, of any rank, have changed a
// table between the pull from which a push was computed and that push. A rank that pulls a batch
// ahead misses its own push of the batch between, too. Not thread-safe.
class Staleness {
 public:
  // Most staleness of each bucket; one more bucket has what is above.
  static constexpr std::array<uint32_t, 17> kBounds = {0,  1,  2,  3,  4,   6,   8,   12,  16,
                                                       24, 32, 48, 64, 128, 256, 512, 1024};
  // Over the pushes of one table.
  struct Histogram {
    std::array<uint64_t, kBounds.size() + 1> counts = {};  // by bucket
    uint64_t sum = 0;

    uint64_t count() const;
  };

  Staleness(uint32_t ranks, size_t tables) : ranks_(ranks), tables_(tables) {}

  // The rank is about to get rows for its push of that number. If they come by several calls, the
  // first one counts.
  void Pulled(Rank rank, uint64_t push);
  // That push has changed these tables, named once each. It does not count for the histograms if no
  // pull for it is known.
  void Pushed(Rank rank, uint64_t push, absl::Span<const uint32_t> tables);
  // Another worker takes the rank over: it pulls anew.
  void Forget(Rank rank) { ranks_[rank.value()].clear(); }

  const Histogram& of(size_t table) const { return tables_[table].histogram; }

 private:
  // Most pulls of a rank whose pushes have not come; above it the oldest is forgotten.
  static constexpr size_t kMostOpen = 64;
  struct Open {
    uint64_t push = 0;
    std::vector<uint64_t> updates;  // Table::updates by table, when the rows were pulled
  };
  struct Table {
    uint64_t updates = 0;  // pushes that have changed it
    Histogram histogram;
  };

  std::vector<std::deque<Open>> ranks_;  // in the order of the pulls
  std::vector<Table> tables_;
};

}  // namespace tessera::ps
