#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace tessera {

// What a server needs to come up at all: its libraries' own, a listener, the first connections and
// files. gRPC ends the process where it gets none.
inline constexpr uint64_t kFewestFileDescriptors = 64;

// Raises the limit of this process as far as it may: packed files of data and RocksDB's keep theirs
// open. FAILED_PRECONDITION: it may open fewer than `fewest` even so.
absl::Status CheckFileDescriptors(uint64_t fewest = kFewestFileDescriptors);

}  // namespace tessera
