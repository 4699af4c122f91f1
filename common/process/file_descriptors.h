#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace tessera {

// The fewest descriptors with which a server can start: for its libraries, a listener, the first
// connections and files. gRPC ends the process if it gets none.
inline constexpr uint64_t kFewestFileDescriptors = 64;

// Raises this process's limit of open files to its maximum: packed data files and RocksDB keep
// theirs open. FAILED_PRECONDITION: the limit is still below `fewest`.
absl::Status CheckFileDescriptors(uint64_t fewest = kFewestFileDescriptors);

// Whether the process may open one more for a connection: those that are left are an eighth of its
// limit, or 1,024, which are kept for its own files, so that connections, which nobody has to
// identify themselves for, cannot use up all.
bool HasDescriptorForConnection();

}  // namespace tessera
