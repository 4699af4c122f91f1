#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/parameters/key_router.h"

namespace tessera::worker {

// How the keys of a call to one ps are cut into messages: each message gets a KeyChunk.

// Keys [first, first + count) of a table's RoutedKeys.
struct KeyRange {
  size_t table = 0;  // index in the call, not the table's number in the job
  size_t first = 0;
  size_t count = 0;
};
using KeyChunk = std::vector<KeyRange>;

// The keys of one table in a call.
struct TableKeys {
  const RoutedKeys* keys = nullptr;
  uint64_t bytes_per_key = 0;  // on the wire, both ways together
};

// The keys of ps `ps`, in order, in chunks of about equal size. A chunk has at most max_bytes, or
// one key. There is at least one chunk, which is empty if there are no keys.
std::vector<KeyChunk> ChunkKeys(absl::Span<const TableKeys> tables, size_t ps, uint64_t max_bytes);

}  // namespace tessera::worker
