#pragma once

#include <cstdint>

#include "ps/rows/row_layout.h"

namespace tessera::ps {

// The questions of a RowStore about keys that have no row in memory; it asks with the stripe
// locked. For one call of the store; not thread-safe.
class AbsentRows {
 public:
  enum class Answer {
    kNew,      // no row exists: make one
    kReplace,  // an expired row exists and is still counted: make one in its place
    kBring,    // *row is the whole row: copy it into memory
    kSkip,     // not known yet: leave this position of the batch out
  };
  struct Question {
    uint64_t key = 0;
    uint32_t position = 0;  // in the batch
    // `erases`: how many times the stripe has erased changed rows. `erased_at`: that count when
    // this key may last have been among them. An answer that was looked up after a first question
    // is stale if `erased_at` now exceeds the `erases` of that question.
    uint64_t erases = 0;
    uint64_t erased_at = 0;
  };

  virtual ~AbsentRows() = default;
  // `*row` stays valid until the next question.
  virtual Answer Ask(const Question& question, const Row** row) = 0;
};

}  // namespace tessera::ps
