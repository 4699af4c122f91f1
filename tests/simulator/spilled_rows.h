#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/tables/spill.h"

namespace tessera::simulator {

// The real disk below the memory of all ps of a simulation. One for all, since shards of dead ones
// may outlive them here. It has memory for all rows, so that they leave when they are told to, and
// a seed does the same again. Its folder is in memory, where a machine has that, and goes with it.
// Not thread-safe; outlives all shards.
class SpilledRows {
 public:
  static absl::StatusOr<std::unique_ptr<SpilledRows>> New();
  ~SpilledRows();
  SpilledRows(const SpilledRows&) = delete;
  SpilledRows& operator=(const SpilledRows&) = delete;

  ps::Spill* spill() { return spill_.get(); }
  // Lets rows leave memory: of each table at most so many bytes, and a little.
  absl::Status Evict(uint64_t bytes);
  uint64_t evicted_bytes() const { return evicted_bytes_; }

 private:
  explicit SpilledRows(std::string folder) : folder_(std::move(folder)) {}

  const std::string folder_;
  std::unique_ptr<ps::Spill> spill_;
  uint64_t evicted_bytes_ = 0;
};

}  // namespace tessera::simulator
