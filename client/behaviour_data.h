#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/file_system.h"

namespace tessera::client {

struct BehaviourDataOptions {
  std::string folder;  // created if missing
  uint64_t train = 100000;
  uint64_t validation = 12500;
  uint64_t test = 12500;
  uint64_t seed = 1;
  // Overwrites files of the same names.
  bool force = false;
};

// Writes train.csv, validation.csv and test.csv: the reactions of users with histories to an item
// shown to them, for models of sequences, of several tasks and of ranking. Columns:
//   click, buy   0 or 1; only a clicked item is bought
//   stars        0, 1 or 2: click + buy
//   kind         0 .. 6, a function of the item
//   weight       of the sample: 2 if clicked, else 0.5
//   user         ten samples each, one after another
//   item, category               of 200 and 10, the one shown; an item is of one category
//   history, categories          0 to 8 items with '|' between, latest last, and their categories
// A click is likelier the more items of the history, above all late ones, have the item's category:
//   logit = -2 + 1.5 [item is odd] + sum over such items of 2 * 0.75^age,  age 0 the last
// The same options give the same bytes. FAILED_PRECONDITION: a file exists and not `force`.
// INVALID_ARGUMENT: no samples to train on, or a split of more than kMostSamples.
absl::Status GenerateBehaviourData(const BehaviourDataOptions& options, FileSystem& fs);

}  // namespace tessera::client
