#include "common/window.h"

#include <algorithm>
#include <utility>

#include "common/random.h"

namespace tessera {

std::vector<std::vector<v1::RecordRange>> EpochWindows(const std::vector<v1::FileRecords>& files,
                                                       uint64_t epoch,
                                                       const WindowOptions& options) {
  std::vector<v1::RecordRange> shards;
  for (const v1::FileRecords& file : files) {
    for (uint64_t begin = 0; begin < file.records(); begin += options.shard_records) {
      v1::RecordRange& shard = shards.emplace_back();
      shard.set_path(file.path());
      shard.set_begin(begin);
      shard.set_end(std::min(begin + options.shard_records, file.records()));
      shard.set_file_bytes(file.bytes());
    }
  }
  const std::vector<uint32_t> order = RandomPermutation(
      StreamKey(RandomFor::kShardOrder, options.seed, epoch), static_cast<uint32_t>(shards.size()));
  std::vector<std::vector<v1::RecordRange>> windows;
  uint64_t records = options.window_records;
  uint64_t before = 0;
  for (uint32_t index : order) {
    if (before < options.begin) {
      before += shards[index].end() - shards[index].begin();
      continue;
    }
    if (records >= options.window_records) {
      windows.emplace_back();
      records = 0;
    }
    records += shards[index].end() - shards[index].begin();
    windows.back().push_back(std::move(shards[index]));
  }
  return windows;
}

uint64_t CountRecords(const std::vector<v1::RecordRange>& ranges) {
  uint64_t n = 0;
  for (const v1::RecordRange& range : ranges) n += range.end() - range.begin();
  return n;
}

JoinedRanges::JoinedRanges(std::vector<v1::RecordRange> ranges) : ranges_(std::move(ranges)) {
  ends_.reserve(ranges_.size());
  for (const v1::RecordRange& range : ranges_) {
    ends_.push_back(records() + range.end() - range.begin());
  }
}

std::vector<v1::RecordRange> JoinedRanges::Slice(uint64_t begin, uint64_t end) const {
  std::vector<v1::RecordRange> slice;
  // The first that reaches beyond `begin`.
  auto i = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
  for (; i < ranges_.size(); ++i) {
    const v1::RecordRange& range = ranges_[i];
    const uint64_t at = ends_[i] - (range.end() - range.begin());
    if (at >= end) break;
    const uint64_t from = std::max(begin, at), to = std::min(end, ends_[i]);
    if (from == to) continue;
    v1::RecordRange& part = slice.emplace_back(range);
    part.set_begin(range.begin() + (from - at));
    part.set_end(range.begin() + (to - at));
  }
  return slice;
}

Part EvenPart(uint64_t n, uint32_t rank, uint32_t ranks) {
  return {n * rank / ranks, n * (rank + 1) / ranks};
}

uint64_t SyncSteps(uint64_t n, uint32_t batch_size, uint32_t ranks) {
  uint64_t steps = 0;
  for (uint32_t r = 0; r < ranks; ++r) {
    const uint64_t batch = EvenPart(batch_size, r, ranks).size();
    steps = std::max(steps, (EvenPart(n, r, ranks).size() + batch - 1) / batch);
  }
  return steps;
}

uint64_t SyncStepSamples(uint64_t n, uint32_t batch_size, uint32_t ranks, uint64_t i) {
  uint64_t samples = 0;
  for (uint32_t r = 0; r < ranks; ++r) {
    const uint64_t batch = EvenPart(batch_size, r, ranks).size();
    const uint64_t part = EvenPart(n, r, ranks).size();
    samples += std::min(part, (i + 1) * batch) - std::min(part, i * batch);
  }
  return samples;
}

}  // namespace tessera
