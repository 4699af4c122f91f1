#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "common/keep_going.h"

namespace tessera {

// What two checkpoints have of one table, matched by name.
struct TableDifference {
  static constexpr size_t kKeys = 5;
  struct Keys {
    uint64_t count = 0;
    std::vector<uint64_t> first;  // up to kKeys, in the order of partitions
  };
  std::string name;
  // "only in the first", "dim 8 and 16": then rows are not compared. Empty: same shape.
  std::string shape;
  uint64_t same = 0;  // rows with the same bits
  Keys only_first;
  Keys only_second;
  Keys different;  // in both, and a float of embedding or slots differs in a bit
  // Rows whose floats are the same and whose frequency or last step is not.
  uint64_t other_metadata = 0;

  // Like digests, this looks at shapes, keys and floats; metadata may differ.
  bool equal() const {
    return shape.empty() && only_first.count + only_second.count + different.count == 0;
  }
};

// Compares two checkpoints row by row, tables in the first's order, then those that only the second
// has. Verifies both whole before (VerifyCheckpoint). Any numbers of ps and partitions; one
// partition of each is in memory at a time. `keep_going` is asked before every one.
absl::StatusOr<std::vector<TableDifference>> DiffCheckpoints(FileSystem& fs,
                                                             const std::string& first,
                                                             const std::string& second,
                                                             KeepGoing keep_going = absl::OkStatus);

}  // namespace tessera
