#include "worker/record_order.h"

#include <numeric>
#include <utility>

#include "common/random.h"
#include "worker/sample_groups.h"

namespace tessera::worker {

std::vector<uint32_t> RecordOrder(uint64_t key, const Batch& records, int32_t group_column,
                                  uint32_t longest) {
  if (group_column < 0) return RandomPermutation(key, records.size);
  std::vector<uint32_t> rows(records.size);
  std::iota(rows.begin(), rows.end(), 0u);
  std::vector<uint32_t> begins;  // of runs
  for (uint32_t begin = 0, end = 0; begin < records.size; begin = end) {
    end = EndOfRun(records, group_column, begin);
    // Draw numbers begin after those for the order of runs. A run is shuffled before it is cut,
    // since its rows may be sorted.
    for (uint32_t i = end; i > begin + 1; --i) {
      const uint64_t with = RandomBelow(key, uint64_t{records.size} + i, i - begin);
      std::swap(rows[i - 1], rows[begin + with]);
    }
    for (uint64_t at = begin; at < end; at += longest) {
      begins.push_back(static_cast<uint32_t>(at));
    }
  }
  std::vector<uint32_t> order;
  order.reserve(rows.size());
  const std::vector<uint32_t> runs = RandomPermutation(key, static_cast<uint32_t>(begins.size()));
  begins.push_back(records.size);
  for (const uint32_t run : runs) {
    order.insert(order.end(), rows.begin() + begins[run], rows.begin() + begins[run + 1]);
  }
  return order;
}

}  // namespace tessera::worker
