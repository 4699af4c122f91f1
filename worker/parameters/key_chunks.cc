#include "worker/parameters/key_chunks.h"

#include <algorithm>

namespace tessera::worker {

std::vector<KeyChunk> ChunkKeys(absl::Span<const TableKeys> tables, size_t ps, uint64_t max_bytes) {
  uint64_t total = 0;
  for (const TableKeys& table : tables) {
    const RoutedKeys& keys = *table.keys;
    total += (keys.begin[ps + 1] - keys.begin[ps]) * table.bytes_per_key;
  }
  const uint64_t count = std::max<uint64_t>(1, (total + max_bytes - 1) / max_bytes);
  const uint64_t target = (total + count - 1) / count;
  std::vector<KeyChunk> chunks(1);
  uint64_t room = target;
  for (size_t t = 0; t < tables.size(); ++t) {
    const uint64_t per_key = tables[t].bytes_per_key;
    size_t first = tables[t].keys->begin[ps];
    const size_t end = tables[t].keys->begin[ps + 1];
    while (first < end) {
      if (room < per_key && room < target) {
        chunks.emplace_back();
        room = target;
      }
      const size_t n = std::min<size_t>(end - first, std::max<uint64_t>(1, room / per_key));
      chunks.back().push_back({.table = t, .first = first, .count = n});
      first += n;
      room -= std::min(room, n * per_key);
    }
  }
  return chunks;
}

}  // namespace tessera::worker
