#pragma once

#include <cstdint>

namespace tessera {

// Bytes of this process that are in memory now (its resident set); 0 where that cannot be read.
uint64_t ResidentBytes();
// The same of another process.
uint64_t ResidentBytes(int pid);

}  // namespace tessera
