#pragma once

#include <cstdint>

#include "ps/row_layout.h"

namespace tessera::ps {

// What a RowStore asks, with the stripe locked, about a key that has no row in memory. For one
// call of the store; not thread-safe.
class AbsentRows {
 public:
  enum class Answer {
    kNew,      // no row anywhere: make one
    kReplace,  // a row that has expired, and is still counted: make one in its place
    kBring,    // *row is the whole row: take a copy into memory
    kSkip,     // not known yet: leave this place of the batch out
  };
  struct Question {
    uint64_t key = 0;
    uint32_t position = 0;  // in the batch
    // How many times the stripe has erased rows that had changed, and the count at the last time
    // that this key may have been among them. An answer from elsewhere, found after a first
    // question, is stale when `erased_at` has passed the `erases` of that question.
    uint64_t erases = 0;
    uint64_t erased_at = 0;
  };

  virtual ~AbsentRows() = default;
  // `*row` stays valid until the next question.
  virtual Answer Ask(const Question& question, const Row** row) = 0;
};

}  // namespace tessera::ps
