#pragma once

#include <cstdint>

namespace tessera {

// Keeps the freed memory that malloc holds, megabytes per thread, in proportion to `budget`, the
// memory of the process in bytes. Call before any thread starts.
void KeepFreedMemoryWithin(uint64_t budget);

}  // namespace tessera
