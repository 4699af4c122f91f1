#pragma once

#include <cstdint>
#include <vector>

#include "tessera/v1/work.pb.h"

namespace tessera {

// The order in which an epoch visits the records, as pure functions of the data and (seed, epoch).
// Master and workers thus agree on the order without messages, whatever the workers and restarts.
//
// The files are cut into data shards of `shard_records` (the last of a file is shorter); (seed,
// epoch) permutes the shards; consecutive shards of that order form windows of about
// `window_records`. In sync mode a window is divided evenly among the ranks (EvenPart); in async
// mode one worker gets all of it.
struct WindowOptions {
  uint64_t seed = 0;
  uint64_t shard_records = 1024;
  uint64_t window_records = 262144;
  // How many records of the epoch's order lie before the first window; they are whole shards.
  uint64_t begin = 0;
};

// All windows of an epoch, in order; each is a list of ranges that do not overlap. Empty files add
// no ranges.
std::vector<std::vector<v1::RecordRange>> EpochWindows(const std::vector<v1::FileRecords>& files,
                                                       uint64_t epoch,
                                                       const WindowOptions& options);

uint64_t CountRecords(const std::vector<v1::RecordRange>& ranges);

// Ranges one after another. A slice takes time for what it has, and for the logarithm of the rest.
class JoinedRanges {
 public:
  explicit JoinedRanges(std::vector<v1::RecordRange> ranges);

  const std::vector<v1::RecordRange>& ranges() const { return ranges_; }
  uint64_t records() const { return ends_.empty() ? 0 : ends_.back(); }
  // Records [begin, end) of all.
  std::vector<v1::RecordRange> Slice(uint64_t begin, uint64_t end) const;

 private:
  std::vector<v1::RecordRange> ranges_;
  std::vector<uint64_t> ends_;  // of each range, among all records
};

// Rank r's even part of n records: [n*r/ranks, n*(r+1)/ranks).
struct Part {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t size() const { return end - begin; }
};
Part EvenPart(uint64_t n, uint32_t rank, uint32_t ranks);

// SyncSteps: the number of steps that a window of n records takes in sync mode. SyncStepSamples:
// the samples of all ranks in step i of the window. Rank r trains batches of EvenPart(batch_size,
// r, ranks).size() samples from its EvenPart of the window. Requires batch_size >= ranks.
uint64_t SyncSteps(uint64_t n, uint32_t batch_size, uint32_t ranks);
uint64_t SyncStepSamples(uint64_t n, uint32_t batch_size, uint32_t ranks, uint64_t i);

}  // namespace tessera
