#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "common/keep_going.h"

namespace tessera {

// The difference between two checkpoints in one table, matched by name.
struct TableDifference {
  static constexpr size_t kKeys = 5;
  struct Keys {
    uint64_t count = 0;
    std::vector<uint64_t> first;  // up to kKeys, in the order of partitions
  };
  std::string name;
  // E.g. "only in the first", "dim 8 and 16"; rows are not compared then. Empty: same shape.
  std::string shape;
  uint64_t same = 0;  // rows with the same bits
  Keys only_first;
  Keys only_second;
  Keys different;  // in both, but a float of embedding or slots differs in a bit
  // Rows with the same floats but another frequency or last step.
  uint64_t other_metadata = 0;

  // Like digests, compares shapes, keys and floats; metadata may differ.
  bool equal() const {
    return shape.empty() && only_first.count + only_second.count + different.count == 0;
  }
};

// Compares two checkpoints row by row: the tables of the first in its order, then tables that only
// the second has. First verifies both (VerifyCheckpoint). The numbers of ps and partitions may
// differ; one partition of each checkpoint is in memory at a time. Calls `keep_going` before every
// partition.
absl::StatusOr<std::vector<TableDifference>> DiffCheckpoints(FileSystem& fs,
                                                             const std::string& first,
                                                             const std::string& second,
                                                             KeepGoing keep_going = absl::OkStatus);

}  // namespace tessera
